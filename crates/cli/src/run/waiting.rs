//! Explains why a run has no output yet. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use knoll_api::names::{condition, reason};
use knoll_api::run::{Operation, Run, RunPhase, StepName};
use knoll_api::workspace::{Workspace, WorkspaceStatus};
use kube::ResourceExt;

use crate::output::time;

/// After this many seconds without a status, the operator is probably not running.
const UNUSUAL: i64 = 5;

/// A sentence for the status line, or an empty one when the run is not waiting.
pub fn why(
    run: &Run,
    workspace: Option<&Workspace>,
    holder: Option<&Run>,
    pod: Option<&Pod>,
    events: &[Event],
    now: Timestamp,
) -> String {
    let status = run.status.clone().unwrap_or_default();
    let name = run.name_any();
    let ready = status.conditions.iter().find(|condition| condition.type_ == condition::READY);
    let message = ready.map(|ready| ready.message.as_str()).unwrap_or_default();
    match status.phase {
        RunPhase::Pending if message.is_empty() => {
            let since = run.creation_timestamp().map_or(0, |time| now.as_second() - time.0.as_second());
            let doubt = if since > UNUSUAL { "; is it running?" } else { "" };
            format!("{name}: waiting for the operator{doubt}")
        }
        RunPhase::Pending => format!("{name}: {message}"),
        RunPhase::Queued => queued(run, workspace, holder, message, now),
        RunPhase::Starting => match pod.map(|pod| starting(pod, events)) {
            Some(what) => format!("{name}: {what}"),
            None => format!("{name}: starting"),
        },
        RunPhase::Review if ready.is_some_and(|ready| is_held_up(&ready.reason)) => format!("{name}: {message}"),
        RunPhase::Review => {
            let review = status.steps.iter().find(|step| step.name == StepName::Review);
            let details = review.and_then(|step| step.message.as_ref()).map(|message| format!(" ({message})"));
            let details = details.unwrap_or_default();
            let of = format!("{name} -n {}", run.namespace().unwrap_or_default());
            format!("{name}: waiting for approval: knoll approve {of}, or knoll discard {of}{details}")
        }
        RunPhase::Running | RunPhase::Succeeded | RunPhase::Failed | RunPhase::Cancelled | RunPhase::Discarded => {
            String::new()
        }
    }
}

/// What the user of a plan has to know of the run that holds the lock at that time.
pub fn beside(holder: &Run, workspace: &WorkspaceStatus, now: Timestamp) -> String {
    let doing = match holder.spec.operation {
        _ if holder.status.as_ref().is_some_and(|status| status.phase == RunPhase::Review) => "is waiting for approval",
        Operation::Apply => "is being applied",
        Operation::Destroy => "is destroying",
        Operation::Refresh | Operation::Plan | Operation::Command => "is running",
    };
    format!(
        "this plan is made from the state as it is now, while run `{}` {doing}{}; what that run still changes is not in the plan",
        holder.name_any(),
        started(workspace, now)
    )
}

/// Whether a Policy keeps a run from starting that has its turn.
fn is_held_up(reason: &str) -> bool {
    matches!(reason, reason::WAITING_FOR_SLOT | reason::WAITING_FOR_WINDOW)
}

/// What the run that holds the lock is doing.
fn doing(holder: Option<&Run>, status: &WorkspaceStatus, now: Timestamp) -> String {
    let run = holder.and_then(|run| run.status.as_ref());
    let ready = run.and_then(|run| run.conditions.iter().find(|condition| condition.type_ == condition::READY));
    match ready.filter(|ready| ready.reason == reason::WAITING_FOR_ANSWER) {
        Some(ready) => format!("is {}", lower(&ready.message)),
        None if ready.is_some_and(|ready| is_held_up(&ready.reason)) => {
            let (name, why) =
                (holder.map(|run| run.name_any()).unwrap_or_default(), ready.map(|ready| ready.message.as_str()));
            format!(
                "has its turn and waits: {} To let the next one start: knoll cancel {name}",
                why.unwrap_or_default()
            )
        }
        None if run.is_some_and(|run| run.phase == RunPhase::Review) => {
            let name = holder.map(|run| run.name_any()).unwrap_or_default();
            format!("is waiting for approval (knoll approve {name}){}", started(status, now))
        }
        None => format!("is running{}", started(status, now)),
    }
}

fn queued(run: &Run, workspace: Option<&Workspace>, holder: Option<&Run>, message: &str, now: Timestamp) -> String {
    let name = run.name_any();
    let Some(status) = workspace.and_then(|workspace| workspace.status.as_ref()) else {
        return format!("{name}: {message}");
    };
    let index = status.queue.iter().position(|queued| *queued == name);
    let ahead = match index {
        Some(0) | None => status.active.clone(),
        Some(index) => status.queue.get(index - 1).cloned(),
    };
    let position =
        index.map_or_else(|| "waiting in the queue".to_owned(), |index| format!("position {} in the queue", index + 1));
    let active = status.active.as_deref();
    match ahead {
        Some(ahead) if Some(ahead.as_str()) == active => {
            format!("{name}: {position} of `{}`; `{ahead}` {}", run.spec.workspace, doing(holder, status, now))
        }
        Some(ahead) => {
            let active =
                active.map(|active| format!("; `{active}` {}", doing(holder, status, now))).unwrap_or_default();
            format!("{name}: {position} of `{}`, behind `{ahead}`{active}", run.spec.workspace)
        }
        None => format!("{name}: {position} of `{}`", run.spec.workspace),
    }
}

