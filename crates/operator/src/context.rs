//! What the controllers know together: the caches, and what this process did that they may not show yet.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use knoll_api::{Approval, Atom, AtomVersion, Policy, Run, Stack, Workspace, names, run::RunStatus};
use knoll_core::{events::ReportedState, pod::Platform, workspace::Head};
use knoll_storage::{Storage, states};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::PartialObjectMeta,
    runtime::reflector::{self, ObjectRef, store::Writer},
};

use crate::{
    RuleSettings, atom,
    backup::Backups,
    controller::Written,
    events::Recorder,
    fetches::RunFetches,
    index::{Cache, References},
    metrics::Metrics,
    policy::{KnownPolicies, RuleChecks, Undecodable},
    references,
    run::StoredSource,
    slots::SlotKeeper,
    stack::{InputCache, RemoteSources},
    watch::{Reach, Triggers},
};

/// What every reconcile may use.
pub struct Context {
    /// The way to the API.
    pub client: Client,
    /// The way to what Knoll keeps in the API.
    pub storage: Storage,
    /// What every pod is given.
    pub platform: Platform,
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
    /// What was written to Policies.
    pub policies: Written<Policy>,
    /// The last resolved revisions of Atoms.
    pub revisions: atom::RevisionCache,
    /// The kinds that the cluster has.
    pub kinds: atom::Kinds,
    /// The watches of the objects of Atoms.
    pub watches: atom::Watches,
    /// The threads that evaluate expressions of Atoms' objects.
    pub evaluations: atom::Evaluations,
    /// The Runs of Stacks that were created and that the cache does not show yet.
    pub started: Started,
    /// The nonces of Runs that are not created yet.
    pub nonces: Nonces,
    /// What the inputs of Stacks came to.
    pub stack_inputs: InputCache,
    /// The sources of Stacks outside of the cluster.
    pub sources: RemoteSources,
    /// The fetches of the sources of commands that are frozen.
    pub run_fetches: RunFetches<StoredSource>,
    /// The Policies as they were when their last event came.
    pub known_policies: KnownPolicies,
    /// The checks of the rules of Policies.
    pub rule_checks: RuleChecks,
    /// The slots of Runs.
    pub slots: SlotKeeper,
    /// The objects that cannot be decoded.
    pub undecodable: Undecodable,
    /// Where to ask for a reconcile.
    pub ask: Triggers,
    /// The pods that were created and that the cache does not show yet.
    pub created: Created,
    /// Where each run stood when it was last told of.
    pub reported: ReportedStates,
    pub events: Recorder,
    pub metrics: Metrics,
    /// The copies of states; none where the operator makes none.
    pub backups: Option<Arc<Backups>>,
}

/// One cache a kind.
#[derive(Clone, Debug)]
pub struct Caches {
    pub workspaces: Cache<Workspace>,
    pub runs: Cache<Run>,
    pub approvals: Cache<Approval>,
    /// The pods of Runs.
    pub pods: Cache<Pod>,
    /// The heads of states, without what they hold.
    pub heads: Cache<Secret>,
    pub stacks: Cache<Stack>,
    pub atoms: Cache<Atom>,
    pub atom_versions: Cache<AtomVersion>,
    /// That there are Secrets, not what they hold; without those that Knoll fills with content of its own.
    pub secrets: Cache<PartialObjectMeta<Secret>>,
    /// That there are ConfigMaps, in the same way.
    pub config_maps: Cache<PartialObjectMeta<ConfigMap>>,
    pub policies: Cache<Policy>,
    /// The labels of namespaces, by which Policies select.
    pub namespaces: Cache<PartialObjectMeta<Namespace>>,
}

/// The writing sides of [`Caches`].
pub struct Writers {
    pub workspaces: Writer<Workspace>,
    pub runs: Writer<Run>,
    pub approvals: Writer<Approval>,
    pub pods: Writer<Pod>,
    pub heads: Writer<Secret>,
    pub stacks: Writer<Stack>,
    pub atoms: Writer<Atom>,
    pub atom_versions: Writer<AtomVersion>,
    pub secrets: Writer<PartialObjectMeta<Secret>>,
    pub config_maps: Writer<PartialObjectMeta<ConfigMap>>,
    pub policies: Writer<Policy>,
    pub namespaces: Writer<PartialObjectMeta<Namespace>>,
}

