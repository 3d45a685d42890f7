//! What the controllers know together: the caches, and what this process did that they may not show yet.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Pod, Secret},
};
use knoll_api::{Approval, Run, Workspace, run::RunPhase};
use knoll_core::pod::Platform;
use kube::{Api, Client, Resource, ResourceExt, runtime::reflector::Store};

use crate::{controller::Written, events::Recorder, metrics::Metrics};

/// What every reconcile may use.
pub struct Context {
    /// The way to the API.
    pub client: Client,
    /// What every pod is given.
    pub platform: Platform,
    /// The caches.
    pub caches: Caches,
    /// What was written to Runs.
    pub runs: Written<Run>,
    /// What was written to Workspaces.
    pub workspaces: Written<Workspace>,
    /// What was written to Approvals.
    pub approvals: Written<Approval>,
    /// The pods that were created and that the cache does not show yet.
    pub created: Created,
    /// The phase of each run that was told last.
    pub told: Told,
    /// Tells events.
    pub events: Recorder,
    /// Counts.
    pub metrics: Metrics,
}

/// One cache a kind.
#[derive(Clone, Debug)]
pub struct Caches {
    /// All Workspaces.
    pub workspaces: Store<Workspace>,
    /// All Runs.
    pub runs: Store<Run>,
    /// All Approvals.
    pub approvals: Store<Approval>,
    /// The pods of Runs.
    pub pods: Store<Pod>,
    /// The heads of states, without what they hold.
    pub heads: Store<Secret>,
}

impl Context {
    /// The time, read in one place.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// The API of a kind in the namespace of an object.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// Pods that this process created and that its watch has not brought yet, by UID: for those, absence from the cache
/// does not mean that they are gone.
#[derive(Debug, Default)]
pub struct Created {
    pods: Mutex<HashMap<String, Arc<Pod>>>,
}

impl Created {
    /// Remembers a pod.
    pub fn remember(&self, pod: &Pod) {
        if let Some(uid) = pod.uid() {
            self.lock().insert(uid, Arc::new(pod.clone()));
        }
    }

    /// The pod as it was created.
    pub fn get(&self, uid: &str) -> Option<Arc<Pod>> {
        self.lock().get(uid).cloned()
    }

    /// The watch has brought it: from now on the cache is right.
    pub fn seen(&self, pod: &Pod) {
        if let Some(uid) = &pod.metadata.uid {
            self.lock().remove(uid);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Pod>>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The phase of each run, by UID, that an event was told about; so that a change by anybody is told, once.
#[derive(Debug, Default)]
pub struct Told {
    phases: Mutex<HashMap<String, Seen>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    phase: RunPhase,
    since: Option<Timestamp>,
}

/// A run has gone from one phase to another.
#[derive(Clone, Copy, Debug)]
pub struct Transition {
    /// The phase before.
    pub before: RunPhase,
    /// Since when the run is there: `creationTimestamp` has whole seconds only, so a run that this process saw come
    /// is timed by that.
    pub since: Option<Timestamp>,
}

impl Told {
    /// Notes the run's phase, and returns what led to it when it was another one before.
    ///
    /// A run that is seen for the first time with a status was told of by whoever wrote it.
    pub fn note(&self, run: &Run, phase: RunPhase, now: Timestamp) -> Option<Transition> {
        let uid = run.uid()?;
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let first = run.status.as_ref().map(|status| status.phase).unwrap_or_default();
        let created = run.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let since = if run.status.is_none() { Some(now) } else { created };
        let Seen { phase: before, since } = phases.get(&uid).copied().unwrap_or(Seen { phase: first, since });
        phases.insert(uid, Seen { phase, since });
        (before != phase).then_some(Transition { before, since })
    }

    /// Forgets a run that is gone.
    pub fn forget(&self, run: &Run) {
        if let Some(uid) = run.uid() {
            self.phases.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
        }
    }
}
