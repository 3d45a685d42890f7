//! The machine of a Workspace: who holds its lock, who waits, and what its state is.

pub mod queue;
pub mod retention;

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use knoll_api::{
    approval::Decision as Choice,
    names::{condition, finalizer, reason},
    run::{Operation, Run, RunPhase, StepName},
    stack::Stack,
    variables::Variables,
    workspace::{StateSummary, Workspace, WorkspacePhase, WorkspaceStatus},
};
use kube::ResourceExt;

use crate::{
    backup::{self, StateBackup},
    conditions::{self, ConditionWriter},
    machine::Decision,
    outputs::{self, HiddenOutputs},
    policy::{self, Effective},
    run::requested_by,
    steps,
};
use queue::{Arrival, Lane, QueueEntry, QueueStanding, View};

/// The wait before the pods of a Run that is gone are looked at again.
const LINGERING: Duration = Duration::from_secs(1);

/// Everything that a Workspace's next status depends on.
#[derive(Clone, Copy, Debug)]
pub struct WorkspaceFacts<'a> {
    pub workspace: &'a Workspace,
    /// Every run that names it.
    pub runs: &'a [&'a Run],
    /// Runs that are gone although a pod of theirs may still be at work.
    pub lingering: &'a BTreeSet<String>,
    /// The state that is kept, when there is one.
    pub head: Option<&'a Head>,
    /// The Stack that has the name of the Workspace.
    pub stack: Option<&'a Stack>,
    /// The demands of the Policies on the Workspace.
    pub policy: &'a Effective,
    /// The image of its pods.
    pub image: &'a str,
    /// What is known of the copies of the state; none where the operator makes none.
    pub backup: Option<&'a StateBackup>,
}

/// What is known of a state without reading it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    pub summary: StateSummary,
    /// The outputs that are not sensitive and fit into a status.
    pub outputs: Variables,
    /// Those that are too large for it.
    pub hidden: HiddenOutputs,
}

/// An action on the Workspace itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceAction {
    /// Add the finalizer: from now on the Workspace stays until its runs have ended.
    AddFinalizer,
    /// Remove the finalizer of a deleted Workspace: none of its runs is unfinished.
    RemoveFinalizer,
}

/// Decides the next status of a Workspace. No run that may change the state gets the lock before the Workspace has the
/// finalizer, and a deleted Workspace keeps the finalizer until its last run has ended.
#[must_use]
pub fn decide(seen: &WorkspaceFacts<'_>, now: Timestamp) -> Decision<WorkspaceStatus, WorkspaceAction> {
    let is_held = seen.workspace.finalizers().iter().any(|held| held == finalizer::WORKSPACE);
    let unfinished = unfinished(seen);
    let changes = unfinished.iter().any(|run| queue::lane(&run.spec) == Lane::Queue);
    match (is_deleted(seen.workspace), is_held) {
        (false, false) if changes => return Decision::act(WorkspaceAction::AddFinalizer),
        (true, true) if unfinished.is_empty() && seen.lingering.is_empty() => {
            return Decision::act(WorkspaceAction::RemoveFinalizer);
        }
        _ => {}
    }
    let again = if seen.lingering.is_empty() { None } else { now.checked_add(LINGERING).ok() };
    let expiry = retention::expired(seen, now).next_at;
    Decision::status(status(seen, now)).at([again, expiry].into_iter().flatten().min())
}

/// The finalizers that a Workspace is created with, so that its first run does not wait for them.
#[must_use]
pub fn finalizers() -> Option<Vec<String>> {
    Some(vec![finalizer::WORKSPACE.to_owned()])
}

fn is_deleted(workspace: &Workspace) -> bool {
    workspace.metadata.deletion_timestamp.is_some()
}

fn unfinished<'a>(seen: &WorkspaceFacts<'a>) -> Vec<&'a Run> {
    let is_finished = |run: &Run| run.status.as_ref().is_some_and(|status| status.phase.is_finished());
    seen.runs.iter().copied().filter(|run| !is_finished(run)).collect()
}

