//! Which finished Runs of a Workspace are kept, with their logs and plans.
//!
//! *Guarantees.* No Run is deleted before its end, before the Workspace has taken note of it, or while the status of the
//! Workspace's Stack names it. The newest Run of each group is always kept.

use std::time::Duration;

use jiff::Timestamp;
use knoll_api::{
    run::{Operation, Run},
    stack::Stack,
};
use kube::{Resource, ResourceExt};

use super::WorkspaceFacts;
use crate::{
    queue::{self, Lane},
    stack::OwnedObject,
};

/// How long a finished reading command is kept: its answer was printed, and its log can be looked at for a while.
const READING_KEPT: Duration = Duration::from_secs(3600);

/// The largest number of Runs that are deleted at a time, so that one Workspace does not occupy the operator.
const AT_A_TIME: usize = 100;

/// The group of Runs that a Run is kept with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// May change the state.
    Changing,
    /// Plans, and applies nothing.
    Plans,
    /// A command that cannot change the state.
    Reading,
}

fn group(run: &Run) -> Group {
    match (run.spec.operation, queue::lane(&run.spec)) {
        (Operation::Plan, _) => Group::Plans,
        (_, Lane::Queue) => Group::Changing,
        (_, Lane::AtOnce) => Group::Reading,
    }
}

/// The Runs that are not kept any longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    pub runs: Vec<OwnedObject>,
    /// The time at which the next Run expires.
    pub next_at: Option<Timestamp>,
}

/// Decides which Runs of a Workspace are deleted now. A Run with `ttlAfterFinished` is kept for as long as that says,
/// unless a Policy limits the retention.
#[must_use]
pub fn expired(facts: &WorkspaceFacts<'_>, now: Timestamp) -> Expired {
    let history = facts.policy.run_history(facts.workspace.spec.run_history);
    let (reading, is_limited) = (facts.policy.reading_kept(), facts.policy.limits_retention());
    let mut finished: Vec<(&Run, Timestamp)> =
        facts.runs.iter().filter_map(|run| Some((*run, finished_at(run)?))).collect();
    finished.sort_by_key(|(run, at)| (std::cmp::Reverse(*at), run.name_any()));

    let mut expired = Expired::default();
    let (mut changing, mut plans) = (0, 0);
    for (run, at) in finished {
        let has_own_rule = run.spec.ttl_after_finished.is_some() && !is_limited;
        let is_over = match group(run) {
            Group::Changing => exceeds(&mut changing, history),
            Group::Plans => exceeds(&mut plans, history),
            Group::Reading => {
                let kept = reading.unwrap_or(READING_KEPT);
                let expiry = at.checked_add(kept).ok();
                let is_over = expiry.is_some_and(|expiry| expiry <= now);
                if !is_over && !has_own_rule {
                    expired.next_at = [expired.next_at, expiry].into_iter().flatten().min();
                }
                is_over
            }
        };
        if is_over && !has_own_rule && !is_needed(facts, run) && expired.runs.len() < AT_A_TIME {
            expired.runs.push(OwnedObject::of(run));
        }
    }
    expired
}

fn exceeds(count: &mut u32, history: u32) -> bool {
    *count += 1;
    *count > history
}

fn finished_at(run: &Run) -> Option<Timestamp> {
    let status = run.status.as_ref().filter(|status| status.phase.is_finished())?;
    let is_going = run.metadata.deletion_timestamp.is_some();
    status.finished_at.as_ref().map(|at| at.0).filter(|_| !is_going)
}

/// Whether something refers to the Run: the lock of the Workspace, or the status of the Stack of its name.
fn is_needed(facts: &WorkspaceFacts<'_>, run: &Run) -> bool {
    let active = facts.workspace.status.as_ref().and_then(|status| status.active.as_deref());
    active == run.meta().name.as_deref() || facts.stack.is_some_and(|stack| names(stack, &run.name_any()))
}

