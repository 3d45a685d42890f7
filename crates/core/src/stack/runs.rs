//! The objects that a Stack creates: its Workspace and its Runs.
//!
//! None has an owner reference. With one, a deletion in the foreground would let the garbage collector delete the Workspace
//! and the variables before anything is destroyed. They carry the Stack's name and UID instead, and the Stack deletes them
//! when they are no longer needed. Only the Run of its destruction outlives it, until its `ttlAfterFinished`.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::{
    Digest, Purpose,
    names::{annotation, label},
    run::{Operation, Run, RunApproval, RunSpec},
    stack::{DriftAction, LaunchIntent, Snapshot, Stack, StackApproval, StartedRun},
    workspace::Workspace,
};
use kube::ResourceExt;

use super::conditions::short;

/// The number of characters of a Stack's name in the names of its Runs, which have to fit into a label.
const NAME_MAX: usize = 40;

/// The time for which a finished drift check is kept: long enough to read its log.
const DRIFT_RUN_KEPT: Duration = Duration::from_secs(3600);

/// The time for which a finished destruction is kept, also after its Stack is gone: longer than a weekend, so that its log
/// can still be read.
const DESTROY_RUN_KEPT: Duration = Duration::from_secs(3 * 24 * 3600);

/// A Run that a Stack has started, with what the Stack's status says of it. The Run's own labels and annotations can be
/// written by users.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnRun<'a> {
    pub run: &'a Run,
    pub number: u32,
    pub purpose: Purpose,
}

impl<'a> OwnRun<'a> {
    /// The Run of this record; `None` if it has only the name of it.
    #[must_use]
    pub fn of(record: &StartedRun, run: &'a Run) -> Option<Self> {
        let is_it = run.metadata.name.as_ref() == Some(&record.name) && run.metadata.uid.as_ref() == Some(&record.uid);
        is_it.then_some(Self { run, number: record.number, purpose: record.purpose })
    }
}

impl std::ops::Deref for OwnRun<'_> {
    type Target = Run;

    fn deref(&self) -> &Run {
        self.run
    }
}

/// The Run that the API has under the name of a Stack's [`LaunchIntent`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IntendedRun<'a> {
    /// The Run was not created yet.
    Absent,
    /// The operator has created the Run.
    Created(&'a Run),
    /// Somebody else has created a Run of that name.
    Taken,
}

impl<'a> IntendedRun<'a> {
    /// Recognises the Run. Its nonce was secret until the operator created it, so no other Run can have it earlier.
    #[must_use]
    pub fn of(intent: &LaunchIntent, found: Option<&'a Run>) -> Self {
        let Some(run) = found else { return Self::Absent };
        let nonce = run.annotations().get(annotation::NONCE);
        let is_it = nonce.is_some_and(|nonce| commitment(run, nonce) == intent.commitment);
        if is_it && run.name_any() == intent.name { Self::Created(run) } else { Self::Taken }
    }
}

/// The digest of a Run's content and its nonce.
#[must_use]
pub fn commitment(run: &Run, nonce: &str) -> String {
    let RunSpec { workspace, operation, approval, snapshot, .. } = &run.spec;
    let snapshot = snapshot.as_ref().map(|of| [&of.revision, &of.bundle, &of.variables]);
    let content = serde_json::json!([nonce, run.name_any(), workspace, operation, approval, snapshot]);
    Digest::of(content.to_string()).into()
}

/// Whether a Stack has started a Run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launched {
    /// The Stack's status names the Run with its UID.
    Confirmed,
    /// The Stack is about to record the Run, or to find that it is somebody else's. Next: any other.
    Intended,
    /// The Stack knows nothing of the Run. Final, as the intent is recorded before a Run is created.
    Never,
}

/// Whether the Stack has started the Run.
#[must_use]
pub fn launched(stack: Option<&Stack>, run: &Run) -> Launched {
    let Some(status) = stack.and_then(|stack| stack.status.as_ref()) else { return Launched::Never };
    if status.started_runs.iter().any(|record| OwnRun::of(record, run).is_some()) {
        return Launched::Confirmed;
    }
    let intended = status.launching.as_ref().is_some_and(|intent| Some(&intent.name) == run.metadata.name.as_ref());
    if intended { Launched::Intended } else { Launched::Never }
}

/// Why the Stack has started the Run; `None` if it has not.
#[must_use]
pub fn started_purpose(stack: Option<&Stack>, run: &Run) -> Option<Purpose> {
    let started = stack?.status.as_ref()?.started_runs.iter();
    started.filter_map(|record| OwnRun::of(record, run)).map(|own| own.purpose).next()
}

/// Whether a Run may start only if a Stack has started it.
#[must_use]
pub fn is_launched(run: &Run) -> bool {
    run.spec.snapshot.is_some() || run.annotations().contains_key(annotation::NONCE)
}