/// Who started the active run, and how long ago, in parentheses; empty if neither is known.
fn started(status: &WorkspaceStatus, now: Timestamp) -> String {
    let ago = status.active_since.as_ref().map(|since| format!("{} ago", time::age(Some(&Time(since.0)), now)));
    match (&status.active_requested_by, ago) {
        (Some(by), Some(ago)) => format!(" (started by {by}, {ago})"),
        (Some(by), None) => format!(" (started by {by})"),
        (None, Some(ago)) => format!(" (started {ago})"),
        (None, None) => String::new(),
    }
}

fn starting(pod: &Pod, events: &[Event]) -> String {
    let Some(status) = &pod.status else { return "starting".to_owned() };
    let unplaced = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status != "True");
    if let Some(condition) = unplaced {
        return match &condition.message {
            Some(message) => format!("waiting for a node: {message}"),
            None => "waiting for a node".to_owned(),
        };
    }
    let containers =
        || status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let troubled = containers().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason =
            waiting.reason.as_deref().filter(|reason| !matches!(*reason, "ContainerCreating" | "PodInitializing"))?;
        let detail = waiting.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
        Some(format!("waiting for the image `{}` ({reason}{detail})", container.image))
    });
    if let Some(trouble) = troubled {
        return trouble;
    }
    // The kubelet reports an image pull only in events.
    let last = events
        .iter()
        .max_by_key(|event| event.metadata.resource_version.as_deref().and_then(|v| v.parse::<u64>().ok()));
    if let Some(event) = last.filter(|event| event.reason.as_deref() == Some("Pulling")) {
        return event.message.clone().map_or_else(|| "pulling the image".to_owned(), |text| lower(&text));
    }
    let running = |container: &ContainerStatus| container.state.as_ref().is_some_and(|state| state.running.is_some());
    if containers().any(running) { "the runner is starting".to_owned() } else { "starting".to_owned() }
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};

    use super::*;

    fn run(status: Value) -> Run {
        serde_json::from_value(json!({
            "apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "metadata": {"name": "net-apply-2", "namespace": "prod"},
            "spec": {"workspace": "net", "operation": "apply"}, "status": status,
        }))
        .unwrap()
    }

    #[track_caller]
    fn check(status: Value, workspace: Value, pod: Value, events: Value, expect: &str) {
        let workspace: Option<Workspace> = serde_json::from_value(workspace).unwrap();
        let pod: Option<Pod> = serde_json::from_value(pod).unwrap();
        let events: Vec<Event> = serde_json::from_value(events).unwrap();
        assert_eq!(why(&run(status), workspace.as_ref(), None, pod.as_ref(), &events, Timestamp::now()), expect);
    }

    fn workspace(status: Value) -> Value {
        json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Workspace", "metadata": {"name": "net"}, "spec": {}, "status": status})
    }

    #[test]
    fn a_queue_names_who_is_ahead() {
        let queued = json!({"phase": "Queued"});
        let first = workspace(json!({"active": "a", "queue": ["net-apply-2"]}));
        check(
            queued.clone(),
            first,
            Value::Null,
            json!([]),
            "net-apply-2: position 1 in the queue of `net`; `a` is running",
        );
        let since = Timestamp::now() - std::time::Duration::from_secs(1205);
        let known = json!({"active": "a", "activeSince": since.to_string(), "activeRequestedBy": "ann",
            "queue": ["net-apply-2"]});
        let expect = "net-apply-2: position 1 in the queue of `net`; `a` is running (started by ann, 20m ago)";
        check(queued.clone(), workspace(known), Value::Null, json!([]), expect);
        let second = workspace(json!({"active": "a", "queue": ["b", "net-apply-2"]}));
        let expect = "net-apply-2: position 2 in the queue of `net`, behind `b`; `a` is running";
        check(queued, second, Value::Null, json!([]), expect);
    }

    #[test]
    fn a_plan_during_an_apply_said_nothing_of_it() {
        let status = WorkspaceStatus { active_requested_by: Some("ann".to_owned()), ..WorkspaceStatus::default() };
        let mut holder = run(json!({"phase": "Running"}));
        let mut said = |operation: Operation, phase: RunPhase| {
            holder.spec.operation = operation;
            holder.status.as_mut().unwrap().phase = phase;
            beside(&holder, &status, Timestamp::now())
        };
        let rows = [
            (Operation::Apply, RunPhase::Running, "is being applied"),
            (Operation::Apply, RunPhase::Review, "is waiting for approval"),
            (Operation::Destroy, RunPhase::Starting, "is destroying"),
            (Operation::Command, RunPhase::Running, "is running"),
        ];
        for (operation, phase, doing) in rows {
            let expect = format!(
                "this plan is made from the state as it is now, while run `net-apply-2` {doing} (started by ann); what that run \
                 still changes is not in the plan"
            );
            assert_eq!(said(operation, phase), expect);
        }
    }

    #[test]
    fn a_queue_names_a_prompt_that_nobody_answers() {
        let text = "Waiting for an answer in a terminal since 2026-01-01T08:00:00Z: knoll attach a";
        let ready = json!([{"type": "Ready", "status": "False", "reason": "WaitingForAnswer", "message": text,
            "lastTransitionTime": "2026-01-01T08:00:00Z"}]);
        let holder = run(json!({"phase": "Running", "conditions": ready}));
        let first = workspace(json!({"active": "a", "queue": ["net-apply-2"]}));
        let first: Workspace = serde_json::from_value(first).unwrap();
        let said = why(&run(json!({"phase": "Queued"})), Some(&first), Some(&holder), None, &[], Timestamp::now());
        let expect = "net-apply-2: position 1 in the queue of `net`; `a` is waiting for an answer in a terminal since \
                      2026-01-01T08:00:00Z: knoll attach a";
        assert_eq!(said, expect);
    }

    #[test]
    fn a_queue_said_that_a_run_in_review_was_running() {
        let first: Workspace =
            serde_json::from_value(workspace(json!({"active": "a", "queue": ["net-apply-2"]}))).unwrap();
        let holder = run(json!({"phase": "Review"}));
        let said = why(&run(json!({"phase": "Queued"})), Some(&first), Some(&holder), None, &[], Timestamp::now());
        let expect =
            "net-apply-2: position 1 in the queue of `net`; `a` is waiting for approval (knoll approve net-apply-2)";
        assert_eq!(said, expect);
        let ready = json!([{"type": "Ready", "status": "False", "reason": "WaitingForWindow",
            "message": "It waits until 2027.", "lastTransitionTime": "2026-01-01T08:00:00Z"}]);
        let holder = run(json!({"phase": "Pending", "conditions": ready}));
        let said = why(&run(json!({"phase": "Queued"})), Some(&first), Some(&holder), None, &[], Timestamp::now());
        let expect = "net-apply-2: position 1 in the queue of `net`; `a` has its turn and waits: It waits until 2027. To \
                      let the next one start: knoll cancel net-apply-2";
        assert_eq!(said, expect);
    }

    #[test]
    fn a_pod_says_what_keeps_it() {
        let starting = json!({"phase": "Starting"});
        let pod = |status: Value| json!({"metadata": {"name": "p"}, "status": status});
        let rows = [
            (Value::Null, json!([]), "starting"),
            (pod(json!({})), json!([]), "starting"),
            (
                pod(
                    json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}),
                ),
                json!([]),
                "waiting for a node: 0/3 nodes are available",
            ),
            (
                pod(
                    json!({"containerStatuses": [{"name": "runner", "image": "tf:9", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}),
                ),
                json!([]),
                "waiting for the image `tf:9` (ImagePullBackOff: no such image)",
            ),
            (
                pod(json!({})),
                json!([{"metadata": {"resourceVersion": "1"}, "involvedObject": {}, "reason": "Scheduled"},
                    {"metadata": {"resourceVersion": "2"}, "involvedObject": {}, "reason": "Pulling", "message": "Pulling image \"tf\""}]),
                "pulling image \"tf\"",
            ),
        ];
        for (pod, events, expect) in rows {
            check(starting.clone(), Value::Null, pod, events, &format!("net-apply-2: {expect}"));
        }
    }

    #[test]
    fn a_run_that_nobody_takes_up_is_doubted() {
        let mut run = run(Value::Null);
        run.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let at = |second| why(&run, None, None, None, &[], Timestamp::from_second(second).unwrap());
        assert_eq!(at(1), "net-apply-2: waiting for the operator");
        assert_eq!(at(9), "net-apply-2: waiting for the operator; is it running?");
    }

    #[test]
    fn a_review_says_who_demands_it_and_how_far_it_is() {
        let review = |message: Value| json!({"phase": "Review", "steps": [{"name": "review", "state": "Waiting", "attempts": 1, "message": message}]});
        let line = "net-apply-2: waiting for approval: knoll approve net-apply-2 -n prod, or knoll discard net-apply-2 -n prod";
        check(review(Value::Null), Value::Null, Value::Null, json!([]), line);
        let why = "Policy `prod` demands a review (spec.review.floor). It has 1 of 2 Approvals (by bob).";
        check(review(json!(why)), Value::Null, Value::Null, json!([]), &format!("{line} ({why})"));
    }

    #[test]
    fn a_run_that_goes_on_waits_for_nothing() {
        check(json!({"phase": "Running"}), Value::Null, Value::Null, json!([]), "");
    }
}
