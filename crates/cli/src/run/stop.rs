//! Cancels a run: gracefully first, then by force. A third Ctrl-C detaches from the run, and so does the second where the
//! cluster could not be reached at the first.

use std::time::Duration;

use anyhow::Result;
use knoll_api::Run;
use knoll_core::run::cancellation;
use kube::api::{Patch, PatchParams};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::connect::Explain;
use crate::workspace::Session;

/// How long Ctrl-C waits for the answer of the cluster.
const CANCEL: Duration = Duration::from_secs(5);

/// Requests the cancellation of a run in the name of this user.
pub async fn cancel(session: &Session, run: &str, hard: bool) -> Result<()> {
    let patch = cancellation::patch(session.cluster.user().await?, hard);
    let patched = session.api::<Run>().patch(run, &PatchParams::default(), &Patch::Merge(&patch)).await;
    patched.explain(&session.cluster, &format!("cannot cancel run `{run}`"))?;
    Ok(())
}

/// A request of the user during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Ctrl-C: cancel the run.
    Stop,
    /// The terminal was closed, or this process was terminated: leave the run alone.
    Leave(i32),
}

pub struct Signals {
    interrupt: Signal,
    hangup: Signal,
    terminate: Signal,
}

impl Signals {
    pub fn listen() -> std::io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.interrupt.recv() => Request::Stop,
            _ = self.hangup.recv() => Request::Leave(1),
            _ = self.terminate.recv() => Request::Leave(15),
        }
    }
}

/// Counts how often Ctrl-C was pressed.
#[derive(Debug, Default)]
pub struct Presses(u8);

impl Presses {
    /// Handles one more Ctrl-C: cancels gracefully, then by force, then leaves. Returns a message, and whether to
    /// leave.
    pub async fn another(&mut self, session: &Session, run: &str) -> (String, bool) {
        self.0 = self.0.saturating_add(1);
        let hard = match self.0 {
            1 => false,
            2 => true,
            _ => return (format!("detached from run `{run}`; `knoll attach {run}` attaches to it again"), true),
        };
        let cancelled = tokio::time::timeout(CANCEL, cancel(session, run, hard)).await;
        let cancelled = cancelled.unwrap_or_else(|_| Err(anyhow::anyhow!("cannot cancel run `{run}`: no answer")));
        let message = match (cancelled, hard) {
            (Err(error), _) => {
                // A cluster that cannot be reached keeps nobody.
                self.0 = self.0.max(2);
                format!("{error:#}\npress Ctrl-C once more to detach")
            }
            (Ok(()), false) => {
                "cancelling: terraform, if it runs, finishes the operation in progress; press Ctrl-C again to kill it"
                    .to_owned()
            }
            (Ok(()), true) => "killing terraform; press Ctrl-C once more to detach".to_owned(),
        };
        (message, false)
    }
}
