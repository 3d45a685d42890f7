//! Which runs the table shows, in which order, and what keys do to it. Pure.

use std::ops::Range;

use knoll_api::Run;
use knoll_api::run::{RunPhase, StepState};
use kube::ResourceExt;

use super::key::Key;
use crate::runs::list;

/// The namespace and the name of a run.
pub type RunKey = (Option<String>, String);

/// What the user has chosen to see.
#[derive(Debug, Default)]
pub struct View {
    /// Only runs with this text are shown.
    pub filter: String,
    /// Whether letters are typed into the filter.
    pub is_typing: bool,
    selected: Option<RunKey>,
    /// Whether the details of the selected run are shown instead of the tables.
    is_open: bool,
}

impl View {
    /// Applies a key. `runs` are those of the table. Returns whether the user leaves.
    pub fn press(&mut self, key: Key, runs: &[Run]) -> bool {
        match key {
            Key::Interrupt => return true,
            Key::Escape if self.is_open => self.is_open = false,
            Key::Escape => {
                self.filter.clear();
                self.is_typing = false;
            }
            Key::Enter if self.is_typing => self.is_typing = false,
            Key::Backspace if self.is_typing => drop(self.filter.pop()),
            Key::Letter(letter) if self.is_typing => self.filter.push(letter),
            Key::Letter('q') => return true,
            Key::Letter('/') => (self.is_typing, self.is_open) = (true, false),
            Key::Up | Key::Letter('k') => self.step(runs, -1),
            Key::Down | Key::Letter('j') => self.step(runs, 1),
            Key::Enter => {
                if self.index(runs).is_none() {
                    self.step(runs, 1);
                }
                self.is_open = !self.is_open && self.index(runs).is_some();
            }
            Key::Backspace | Key::Letter(_) => {}
        }
        false
    }

    /// The position of the selected run.
    pub fn index(&self, runs: &[Run]) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        runs.iter().position(|run| (run.namespace().as_ref(), &run.name_any()) == (selected.0.as_ref(), &selected.1))
    }

    /// The run whose details are shown.
    pub fn opened<'a>(&self, runs: &'a [Run]) -> Option<&'a Run> {
        runs.get(self.index(runs).filter(|_| self.is_open)?)
    }

    /// Selects the next run in a direction. The first selection is the first run that waits for a person, else the newest:
    /// both are on the screen.
    fn step(&mut self, runs: &[Run], by: isize) {
        let last = runs.len().saturating_sub(1);
        let next = match self.index(runs) {
            Some(index) => index.saturating_add_signed(by).min(last),
            None if runs.first().is_some_and(waits) => 0,
            None => last,
        };
        self.selected = runs.get(next).map(|run| (run.namespace(), run.name_any()));
    }

    /// The runs to show: those that wait for a decision first, then the others, newest last.
    pub fn runs<'a>(&self, all: impl Iterator<Item = &'a Run>) -> Vec<Run> {
        let mut runs: Vec<Run> = all.filter(|run| self.matches(run)).cloned().collect();
        list::sort(&mut runs);
        // The sort is stable.
        runs.sort_by_key(|run| !waits(run));
        runs
    }

    fn matches(&self, run: &Run) -> bool {
        let phase = run.status.as_ref().map(|status| status.phase).unwrap_or_default().as_str().to_owned();
        let texts = [
            run.namespace().unwrap_or_default(),
            run.name_any(),
            run.spec.workspace.clone(),
            list::command(run),
            phase,
        ];
        let filter = self.filter.to_lowercase();
        texts.iter().any(|text| text.to_lowercase().contains(&filter))
    }
}

/// Whether a run waits for a person: for an Approval, or for an answer in a terminal.
pub fn waits(run: &Run) -> bool {
    let Some(status) = &run.status else { return false };
    let asks = || status.steps.iter().any(|step| step.state == StepState::Waiting);
    status.phase == RunPhase::Review || (!status.phase.is_finished() && asks())
}

