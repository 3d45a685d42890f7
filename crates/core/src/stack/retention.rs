//! What a Stack keeps of its history.

use knoll_api::{
    Purpose,
    stack::{StackStatus, StartedRun},
};
use kube::{Resource, ResourceExt};

use super::{StackFacts, unfinished};

/// The number of finished Runs that a Stack keeps, so that a person can look back a few revisions.
const RUNS_KEPT: usize = 10;

/// An object that a Stack owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedObject {
    pub name: String,
    /// A deletion names the UID, so that it never hits a newer object of the same name.
    pub uid: Option<String>,
}

impl OwnedObject {
    pub fn of<K: Resource>(object: &K) -> Self {
        Self { name: object.name_any(), uid: object.uid() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prune {
    pub runs: Vec<OwnedObject>,
    pub secrets: Vec<OwnedObject>,
}

/// The oldest Runs, the variables of revisions that nothing refers to any more, and a Secret of outputs that has got
/// another name. `None` while a Run is unfinished, and when there is nothing to delete.
pub(super) fn prune(facts: &StackFacts<'_>, status: &StackStatus) -> Option<Prune> {
    if unfinished(facts).is_some() {
        return None;
    }
    let old = status.started_runs.iter().rev().skip(RUNS_KEPT);
    let snapshots = [status.applied(), status.attempted.clone(), status.previous.clone()];
    let mut needed: Vec<String> = snapshots.into_iter().flatten().map(|snapshot| snapshot.variables).collect();
    needed.extend(facts.stack.spec.outputs.as_ref().map(|outputs| outputs.secret_name.clone()));
    let prune = Prune {
        runs: old.map(owned).collect(),
        secrets: facts.secrets.iter().filter(|secret| !needed.contains(&secret.name)).cloned().collect(),
    };
    (prune != Prune::default()).then_some(prune)
}

/// The Runs that are deleted with their Stack. Those that destroy it stay until their `ttlAfterFinished`, so that their
/// logs can be read.
#[must_use]
pub fn deleted_with(status: &StackStatus) -> Vec<OwnedObject> {
    status.started_runs.iter().filter(|run| run.purpose != Purpose::Destroy).map(owned).collect()
}

fn owned(run: &StartedRun) -> OwnedObject {
    OwnedObject { name: run.name.clone(), uid: Some(run.uid.clone()) }
}
