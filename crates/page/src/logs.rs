//! The log of a Run in sections by step, line by line. Pure.

use std::collections::VecDeque;

use knoll_api::run::{Run, StepName};
use knoll_storage::LogRange;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ansi::{Span, spans};

/// How many lines of a step are shown: its last ones. The download has all of them.
pub const SHOWN: usize = 2000;

/// As many bytes of them are shown at most.
const SHOWN_BYTES: usize = 1 << 20;
/// What is kept of a line. Less is shown of it, and the sequences that colour it take room as well.
const LONGEST_RAW: usize = 32 * 1024;

/// A log, as far as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogView {
    pub sections: Vec<LogSection>,
    /// Where the last whole line ends, in bytes: a live stream begins there.
    pub offset: u64,
    /// The number of whole lines.
    pub lines: u64,
}

/// The output of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LogSection {
    /// The name of the step.
    pub step: String,
    /// The number of earlier lines that are left out.
    pub omitted: u64,
    pub lines: Vec<LogLine>,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LogLine {
    /// Counted from 1 in the whole log.
    pub number: u64,
    pub spans: Vec<Span>,
}

/// The end of a log, section by section, while the log is read from its beginning.
///
/// *Guarantee.* What it holds depends on the number of steps, and not on the length of the log.
pub struct LogTail {
    starts: Vec<(u64, StepName)>,
    sections: Vec<Tail>,
    /// The beginning of a line whose end has not come, as far as it is shown.
    rest: Vec<u8>,
    /// Where that line begins.
    offset: u64,
    /// Where the log ends, so far.
    end: u64,
    lines: u64,
}

/// The last lines of a section, with their numbers.
struct Tail {
    step: &'static str,
    omitted: u64,
    bytes: usize,
    lines: VecDeque<(u64, Vec<u8>)>,
}

impl LogTail {
    #[must_use]
    pub fn new(run: &Run) -> Self {
        Self { starts: starts(run), sections: Vec::new(), rest: Vec::new(), offset: 0, end: 0, lines: 0 }
    }

    /// The next piece of the log.
    pub fn push(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.end = self.end.saturating_add(part.len() as u64);
            self.rest.extend_from_slice(part);
            if self.rest.len() > LONGEST_RAW {
                self.shorten();
            }
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// A line that is too long to be kept. What a carriage return has overwritten is not shown in any case.
    fn shorten(&mut self) {
        let text = self.rest.trim_ascii_end().len();
        if let Some(last) = self.rest[..text].iter().rposition(|byte| *byte == b'\r') {
            self.rest.drain(..last);
        }
        self.rest.truncate(LONGEST_RAW);
    }

    fn end_line(&mut self) {
        let step = step_at(&self.starts, self.offset);
        self.lines += 1;
        self.offset = self.end;
        if self.sections.last().is_none_or(|section| section.step != step) {
            self.sections.push(Tail { step, omitted: 0, bytes: 0, lines: VecDeque::new() });
        }
        let Some(section) = self.sections.last_mut() else { return };
        section.bytes += self.rest.len();
        section.lines.push_back((self.lines, std::mem::take(&mut self.rest)));
        while section.lines.len() > SHOWN || section.bytes > SHOWN_BYTES {
            let Some((_, line)) = section.lines.pop_front() else { break };
            section.bytes -= line.len();
            section.omitted += 1;
        }
    }

    /// The view of what was read. `ended`: a last line without its end is whole.
    #[must_use]
    pub fn view(mut self, ended: bool) -> LogView {
        if ended && self.end > self.offset {
            self.end_line();
        }
        let line =
            |(number, raw): &(u64, Vec<u8>)| LogLine { number: *number, spans: spans(&String::from_utf8_lossy(raw)) };
        let section = |tail: &Tail| LogSection {
            step: tail.step.to_owned(),
            omitted: tail.omitted,
            lines: tail.lines.iter().map(line).collect(),
        };
        LogView { sections: self.sections.iter().map(section).collect(), offset: self.offset, lines: self.lines }
    }
}

/// The steps that have printed, with the offsets of their output, in its order.
#[must_use]
pub fn starts(run: &Run) -> Vec<(u64, StepName)> {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    let with_output = steps.filter_map(|step| {
        let range = LogRange::of_step(run, step.name)?;
        (range.to != Some(range.from)).then_some((range.from, step.name))
    });
    let mut starts: Vec<_> = with_output.collect();
    starts.sort_by_key(|(from, _)| *from);
    starts
}

/// The step that printed at this offset.
#[must_use]
pub fn step_at(starts: &[(u64, StepName)], offset: u64) -> &'static str {
    let before = starts.iter().take_while(|(from, _)| *from <= offset);
    before.last().map_or(StepName::Setup.as_str(), |(_, step)| step.as_str())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use knoll_api::run::{RunSpec, RunStatus, StepStatus};