fn status(seen: &WorkspaceFacts<'_>, now: Timestamp) -> WorkspaceStatus {
    let workspace = seen.workspace;
    let mut next = workspace.status.clone().unwrap_or_default();
    let deleting = is_deleted(workspace);

    if let Some(applied) = applied_by(seen) {
        next.bundle = Some(applied);
    }
    let entries: Vec<QueueEntry> = seen.runs.iter().map(|run| entry(seen, run, deleting)).collect();
    let places = queue::decide(&View { active: next.active.as_deref(), runs: &entries, lingering: seen.lingering });
    // While a run goes on the state changes with every resource; it is told once, when the lock moves on.
    let is_changing = places.active.is_some() && places.active == next.active;
    if !is_changing {
        next.state = seen.head.map(|head| head.summary.clone());
        next.outputs = seen.head.map(|head| head.outputs.clone()).unwrap_or_default();
        let hidden = seen.head.map(|head| head.hidden.clone()).unwrap_or_default();
        outputs::tell(&mut next.conditions, workspace.metadata.generation, &hidden, now);
    }
    if places.active != next.active || next.active_since.is_none() {
        next.active_since = places.active.as_ref().map(|_| MicroTime(now));
    }
    let active = seen.runs.iter().find(|run| run.metadata.name.is_some() && run.metadata.name == places.active);
    // A Run that is gone and still holds the lock keeps its user.
    if active.is_some() || places.active.is_none() {
        next.active_requested_by = active.and_then(|run| requested_by(run)).map(str::to_owned);
    }
    next.active = places.active;
    next.queue = places.queue;
    record_override(&mut next, seen);
    next.observed_generation = workspace.metadata.generation;
    next.phase = match (&next.active, deleting) {
        (_, true) => WorkspacePhase::Deleting,
        (Some(_), false) => WorkspacePhase::Active,
        (None, false) => WorkspacePhase::Idle,
    };
    if deleting {
        let message = waits_for(seen);
        ConditionWriter::new(&mut next.conditions, workspace.metadata.generation, now)
            .set(condition::READY, false, reason::DELETING, message.clone())
            .set(condition::RECONCILING, true, reason::DELETING, message)
            .set(condition::STALLED, false, reason::DELETING, "");
        return next;
    }
    let (why, message) = match &next.active {
        Some(active) => {
            let (holder, waiting) = (holder(&next), next.queue.len());
            (reason::ACTIVATED, format!("Run `{active}` holds the lock{holder}; {waiting} waiting."))
        }
        None => (reason::IDLE, "No run holds the lock.".to_owned()),
    };
    backup::tell(&mut next, &workspace.name_any(), workspace.metadata.generation, seen.backup, is_changing, now);
    next.policy = seen.policy.settings(workspace, seen.stack);
    next.settings = seen.policy.origins(workspace, seen.image);
    let violations = seen.policy.check_workspace(&workspace.spec);
    let (why, message) = match violations.is_empty() {
        true => (why, message),
        false => (reason::POLICY_VIOLATION, policy::message(&violations)),
    };
    let refused = if violations.is_empty() { "" } else { message.as_str() };
    // A Workspace at work is ready for more: its readiness is not that of its runs.
    ConditionWriter::new(&mut next.conditions, workspace.metadata.generation, now)
        .set(condition::READY, violations.is_empty(), why, message.clone())
        .set(condition::RECONCILING, false, why, "")
        .set(condition::STALLED, !violations.is_empty(), why, refused);
    next
}

/// Copies the record of the last Run that did not wait for a window: whoever started it may delete the Run.
fn record_override(next: &mut WorkspaceStatus, seen: &WorkspaceFacts<'_>) {
    let records = seen.runs.iter().filter_map(|run| {
        let record = conditions::find(&run.status.as_ref()?.conditions, condition::WINDOW_OVERRIDDEN)?;
        Some((run, record))
    });
    let Some((run, record)) = records.max_by_key(|(_, record)| record.last_transition_time.0) else { return };
    let known = conditions::find(&next.conditions, condition::WINDOW_OVERRIDDEN);
    if known.is_some_and(|known| known.last_transition_time.0 >= record.last_transition_time.0) {
        return;
    }
    next.conditions.retain(|known| known.type_ != condition::WINDOW_OVERRIDDEN);
    let message = format!("Run `{}`: {}", run.name_any(), record.message);
    next.conditions.push(Condition {
        message,
        observed_generation: seen.workspace.metadata.generation,
        ..record.clone()
    });
}

