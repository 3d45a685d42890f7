//! Waits for the end of an update, and shows a live tree of its objects.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::TryStreamExt;
use knoll_api::atom::{Atom, AtomPhase};
use knoll_api::names::annotation;
use kube::ResourceExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;

use super::status;
use crate::output::{self, visible};
use crate::run::stop::{Request, Signals};
use crate::style;
use crate::workspace::Session;

/// The exit codes, for the help texts.
pub const CODES: &str = "Exit codes: 0 if the version is running, 1 if it was rolled back, 2 if the rollback failed.";

#[derive(clap::Args)]
pub struct WaitArgs {
    /// Wait until the version is running or rolled back, and show its objects meanwhile
    #[arg(long, env = "KNOLL_WAIT")]
    pub wait: bool,
    /// The maximum time to wait
    #[arg(long, env = "KNOLL_TIMEOUT", value_parser = crate::install::duration, value_name = "DURATION")]
    pub timeout: Option<Duration>,
}

/// The exit code of a phase, or none while an update is in progress.
pub fn code(phase: AtomPhase) -> Option<ExitCode> {
    match phase {
        AtomPhase::Running => Some(ExitCode::SUCCESS),
        AtomPhase::Reverted => Some(ExitCode::from(1)),
        AtomPhase::Failure => Some(ExitCode::from(2)),
        _ => None,
    }
}

