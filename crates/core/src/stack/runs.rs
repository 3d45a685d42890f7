//! The objects that a Stack creates: its Workspace and its Runs.
//!
//! None has an owner reference. With one, a deletion in the foreground would let the garbage collector delete the Workspace
//! and the variables before anything is destroyed. They carry the Stack's name and UID instead, and the Stack deletes them
//! when they are no longer needed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::{
    Purpose,
    names::{annotation, label},
    run::{Operation, Run, RunApproval, RunSpec},
    stack::{DriftAction, Snapshot, Stack, StackApproval},
    workspace::Workspace,
};
use kube::ResourceExt;

use super::conditions::short;

/// The number of characters of a Stack's name in the names of its Runs, which have to fit into a label.
const NAME_MAX: usize = 40;

/// The time for which a finished drift check is kept: long enough to read its log.
const DRIFT_RUN_KEPT: std::time::Duration = std::time::Duration::from_secs(3600);

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
    workspace
}

/// The Run of a Stack with this number. Its name follows from number and purpose, so a repeated create is recognised.
///
/// Without a snapshot it uses the files that its Workspace applied last.
pub(super) fn run(stack: &Stack, number: u32, purpose: Purpose, snapshot: Option<&Snapshot>) -> Run {
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
        // The annotation says who changed the spec. Nothing says who deleted the Stack.
        requested_by: requested_by(stack).filter(|_| purpose != Purpose::Destroy).map(str::to_owned),
        ttl_after_finished: (purpose == Purpose::Drift).then(|| DRIFT_RUN_KEPT.into()),
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
