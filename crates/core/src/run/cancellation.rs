//! The patch with which a user cancels a Run: the same from the command line and from the page. Pure.

use knoll_api::names::{annotation, cancel};
use serde_json::{Value, json};

/// Asks for the cancellation in the name of this user. `hard` kills terraform instead of letting it finish the
/// operation in progress.
#[must_use]
pub fn patch(by: &str, hard: bool) -> Value {
    let value = if hard { cancel::NOW } else { cancel::GENTLY };
    json!({"metadata": {"annotations": {annotation::CANCEL: value, annotation::CANCELLED_BY: by}}})
}