/// Waits until the update to the requested version has ended.
pub async fn until_rest(session: &Session, asked: &Atom, timeout: Option<Duration>) -> Result<ExitCode> {
    let name = asked.name_any();
    let mut signals = Signals::listen()?;
    let mut tree = Tree::default();
    let work = async {
        let events = watcher::watch_object(session.api::<Atom>(), &name).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(atom) = events.try_next().await.transpose() {
            match atom {
                Ok(Some(atom)) => {
                    if is_requested(asked, &atom) {
                        tree.draw(&atom)?;
                    }
                    if let Some(code) = rests(asked, &atom) {
                        return Ok(code);
                    }
                }
                Ok(None) => bail!("atom `{name}` was deleted"),
                Err(error) => tracing::debug!(%error, "watch interrupted"),
            }
        }
        bail!("the watch of atom `{name}` has ended")
    };
    let limit = async {
        match timeout {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        end = work => end,
        () = limit => bail!("timed out waiting for atom `{name}`\n  `knoll atom status {name}` shows its progress, `knoll atom cancel {name}` rolls it back"),
        request = signals.next() => {
            style::hint_aside(&format!("The update continues; `knoll atom cancel {name}` rolls it back."));
            Ok(match request {
                Request::Stop => crate::run::follow::code(130),
                Request::Leave(signal) => crate::run::follow::code(128 + signal),
            })
        }
    }
}

/// Whether the status is about the requested generation and attempt, and not about the update before.
fn is_requested(asked: &Atom, atom: &Atom) -> bool {
    let Some(status) = &atom.status else { return false };
    let seen = status.observed_generation >= asked.metadata.generation;
    // An annotation does not increment the generation. A request by annotation begins another attempt.
    let again = asked.annotations().contains_key(annotation::RECONCILE)
        && asked.status.as_ref().is_some_and(|before| before.attempts == status.attempts && before.failure.is_some());
    seen && !again
}

/// The exit code, once no update is in progress for the requested generation and attempt.
fn rests(asked: &Atom, atom: &Atom) -> Option<ExitCode> {
    let status = atom.status.as_ref().filter(|_| is_requested(asked, atom))?;
    code(status.phase).filter(|_| is_of_target(atom))
}

/// Whether the status has the objects of the version that the spec names.
fn is_of_target(atom: &Atom) -> bool {
    let status = atom.status.as_ref();
    status.is_some_and(|status| status.target_version.as_ref() == Some(&atom.spec.version))
}

/// The tree on the screen.
#[derive(Default)]
struct Tree {
    lines: usize,
    phase: Option<AtomPhase>,
    /// The lines of objects and the reasons of failures.
    printed: Vec<String>,
}

impl Tree {
    fn draw(&mut self, atom: &Atom) -> Result<()> {
        if !io::stdout().is_terminal() {
            return self.log(atom);
        }
        let (_, rows) = crate::run::screen_size();
        let text = status::tree(atom, usize::from(rows).saturating_sub(3).max(5));
        let mut out = io::stdout().lock();
        if self.lines > 0 {
            let _ = write!(out, "\x1b[{}A", self.lines);
        }
        for line in text.lines() {
            let _ = write!(out, "\x1b[2K{line}\r\n");
        }
        let _ = write!(out, "\x1b[J");
        let _ = out.flush();
        self.lines = text.lines().count();
        Ok(())
    }

    /// Without a terminal, each change is printed as a line.
    fn log(&mut self, atom: &Atom) -> Result<()> {
        for line in self.changes(atom) {
            output::print(&visible(&line))?;
        }
        Ok(())
    }

    /// The lines of what has changed. The reason of a failure is a part of the messages of several phases, and is said once.
    fn changes(&mut self, atom: &Atom) -> Vec<String> {
        let now = atom.status.clone().unwrap_or_default();
        let mut lines = Vec::new();
        if self.phase != Some(now.phase) {
            self.phase = Some(now.phase);
            let mut message = status::message(atom);
            let reason = now.failure.map(|failure| failure.message).filter(|reason| message.contains(reason.as_str()));
            if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
                if self.printed.contains(&reason) {
                    message = message.replace(&reason, "");
                } else {
                    self.printed.push(reason);
                }
            }
            lines.push(format!("{}  {}", now.phase.as_str(), message.trim()).trim_end().to_owned() + "\n");
        }
        for object in now.objects.iter().filter(|_| is_of_target(atom)) {
            let state = match (object.ready, &object.message) {
                (true, _) => "ready".to_owned(),
                (false, Some(message)) => message.clone(),
                (false, None) => continue,
            };
            let line = format!("  {}: {state}\n", object.object);
            if !self.printed.contains(&line) {
                lines.push(line.clone());
                self.printed.push(line);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use knoll_api::atom::{AtomFailure, AtomSpec, AtomStatus};
    use knoll_api::names::condition;
    use knoll_core::conditions;

    use super::*;

    fn atom(version: &str, generation: i64, status: AtomStatus) -> Atom {
        let mut atom = Atom::new("web", AtomSpec { version: version.to_owned(), ..AtomSpec::default() });
        atom.metadata.generation = Some(generation);
        atom.status = Some(status);
        atom
    }

    fn status(observed: i64, phase: AtomPhase, target: &str, attempts: u32) -> AtomStatus {
        let (observed_generation, target_version) = (Some(observed), Some(target.to_owned()));
        let failure = (phase == AtomPhase::Reverted).then(AtomFailure::default);
        AtomStatus { observed_generation, phase, target_version, attempts, failure, ..AtomStatus::default() }
    }

    #[test]
    fn the_update_before_the_requested_one_is_neither_shown_nor_waited_for() {
        use AtomPhase::{Pending, Reverted, Running};
        let before = status(1, Running, "v1", 1);
        let asked = atom("v2", 2, before.clone());
        // The status, whether it is shown, and with its objects, and whether the wait is over.
        let rows = [
            (before, false, false, false),
            (status(2, Pending, "v1", 1), true, false, false),
            (status(2, AtomPhase::Updating, "v2", 2), true, true, false),
            (status(2, Running, "v2", 2), true, true, true),
            (status(2, Reverted, "v2", 2), true, true, true),
        ];
        for (status, shown, with_objects, over) in rows {
            let now = atom("v2", 2, status);
            assert_eq!(is_requested(&asked, &now), shown, "{now:?}");
            assert_eq!(is_of_target(&now), with_objects, "{now:?}");
            assert_eq!(rests(&asked, &now).is_some(), over, "{now:?}");
        }

        // The same version again, by the annotation.
        let before = status(1, Reverted, "v2", 1);
        let mut asked = atom("v2", 1, before.clone());
        asked.metadata.annotations = Some([(annotation::RECONCILE.to_owned(), "now".to_owned())].into());
        assert!(!is_requested(&asked, &atom("v2", 1, before)));
        assert!(is_requested(&asked, &atom("v2", 1, status(1, Reverted, "v2", 2))));
    }

    #[test]
    fn a_refusal_was_printed_with_every_phase() {
        let mut tree = Tree::default();
        let refusal = "`ConfigMap a`: configmaps is forbidden.";
        let mut said = |phase: AtomPhase, message: &str| {
            let mut status = status(1, phase, "v1", 1);
            status.failure = Some(AtomFailure { message: refusal.to_owned(), ..AtomFailure::default() });
            conditions::ConditionWriter::new(&mut status.conditions, None, jiff::Timestamp::UNIX_EPOCH).set(
                condition::READY,
                false,
                "Test",
                message,
            );
            tree.changes(&atom("v1", 1, status)).concat()
        };
        assert_eq!(said(AtomPhase::Error, refusal), format!("Error  {refusal}\n"));
        let to = "Rolling back to version `v0`.";
        assert_eq!(said(AtomPhase::Rollback, &format!("{to} {refusal}")), format!("Rollback  {to}\n"));
        let end = "Version `v1` was rolled back to version `v0`.";
        assert_eq!(said(AtomPhase::Reverted, &format!("{end} {refusal}")), format!("Reverted  {end}\n"));
        assert_eq!(said(AtomPhase::Reverted, &format!("{end} {refusal}")), "");
    }
}
