//! Derives the exit code and the final message of a command from the finished run. Pure.

use knoll_api::Run;
use knoll_api::names::{condition, reason};
use knoll_api::run::RunPhase;
use kube::ResourceExt;

/// The exit code of a run that was cancelled before terraform exited, as a shell reports SIGINT.
const STOPPED: i32 = 130;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The exit code of the command.
    pub code: i32,
    /// A message, unless terraform's own output already says it.
    pub message: Option<String>,
}

/// The ending of a finished run.
#[must_use]
pub fn of(run: &Run) -> Ending {
    let status = run.status.clone().unwrap_or_default();
    let name = run.name_any();
    let ready = status.conditions.iter().find(|condition| condition.type_ == condition::READY);
    let (why, text) =
        ready.map_or((String::new(), String::new()), |ready| (ready.reason.clone(), ready.message.clone()));
    match status.phase {
        RunPhase::Succeeded => Ending { code: status.exit_code.unwrap_or(0), message: None },
        RunPhase::Cancelled => {
            let code = status.exit_code.filter(|code| *code != 0).unwrap_or(STOPPED);
            Ending { code, message: Some(format!("run `{name}` was cancelled: {text}")) }
        }
        RunPhase::Discarded => {
            let what = if status.plan.is_some() { "the plan of run" } else { "run" };
            let done = if status.plan.is_some() { "applied" } else { "started" };
            Ending { code: 1, message: Some(format!("{what} `{name}` was not {done}: {text}")) }
        }
        _ => {
            let code = status.exit_code.filter(|code| *code != 0).unwrap_or(1);
            // When one of terraform's own steps failed, terraform has printed the reason.
            let printed = why == reason::STEP_FAILED && status.exit_code.is_some();
            Ending { code, message: (!printed).then(|| format!("run `{name}` failed: {text}")) }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};

    use super::*;

    fn ending(status: Value) -> (i32, Option<String>) {
        let run = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "metadata": {"name": "r"},
            "spec": {"workspace": "net", "operation": "plan"}, "status": status});
        let Ending { code, message } = of(&serde_json::from_value(run).unwrap());
        (code, message)
    }

    fn ready(reason: &str) -> Value {
        json!([{"type": "Ready", "status": "False", "reason": reason, "message": "Because.", "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    }

    #[test]
    fn exit_codes_are_those_of_terraform() {
        assert_eq!(ending(json!({"phase": "Succeeded", "exitCode": 2})), (2, None));
        assert_eq!(ending(json!({"phase": "Succeeded"})), (0, None));
        let failed = json!({"phase": "Failed", "exitCode": 1, "conditions": ready("StepFailed")});
        assert_eq!(ending(failed), (1, None));
        let killed = json!({"phase": "Failed", "conditions": ready("OOMKilled")});
        assert_eq!(ending(killed), (1, Some("run `r` failed: Because.".into())));
        let cancelled = json!({"phase": "Cancelled", "conditions": ready("Cancelled")});
        assert_eq!(ending(cancelled), (130, Some("run `r` was cancelled: Because.".into())));
        let discarded = json!({"phase": "Discarded", "conditions": ready("Discarded")});
        assert_eq!(ending(discarded), (1, Some("run `r` was not started: Because.".into())));
    }
}
