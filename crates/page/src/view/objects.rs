//! A Stack, a Workspace and an Atom: what each is doing, and what belongs to it.

use jiff::Timestamp;
use knoll_api::names::condition;
use knoll_api::{Atom, Run, Stack, Workspace};
use knoll_core::conditions;
use knoll_core::stack::needs;
use kube::{Api, ResourceExt};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::lists::{self, RowView, all, atom_status, run_row};
use super::shown::{self, Moment, Status, Tone};
use crate::error::PageError;
use crate::user::User;

/// Runs that are shown below an object.
const RUNS: usize = 20;

/// A value with its label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Fact {
    pub label: String,
    pub value: String,
    /// The path of a page about the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub href: Option<String>,
}

/// The page of a Stack, a Workspace or an Atom.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ObjectView {
    /// `Stack`, `Workspace` or `Atom`.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub status: Status,
    /// The sentence of the operator.
    pub message: Option<String>,
    pub facts: Vec<Fact>,
    /// The outputs that are not sensitive, as JSON.
    pub outputs: Vec<Fact>,
    /// The states of its machine, with the current one.
    pub states: Vec<MachineState>,
    /// The waiting runs, the next first.
    pub queue: Vec<String>,
    pub objects: Vec<ObjectRow>,
    /// The demands of Policies, and where they are from.
    pub policy: Vec<Fact>,
    pub runs: Vec<RowView>,
}

/// A state of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MachineState {
    pub status: Status,
    pub current: bool,
}

/// A Kubernetes object of an Atom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ObjectRow {
    pub kind: String,
    pub name: String,
    pub ready: bool,
    pub message: Option<String>,
}

fn fact(label: &str, value: Option<impl ToString>) -> Option<Fact> {
    let value = value.map(|value| value.to_string()).filter(|value| !value.is_empty())?;
    Some(Fact { label: label.to_owned(), value, href: None })
}

fn link(label: &str, value: Option<&str>, folder: &str, namespace: &str) -> Option<Fact> {
    let href = value.map(|name| format!("/{folder}/{namespace}/{name}"));
    fact(label, value).map(|fact| Fact { href, ..fact })
}

fn outputs<'a>(all: impl IntoIterator<Item = (&'a String, &'a Value)>) -> Vec<Fact> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    all.into_iter().map(|(name, value)| Fact { label: name.clone(), value: text(value), href: None }).collect()
}

/// The newest runs of a Workspace. Runs that the user may not list are left out.
async fn runs_of(user: &User, namespace: &str, workspace: &str, now: Timestamp) -> Vec<RowView> {
    let of_workspace = |run: &Run| {
        (run.spec.workspace == workspace).then(|| (run.metadata.creation_timestamp.clone(), run_row(run, now)))
    };
    let mut runs = all(&user.client, namespace, of_workspace).await.map(|(runs, _)| runs).unwrap_or_default();
    runs.sort_by(|(one, _), (other, _)| other.cmp(one));
    runs.into_iter().take(RUNS).map(|(_, row)| row).collect()
}

pub async fn stack(user: &User, namespace: &str, name: &str) -> Result<ObjectView, PageError> {
    let api: Api<Stack> = Api::namespaced(user.client.clone(), namespace);
    let now = Timestamp::now();
    let (stack, runs) = tokio::join!(api.get(name), runs_of(user, namespace, name, now));
    Ok(stack_view(&stack?, runs, now))
}

fn stack_view(stack: &Stack, runs: Vec<RowView>, now: Timestamp) -> ObjectView {
    let status = stack.status.clone().unwrap_or_default();
    let namespace = stack.namespace().unwrap_or_default();
    let short = |revision: &String| revision.chars().take(12).collect::<String>();
    let drifted = conditions::find(&status.conditions, condition::DRIFTED).filter(|found| found.status == "True");
    let drift = status.drift.as_ref();
    let counts =
        drift.filter(|_| drifted.is_some()).map(|drift| format!("+{} ~{} -{}", drift.add, drift.change, drift.destroy));
    let facts = [
        fact("Applied revision", status.revision.as_ref().map(short)),
        fact("Pending revision", status.pending_revision.as_ref().map(short)),
        fact("Source revision", status.source_revision.clone()),
        fact("Applied", Moment::of_micro(status.applied_at.as_ref(), now).map(|at| format!("{} ago", at.age))),
        fact("Approval", Some(format!("{:?}", stack.spec.approval))),
        fact("On failure", Some(format!("{:?}", stack.spec.on_failure))),
        fact(
            "Drift check",
            stack.spec.drift.as_ref().map(|drift| format!("every {}, {:?}", drift.interval, drift.action)),
        ),
        fact("Drift", counts.or_else(|| drift.map(|_| "none".to_owned()))),
        link("Last run", status.last_run.as_deref(), "runs", &namespace),
        link("Workspace", Some(&stack.name_any()), "workspaces", &namespace),
    ];
    let needed = needs(stack).into_iter().filter_map(|name| link("Needs", Some(name), "stacks", &namespace));
    let message = drifted.map(|found| found.message.clone()).or_else(|| shown::ready_message(&status.conditions));
    ObjectView {
        kind: "Stack".to_owned(),
        name: stack.name_any(),
        status: Status::of_stack(status.phase),
        message,
        facts: facts.into_iter().flatten().chain(needed).collect(),
        outputs: outputs(&status.outputs),
        states: Vec::new(),
        queue: Vec::new(),
        objects: Vec::new(),
        policy: Vec::new(),
        runs,
        namespace,
    }
}

