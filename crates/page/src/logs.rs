//! The log of a Run in sections by step, line by line. Pure.

use knoll_api::run::{Run, StepName};
use knoll_storage::LogRange;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ansi::{Span, spans};

/// How many lines of a step are shown: its last ones. The download has all of them.
pub const SHOWN: usize = 2000;

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

/// The view of a log. `ended`: a last line without its end is whole.
#[must_use]
pub fn view(run: &Run, log: &[u8], ended: bool) -> LogView {
    let whole = match log.iter().rposition(|byte| *byte == b'\n') {
        _ if ended => log.len(),
        Some(last) => last + 1,
        None => 0,
    };
    let log = log.get(..whole).unwrap_or_default();
    let mut view = LogView { offset: log.len() as u64, ..LogView::default() };
    let starts = starts(run);
    let mut offset = 0_u64;
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        view.lines += 1;
        let step = step_at(&starts, offset);
        offset += line.len() as u64;
        if view.sections.last().is_none_or(|section| section.step != step) {
            view.sections.push(LogSection { step: step.to_owned(), omitted: 0, lines: Vec::new() });
        }
        if let Some(section) = view.sections.last_mut() {
            // The spans are made at the end, for the lines that are left.
            let raw = String::from_utf8_lossy(line).into_owned();
            section.lines.push(LogLine { number: view.lines, spans: vec![Span { class: String::new(), text: raw }] });
        }
    }
    for section in &mut view.sections {
        let omitted = section.lines.len().saturating_sub(SHOWN);
        section.lines.drain(..omitted);
        section.omitted = omitted as u64;
        for line in &mut section.lines {
            line.spans = line.spans.first().map(|raw| spans(&raw.text)).unwrap_or_default();
        }
    }
    view
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
        let ended = super::view(&run(), log, true);
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
}