fn names(stack: &Stack, run: &str) -> bool {
    let Some(status) = &stack.status else { return false };
    let drift = status.drift.iter().flat_map(|drift| [&drift.run, &drift.corrected_by]).flatten();
    let intended = status.launching.iter().map(|intent| &intent.name);
    let started = status.started_runs.iter().map(|started| &started.name);
    let failed = status.failure.iter().map(|failure| &failure.run);
    let mut named = drift.chain(intended).chain(started).chain(failed).chain(&status.last_run);
    named.any(|name| name == run)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeSet;

    use knoll_api::{
        policy::Policy,
        run::{RunSpec, RunStatus},
        stack::{StackStatus, StartedRun},
        workspace::{Workspace, WorkspaceStatus},
    };
    use serde_json::json;

    use super::*;
    use crate::policy::{self, Effective, Labels};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A finished Run, such as `apply`, `plan` or `show`.
    fn run(name: &str, operation: &str, finished: i64) -> Run {
        let mut run = Run::new(name, RunSpec { workspace: "w".into(), ..RunSpec::default() });
        match operation {
            "show" => {
                run.spec.operation = Operation::Command;
                run.spec.command = Some("show".into());
            }
            operation => run.spec.operation = serde_json::from_value(json!(operation)).unwrap(),
        }
        let status = json!({"phase": "Succeeded", "finishedAt": at(finished).to_string()});
        run.status = Some(serde_json::from_value(status).unwrap());
        run
    }

    fn limited(retention: &serde_json::Value) -> Effective {
        let policy: Policy = serde_json::from_value(json!({
            "apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": {"name": "p"},
            "spec": {"limits": {"retention": retention}},
        }))
        .unwrap();
        policy::effective([&policy], [], &Labels::new(), &Labels::new())
    }

    #[track_caller]
    fn check(
        runs: &[Run],
        active: Option<&str>,
        stack: Option<&Stack>,
        policy: &Effective,
        expect: &[&str],
    ) -> Expired {
        let mut workspace = Workspace::new("w", Default::default());
        workspace.spec.run_history = 2;
        workspace.status = Some(WorkspaceStatus { active: active.map(str::to_owned), ..WorkspaceStatus::default() });
        let runs: Vec<&Run> = runs.iter().collect();
        let none = BTreeSet::new();
        let facts = WorkspaceFacts {
            workspace: &workspace,
            runs: &runs,
            lingering: &none,
            head: None,
            stack,
            policy,
            image: "",
            backup: None,
        };
        let expired = expired(&facts, at(10_000));
        let names: Vec<&str> = expired.runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, expect);
        expired
    }

    #[test]
    fn the_last_changing_runs_and_plans_are_kept_and_reading_commands_for_an_hour() {
        let mut runs = vec![
            run("a", "apply", 9_000),
            run("b", "destroy", 8_000),
            run("c", "apply", 7_000),
            run("d", "plan", 100),
            run("e", "plan", 200),
            run("f", "plan", 50),
            run("g", "show", 6_399),
            run("h", "show", 6_401),
            run("i", "show", 6_500),
        ];
        let open = Effective::default();
        let expired = check(&runs, None, None, &open, &["c", "g", "f"]);
        assert_eq!(expired.next_at, Some(at(6_401 + 3600)));
        check(&runs, Some("c"), None, &open, &["g", "f"]);
        for run in &mut runs {
            run.spec.ttl_after_finished = Some(Duration::from_secs(5).into());
        }
        check(&runs, None, None, &open, &[]);
        check(&runs, None, None, &limited(&json!({"runs": 1})), &["b", "c", "g", "d", "f"]);
    }

    #[test]
    fn a_policy_can_only_shorten_what_a_workspace_keeps() {
        let runs = [run("a", "apply", 3), run("b", "apply", 2), run("c", "apply", 1), run("g", "show", 9_980)];
        check(&runs, None, None, &limited(&json!({"runs": 500})), &["c"]);
        check(&runs, None, None, &limited(&json!({"runs": 1, "reading": "10s"})), &["g", "b", "c"]);
    }

    #[test]
    fn what_goes_on_or_is_named_by_the_stack_stays() {
        let mut runs = vec![run("a", "apply", 30), run("b", "apply", 20), run("c", "apply", 10), run("d", "apply", 5)];
        runs.push(Run::new("e", RunSpec { operation: Operation::Apply, ..RunSpec::default() }));
        runs[3].status = Some(RunStatus { finished_at: None, ..RunStatus::default() });
        let mut stack = Stack::new("w", Default::default());
        let open = Effective::default();
        check(&runs, None, Some(&stack), &open, &["c"]);
        let started = StartedRun { name: "c".into(), ..StartedRun::default() };
        stack.status = Some(StackStatus { started_runs: vec![started], ..StackStatus::default() });
        check(&runs, None, Some(&stack), &open, &[]);
        stack.status = Some(StackStatus { last_run: Some("c".into()), ..StackStatus::default() });
        check(&runs, None, Some(&stack), &open, &[]);
    }
}