/// The parts of a list of `count` runs that fit into `room` lines: the `waiting` ones at its beginning and the newest at its
/// end, moved so that the selected one is visible.
pub fn visible(count: usize, waiting: usize, room: usize, selected: Option<usize>) -> [Range<usize>; 2] {
    if waiting >= room {
        let first = selected.map_or(0, |selected| (selected + 1).saturating_sub(room));
        return [first..(first + room).min(count), count..count];
    }
    let newest = count.saturating_sub(room - waiting).max(waiting);
    let first = selected.filter(|selected| *selected >= waiting).map_or(newest, |selected| newest.min(selected));
    [0..waiting, first..(first + room - waiting).min(count)]
}

#[cfg(test)]
mod tests {
    use knoll_api::run::{Operation, RunSpec, RunStatus};

    use super::*;

    fn run(name: &str, command: Option<&str>, phase: RunPhase) -> Run {
        let operation = if command.is_some() { Operation::Command } else { Operation::Plan };
        let command = command.map(str::to_owned);
        let mut run = Run::new(name, RunSpec { workspace: "net".into(), operation, command, ..RunSpec::default() });
        run.status = Some(RunStatus { phase, ..RunStatus::default() });
        run
    }

    fn names(view: &View, runs: &[Run]) -> Vec<String> {
        view.runs(runs.iter()).iter().map(ResourceExt::name_any).collect()
    }

    #[test]
    fn decisions_come_first() {
        let runs = [
            run("a", None, RunPhase::Succeeded),
            run("c", Some("show"), RunPhase::Running),
            run("d", Some("state rm"), RunPhase::Failed),
            run("e", None, RunPhase::Review),
        ];
        let mut view = View::default();
        assert_eq!(names(&view, &runs), ["e", "a", "c", "d"]);
        view.filter = "STATE".into();
        assert_eq!(names(&view, &runs), ["d"]);
        view.filter = "review".into();
        assert_eq!(names(&view, &runs), ["e"]);
    }

    #[test]
    fn keys_select_open_filter_and_leave() {
        let runs = ["a", "b", "c"].map(|name| run(name, None, RunPhase::Running));
        let mut view = View::default();
        let press =
            |view: &mut View, keys: &[u8]| super::super::key::parse(keys).into_iter().any(|key| view.press(key, &runs));
        for (keys, index, open, filter) in [
            ("\x1b[B", Some(2), false, ""),
            ("jj\x1b[B", Some(2), false, ""),
            ("k", Some(1), false, ""),
            ("\r", Some(1), true, ""),
            ("j", Some(2), true, ""),
            ("\x1b", Some(2), false, ""),
            ("/qj\x7f", Some(2), false, "q"),
            ("\r\r\r", Some(2), false, "q"),
            ("\x1b", Some(2), false, ""),
        ] {
            assert!(!press(&mut view, keys.as_bytes()), "{keys:?}");
            let seen = (view.index(&runs), view.opened(&runs).is_some(), view.filter.as_str());
            assert_eq!(seen, (index, open, filter), "{keys:?}");
        }
        assert!(press(&mut view, b"q") && press(&mut view, b"/\x03"));
        let mut view = View::default();
        assert!(!view.press(Key::Enter, &[]) && view.opened(&[]).is_none());
        let waiting = [run("review", None, RunPhase::Review), run("new", None, RunPhase::Running)];
        assert!(!view.press(Key::Enter, &waiting));
        assert_eq!(view.opened(&waiting).map(ResourceExt::name_any).as_deref(), Some("review"));
    }

    #[test]
    fn the_selected_run_is_visible() {
        for (count, waiting, room, selected, expect) in [
            (3, 1, 10, None, [0..1, 1..3]),
            (20, 2, 10, None, [0..2, 12..20]),
            (20, 2, 10, Some(1), [0..2, 12..20]),
            (20, 2, 10, Some(5), [0..2, 5..13]),
            (20, 12, 10, None, [0..10, 20..20]),
            (20, 12, 10, Some(15), [6..16, 20..20]),
            (0, 0, 10, None, [0..0, 0..0]),
        ] {
            assert_eq!(visible(count, waiting, room, selected), expect, "{count} {waiting} {room} {selected:?}");
        }
    }
}
