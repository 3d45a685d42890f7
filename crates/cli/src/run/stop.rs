//! Stopping a run: gently first, hard when that is asked for, and leaving it alone.

use anyhow::Result;
use knoll_api::Run;
use knoll_api::names::{annotation, cancel};
use kube::api::{Patch, PatchParams};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::connect::Explain;
use crate::workspace::Place;

/// Asks for the run to be stopped.
pub async fn cancel(place: &Place, run: &str, hard: bool) -> Result<()> {
    let value = if hard { cancel::NOW } else { cancel::GENTLY };
    let patch = serde_json::json!({"metadata": {"annotations": {annotation::CANCEL: value}}});
    let patched = place.api::<Run>().patch(run, &PatchParams::default(), &Patch::Merge(&patch)).await;
    patched.explain(&place.cluster, &format!("cannot cancel the run `{run}`"))?;
    Ok(())
}

/// What the user wants of a run that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Ctrl-C: stop it.
    Stop,
    /// The terminal is closed, or somebody ends this process: leave it alone.
    Leave(i32),
}

/// The signals that tell.
pub struct Signals {
    interrupt: Signal,
    hangup: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from now on.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next wish.
    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.hangup.recv() => Wish::Leave(1),
            _ = self.terminate.recv() => Wish::Leave(15),
        }
    }
}

/// How often Ctrl-C was pressed, and what that means.
#[derive(Debug, Default)]
pub struct Presses(u8);

impl Presses {
    /// One more: cancels gently, then hard, then leaves. Returns what to say, and whether to leave.
    pub async fn another(&mut self, place: &Place, run: &str) -> (String, bool) {
        self.0 = self.0.saturating_add(1);
        let hard = match self.0 {
            1 => false,
            2 => true,
            _ => return (format!("left the run `{run}` alone; `knoll attach {run}` comes back to it"), true),
        };
        let said = match (cancel(place, run, hard).await, hard) {
            (Err(error), _) => format!("{error:#}"),
            (Ok(()), false) => {
                "cancelling: terraform finishes what is under way; Ctrl-C again stops it hard".to_owned()
            }
            (Ok(()), true) => "stopping hard; Ctrl-C once more leaves the run alone".to_owned(),
        };
        (said, false)
    }
}
