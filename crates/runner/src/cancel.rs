//! Listens for the cancellation of the run, and for the hub at all.
//!
//! *Guarantee.* Terraform is asked to stop when the hub says so, when it refuses the runner, and when it was not heard for
//! [`StopTimes::silence`].

use knoll_api::wire::{StopTimes, path};
use tokio::time::Instant;

use crate::hub::{Hub, HubError};
use crate::stop::{Reason, Stop};

/// The pause after a question that could not be asked.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Long-polls the hub until the run has to stop. The hub responds from time to time without a decision, so that a dead
/// connection is replaced, and a hub that is gone is noticed. Only these answers count: each is the Kubernetes API's own
/// word that the run is still this pod's.
pub async fn listen(hub: Hub, stop: Stop, times: StopTimes) {
    let mut heard = Instant::now();
    loop {
        let answer = tokio::select! {
            answer = hub.poll("the cancellation", path::CANCEL, times.answer) => answer,
            () = tokio::time::sleep_until(heard + times.silence) => {
                tracing::warn!(silence = ?times.silence, "the hub is not heard any more: terraform is stopped");
                stop.request_once(Reason::Silent(times.silence));
                return;
            }
        };
        match answer {
            Ok(Some(_)) => {
                stop.request_once(Reason::Cancelled);
                return;
            }
            Ok(None) => heard = Instant::now(),
            // The client has taken the refusal as a fence.
            Err(error @ HubError::Refused { .. }) => {
                tracing::warn!(%error, "the hub refuses this runner: terraform is stopped");
                stop.request_once(Reason::Fenced(error.to_string()));
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot ask the hub");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