pub async fn workspace(user: &User, namespace: &str, name: &str) -> Result<ObjectView, PageError> {
    let api: Api<Workspace> = Api::namespaced(user.client.clone(), namespace);
    let now = Timestamp::now();
    let (workspace, runs) = tokio::join!(api.get(name), runs_of(user, namespace, name, now));
    Ok(workspace_view(&workspace?, runs, now))
}

fn workspace_view(workspace: &Workspace, runs: Vec<RowView>, now: Timestamp) -> ObjectView {
    let status = workspace.status.clone().unwrap_or_default();
    let namespace = workspace.namespace().unwrap_or_default();
    let row = lists::workspace_row(workspace, now);
    let state = status.state.as_ref();
    let since = Moment::of_micro(status.active_since.as_ref(), now);
    let by = status.active_requested_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let facts = [
        link("Lock", status.active.as_deref(), "runs", &namespace),
        fact("Locked", since.map(|since| format!("{} ago{by}", since.age))),
        fact("Resources", state.map(|state| state.resources)),
        fact("Serial", state.map(|state| state.serial)),
        fact("Lineage", state.map(|state| state.lineage.clone())),
        fact(
            "State written",
            state
                .and_then(|state| Moment::of_micro(state.updated_at.as_ref(), now))
                .map(|at| format!("{} ago", at.age)),
        ),
        link("State written by", state.and_then(|state| state.run.as_deref()), "runs", &namespace),
        fact(
            "Tool",
            Some(format!("{} {}", workspace.spec.tool.program(), workspace.spec.version.clone().unwrap_or_default())),
        ),
    ];
    let policy = status.policy.iter().map(|setting| Fact {
        label: setting.setting.clone(),
        value: format!("{} ({})", setting.value, setting.from),
        href: None,
    });
    ObjectView {
        kind: "Workspace".to_owned(),
        name: workspace.name_any(),
        status: row.status,
        message: shown::ready_message(&status.conditions),
        facts: facts.into_iter().flatten().collect(),
        outputs: outputs(&status.outputs),
        states: Vec::new(),
        queue: status.queue.clone(),
        objects: Vec::new(),
        policy: policy.collect(),
        runs,
        namespace,
    }
}

pub async fn atom(user: &User, namespace: &str, name: &str) -> Result<ObjectView, PageError> {
    let api: Api<Atom> = Api::namespaced(user.client.clone(), namespace);
    Ok(atom_view(&api.get(name).await?, Timestamp::now()))
}

fn atom_view(atom: &Atom, now: Timestamp) -> ObjectView {
    use knoll_api::atom::AtomPhase as Phase;
    let status = atom.status.clone().unwrap_or_default();
    let all = [
        Phase::Pending,
        Phase::Updating,
        Phase::Running,
        Phase::Cancelled,
        Phase::Deadline,
        Phase::Error,
        Phase::Rollback,
        Phase::Reverted,
        Phase::Failure,
    ];
    let states = all.map(|phase| MachineState { status: atom_status(phase), current: phase == status.phase });
    let facts = [
        fact("Wanted version", Some(atom.spec.version.clone())),
        fact("Current version", status.current_version.clone()),
        fact("Last good version", status.last_good_version.clone()),
        fact("Target version", status.target_version.clone()),
        fact("Attempts", Some(status.attempts)),
        fact("Update began", Moment::of_micro(status.started_at.as_ref(), now).map(|at| format!("{} ago", at.age))),
    ];
    let object = |object: &knoll_api::atom::AtomObject| ObjectRow {
        kind: object.object.kind.clone(),
        name: object.object.name.clone(),
        ready: object.ready,
        message: object.message.clone(),
    };
    let failure = status.failure.as_ref().map(|failure| failure.message.clone());
    let current = atom_status(status.phase);
    let message = failure.filter(|_| current.tone == Tone::Bad).or_else(|| shown::ready_message(&status.conditions));
    ObjectView {
        kind: "Atom".to_owned(),
        namespace: atom.namespace().unwrap_or_default(),
        name: atom.name_any(),
        status: current,
        message,
        facts: facts.into_iter().flatten().collect(),
        outputs: Vec::new(),
        states: states.to_vec(),
        queue: Vec::new(),
        objects: status.objects.iter().map(object).collect(),
        policy: Vec::new(),
        runs: Vec::new(),
    }
}
