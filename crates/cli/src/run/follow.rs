//! Follows a run until it has finished.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use knoll_api::Run;
use knoll_api::run::RunPhase;
use knoll_api::workspace::Workspace;
use knoll_core::run::answer;
use kube::ResourceExt;
use kube::api::ListParams;

use super::attach::{self, Keyboard};
use super::line::Line;
use super::logs::{self, End, Stage};
use super::printer::Printer;
use super::stop::{Presses, Request, Signals};
use super::watch::{Observed, Watched};
use super::{ending, keys, spec, waiting};
use crate::style;
use crate::workspace::Session;

/// How often the reason for waiting is refreshed.
const REFRESH_INTERVAL: Duration = Duration::from_millis(700);

/// How a command stopped following a run.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The run has finished.
    Ended(Box<Run>),
    /// The user left the run, with this signal.
    Left(i32),
}

impl Outcome {
    pub fn succeeded(&self) -> bool {
        matches!(self, Outcome::Ended(run) if run.status.as_ref().is_some_and(|status| status.phase == RunPhase::Succeeded))
    }
}

/// Prints the run's output until it has finished.
pub async fn follow(session: &Session, run: Run) -> Result<Outcome> {
    let name = run.name_any();
    let attached = run.spec.attach && keys::is_attended();
    let interactive = spec::is_interactive(&run.spec);
    let earlier = run.status.as_ref().and_then(|status| status.pod_name.clone());
    let mut printer = Printer::new(answer::answers(&run.spec));
    let mut watched = Watched::start(session.api(), run);
    let mut signals = Signals::listen()?;
    let mut presses = Presses::default();
    let mut line = Line::new();
    let mut keyboard = None;
    let mut shown: Option<String> = None;
    loop {
        let Observed::Run(run) = watched.now() else {
            line.clear();
            bail!("run `{name}` was deleted before it had finished");
        };
        let status = run.status.clone().unwrap_or_default();
        let fresh = status.pod_name.clone().filter(|pod| shown.as_ref() != Some(pod));
        // A short run may start and finish between two watch events. Its output is in its pod's log.
        let begun = status.phase == RunPhase::Running || status.phase == RunPhase::Review || status.phase.is_finished();
        if let (Some(pod), true) = (fresh, begun) {
            line.clear();
            shown = Some(pod.clone());
            let mut stage = Stage {
                session,
                run: &name,
                late: earlier.as_ref() == Some(&pod),
                pod,
                printed: 0,
                watched: &mut watched,
                signals: &mut signals,
                presses: &mut presses,
                printer: &mut printer,
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
            printer.finish(session, &name).await?;
            return Ok(Outcome::Ended(Box::new(Run::clone(&run))));
        }
        line.say(&reason(session, &run).await);
        tokio::select! {
            () = watched.changed() => {}
            () = tokio::time::sleep(REFRESH_INTERVAL) => {}
            request = signals.next() => match request {
                Request::Leave(signal) => {
                    line.clear();
                    return Ok(Outcome::Left(signal));
                }
                Request::Stop => {
                    let (text, leave) = presses.another(session, &name).await;
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

/// The exit code of this command.
pub fn exit(outcome: &Outcome, name: &str) -> ExitCode {
    match outcome {
        Outcome::Left(signal) => {
            style::note(&format!("the run continues; `knoll attach {name}` attaches to it again"));
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

/// Converts an exit code. Values that no process can return become a failure.
pub fn code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// What the run is waiting for, as far as the user may read it.
async fn reason(session: &Session, run: &Run) -> String {
    let status = run.status.clone().unwrap_or_default();
    let (mut workspace, mut holder, mut pod, mut events) = (None, None, None, Vec::new());
    match (status.phase, &status.pod_name) {
        (RunPhase::Queued, _) => {
            workspace = session.api::<Workspace>().get_opt(&run.spec.workspace).await.ok().flatten();
            let active = workspace.as_ref().and_then(|workspace: &Workspace| workspace.status.as_ref()?.active.clone());
            if let Some(active) = active {
                holder = session.api::<Run>().get_opt(&active).await.ok().flatten();
            }
        }
        (RunPhase::Starting, Some(name)) => {
            let of_pod = ListParams::default().fields(&format!("involvedObject.name={name}"));
            let (pods, event_api) = (session.api::<Pod>(), session.api::<Event>());
            let (found, list) = tokio::join!(pods.get_opt(name), event_api.list(&of_pod));
            pod = found.ok().flatten();
            events = list.map(|list| list.items).unwrap_or_default();
        }
        _ => {}
    }
    waiting::why(run, workspace.as_ref(), holder.as_ref(), pod.as_ref(), &events, Timestamp::now())
}