impl Caches {
    pub fn new() -> (Self, Writers) {
        fn cache<K>(references: fn(&K) -> References) -> (Cache<K>, Writer<K>)
        where
            K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + 'static,
        {
            let (store, writer) = reflector::store();
            (Cache::new(store, references), writer)
        }
        let (workspaces, workspace_writer) = cache(references::of_workspace);
        let (runs, run_writer) = cache(references::of_run);
        let (approvals, approval_writer) = cache(references::of_approval);
        let (pods, pod_writer) = cache(references::of_pod);
        let (heads, head_writer) = cache(references::none);
        let (stacks, stack_writer) = cache(references::of_stack);
        let (atoms, atom_writer) = cache(references::of_atom);
        let (atom_versions, atom_version_writer) = cache(references::of_atom_version);
        let (secrets, secret_writer) = cache(references::of_secret);
        let (config_maps, config_map_writer) = cache(references::of_config_map);
        let (policies, policy_writer) = cache(references::none);
        let (namespaces, namespace_writer) = cache(references::none);
        let writers = Writers {
            workspaces: workspace_writer,
            runs: run_writer,
            approvals: approval_writer,
            pods: pod_writer,
            heads: head_writer,
            stacks: stack_writer,
            atoms: atom_writer,
            atom_versions: atom_version_writer,
            secrets: secret_writer,
            config_maps: config_map_writer,
            policies: policy_writer,
            namespaces: namespace_writer,
        };
        let caches = Self {
            workspaces,
            runs,
            approvals,
            pods,
            heads,
            stacks,
            atoms,
            atom_versions,
            secrets,
            config_maps,
            policies,
            namespaces,
        };
        (caches, writers)
    }

    /// Returns when every cache has its first list: a decision on half of the facts would be a wrong one.
    pub async fn ready(&self) {
        let Self {
            workspaces,
            runs,
            approvals,
            pods,
            heads,
            stacks,
            secrets,
            config_maps,
            atoms,
            atom_versions,
            policies,
            namespaces,
        } = self;
        tokio::join!(
            workspaces.wait_until_ready(),
            runs.wait_until_ready(),
            approvals.wait_until_ready(),
            pods.wait_until_ready(),
            heads.wait_until_ready(),
            stacks.wait_until_ready(),
            secrets.wait_until_ready(),
            config_maps.wait_until_ready(),
            atoms.wait_until_ready(),
            atom_versions.wait_until_ready(),
            policies.wait_until_ready(),
            namespaces.wait_until_ready(),
        );
    }

    /// What is known of the state of a Workspace, when it has one.
    #[must_use]
    pub fn state(&self, namespace: &str, workspace: &str) -> Option<Head> {
        let secret = self.heads.named(namespace, &names::state_secret(workspace));
        secret.and_then(|secret| states::summary(secret.labels(), secret.annotations()))
    }
}

/// What a [`Context`] is made of, beside what it remembers.
pub struct ContextParts {
    pub client: Client,
    pub platform: Platform,
    pub fetch: knoll_storage::FetchSettings,
    pub rules: RuleSettings,
    pub caches: Caches,
    pub ask: Triggers,
    pub events: Recorder,
    pub metrics: Metrics,
    pub backups: Option<Arc<Backups>>,
}

impl Context {
    /// A context that remembers nothing yet.
    #[must_use]
    pub fn new(parts: ContextParts) -> Self {
        let ContextParts { client, platform, fetch, rules, caches, ask, events, metrics, backups } = parts;
        let storage = Storage::new(client.clone());
        let rule_checks = RuleChecks::new(&rules.evaluator, storage.packs(fetch.clone(), &rules.home));
        let sources = RemoteSources::new(storage.sources(fetch));
        Self {
            client,
            storage,
            platform,
            caches,
            runs: Written::default(),
            workspaces: Written::default(),
            approvals: Written::default(),
            stacks: Written::default(),
            atoms: Written::default(),
            atom_versions: Written::default(),
            policies: Written::default(),
            revisions: atom::RevisionCache::default(),
            kinds: atom::Kinds::default(),
            watches: atom::Watches::new(ask.atoms.clone()),
            evaluations: atom::Evaluations::default(),
            started: Started::default(),
            nonces: Nonces::default(),
            stack_inputs: InputCache::default(),
            sources,
            run_fetches: RunFetches::default(),
            known_policies: KnownPolicies::default(),
            rule_checks,
            slots: SlotKeeper::default(),
            undecodable: Undecodable::default(),
            ask,
            created: Created::default(),
            reported: ReportedStates::default(),
            events,
            metrics,
            backups,
        }
    }

