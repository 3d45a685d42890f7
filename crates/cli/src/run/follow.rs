//! Stays with a run until its end.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use knoll_api::Run;
use knoll_api::run::RunPhase;
use knoll_api::workspace::Workspace;
use kube::ResourceExt;
use kube::api::ListParams;

use super::attach::{self, Keyboard};
use super::line::Line;
use super::logs::{self, End, Stage};
use super::stop::{Presses, Signals, Wish};
use super::watch::{Seen, Watched};
use super::{ending, keys, spec, waiting};
use crate::style;
use crate::workspace::Place;

/// How often what a run waits for is looked at.
const LOOK: Duration = Duration::from_millis(700);

/// How a run was left.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It has ended.
    Ended(Box<Run>),
    /// The user has left it, with this signal.
    Left(i32),
}

impl Outcome {
    /// Whether the run did what it was told.
    pub fn succeeded(&self) -> bool {
        matches!(self, Outcome::Ended(run) if run.status.as_ref().is_some_and(|status| status.phase == RunPhase::Succeeded))
    }
}

/// Prints what the run prints, until its end.
pub async fn follow(place: &Place, run: Run) -> Result<Outcome> {
    let name = run.name_any();
    let attached = run.spec.attach && keys::is_attended();
    let interactive = spec::is_interactive(&run.spec);
    let earlier = run.status.as_ref().and_then(|status| status.pod_name.clone());
    let mut watched = Watched::start(place.api(), run);
    let mut signals = Signals::listen()?;
    let mut presses = Presses::default();
    let mut line = Line::new();
    let mut keyboard = None;
    let mut shown: Option<String> = None;
    loop {
        let Seen::Run(run) = watched.now() else {
            line.clear();
            bail!("the run `{name}` was deleted before it had ended");
        };
        let status = run.status.clone().unwrap_or_default();
        let fresh = status.pod_name.clone().filter(|pod| shown.as_ref() != Some(pod));
        // A run may come and go between two looks: its output is in its pod all the same.
        let begun = status.phase == RunPhase::Running || status.phase == RunPhase::Review || status.phase.is_finished();
        if let (Some(pod), true) = (fresh, begun) {
            line.clear();
            shown = Some(pod.clone());
            let mut stage = Stage {
                place,
                run: &name,
                late: earlier.as_ref() == Some(&pod),
                pod,
                printed: 0,
                watched: &mut watched,
                signals: &mut signals,
                presses: &mut presses,
            };
            let end = if attached && status.phase == RunPhase::Running {
                let keyboard = keyboard.get_or_insert_with(|| Keyboard::new(interactive));
                attach::show(&mut stage, keyboard).await?
            } else {
                logs::show(&mut stage).await?
            };
            if let End::Left(signal) = end {
                return Ok(Outcome::Left(signal));
            }
            continue;
        }
        if status.phase.is_finished() {
            line.clear();
            return Ok(Outcome::Ended(Box::new(Run::clone(&run))));
        }
        line.say(&reason(place, &run).await);
        tokio::select! {
            () = watched.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
            wish = signals.next() => match wish {
                Wish::Leave(signal) => {
                    line.clear();
                    return Ok(Outcome::Left(signal));
                }
                Wish::Stop => {
                    let (text, leave) = presses.another(place, &name).await;
                    line.note(&text);
                    if leave {
                        line.clear();
                        return Ok(Outcome::Left(2));
                    }
                }
            },
        }
    }
}

/// The exit code of this command, for how the run was left.
pub fn exit(outcome: &Outcome, name: &str) -> ExitCode {
    match outcome {
        Outcome::Left(signal) => {
            style::note(&format!("the run goes on; `knoll attach {name}` comes back to it"));
            code(128 + signal)
        }
        Outcome::Ended(run) => {
            let ending = ending::of(run);
            if let Some(message) = ending.message {
                style::error(&anyhow::Error::msg(message));
            }
            code(ending.code)
        }
    }
}

/// An exit code; what no process can have is a failure.
pub fn code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// What the run waits for. Whoever may not look is told less.
async fn reason(place: &Place, run: &Run) -> String {
    let status = run.status.clone().unwrap_or_default();
    let (mut workspace, mut pod, mut events) = (None, None, Vec::new());
    match (status.phase, &status.pod_name) {
        (RunPhase::Queued, _) => workspace = place.api::<Workspace>().get_opt(&run.spec.workspace).await.ok().flatten(),
        (RunPhase::Starting, Some(name)) => {
            let of_pod = ListParams::default().fields(&format!("involvedObject.name={name}"));
            let (pods, event_api) = (place.api::<Pod>(), place.api::<Event>());
            let (found, list) = tokio::join!(pods.get_opt(name), event_api.list(&of_pod));
            pod = found.ok().flatten();
            events = list.map(|list| list.items).unwrap_or_default();
        }
        _ => {}
    }
    waiting::why(run, workspace.as_ref(), pod.as_ref(), &events, Timestamp::now())
}
