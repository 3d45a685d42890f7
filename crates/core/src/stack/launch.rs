//! What a Stack makes: its Workspace and its Runs.
//!
//! Nothing of it has an owner reference. A Stack that is deleted in the foreground would lose its Workspace and its
//! variables to the garbage collector before it could destroy anything; so they carry the Stack's name and UID, and the
//! Stack deletes them when they are of no use any more.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::{
    names::{annotation, label, purpose},
    run::{Operation, Run, RunApproval, RunSpec},
    source::Source,
    stack::{DriftAction, Snapshot, Stack, StackApproval},
    variables::{KeysRef, VariablesFrom},
    workspace::Workspace,
};
use kube::ResourceExt;

use super::tell;

/// How many characters of a Stack's name its Runs have in theirs, so that those fit into a label.
const NAME_MAX: usize = 40;

/// How long a look for drift is kept.
const DRIFT_RUN_KEPT: std::time::Duration = std::time::Duration::from_secs(3600);

/// The labels of what a Stack makes.
#[must_use]
pub fn owner_labels(stack: &Stack) -> BTreeMap<String, String> {
    BTreeMap::from([
        (label::STACK.to_owned(), stack.name_any()),
        (label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned()),
    ])
}

/// The annotations of what a Stack makes.
#[must_use]
pub fn owner_annotations(stack: &Stack) -> BTreeMap<String, String> {
    BTreeMap::from([(annotation::STACK_UID.to_owned(), stack.uid().unwrap_or_default())])
}

/// The Workspace of a Stack.
#[must_use]
pub fn workspace(stack: &Stack) -> Workspace {
    let mut workspace = Workspace::new(&stack.name_any(), stack.spec.workspace.clone());
    workspace.metadata.namespace = stack.namespace();
    workspace.metadata.labels = Some(owner_labels(stack));
    workspace.metadata.annotations = Some(owner_annotations(stack));
    workspace
}

/// The Run of a Stack that has this number. Its name follows from number and purpose, so that a repeated create is
/// recognised.
pub(super) fn run(stack: &Stack, number: u32, is_for: &str, snapshot: &Snapshot) -> Run {
    let name = stack.name_any();
    let suffix = if is_for == purpose::APPLY { tell::short(&snapshot.revision) } else { is_for };
    let cut = name.get(..NAME_MAX).unwrap_or(&name).trim_end_matches(['-', '.']);
    let operation = match is_for {
        purpose::DRIFT => Operation::Plan,
        purpose::DESTROY => Operation::Destroy,
        _ => Operation::Apply,
    };
    let by_drift = stack.spec.drift.as_ref().map(|drift| drift.action);
    let approval = match (is_for, stack.spec.approval, by_drift) {
        (purpose::DRIFT, ..) => RunApproval::Auto,
        (purpose::CORRECT, _, Some(DriftAction::Plan)) => RunApproval::Manual,
        (_, StackApproval::Auto, _) => RunApproval::Auto,
        (_, StackApproval::Manual, _) => RunApproval::Manual,
        (_, StackApproval::ManualOnDestroy, _) => RunApproval::ManualOnDestroy,
    };
    let variables = KeysRef { name: snapshot.variables.clone(), ..KeysRef::default() };
    let spec = RunSpec {
        workspace: name.clone(),
        operation,
        // A state without a known revision is destroyed with what its Workspace last applied.
        source: (!snapshot.bundle.is_empty()).then(|| Source::bundle(&snapshot.bundle)),
        variables_from: if snapshot.variables.is_empty() {
            Vec::new()
        } else {
            vec![VariablesFrom { secret_ref: Some(variables), ..VariablesFrom::default() }]
        },
        approval,
        hooks: stack.spec.hooks.clone(),
        retry: stack.spec.retry.clone(),
        ttl_after_finished: (is_for == purpose::DRIFT).then(|| DRIFT_RUN_KEPT.into()),
        ..RunSpec::default()
    };
    let mut labels = owner_labels(stack);
    labels.insert(label::PURPOSE.to_owned(), is_for.to_owned());
    labels.insert(label::WORKSPACE.to_owned(), name.clone());
    let mut annotations = owner_annotations(stack);
    annotations.insert(annotation::NUMBER.to_owned(), number.to_string());
    annotations.insert(annotation::REVISION.to_owned(), snapshot.revision.clone());
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

/// The files and variables that a Run was given.
pub(super) fn snapshot(run: &Run) -> Snapshot {
    let bundle = run.spec.source.as_ref().and_then(|source| source.bundle.as_ref());
    let variables = run.spec.variables_from.first().and_then(|from| from.secret_ref.as_ref());
    Snapshot {
        revision: run.annotations().get(annotation::REVISION).cloned().unwrap_or_default(),
        bundle: bundle.map(|bundle| bundle.digest.clone()).unwrap_or_default(),
        variables: variables.map(|secret| secret.name.clone()).unwrap_or_default(),
    }
}
