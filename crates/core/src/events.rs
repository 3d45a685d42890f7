//! The events of Runs, Stacks, Atoms and Approvals: a change of the phase, or a problem that a user should look at.

use knoll_api::{
    approval::{ApprovalPhase, ApprovalStatus, Decision},
    atom::{AtomPhase, AtomStatus},
    names::{condition, reason},
    run::{Run, RunPhase, RunStatus},
    stack::{StackPhase, StackStatus},
};

use crate::{conditions, run};

/// An event on an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// Whether the event has the type `Warning`.
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

/// The part of a Run's status that an event reports: its phase, and the problem that delays it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedState {
    pub phase: RunPhase,
    /// The problem's key: the same problem is reported once.
    problem: Option<String>,
}

impl ReportedState {
    /// The reported part of `status`.
    #[must_use]
    pub fn of(status: &RunStatus) -> Self {
        Self { phase: status.phase, problem: problem(status).map(|(what, _)| what) }
    }
}

/// The event of a Run whose reported state was `before`, if anything has changed. The event of a new phase names the
/// users who requested, approved and cancelled the Run, as far as they are known.
#[must_use]
pub fn of_run(run: &Run, before: &ReportedState, status: &RunStatus) -> Option<Event> {
    let ready = conditions::find(&status.conditions, condition::READY);
    let problem = problem(status);
    if let Some((what, event)) = problem
        && before.problem.as_ref() != Some(&what)
    {
        return Some(event);
    }
    if before.phase == status.phase {
        return None;
    }
    let message = ready.map(|ready| ready.message.clone()).unwrap_or_default() + &people(run, status);
    // An end that is not the plain one names its cause: OOMKilled says more than Failed.
    let cause = ready.map(|ready| ready.reason.clone());
    let reason = match status.phase {
        RunPhase::Failed | RunPhase::Cancelled | RunPhase::Discarded => cause,
        _ => None,
    };
    Some(Event {
        warning: status.phase == RunPhase::Failed,
        reason: reason.unwrap_or_else(|| status.phase.as_str().to_owned()),
        message,
    })
}

/// The users behind a run, in parentheses; empty if none is known.
fn people(run: &Run, status: &RunStatus) -> String {
    let approved = status.decision.as_ref().filter(|decision| decision.decision == Decision::Approve);
    let known = [
        ("requested", run::requested_by(run)),
        ("approved", approved.map(|decision| decision.by.as_str())),
        ("cancelled", run::cancelled_by(run)),
    ];
    let named = known.into_iter().filter_map(|(did, by)| Some(format!("{did} by {}", by?)));
    match named.collect::<Vec<_>>().join(", ") {
        named if named.is_empty() => named,
        named => format!(" ({named})"),
    }
}

/// The events of a Stack whose status was `before`: a new phase, and drift that appeared or disappeared.
#[must_use]
pub fn of_stack(before: &StackStatus, status: &StackStatus) -> Vec<Event> {
    let said = |kind: &str| conditions::find(&status.conditions, kind);
    let mut events = Vec::new();
    if before.phase != status.phase
        && let Some(ready) = said(condition::READY)
    {
        let failed = matches!(status.phase, StackPhase::Held | StackPhase::Failure | StackPhase::Reverted);
        let warning = failed || ready.reason == reason::POLICY_VIOLATION;
        events.push(Event { warning, reason: ready.reason.clone(), message: ready.message.clone() });
    }
    let was = conditions::find(&before.conditions, condition::DRIFTED).map(|drifted| &drifted.status);
    if let Some(drifted) = said(condition::DRIFTED)
        .filter(|drifted| was.is_some_and(|was| *was != drifted.status) || (was.is_none() && drifted.status == "True"))
    {
        let warning = drifted.status == "True";
        events.push(Event { warning, reason: drifted.reason.clone(), message: drifted.message.clone() });
    }
    let undeclared = |status: &StackStatus| {
        conditions::find(&status.conditions, condition::VARIABLES_UNDECLARED).map(|found| found.message.clone())
    };
    if let Some(message) = undeclared(status).filter(|message| undeclared(before).as_ref() != Some(message)) {
        events.push(Event { warning: true, reason: reason::UNDECLARED_VARIABLE.to_owned(), message });
    }
    events
}

/// The event of an Atom whose status was `before`: a new phase.
#[must_use]
pub fn of_atom(before: &AtomStatus, status: &AtomStatus) -> Option<Event> {
    let ready = conditions::find(&status.conditions, condition::READY)?;
    let warning =
        matches!(status.phase, AtomPhase::Deadline | AtomPhase::Error | AtomPhase::Reverted | AtomPhase::Failure);
    let said = Event { warning, reason: ready.reason.clone(), message: ready.message.clone() };
    (before.phase != status.phase).then_some(said)
}

/// The event of an Approval that took effect, or that had none, with the reason.
#[must_use]
pub fn of_approval(status: &ApprovalStatus) -> Option<Event> {
    let ready = conditions::find(&status.conditions, condition::READY)?;
    let warning = status.phase == ApprovalPhase::NoEffect;
    Some(Event { warning, reason: ready.reason.clone(), message: ready.message.clone() })
}

