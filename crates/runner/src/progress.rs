//! Tells the hub how far the run is.
//!
//! Each report is the whole picture, so reports can be repeated and left out: one is under way at a time, and what changed
//! meanwhile goes into the next. Short steps share one: between two reports there is a pause, which no person notices and
//! which is longer where the cluster has much to do. The end of the run, or a client that has attached, does not wait for
//! it. The steps do not wait for reports; only the last one, which ends the run, is awaited.

use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::run::PlanSummary;
use knoll_api::step::{StepName, StepState, StepStatus};
use knoll_api::wire::{Exit, Progress, ProgressReply, path};
use reqwest::Method;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::hub::{self, Hub};
use crate::stop::{Reason, Stop};

/// How long after a report the next one comes at the earliest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How many times the wait for the last answer the pause is: who takes long to answer has much to do.
const PATIENCE: u32 = 20;

/// The picture of the run. What is changed in it is sent when it is announced, so that what changes at the same time is
/// one report.
pub struct Reporter {
    picture: watch::Sender<Progress>,
    /// Ends with the report that has an exit.
    sender: Mutex<JoinHandle<Result<(), hub::Error>>>,
}

impl Reporter {
    /// Starts from what earlier pods of the run reported.
    pub fn start(earlier: Vec<StepStatus>, hub: Hub, stop: Stop) -> Self {
        let (picture, changes) = watch::channel(Progress { steps: earlier, ..Progress::default() });
        let sender = Mutex::new(tokio::spawn(send_changes(changes, hub, stop)));
        Reporter { picture, sender }
    }

    /// Sends the picture as it is now.
    pub fn announce(&self) {
        self.picture.send_modify(|now| now.sequence += 1);
    }

    /// A step starts.
    pub fn started(&self, name: StepName, log_offset: u64) {
        self.note(|now| {
            now.steps.retain(|step| step.name != name);
            now.steps.push(StepStatus::started(name, now_micros(), log_offset));
        });
    }

    /// The step that runs is tried once more, because of `message`. Announced at once.
    pub fn tried_again(&self, name: StepName, exit_code: Option<i32>, message: String) {
        self.step(name, |step| {
            step.attempts += 1;
            step.exit_code = exit_code;
            step.message = Some(message);
        });
        self.announce();
    }

    /// A step ends.
    pub fn ended(&self, name: StepName, state: StepState, exit_code: Option<i32>, message: Option<String>) {
        self.step(name, |step| {
            step.state = state;
            step.finished_at = state.is_finished().then(now_micros);
            step.exit_code = exit_code;
            step.message = message;
        });
    }

    /// What the plan would do is known.
    pub fn planned(&self, plan: PlanSummary) {
        self.note(|now| now.plan = Some(plan));
    }

    /// The files of the module are there.
    pub fn bundled(&self, digest: String) {
        self.note(|now| now.bundle = Some(digest));
    }

    /// A client has attached. Announced at once.
    pub fn attached(&self) {
        self.note(|now| now.attached = true);
        self.announce();
    }

    /// Sends the last report; returns when the hub has it.
    ///
    /// # Errors
    /// When the hub refuses it.
    pub async fn finish(&self, exit: Exit) -> Result<(), hub::Error> {
        self.note(|now| now.exit = Some(exit));
        self.announce();
        let mut sender = self.sender.lock().await;
        // The task does not panic; if it did, its report is as good as sent: nobody is left to send it.
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

/// Kubernetes keeps microseconds.
fn now_micros() -> MicroTime {
    let now = jiff::Timestamp::now();
    MicroTime(jiff::Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now))
}

async fn send_changes(mut changes: watch::Receiver<Progress>, hub: Hub, stop: Stop) -> Result<(), hub::Error> {
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

/// How long to wait after a report that was answered in this time.
fn pause(answered_in: Duration) -> Duration {
    answered_in.saturating_mul(PATIENCE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

async fn send(hub: &Hub, picture: &Progress) -> Result<ProgressReply, hub::Error> {
    const WHAT: &str = "the progress";
    let content = serde_json::to_vec(picture).map_err(|source| hub::Error::Answer { what: WHAT, source })?;
    let answer = hub.send(WHAT, Method::PUT, path::PROGRESS, Bytes::from(content)).await?;
    serde_json::from_slice(&answer).map_err(|source| hub::Error::Answer { what: WHAT, source })
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
