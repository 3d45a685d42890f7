//! The Policies of the cluster, as the controllers use them: the demands on a Workspace, and the reconciles that follow a
//! change of a Policy or of a namespace.
//!
//! *Guarantee.* No decision is taken without the Policies: they are in a cache that is complete before the controllers
//! start, and a Policy that cannot be decoded blocks every Workspace.

mod rules;
mod status;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use knoll_api::{Policy, Stack, Workspace};
use knoll_core::{
    identity::ObjectId,
    policy::{self, AtomAccount, Effective, Labels, status::fault},
};
use kube::{Api, Resource, ResourceExt, api::PartialObjectMeta, runtime::reflector::ObjectRef};

use crate::{context::Context, controller::Error, index::Target, watch::Triggers};

pub use rules::RuleChecks;
pub use status::Policies;

/// The demands on a Workspace, and on the Stack of its name.
///
/// # Errors
/// When the labels of the namespace are needed and cannot be read.
pub async fn demands_on(
    context: &Context,
    namespace: &str,
    workspace: Option<&Workspace>,
    stack: Option<&Stack>,
) -> Result<Effective, Error> {
    let policies = context.caches.policies.all();
    let undecodable = context.undecodable.names::<Policy>();
    if policies.is_empty() && undecodable.is_empty() {
        return Ok(Effective::default());
    }
    let of_namespace = namespace_labels(context, namespace).await?;
    let of_workspace = policy::labels(workspace, stack);
    let policies = policies.iter().map(AsRef::as_ref);
    let undecodable = undecodable.iter().map(|(_, name)| name.as_str());
    Ok(policy::effective(policies, undecodable, &of_namespace, &of_workspace))
}

/// The account of the Atoms of a namespace that name none, if a Policy supplies one.
///
/// # Errors
/// When a Policy that might supply one cannot be read.
pub async fn atom_account(context: &Context, namespace: &str) -> Result<Option<String>, Error> {
    let policies = context.caches.policies.all();
    let undecodable = context.undecodable.names::<Policy>();
    if policies.is_empty() && undecodable.is_empty() {
        return Ok(None);
    }
    let of_namespace = namespace_labels(context, namespace).await?;
    let undecodable = undecodable.iter().map(|(_, name)| name.as_str());
    let found = policy::atom_account(policies.iter().map(AsRef::as_ref), undecodable, &of_namespace);
    let AtomAccount { account, unreadable } = found;
    unreadable.map_or(Ok(account), |policy| Err(Error::UnreadablePolicy(policy)))
}

/// As [`demands_on`], by what the caches have: the labels of a namespace that they do not have yet count as none.
pub fn known_demands_on(
    context: &Context,
    namespace: &str,
    workspace: Option<&Workspace>,
    stack: Option<&Stack>,
) -> Effective {
    let of_namespace = context.caches.namespaces.get(&ObjectRef::new(namespace));
    let of_namespace = of_namespace.map(|found| found.labels().clone()).unwrap_or_default();
    let policies = context.caches.policies.all();
    let policies = policies.iter().map(AsRef::as_ref);
    policy::effective(policies, [], &of_namespace, &policy::labels(workspace, stack))
}

/// The labels of a namespace. A namespace that the cache does not have yet is read.
async fn namespace_labels(context: &Context, namespace: &str) -> Result<Labels, Error> {
    if let Some(found) = context.caches.namespaces.get(&ObjectRef::new(namespace)) {
        return Ok(found.labels().clone());
    }
    let api = Api::<Namespace>::all(context.client.clone());
    let found = api.get_metadata(namespace).await.map_err(Error::api("cannot read the labels of a namespace"))?;
    Ok(found.labels().clone())
}

/// Asks for the reconciles that follow the event of a Policy: of all that its old or its new version might match.
pub fn on_policy(context: &Context, ask: &Triggers, id: &ObjectId, policy: &Policy) {
    ask.policy(&id.name);
    let current = context.caches.policies.get(&ObjectRef::from_obj(policy));
    if current.is_none() {
        context.policies.forget(policy);
        context.rule_checks.forget(&id.uid);
    }
    let before = context.known_policies.replace(&id.name, current.clone());
    if let (Some(before), Some(current)) = (&before, &current)
        && before.spec == current.spec
        && fault(before.status.as_ref()) == fault(current.status.as_ref())
    {
        return;
    }
    context.slots.policies_changed();
    for namespace in context.caches.namespaces.all() {
        let mut versions = before.iter().chain(&current);
        if versions.any(|policy| policy::might_hold_in(policy, namespace.labels())) {
            ask_namespace(context, ask, &namespace.name_any());
        }
    }
}

/// Asks for the Policies that take a pack of rules from this ConfigMap.
pub fn on_config_map(context: &Context, ask: &Triggers, id: &ObjectId) {
    for policy in context.rule_checks.outdated(&id.namespace, &id.name) {
        ask.policy(&policy);
    }
}