    /// The time, read in one place.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// The API of a kind in the namespace of an object; of a cluster-scoped kind, all of it.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope: Reach>,
    {
        K::Scope::api(&self.client, Some(namespace))
    }
}

/// Pods that this process created and that its watch has not brought yet, by UID: for those, absence from the cache
/// does not mean that they are gone.
#[derive(Debug, Default)]
pub struct Created {
    pods: Mutex<HashMap<String, Arc<Pod>>>,
}

impl Created {
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
pub struct ReportedStates {
    seen: Mutex<HashMap<String, Seen>>,
}

#[derive(Clone, Debug)]
struct Seen {
    standing: ReportedState,
    since: Option<Timestamp>,
}

/// A run stands elsewhere than before, or still where it stood.
#[derive(Clone, Debug)]
pub struct Transition {
    /// Where it stood before.
    pub before: ReportedState,
    /// Since when the run is there: `creationTimestamp` has whole seconds only, so a run that this process saw come
    /// is timed by that.
    pub since: Option<Timestamp>,
}

impl ReportedStates {
    /// Notes where the run stands by `status`, and returns where it stood before.
    ///
    /// A run that is seen for the first time with a status was told of by whoever wrote it.
    pub fn note(&self, run: &Run, status: &RunStatus, now: Timestamp) -> Transition {
        let mut known = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let created = run.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let since = if run.status.is_none() { Some(now) } else { created };
        let first = || Seen { standing: run.status.as_ref().map(ReportedState::of).unwrap_or_default(), since };
        let uid = run.uid().unwrap_or_default();
        let Seen { standing: before, since } = known.get(&uid).cloned().unwrap_or_else(first);
        known.insert(uid, Seen { standing: ReportedState::of(status), since });
        Transition { before, since }
    }

    /// Forgets a run that is gone.
    pub fn forget(&self, run: &Run) {
        if let Some(uid) = run.uid() {
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
        }
    }
}

/// The nonces of the Runs that this process is about to create, by the UID of the Stack. They are secret until then.
#[derive(Default)]
pub struct Nonces {
    nonces: Mutex<HashMap<String, (String, String)>>,
}

impl Nonces {
    /// Remembers the nonce of this commitment, in place of any earlier one.
    pub fn remember(&self, stack: &str, commitment: String, nonce: String) {
        self.lock().insert(stack.to_owned(), (commitment, nonce));
    }

    /// Whether the nonce of this commitment was not used yet, so that its Run does not exist.
    pub fn has(&self, stack: &str, commitment: &str) -> bool {
        self.lock().get(stack).is_some_and(|(known, _)| known == commitment)
    }

    /// The nonce of this commitment, once.
    pub fn take(&self, stack: &str, commitment: &str) -> Option<String> {
        let (known, nonce) = self.lock().remove(stack)?;
        (known == commitment).then_some(nonce)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (String, String)>> {
        self.nonces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs that this process created for Stacks and that its watch has not brought yet.
#[derive(Debug, Default)]
pub struct Started {
    runs: Mutex<HashMap<ObjectRef<Run>, Arc<Run>>>,
}

impl Started {
    pub fn remember(&self, run: Run) {
        self.lock().insert(ObjectRef::from_obj(&run), Arc::new(run));
    }

    /// The Run of this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Run>> {
        self.lock().get(&ObjectRef::new(name).within(namespace)).cloned()
    }

    /// The watch has brought it: from now on the cache is right.
    pub fn seen(&self, run: &Run) {
        self.lock().remove(&ObjectRef::from_obj(run));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ObjectRef<Run>, Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