/// The key and the event of the problem that delays a Run, such as an image that cannot be pulled.
fn problem(status: &RunStatus) -> Option<(String, Event)> {
    if status.phase.is_finished() {
        return None;
    }
    let problems = [reason::WORKSPACE_NOT_FOUND, reason::IMAGE_PULL_BACK_OFF, reason::POD_FAILED];
    let ready = conditions::find(&status.conditions, condition::READY);
    let hindered = ready.filter(|ready| problems.contains(&ready.reason.as_str()));
    let told = |condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| Event {
        // A Run and its Workspace are often created together, in any order.
        warning: condition.reason != reason::WORKSPACE_NOT_FOUND,
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    };
    if let Some(ready) = hindered {
        // Its message changes with every attempt of the kubelet's.
        return Some((ready.reason.clone(), told(ready)));
    }
    let approved = conditions::find(&status.conditions, condition::APPROVED);
    let mismatch = approved.filter(|approved| approved.reason == reason::DIGEST_MISMATCH)?;
    Some((mismatch.message.clone(), told(mismatch)))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use knoll_api::{
        names::{annotation, cancel},
        run::{ReviewDecision, RunSpec},
    };

    use super::*;
    use crate::conditions::ConditionWriter;

    fn status(phase: RunPhase, type_: &str, why: &str, message: &str) -> RunStatus {
        let mut status = RunStatus { phase, ..RunStatus::default() };
        ConditionWriter::new(&mut status.conditions, None, Timestamp::UNIX_EPOCH).set(type_, false, why, message);
        status
    }

    #[test]
    fn each_problem_is_told_once() {
        let waits = status(RunPhase::Pending, condition::READY, reason::WORKSPACE_NOT_FOUND, "There is no Workspace.");
        let run = Run::new("r", RunSpec::default());
        let of_run = |before: &ReportedState, status: &RunStatus| of_run(&run, before, status);
        let event = of_run(&ReportedState::default(), &waits);
        assert_eq!(event.map(|event| (event.warning, event.reason)), Some((false, "WorkspaceNotFound".to_owned())));
        assert_eq!(of_run(&ReportedState::of(&waits), &waits), None);
        let pulls = |message| status(RunPhase::Starting, condition::READY, reason::IMAGE_PULL_BACK_OFF, message);
        assert_eq!(of_run(&ReportedState::of(&pulls("a")), &pulls("b")), None);
        let other = |name| status(RunPhase::Review, condition::APPROVED, reason::DIGEST_MISMATCH, name);
        assert_eq!(of_run(&ReportedState::of(&other("a")), &other("a")), None);
        assert!(of_run(&ReportedState::of(&other("a")), &other("b")).is_some());
    }

    #[test]
    fn a_change_of_phase_is_told_with_its_cause() {
        let failed = status(RunPhase::Failed, condition::READY, reason::OOM_KILLED, "killed");
        let run = Run::new("r", RunSpec::default());
        let event = of_run(&run, &ReportedState::default(), &failed);
        assert_eq!(event.map(|event| (event.warning, event.reason)), Some((true, "OOMKilled".to_owned())));
        assert_eq!(of_run(&run, &ReportedState::of(&failed), &failed), None);
    }

    #[test]
    fn a_stack_that_a_policy_refuses_warns() {
        let waiting = |why: &str| {
            let mut status = StackStatus { phase: StackPhase::Waiting, ..StackStatus::default() };
            ConditionWriter::new(&mut status.conditions, None, Timestamp::UNIX_EPOCH).set(
                condition::READY,
                false,
                why,
                "",
            );
            of_stack(&StackStatus { phase: StackPhase::Ready, ..StackStatus::default() }, &status)[0].warning
        };
        assert!(waiting(reason::POLICY_VIOLATION));
        assert!(!waiting(reason::PROGRESSING));
    }

    #[test]
    fn an_event_names_who_asked_who_approved_and_who_cancelled() {
        let decision = |decision| {
            let (approvals, by) = (vec!["a".to_owned()], "bob".to_owned());
            Some(ReviewDecision { approvals, decision, by })
        };
        // Requester, decision, annotations, what is named.
        let rows = [
            (None, None, vec![], ""),
            (Some("alice"), None, vec![], " (requested by alice)"),
            (Some("alice"), decision(Decision::Approve), vec![], " (requested by alice, approved by bob)"),
            // The message of a discarded run names who decided.
            (Some("alice"), decision(Decision::Discard), vec![], " (requested by alice)"),
            (None, None, vec![(annotation::CANCEL, "now"), (annotation::CANCELLED_BY, "eve")], " (cancelled by eve)"),
            (None, None, vec![(annotation::CANCELLED_BY, "eve")], ""),
            (None, None, vec![(annotation::CANCEL, cancel::BY_STACK), (annotation::CANCELLED_BY, "eve")], ""),
        ];
        for (requested_by, decision, annotations, expect) in rows {
            let requested_by = requested_by.map(str::to_owned);
            let mut run = Run::new("r", RunSpec { requested_by, ..RunSpec::default() });
            let annotations = annotations.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
            run.metadata.annotations = Some(annotations.collect());
            let mut told = status(RunPhase::Starting, condition::READY, reason::PROGRESSING, "It starts.");
            told.decision = decision;
            let event = of_run(&run, &ReportedState::default(), &told);
            assert_eq!(event.map(|event| event.message), Some(format!("It starts.{expect}")));
        }
    }
}
