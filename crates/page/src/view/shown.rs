//! Words, tones and times that several pages show. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use knoll_api::names::condition;
use knoll_api::run::{Operation, PlanSummary, Run, RunPhase, StepState};
use knoll_api::stack::StackPhase;
use knoll_core::conditions;
use knoll_core::times;
use knoll_core::visible::visible_line;
use schemars::JsonSchema;
use serde::Serialize;

/// The meaning of a phase, and so its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    #[default]
    Quiet,
    Busy,
    /// A person has to do something.
    Waits,
    Good,
    Bad,
}

impl Tone {
    pub fn class(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Busy => "busy",
            Self::Waits => "waits",
            Self::Good => "good",
            Self::Bad => "bad",
        }
    }
}

/// A phase or a state with its tone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Status {
    pub text: String,
    pub tone: Tone,
}

impl Status {
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    pub fn of_run(phase: RunPhase) -> Self {
        let tone = match phase {
            RunPhase::Pending | RunPhase::Queued | RunPhase::Cancelled | RunPhase::Discarded => Tone::Quiet,
            RunPhase::Starting | RunPhase::Running => Tone::Busy,
            RunPhase::Review => Tone::Waits,
            RunPhase::Succeeded => Tone::Good,
            RunPhase::Failed => Tone::Bad,
        };
        let text = if phase == RunPhase::Review { "Needs review" } else { phase.as_str() };
        Self::new(text, tone)
    }

    pub fn of_step(state: StepState) -> Self {
        match state {
            StepState::Running => Self::new("Running", Tone::Busy),
            StepState::Waiting => Self::new("Waiting", Tone::Waits),
            StepState::Succeeded => Self::new("Succeeded", Tone::Good),
            StepState::Failed => Self::new("Failed", Tone::Bad),
            StepState::Skipped => Self::new("Skipped", Tone::Quiet),
            StepState::Cancelled => Self::new("Cancelled", Tone::Quiet),
        }
    }

    pub fn of_stack(phase: StackPhase) -> Self {
        let tone = match phase {
            StackPhase::Pending | StackPhase::Waiting | StackPhase::Suspended => Tone::Quiet,
            StackPhase::Running | StackPhase::Rollback | StackPhase::Destroying => Tone::Busy,
            StackPhase::Review => Tone::Waits,
            StackPhase::Ready => Tone::Good,
            StackPhase::Held | StackPhase::Retrying | StackPhase::Reverted | StackPhase::Failure => Tone::Bad,
        };
        Self::new(if phase == StackPhase::Review { "Needs review" } else { phase.as_str() }, tone)
    }
}

/// A moment: for programs, and how long ago it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Moment {
    /// RFC 3339, in UTC.
    pub at: String,
    /// `3m` for three minutes ago.
    pub age: String,
}

impl Moment {
    pub fn new(at: Timestamp, now: Timestamp) -> Self {
        let seconds = at.as_second();
        let at_second = Timestamp::from_second(seconds).unwrap_or(at);
        Self { at: at_second.to_string(), age: times::age(Some(&Time(at)), now) }
    }

    pub fn of_time(time: Option<&Time>, now: Timestamp) -> Option<Self> {
        time.map(|time| Self::new(time.0, now))
    }

    pub fn of_micro(time: Option<&MicroTime>, now: Timestamp) -> Option<Self> {
        time.map(|time| Self::new(time.0, now))
    }
}

/// The counts of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlanCounts {
    pub add: u32,
    pub change: u32,
    pub destroy: u32,
    /// Whether the plan changes anything; it may change outputs only.
    pub changes: bool,
}

impl PlanCounts {
    pub fn of(plan: &PlanSummary) -> Self {
        Self { add: plan.add, change: plan.change, destroy: plan.destroy, changes: plan.changes }
    }
}

/// The terraform command of a run.
pub fn command(run: &Run) -> String {
    match run.spec.operation {
        Operation::Command => run.spec.command.clone().unwrap_or_default(),
        operation => operation.as_str().to_owned(),
    }
}

/// The command of a run with all its arguments, in one line.
pub fn words(run: &Run) -> String {
    visible_line(format!("{} {}", command(run), run.spec.args.join(" ")).trim())
}

/// The message of a condition; none if it is empty.
pub fn message_of(all: &[Condition], kind: &str) -> Option<String> {
    conditions::find(all, kind).map(|found| found.message.clone()).filter(|message| !message.is_empty())
}

/// The message of the condition `Ready`.
pub fn ready_message(all: &[Condition]) -> Option<String> {
    message_of(all, condition::READY)
}

/// Whether a text has every word of a search, in any case.
pub fn matches(search: &str, texts: &[&str]) -> bool {
    let whole = texts.join(" ").to_lowercase();
    search.to_lowercase().split_whitespace().all(|word| whole.contains(word))
}
