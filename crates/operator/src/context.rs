//! What the controllers know together: the caches, and what this process did that they may not show yet.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Pod, Secret},
};
use knoll_api::{
    Approval, Atom, AtomVersion, Run, Stack, Workspace,
    names::{self, label},
    run::RunStatus,
};
use knoll_core::{events::Standing, pod::Platform, workspace::Head};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::PartialObjectMeta,
    runtime::reflector::{ObjectRef, Store},
};

use crate::{
    atom,
    controller::Written,
    events::Recorder,
    metrics::Metrics,
    stack::{Memory, Sources},
    watch::Triggers,
};

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
    /// What was written to Stacks.
    pub stacks: Written<Stack>,
    /// What was written to Atoms.
    pub atoms: Written<Atom>,
    /// What was written to AtomVersions.
    pub atom_versions: Written<AtomVersion>,
    /// The last resolved revisions of Atoms.
    pub revisions: atom::RevisionCache,
    /// The kinds that the cluster has.
    pub kinds: atom::Kinds,
    /// The watches of the objects of Atoms.
    pub watches: atom::Watches,
    /// The Runs of Stacks that were created and that the cache does not show yet.
    pub started: Started,
    /// What the inputs of Stacks came to.
    pub memory: Memory,
    /// What is known of the sources of Stacks outside of the cluster.
    pub sources: Sources,
    /// Where to ask for a reconcile.
    pub ask: Triggers,
    /// The pods that were created and that the cache does not show yet.
    pub created: Created,
    /// Where each run stood when it was last told of.
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
    /// All Stacks.
    pub stacks: Store<Stack>,
    /// All Atoms.
    pub atoms: Store<Atom>,
    /// All AtomVersions.
    pub atom_versions: Store<AtomVersion>,
    /// That there are Secrets, not what they hold; without those that Knoll fills with content of its own.
    pub secrets: Store<PartialObjectMeta<Secret>>,
    /// That there are ConfigMaps, in the same way.
    pub config_maps: Store<PartialObjectMeta<ConfigMap>>,
}

impl Caches {
    /// What is told of the state of a Workspace, when it has one.
    #[must_use]
    pub fn state(&self, namespace: &str, workspace: &str) -> Option<Head> {
        let secret = self.heads.get(&ObjectRef::new(&names::state_secret(workspace)).within(namespace));
        secret.and_then(|secret| Head::read(secret.annotations()))
    }
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

/// Where each run stood, by UID, when an event was told about it; so that a change by anybody is told, once.
#[derive(Debug, Default)]
pub struct Told {
    seen: Mutex<HashMap<String, Seen>>,
}

#[derive(Clone, Debug)]
struct Seen {
    standing: Standing,
    since: Option<Timestamp>,
}

/// A run stands elsewhere than before, or still where it stood.
#[derive(Clone, Debug)]
pub struct Transition {
    /// Where it stood before.
    pub before: Standing,
    /// Since when the run is there: `creationTimestamp` has whole seconds only, so a run that this process saw come
    /// is timed by that.
    pub since: Option<Timestamp>,
}

impl Told {
    /// Notes where the run stands by `status`, and returns where it stood before.
    ///
    /// A run that is seen for the first time with a status was told of by whoever wrote it.
    pub fn note(&self, run: &Run, status: &RunStatus, now: Timestamp) -> Transition {
        let mut known = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let created = run.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let since = if run.status.is_none() { Some(now) } else { created };
        let first = || Seen { standing: run.status.as_ref().map(Standing::of).unwrap_or_default(), since };
        let uid = run.uid().unwrap_or_default();
        let Seen { standing: before, since } = known.get(&uid).cloned().unwrap_or_else(first);
        known.insert(uid, Seen { standing: Standing::of(status), since });
        Transition { before, since }
    }

    /// Forgets a run that is gone.
    pub fn forget(&self, run: &Run) {
        if let Some(uid) = run.uid() {
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
        }
    }
}

/// Runs that this process created for Stacks and that its watch has not brought yet.
#[derive(Debug, Default)]
pub struct Started {
    runs: Mutex<HashMap<(String, String), Arc<Run>>>,
}

impl Started {
    /// Remembers a Run.
    pub fn remember(&self, run: Run) {
        self.lock().insert((run.namespace().unwrap_or_default(), run.name_any()), Arc::new(run));
    }

    /// Those of a Stack.
    pub fn of(&self, namespace: &str, stack: &str) -> Vec<Arc<Run>> {
        let runs = self.lock();
        let mine = runs.iter().filter(|((of, _), run)| {
            of == namespace && run.labels().get(label::STACK).map(String::as_str) == Some(stack)
        });
        mine.map(|(_, run)| run.clone()).collect()
    }

    /// The watch has brought it: from now on the cache is right.
    pub fn seen(&self, run: &Run) {
        if run.labels().contains_key(label::STACK) {
            self.lock().remove(&(run.namespace().unwrap_or_default(), run.name_any()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