/// The Stack whose infrastructure a Run would change without being asked for by it; `None` when the Run may go on.
///
/// An `apply`, a `destroy` and a `refresh` take the files and the variables of the Run for the whole truth, so only those
/// of the Stack are right. Other commands name the part of the state that they change.
#[must_use]
pub fn changed_by<'a>(run: &Run, workspace: &Workspace, stack: Option<&'a Stack>) -> Option<&'a Stack> {
    let changes = matches!(run.spec.operation, Operation::Apply | Operation::Destroy | Operation::Refresh);
    let owner = stack.filter(|stack| super::is_owned(workspace, stack))?;
    (changes && launched(stack, run) != Launched::Confirmed).then_some(owner)
}

/// The labels of the objects that a Stack creates.
#[must_use]
pub fn owner_labels(stack: &Stack) -> BTreeMap<String, String> {
    BTreeMap::from([
        (label::STACK.to_owned(), stack.name_any()),
        (label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned()),
    ])
}

/// The annotations of the objects that a Stack creates.
#[must_use]
pub fn owner_annotations(stack: &Stack) -> BTreeMap<String, String> {
    BTreeMap::from([(annotation::STACK_UID.to_owned(), stack.uid().unwrap_or_default())])
}

/// The user who last changed the spec of a Stack, as the API server has checked it; `None` when that user is unknown.
#[must_use]
pub fn requested_by(stack: &Stack) -> Option<&str> {
    stack.annotations().get(annotation::REQUESTED_BY).map(String::as_str).filter(|by| !by.is_empty())
}

/// The Workspace of a Stack.
#[must_use]
pub fn workspace(stack: &Stack) -> Workspace {
    let mut workspace = Workspace::new(&stack.name_any(), stack.spec.workspace.clone());
    workspace.metadata.namespace = stack.namespace();
    workspace.metadata.labels = Some(owner_labels(stack));
    workspace.metadata.annotations = Some(owner_annotations(stack));
    workspace.metadata.finalizers = crate::workspace::finalizers();
    workspace
}

/// The Run of a Stack with this number. Its name follows from number and purpose, so it is not created twice.
///
/// Without a snapshot it uses the files that its Workspace applied last. `by` is the user who asked for the snapshot.
pub(super) fn run(stack: &Stack, number: u32, purpose: Purpose, snapshot: Option<&Snapshot>, by: Option<&str>) -> Run {
    let name = stack.name_any();
    let suffix = match (purpose, snapshot) {
        (Purpose::Apply, Some(snapshot)) => short(&snapshot.revision),
        _ => purpose.as_str(),
    };
    let cut = name.get(..NAME_MAX).unwrap_or(&name).trim_end_matches(['-', '.']);
    let operation = match purpose {
        Purpose::Drift => Operation::Plan,
        Purpose::Destroy => Operation::Destroy,
        Purpose::Apply | Purpose::Correct | Purpose::Rollback => Operation::Apply,
    };
    let spec = RunSpec {
        workspace: name.clone(),
        operation,
        snapshot: snapshot.cloned(),
        approval: approval(stack, purpose),
        hooks: stack.spec.hooks.clone(),
        retry: stack.spec.retry.clone(),
        // Nothing says who deleted the Stack.
        requested_by: by.filter(|_| purpose != Purpose::Destroy).map(str::to_owned),
        ttl_after_finished: kept(purpose).map(Into::into),
        ..RunSpec::default()
    };
    let mut labels = owner_labels(stack);
    labels.insert(label::PURPOSE.to_owned(), purpose.to_string());
    labels.insert(label::WORKSPACE.to_owned(), name.clone());
    let mut annotations = owner_annotations(stack);
    annotations.insert(annotation::NUMBER.to_owned(), number.to_string());
    Run {
        metadata: ObjectMeta {
            name: Some(format!("{cut}-{number}-{suffix}")),
            namespace: stack.namespace(),
            labels: Some(labels),
            annotations: Some(annotations),
            finalizers: crate::run::finalizers(&spec),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// The time after which a finished Run is deleted, whatever becomes of its Stack.
fn kept(purpose: Purpose) -> Option<Duration> {
    match purpose {
        Purpose::Drift => Some(DRIFT_RUN_KEPT),
        Purpose::Destroy => Some(DESTROY_RUN_KEPT),
        Purpose::Apply | Purpose::Correct | Purpose::Rollback => None,
    }
}

fn approval(stack: &Stack, purpose: Purpose) -> RunApproval {
    let drift_action = stack.spec.drift.as_ref().map(|drift| drift.action);
    match (purpose, stack.spec.approval, drift_action) {
        // A drift check only plans.
        (Purpose::Drift, ..) => RunApproval::Auto,
        (Purpose::Correct, _, Some(DriftAction::Plan)) => RunApproval::Manual,
        (_, StackApproval::Auto, _) => RunApproval::Auto,
        (_, StackApproval::Manual, _) => RunApproval::Manual,
        (_, StackApproval::ManualOnDestroy, _) => RunApproval::ManualOnDestroy,
    }
}