    use super::*;

    fn run() -> Run {
        let at = |name, offset| StepStatus::started(name, MicroTime(jiff::Timestamp::UNIX_EPOCH), offset);
        let steps = vec![at(StepName::Setup, 0), at(StepName::Init, 0), at(StepName::Plan, 10)];
        Run { status: Some(RunStatus { steps, ..RunStatus::default() }), ..Run::new("r", RunSpec::default()) }
    }

    fn view(run: &Run, log: &[u8], ended: bool) -> LogView {
        let mut tail = LogTail::new(run);
        // Pieces end anywhere.
        log.chunks(7).for_each(|piece| tail.push(piece));
        tail.view(ended)
    }

    #[test]
    fn lines_are_folded_by_the_step_that_printed_them() {
        let log = b"init one\r\nplan one\nplan two\nhalf a li";
        let view = view(&run(), log, false);
        let shown: Vec<_> = view
            .sections
            .iter()
            .map(|section| (section.step.as_str(), section.lines.iter().map(|line| line.number).collect::<Vec<_>>()))
            .collect();
        assert_eq!(shown, [("init", vec![1]), ("plan", vec![2, 3])]);
        assert_eq!((view.offset, view.lines), (28, 3));
        let ended = self::view(&run(), log, true);
        assert_eq!((ended.offset, ended.lines), (37, 4));
    }

    #[test]
    fn a_long_log_shows_its_end() {
        let log = "a line\n".repeat(50_000);
        let view = view(&run(), log.as_bytes(), true);
        let plan = view.sections.last().map(|section| (section.lines.len(), section.omitted));
        assert_eq!(plan, Some((SHOWN, 49_998 - SHOWN as u64)));
        assert_eq!(view.lines, 50_000);
    }

    /// Each empty line needed a hundred times its size.
    #[test]
    fn a_log_of_newlines_filled_the_memory() {
        let mut tail = LogTail::new(&run());
        let piece = vec![b'\n'; 128 * 1024];
        let mut most = 0;
        for _ in 0..160 {
            tail.push(&piece);
            most = most.max(tail.sections.iter().map(|section| section.lines.len()).sum());
        }
        assert!(most <= 2 * SHOWN, "{most}");
        let view = tail.view(true);
        assert_eq!((view.lines, view.offset), (160 * 128 * 1024, 160 * 128 * 1024));
    }

    #[test]
    fn a_line_without_an_end_and_long_lines_are_not_kept_whole() {
        let mut tail = LogTail::new(&run());
        for _ in 0..1000 {
            tail.push(&[b'x'; 4096]);
            assert!(tail.rest.len() <= LONGEST_RAW + 4096);
        }
        tail.push(b"\rlast\n");
        for _ in 0..1000 {
            tail.push(&[b'y'; 8192]);
            tail.push(b"\n");
        }
        assert!(tail.sections.iter().all(|section| section.bytes <= SHOWN_BYTES));
        let view = tail.view(true);
        assert_eq!((view.lines, view.offset), (1001, 1000 * 4096 + 6 + 1000 * 8193));
    }
}
