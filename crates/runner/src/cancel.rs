//! Listens for the cancellation of the run.

use knoll_api::wire::path;

use crate::hub::Hub;
use crate::stop::{Reason, Stop};

/// Long-polls the hub until the run is cancelled. The hub responds from time to time without a decision, so that a dead
/// connection is replaced.
pub async fn listen(hub: Hub, stop: Stop) {
    loop {
        match hub.get("the cancellation", path::CANCEL).await {
            Ok(Some(_)) => {
                stop.request_once(Reason::Cancelled);
                return;
            }
            Ok(None) => {}
            Err(error) => {
                // Progress reports also return a cancellation.
                tracing::warn!(%error, "cannot listen for a cancellation");
                return;
            }
        }
    }
}
