//! The journals of Atoms, in Secrets that their Atoms own.

use knoll_api::Atom;
use knoll_core::{
    atom::{ActionError, journal::Journal},
    identity::Subject,
};

use crate::{context::Context, controller::Error};

/// Stores a journal, and returns the name of its Secret.
pub(super) async fn write(context: &Context, atom: &Subject<Atom>, journal: &Journal) -> Result<String, ActionError> {
    let attempt = atom.status.as_ref().map(|status| status.attempts).unwrap_or_default();
    let stored = context.storage.journals().put(atom, attempt, journal).await;
    stored.map_err(|error| ActionError::Retry(format!("The journal cannot be stored: {error}.")))
}

/// The journal that the status names.
pub(super) async fn current(context: &Context, atom: &Subject<Atom>) -> Result<Journal, ActionError> {
    let journal = atom.status.as_ref().and_then(|status| status.journal.as_ref());
    let secret = journal.map(|journal| journal.secret_name.as_str()).unwrap_or_default();
    find(context, atom, secret).await?.ok_or_else(|| unreadable(secret, "it does not exist"))
}

/// A journal; none when its Secret does not exist. A journal that cannot be read whole is an error.
pub(super) async fn find(
    context: &Context,
    atom: &Subject<Atom>,
    secret: &str,
) -> Result<Option<Journal>, ActionError> {
    context.storage.journals().get(atom, secret).await.map_err(|error| unreadable(secret, &error.to_string()))
}

fn unreadable(secret: &str, why: &str) -> ActionError {
    ActionError::Retry(format!("The journal in the Secret `{secret}` cannot be read: {why}."))
}

/// Deletes all journals of an Atom.
pub(super) async fn delete_all(context: &Context, atom: &Subject<Atom>) -> Result<(), Error> {
    context.storage.journals().delete_all(atom).await.map_err(Error::api("cannot delete the journals of an Atom"))
}