/// Who asked for the Run that holds the lock and since when it does, in parentheses; empty if neither is known.
#[must_use]
pub fn holder(status: &WorkspaceStatus) -> String {
    let by = status.active_requested_by.as_ref().map(|by| format!("started by {by}"));
    let since = status.active_since.as_ref().map(|since| {
        let second = Timestamp::from_second(since.0.as_second()).unwrap_or(since.0);
        format!("since {second}")
    });
    match by.into_iter().chain(since).collect::<Vec<_>>().join(", ") {
        known if known.is_empty() => known,
        known => format!(" ({known})"),
    }
}

/// What a deleted Workspace waits for.
fn waits_for(seen: &WorkspaceFacts<'_>) -> String {
    const NAMED: usize = 5;
    let mut names: Vec<String> = unfinished(seen).iter().map(|run| run.name_any()).collect();
    names.extend(seen.lingering.iter().cloned());
    let namespace = seen.workspace.namespace().unwrap_or_default();
    let Some(first) = names.first() else { return "The Workspace is being deleted.".to_owned() };
    let shown = names.iter().take(NAMED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "The Workspace is deleted when these runs have ended and their state is stored: {shown}{more}. To stop one: knoll cancel {first} -n {namespace}"
    )
}

/// Whether the run by that name is still among the runs: if it is not, somebody has to make sure that it is gone.
#[must_use]
pub fn is_missing(workspace: &Workspace, runs: &[&Run]) -> Option<String> {
    let active = workspace.status.as_ref()?.active.clone()?;
    (!runs.iter().any(|run| run.name_any() == active)).then_some(active)
}

/// The files that the active run has applied, once it has ended: those of a run that failed half way too, because what it
/// created can be destroyed with no others.
fn applied_by(seen: &WorkspaceFacts<'_>) -> Option<String> {
    let active = seen.workspace.status.as_ref()?.active.as_deref()?;
    let run = seen.runs.iter().find(|run| run.metadata.name.as_deref() == Some(active))?;
    let status = run.status.as_ref().filter(|status| status.phase.is_finished())?;
    let tried = status.steps.iter().any(|step| step.name == StepName::Apply);
    let applied = run.spec.operation == Operation::Apply && (tried || status.phase == RunPhase::Succeeded);
    // Files that nobody has approved must not become those of later runs, whatever their plan was.
    let is_approved = status.decision.as_ref().is_some_and(|decision| decision.decision == Choice::Approve);
    let is_allowed = is_approved || !steps::is_split(&run.spec, status);
    status.bundle.clone().filter(|_| applied && is_allowed)
}

fn entry(seen: &WorkspaceFacts<'_>, run: &Run, workspace_is_going: bool) -> QueueEntry {
    let decided = run.status.as_ref().is_some_and(|status| status.decision.is_some());
    let phase = run.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let standing = match phase {
        phase if phase.is_finished() => QueueStanding::Ended,
        _ if run.metadata.deletion_timestamp.is_some() || workspace_is_going => QueueStanding::Leaving,
        // A plan in review is held by the active run and stays active; a command waits outside.
        RunPhase::Review => QueueStanding::Held,
        // Also before the run itself says so: who is let in first would hold the others up until somebody decides.
        _ if !decided && needs_approval(seen, run) => QueueStanding::Held,
        _ => QueueStanding::Waiting,
    };
    QueueEntry { name: run.name_any(), arrival: Arrival::of(run), lane: queue::lane(&run.spec), standing }
}

