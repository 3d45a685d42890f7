//! The terminal of `knoll watch`: draws the tables, or the details of a run, above a line with the keys.

use std::io::{self, Write};

use jiff::Timestamp;
use knoll_api::run::RunPhase;
use knoll_api::{Run, Stack};
use kube::ResourceExt;

use super::view::{View, visible, waits};
use crate::run::keys::{self, Raw};
use crate::runs::{list, show};
use crate::stack;

/// The mark of the selected run, and the space of the others.
const MARKS: [&str; 2] = ["> ", "  "];

/// The terminal. Its previous mode and content are restored on drop, followed by the last tables.
pub struct Screen {
    raw: Option<Raw>,
    last: String,
}

impl Screen {
    /// Switches to the alternate screen. The keys are read if standard input is a terminal too.
    pub fn open() -> Self {
        let raw = if keys::is_attended() { Raw::enter().ok() } else { None };
        // The alternate screen, without a cursor, and without lines that wrap.
        let _ = write!(io::stdout(), "\x1b[?1049h\x1b[?25l\x1b[?7l");
        Screen { raw, last: String::new() }
    }

    /// Whether keys arrive one by one.
    pub fn has_keys(&self) -> bool {
        self.raw.is_some()
    }

    /// Draws the runs and the stacks that the view has selected.
    pub fn draw(&mut self, view: &View, runs: &[Run], mut stacks: Vec<Stack>, namespaces: bool) {
        let (columns, rows) = keys::size();
        // The last row is that of the keys.
        let (columns, rows) = (usize::from(columns), usize::from(rows).saturating_sub(1));
        let now = Timestamp::now();
        let (few, room) = share(rows, stacks.len(), runs.len());
        stacks.truncate(few);
        let selected = view.index(runs);
        let ranges = visible(runs.len(), runs.iter().filter(|run| waits(run)).count(), room, selected);
        let marked =
            selected.and_then(|selected| ranges.clone().into_iter().flatten().position(|index| index == selected));
        let shown: Vec<Run> = ranges.into_iter().flatten().filter_map(|index| runs.get(index)).cloned().collect();
        let columns = columns.saturating_sub(MARKS[0].len());
        let mut above = String::new();
        if !stacks.is_empty() {
            above = stack::list::table(&stacks, namespaces, false, now).at_most(columns).to_string() + "\n";
        }
        let mut table = list::table(&shown, namespaces, false, now).at_most(columns).to_string();
        if runs.is_empty() {
            table += if view.filter.is_empty() { "No runs yet.\n" } else { "No runs match the filter.\n" };
        }
        let mut lines: Vec<String> = above.lines().map(|line| format!("{}{line}", MARKS[1])).collect();
        lines.extend(table.lines().enumerate().map(|(index, line)| {
            // The first line is the heading.
            let is_marked = marked.is_some_and(|marked| marked + 1 == index);
            format!("{}{line}", if is_marked { MARKS[0] } else { MARKS[1] })
        }));
        self.last = above + &table;
        if let Some(run) = view.opened(runs) {
            lines = show::text(run, "", None, now).lines().map(str::to_owned).collect();
        }
        lines.truncate(rows);
        self.paint(&lines, rows + 1, &self.legend(view, view.opened(runs)));
    }

    fn paint(&self, lines: &[String], row: usize, legend: &str) {
        let mut out = io::stdout().lock();
        let _ = write!(out, "\x1b[H");
        for line in lines {
            let _ = write!(out, "{line}\x1b[K\r\n");
        }
        let _ = write!(out, "\x1b[J\x1b[{row};1H{legend}\x1b[K");
        let _ = out.flush();
    }

    /// The line of the keys.
    fn legend(&self, view: &View, opened: Option<&Run>) -> String {
        if !self.has_keys() {
            return "Ctrl-C quit".to_owned();
        }
        if view.is_typing {
            return format!("Filter: {}_   Enter done   Esc clear", view.filter);
        }
        if let Some(run) = opened {
            let name = run.name_any();
            let is_review = run.status.as_ref().is_some_and(|status| status.phase == RunPhase::Review);
            let next = if is_review { format!("knoll approve {name}") } else { format!("knoll logs {name}") };
            return format!("Esc back   up/down other run   q quit   next: `{next}`");
        }
        let keys = "q quit   up/down select   Enter details   / filter";
        if view.filter.is_empty() { keys.to_owned() } else { format!("{keys}   Esc clear   Filter: {}", view.filter) }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write!(io::stdout(), "\x1b[?7h\x1b[?25h\x1b[?1049l");
        let _ = io::stdout().flush();
        // The tables need the line ends of the previous mode.
        drop(self.raw.take());
        let _ = write!(io::stdout(), "{}", self.last);
        let _ = io::stdout().flush();
    }
}

/// How many stacks and runs fit on the screen: half of it each, or the space the other leaves.
fn share(rows: usize, stacks: usize, runs: usize) -> (usize, usize) {
    // The headings, the line between the tables and the cursor line take space too.
    let room = rows.saturating_sub(if stacks == 0 { 2 } else { 4 }).max(2);
    let shown = stacks.min((room / 2).max(room.saturating_sub(runs)));
    (shown, runs.min(room - shown))
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn tables_share_the_screen() {
        for (rows, stacks, runs, expect) in [
            (24, 0, 5, (0, 5)),
            (24, 0, 50, (0, 22)),
            (24, 3, 50, (3, 17)),
            (24, 50, 50, (10, 10)),
            (24, 50, 2, (18, 2)),
            (1, 9, 9, (1, 1)),
        ] {
            assert_eq!(share(rows, stacks, runs), expect, "{rows} {stacks} {runs}");
        }
    }
}
