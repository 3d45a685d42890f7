//! The colours of phases and step states.

use knoll_api::run::{Run, RunPhase, StepState};

use crate::output::table::{Cell, Tone};

/// The phase of a run in a list. One that waits for an answer in a terminal looks like work otherwise.
pub fn of(run: &Run) -> Cell {
    let status = run.status.clone().unwrap_or_default();
    let asks = status.steps.iter().any(|step| step.state == StepState::Waiting);
    match status.phase {
        RunPhase::Running if asks => Cell::new("Running (asks)", Tone::Waits),
        phase => cell(phase),
    }
}

pub fn cell(phase: RunPhase) -> Cell {
    let tone = match phase {
        RunPhase::Pending | RunPhase::Queued => Tone::Quiet,
        RunPhase::Starting | RunPhase::Running => Tone::Busy,
        RunPhase::Review => Tone::Waits,
        RunPhase::Succeeded => Tone::Good,
        RunPhase::Failed => Tone::Bad,
        RunPhase::Cancelled | RunPhase::Discarded => Tone::Waits,
    };
    Cell::new(phase.as_str(), tone)
}

pub fn step(state: StepState) -> Cell {
    let (text, tone) = match state {
        StepState::Running => ("Running", Tone::Busy),
        StepState::Waiting => ("Waiting", Tone::Waits),
        StepState::Succeeded => ("Succeeded", Tone::Good),
        StepState::Failed => ("Failed", Tone::Bad),
        StepState::Skipped => ("Skipped", Tone::Quiet),
        StepState::Cancelled => ("Cancelled", Tone::Waits),
    };
    Cell::new(text, tone)
}