/// Whether the run needs an Approval before it starts.
fn needs_approval(seen: &WorkspaceFacts<'_>, run: &Run) -> bool {
    policy::demands(run, seen.workspace, None, seen.stack, seen.policy).before_start.is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use knoll_api::{
        run::{RunSpec, RunStatus},
        workspace::WorkspaceSpec,
    };
    use serde_json::json;

    use super::*;
    use crate::machine::Next;

    #[track_caller]
    fn check(operation: &str, published: serde_json::Value, expect: Option<&str>) {
        let mut workspace = Workspace::new("w", Default::default());
        workspace.status = Some(WorkspaceStatus { active: Some("r".into()), ..WorkspaceStatus::default() });
        let operation = serde_json::from_value(json!(operation)).unwrap();
        let mut run = Run::new("r", RunSpec { workspace: "w".into(), operation, ..RunSpec::default() });
        run.status = Some(serde_json::from_value(published).unwrap());
        let lingering = BTreeSet::new();
        let seen = WorkspaceFacts {
            workspace: &workspace,
            runs: &[&run],
            lingering: &lingering,
            head: None,
            stack: None,
            policy: &Effective::default(),
            image: "",
            backup: None,
        };
        assert_eq!(status(&seen, Timestamp::UNIX_EPOCH).bundle.as_deref(), expect);
    }

    #[test]
    fn a_privileged_command_holds_nobody_up_before_it_is_approved() {
        let spec = WorkspaceSpec { privileged_commands: vec!["state rm".to_owned()], ..WorkspaceSpec::default() };
        let workspace = Workspace::new("w", spec);
        let lingering = BTreeSet::new();
        let policy = Effective::default();
        let seen = WorkspaceFacts {
            workspace: &workspace,
            runs: &[],
            lingering: &lingering,
            head: None,
            stack: None,
            policy: &policy,
            image: "",
            backup: None,
        };
        let command = |words: &str| {
            let operation = knoll_api::run::Operation::Command;
            Run::new("r", RunSpec { operation, command: Some(words.to_owned()), ..RunSpec::default() })
        };
        assert_eq!(entry(&seen, &command("state rm"), false).standing, QueueStanding::Held);
        assert_eq!(entry(&seen, &command("state mv"), false).standing, QueueStanding::Waiting);
    }

    fn run(name: &str, operation: Operation, phase: RunPhase) -> Run {
        let mut run = Run::new(name, RunSpec { workspace: "w".into(), operation, ..RunSpec::default() });
        run.status = Some(RunStatus { phase, ..RunStatus::default() });
        run
    }

    fn decided(
        deleted: bool,
        held: bool,
        runs: &[Run],
        lingering: &[&str],
    ) -> Decision<WorkspaceStatus, WorkspaceAction> {
        let mut workspace = Workspace::new("w", Default::default());
        workspace.metadata.namespace = Some("ns".to_owned());
        workspace.metadata.deletion_timestamp = deleted.then_some(Time(Timestamp::UNIX_EPOCH));
        workspace.metadata.finalizers = held.then(|| vec![finalizer::WORKSPACE.to_owned()]);
        let runs: Vec<&Run> = runs.iter().collect();
        let lingering = lingering.iter().map(ToString::to_string).collect();
        let seen = WorkspaceFacts {
            workspace: &workspace,
            runs: &runs,
            lingering: &lingering,
            head: None,
            stack: None,
            policy: &Effective::default(),
            image: "",
            backup: None,
        };
        decide(&seen, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_workspace_that_was_deleted_during_an_apply_waits_for_it() {
        use RunPhase::{Failed, Pending, Running, Succeeded};
        let (add, remove) = (Some(WorkspaceAction::AddFinalizer), Some(WorkspaceAction::RemoveFinalizer));
        let (apply, plan) = (Operation::Apply, Operation::Plan);
        let rows: &[(bool, bool, &[(Operation, RunPhase)], Option<WorkspaceAction>)] = &[
            (false, false, &[], None),
            (false, false, &[(apply, Pending)], add),
            (false, false, &[(plan, Running)], None),
            (false, false, &[(apply, Succeeded)], None),
            (false, true, &[(apply, Pending)], None),
            (true, true, &[(apply, Running)], None),
            (true, true, &[(plan, Running)], None),
            (true, true, &[(apply, Failed), (plan, Succeeded)], remove),
            (true, true, &[], remove),
            (true, false, &[(apply, Running)], None),
        ];
        for (deleted, held, runs, expect) in rows {
            let runs: Vec<Run> = runs.iter().map(|(operation, phase)| run("r", *operation, *phase)).collect();
            let action = match decided(*deleted, *held, &runs, &[]).next {
                Next::Act(action) => Some(action),
                Next::Status(_) => None,
            };
            assert_eq!(action, *expect, "{deleted} {held} {runs:?}");
        }
        assert!(matches!(decided(true, true, &[], &["a run whose pod is there"]).next, Next::Status(_)));
    }

    #[test]
    fn the_run_that_holds_the_lock_is_named_with_its_user_and_since_when() {
        let mut apply = run("a", Operation::Apply, RunPhase::Pending);
        apply.spec.requested_by = Some("ann".to_owned());
        let mut workspace = Workspace::new("w", Default::default());
        let lingering = BTreeSet::new();
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut told = |apply: &Run, second| {
            let (runs, policy) = ([apply], Effective::default());
            let (head, stack) = (None, None);
            let seen = WorkspaceFacts {
                workspace: &workspace,
                runs: &runs,
                lingering: &lingering,
                head,
                stack,
                policy: &policy,
                image: "",
                backup: None,
            };
            let next = status(&seen, at(second));
            workspace.status = Some(next.clone());
            let message = crate::conditions::find(&next.conditions, condition::READY).unwrap().message.clone();
            (next.active_requested_by, message)
        };
        let expect = "Run `a` holds the lock (started by ann, since 1970-01-01T00:00:05Z); 0 waiting.".to_owned();
        assert_eq!(told(&apply, 5), (Some("ann".to_owned()), expect.clone()));
        assert_eq!(told(&apply, 9), (Some("ann".to_owned()), expect), "since it got the lock");
        apply.status.as_mut().unwrap().phase = RunPhase::Succeeded;
        assert_eq!(told(&apply, 10), (None, "No run holds the lock.".to_owned()));
    }

    #[test]
    fn a_deleted_workspace_says_what_it_waits_for() {
        let runs = [run("a", Operation::Apply, RunPhase::Running), run("b", Operation::Plan, RunPhase::Running)];
        let Next::Status(status) = decided(true, true, &runs, &[]).next else { panic!() };
        assert_eq!(status.phase, WorkspacePhase::Deleting);
        let ready = crate::conditions::find(&status.conditions, condition::READY).unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", reason::DELETING));
        assert_eq!(
            ready.message,
            "The Workspace is deleted when these runs have ended and their state is stored: `a`, `b`. To stop one: knoll cancel a -n ns"
        );
    }

    #[test]
    fn the_files_that_were_applied_are_remembered_when_the_lock_is_let_go() {
        let tried = json!([{"name": "apply", "state": "Failed"}]);
        check("apply", json!({"phase": "Succeeded", "bundle": "sha256:1"}), Some("sha256:1"));
        check("apply", json!({"phase": "Failed", "bundle": "sha256:1", "steps": tried}), Some("sha256:1"));
        check("apply", json!({"phase": "Failed", "bundle": "sha256:1"}), None);
        check("apply", json!({"phase": "Running", "bundle": "sha256:1"}), None);
        check("destroy", json!({"phase": "Succeeded", "bundle": "sha256:1"}), None);
        // A reviewed run without changes succeeds without an Approval, and a runner may report any step.
        let reviewed = |decision: serde_json::Value| json!({"phase": "Succeeded", "bundle": "sha256:1", "approval": "Manual", "steps": tried, "decision": decision});
        let decision = |decision: &str| json!({"approvals": ["a"], "decision": decision, "by": "ann"});
        check("apply", reviewed(serde_json::Value::Null), None);
        check("apply", reviewed(decision("Discard")), None);
        check("apply", reviewed(decision("Approve")), Some("sha256:1"));
    }
}
