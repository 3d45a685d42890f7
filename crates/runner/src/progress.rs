//! Reports the progress of a run to the hub.
//!
//! Each report is complete, so reports can be repeated and skipped. One report is in flight at a time, and changes in
//! the meantime go into the next one. Between two reports there is a pause, which is longer when the hub responds
//! slowly, so that short steps share a report. The end of the run and an attached client are reported without a pause.
//! Steps do not wait for reports; only the last report, which ends the run, is awaited.

use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::Digest;
use knoll_api::run::PlanSummary;
use knoll_api::step::{StepName, StepState, StepStatus};
use knoll_api::wire::{Exit, Progress, ProgressReply, path};
use reqwest::Method;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::hub::{self, Hub};
use crate::stop::{Reason, Stop};

/// The minimum pause between two reports.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The pause is this multiple of the last response time, because a slow response means a busy cluster.
const PAUSE_FACTOR: u32 = 20;

/// Collects the progress of a run. Changes are sent when they are announced, so that simultaneous changes share a
/// report.
pub struct Reporter {
    picture: watch::Sender<Progress>,
    /// Ends with the report that contains the exit.
    sender: Mutex<JoinHandle<Result<(), hub::HubError>>>,
}

impl Reporter {
    /// Starts with the steps that earlier pods of the run reported.
    pub fn start(earlier: Vec<StepStatus>, hub: Hub, stop: Stop) -> Self {
        let (picture, changes) = watch::channel(Progress { steps: earlier, ..Progress::default() });
        let sender = Mutex::new(tokio::spawn(send_changes(changes, hub, stop)));
        Reporter { picture, sender }
    }

    /// Sends the current progress.
    pub fn announce(&self) {
        self.picture.send_modify(|now| now.sequence += 1);
    }

    pub fn started(&self, name: StepName, log_offset: u64) {
        self.note(|now| {
            now.steps.retain(|step| step.name != name);
            now.steps.push(StepStatus::started(name, now_micros(), log_offset));
        });
    }

    /// Counts another attempt of the running step, and announces it.
    pub fn tried_again(&self, name: StepName, exit_code: Option<i32>, message: String) {
        self.step(name, |step| {
            step.attempts += 1;
            step.exit_code = exit_code;
            step.message = Some(message);
        });
        self.announce();
    }

    pub fn ended(&self, name: StepName, state: StepState, exit_code: Option<i32>, message: Option<String>) {
        self.note(|now| now.prompted_at = None);
        self.step(name, |step| {
            step.state = state;
            step.finished_at = state.is_finished().then(now_micros);
            step.exit_code = exit_code;
            step.message = message;
        });
    }

    pub fn planned(&self, plan: PlanSummary) {
        self.note(|now| now.plan = Some(plan));
    }

    /// Records the digest of the module's bundle.
    pub fn bundled(&self, digest: Digest) {
        self.note(|now| now.bundle = Some(digest));
    }

    /// Records the variables that the module does not declare.
    pub fn undeclared(&self, names: Vec<String>) {
        self.note(|now| now.undeclared_variables = names);
    }

    /// Records that a client has attached, and announces it.
    pub fn attached(&self) {
        self.note(|now| now.attached = true);
        self.announce();
    }

    /// Records whether terraform waits for an answer in a terminal, and announces it.
    pub fn waits_for_answer(&self, waits: bool) {
        self.note(|now| now.prompted_at = waits.then(now_micros));
        self.announce();
    }

    /// Sends the last report, and returns once the hub has it.
    ///
    /// # Errors
    /// If the hub refuses it.
    pub async fn finish(&self, exit: Exit) -> Result<(), hub::HubError> {
        self.note(|now| now.exit = Some(exit));
        self.announce();
        let mut sender = self.sender.lock().await;
        // The task does not panic. If it did, no one would be left to send the report.
        (&mut *sender).await.unwrap_or(Ok(()))
    }

    fn step(&self, name: StepName, change: impl FnOnce(&mut StepStatus)) {
        self.note(|now| {
            if let Some(step) = now.steps.iter_mut().find(|step| step.name == name) {
                change(step);
            }
        });
    }

    fn note(&self, change: impl FnOnce(&mut Progress)) {
        self.picture.send_if_modified(|now| {
            change(now);
            false
        });
    }
}

/// The current time with the microsecond precision of Kubernetes.
fn now_micros() -> MicroTime {
    let now = jiff::Timestamp::now();
    MicroTime(jiff::Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now))
}

async fn send_changes(mut changes: watch::Receiver<Progress>, hub: Hub, stop: Stop) -> Result<(), hub::HubError> {
    let mut attached = false;
    let mut earliest = Instant::now();
    while changes.changed().await.is_ok() {
        let urgent = |now: &Progress| now.exit.is_some() || now.attached != attached;
        let _ = tokio::time::timeout_at(earliest, changes.wait_for(urgent)).await;
        let picture = changes.borrow_and_update().clone();
        attached = picture.attached;
        let begun = Instant::now();
        let answer = send(&hub, &picture).await;
        earliest = Instant::now() + pause(begun.elapsed());
        match answer {
            Ok(_) if picture.exit.is_some() => break,
            Ok(ProgressReply { cancel: true }) => stop.request_once(Reason::Cancelled),
            Ok(ProgressReply { cancel: false }) => {}
            Err(error) => {
                stop.request_once(Reason::Fenced(error.to_string()));
                return Err(error);
            }
        }
    }
    Ok(())
}

/// The pause after a report with this response time.
fn pause(answered_in: Duration) -> Duration {
    answered_in.saturating_mul(PAUSE_FACTOR).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

async fn send(hub: &Hub, picture: &Progress) -> Result<ProgressReply, hub::HubError> {
    const WHAT: &str = "the progress";
    let content = serde_json::to_vec(picture).map_err(|source| hub::HubError::Answer { what: WHAT, source })?;
    let answer = hub.send(WHAT, Method::PUT, path::PROGRESS, Bytes::from(content)).await?;
    serde_json::from_slice(&answer).map_err(|source| hub::HubError::Answer { what: WHAT, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_cluster_hears_less_often_but_never_long_nothing() {
        for (answered_in, expect) in [(0, 500), (20, 500), (60, 1200), (3_000, 5_000), (u64::MAX, 5_000)] {
            assert_eq!(pause(Duration::from_millis(answered_in)), Duration::from_millis(expect), "{answered_in} ms");
        }
    }
}
