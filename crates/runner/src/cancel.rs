//! Hears from the hub that the run is cancelled.

use knoll_api::wire::path;

use crate::hub::Hub;
use crate::stop::{Reason, Stop};

/// Waits at the hub until the run is cancelled. The hub answers without a decision from time to time, so that a
/// connection that died unnoticed is replaced.
pub async fn listen(hub: Hub, stop: Stop) {
    loop {
        match hub.get("the cancellation", path::CANCEL).await {
            Ok(Some(_)) => {
                stop.request_once(Reason::Cancelled);
                return;
            }
            Ok(None) => {}
            Err(error) => {
                // Reports also bring the news of a cancellation.
                tracing::warn!(%error, "the hub does not tell of a cancellation");
                return;
            }
        }
    }
}