/// Asks for the reconciles that follow the event of a namespace, whose labels decide on the Policies that match.
pub fn on_namespace(context: &Context, ask: &Triggers, id: &ObjectId, _: &PartialObjectMeta<Namespace>) {
    context.slots.policies_changed();
    ask_namespace(context, ask, &id.name);
}

/// Asks for everything that a Policy may hold for: one has come that nobody can read, or has gone.
pub fn ask_all(context: &Context, ask: &Triggers) {
    for namespace in context.caches.namespaces.all() {
        ask_namespace(context, ask, &namespace.name_any());
    }
}

fn ask_namespace(context: &Context, ask: &Triggers, namespace: &str) {
    let caches = &context.caches;
    for stack in caches.stacks.index().referrers(Target::Namespace, namespace, namespace) {
        ask.stack(namespace, &stack);
    }
    for atom in caches.atoms.index().referrers(Target::Namespace, namespace, namespace) {
        ask.atom(namespace, &atom);
    }
    for workspace in caches.workspaces.index().referrers(Target::Namespace, namespace, namespace) {
        ask.workspace(namespace, &workspace);
        ask_runs(context, ask, namespace, &workspace);
    }
}

/// Asks for the unfinished Runs of a Workspace, and for their Approvals.
pub fn ask_runs(context: &Context, ask: &Triggers, namespace: &str, workspace: &str) {
    let caches = &context.caches;
    for run in caches.runs.index().referrers(Target::UnfinishedRunsOf, namespace, workspace) {
        for approval in caches.approvals.index().referrers(Target::Run, namespace, &run) {
            ask.approval(namespace, &approval);
        }
        ask.run(namespace, &run);
    }
}

/// Leaves of a namespace its labels.
pub fn only_labels(namespace: &mut PartialObjectMeta<Namespace>) {
    let meta = &mut namespace.metadata;
    (meta.annotations, meta.owner_references, meta.finalizers) = (None, None, None);
}

/// The Policies as they were when their last event came, by name.
#[derive(Debug, Default)]
pub struct KnownPolicies {
    policies: Mutex<HashMap<String, Arc<Policy>>>,
}

impl KnownPolicies {
    /// Remembers a Policy, or that it is gone, and returns it as it was.
    fn replace(&self, name: &str, policy: Option<Arc<Policy>>) -> Option<Arc<Policy>> {
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        match policy {
            Some(policy) => policies.insert(name.to_owned(), policy),
            None => policies.remove(name),
        }
    }
}

/// The objects that cannot be decoded, by kind: namespaces and names.
#[derive(Debug, Default)]
pub struct Undecodable {
    kinds: Mutex<HashMap<String, Listed>>,
}

#[derive(Debug, Default)]
struct Listed {
    current: BTreeSet<(String, String)>,
    /// Those of a list that is not complete yet; it replaces the current ones when it is.
    relisted: Option<BTreeSet<(String, String)>>,
}

impl Undecodable {
    /// The objects of a kind.
    pub fn names<K: Resource<DynamicType = ()>>(&self) -> Vec<(String, String)> {
        self.with::<K, _>(|listed| listed.current.iter().cloned().collect())
    }

    /// Notes an object that cannot be decoded.
    pub fn note<K: Resource<DynamicType = ()>>(&self, meta: &ObjectMeta) {
        self.with::<K, _>(|listed| {
            listed.current.insert(key(meta));
            if let Some(relisted) = &mut listed.relisted {
                relisted.insert(key(meta));
            }
        });
    }

    /// Forgets an object that is gone or can be decoded again; returns whether it was noted.
    pub fn forget<K: Resource<DynamicType = ()>>(&self, meta: &ObjectMeta) -> bool {
        self.with::<K, _>(|listed| listed.current.remove(&key(meta)))
    }

    /// A new list of a kind begins.
    pub fn list_begins<K: Resource<DynamicType = ()>>(&self) {
        self.with::<K, _>(|listed| listed.relisted = Some(BTreeSet::new()));
    }

    /// The list is complete: an object that is not in it is gone. Returns whether one was noted and is gone.
    pub fn list_ends<K: Resource<DynamicType = ()>>(&self) -> bool {
        self.with::<K, _>(|listed| {
            let relisted = listed.relisted.take().unwrap_or_default();
            let fewer = listed.current.iter().any(|noted| !relisted.contains(noted));
            listed.current = relisted;
            fewer
        })
    }

    fn with<K: Resource<DynamicType = ()>, T>(&self, use_it: impl FnOnce(&mut Listed) -> T) -> T {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        use_it(kinds.entry(K::kind(&()).into_owned()).or_default())
    }
}

fn key(meta: &ObjectMeta) -> (String, String) {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}
