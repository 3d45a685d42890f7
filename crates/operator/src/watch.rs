//! One watch a kind: what it brings is stored first, then whoever depends on it is told to look.
//!
//! *Guarantee.* A reconcile that an event asks for sees at least that event. Deletions ask as well, also those
//! that happened while the watch was interrupted.

use std::{fmt::Debug, sync::Arc};

use futures::{
    StreamExt, TryStreamExt,
    channel::mpsc::{self, UnboundedReceiver, UnboundedSender},
};
use k8s_openapi::{
    NamespaceResourceScope, api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use knoll_api::{Approval, Atom, AtomVersion, Policy, Run, Stack, Workspace, names::reason};
use knoll_core::identity::{ObjectId, Unidentified};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::{ClusterResourceScope, DeserializeGuard},
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, store::Writer},
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::{context::Context, index::Cache};

/// Where to ask for a reconcile.
#[derive(Clone, Debug)]
pub struct Triggers {
    pub workspaces: UnboundedSender<ObjectRef<Workspace>>,
    pub runs: UnboundedSender<ObjectRef<Run>>,
    pub approvals: UnboundedSender<ObjectRef<Approval>>,
    pub stacks: UnboundedSender<ObjectRef<Stack>>,
    pub atoms: UnboundedSender<ObjectRef<Atom>>,
    pub atom_versions: UnboundedSender<ObjectRef<AtomVersion>>,
    pub policies: UnboundedSender<ObjectRef<Policy>>,
}

/// The reconciles that were asked for, a stream a kind.
pub struct Requests {
    pub workspaces: UnboundedReceiver<ObjectRef<Workspace>>,
    pub runs: UnboundedReceiver<ObjectRef<Run>>,
    pub approvals: UnboundedReceiver<ObjectRef<Approval>>,
    pub stacks: UnboundedReceiver<ObjectRef<Stack>>,
    pub atoms: UnboundedReceiver<ObjectRef<Atom>>,
    pub atom_versions: UnboundedReceiver<ObjectRef<AtomVersion>>,
    pub policies: UnboundedReceiver<ObjectRef<Policy>>,
}

impl Triggers {
    /// The senders, and the streams that they feed.
    pub fn new() -> (Self, Requests) {
        let (workspaces, workspace_requests) = mpsc::unbounded();
        let (runs, run_requests) = mpsc::unbounded();
        let (approvals, approval_requests) = mpsc::unbounded();
        let (stacks, stack_requests) = mpsc::unbounded();
        let (atoms, atom_requests) = mpsc::unbounded();
        let (atom_versions, atom_version_requests) = mpsc::unbounded();
        let (policies, policy_requests) = mpsc::unbounded();
        let requests = Requests {
            workspaces: workspace_requests,
            runs: run_requests,
            approvals: approval_requests,
            stacks: stack_requests,
            atoms: atom_requests,
            atom_versions: atom_version_requests,
            policies: policy_requests,
        };
        (Self { workspaces, runs, approvals, stacks, atoms, atom_versions, policies }, requests)
    }

    /// Asks for a Workspace.
    pub fn workspace(&self, namespace: &str, name: &str) {
        ask(&self.workspaces, namespace, name);
    }

    /// Asks for a Run.
    pub fn run(&self, namespace: &str, name: &str) {
        ask(&self.runs, namespace, name);
    }

    /// Asks for an Approval.
    pub fn approval(&self, namespace: &str, name: &str) {
        ask(&self.approvals, namespace, name);
    }

    /// Asks for a Stack.
    pub fn stack(&self, namespace: &str, name: &str) {
        ask(&self.stacks, namespace, name);
    }

    /// Asks for an Atom.
    pub fn atom(&self, namespace: &str, name: &str) {
        ask(&self.atoms, namespace, name);
    }

    /// Asks for an AtomVersion.
    pub fn atom_version(&self, namespace: &str, name: &str) {
        ask(&self.atom_versions, namespace, name);
    }

    /// Asks for a Policy.
    pub fn policy(&self, name: &str) {
        // It fails only when the controller has stopped.
        let _ = self.policies.unbounded_send(ObjectRef::new(name));
    }
}

fn ask<K>(sender: &UnboundedSender<ObjectRef<K>>, namespace: &str, name: &str)
where
    K: Resource<DynamicType = ()>,
{
    // It fails only when the controller has stopped, and then nobody has to look any more.
    let _ = sender.unbounded_send(ObjectRef::new(name).within(namespace));
}

/// How the objects of a kind are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoding {
    /// One by one: an object that cannot be decoded is skipped. It costs a copy of each object.
    Guarded,
    /// Together: for kinds whose objects the API server itself decodes.
    Plain,
}

/// One watched kind: a row of the operator's table.
pub struct Feed<K: Resource<DynamicType = ()> + Clone + 'static> {
    pub writer: Writer<K>,
    pub cache: Cache<K>,
    pub config: watcher::Config,
    pub decoding: Decoding,
    /// Removes the fields that no controller reads, so that they take no memory.
    pub strip: fn(&mut K),
    /// Asks for the reconciles of all objects that depend on one that came, changed or went.
    pub on_change: fn(&Context, &Triggers, &ObjectId, &K),
}

/// An object, or the metadata of one that cannot be decoded.
type Decoded<K> = Result<K, Box<ObjectMeta>>;

impl<K> Feed<K>
where
    K: Resource<DynamicType = (), Scope: Reach> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Keeps the cache up to date until `shutdown`.
    pub async fn run(mut self, context: Arc<Context>, namespace: Option<String>, shutdown: CancellationToken) {
        let (client, config) = (context.client.clone(), self.config.clone());
        let events = match self.decoding {
            Decoding::Plain => kube::runtime::watcher(K::Scope::api::<K>(&client, namespace.as_deref()), config)
                .default_backoff()
                .map_ok(|event| map(event, Ok))
                .left_stream(),
            Decoding::Guarded => {
                kube::runtime::watcher(K::Scope::api::<DeserializeGuard<K>>(&client, namespace.as_deref()), config)
                    .default_backoff()
                    .map_ok(|event| map(event, |guard| guard.0.map_err(|invalid| Box::new(invalid.metadata))))
                    .right_stream()
            }
        };
        let mut events = std::pin::pin!(events.take_until(shutdown.cancelled_owned()));
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take(&context, event),
                Err(error) => {
                    tracing::warn!(kind = %K::kind(&()), %error, "a watch was interrupted and starts again");
                }
            }
        }
    }

    /// Takes in one event of the watch: the cache first, then the index, then the reconciles.
    fn take(&mut self, context: &Context, event: Event<Decoded<K>>) {
        match event {
            Event::Apply(Ok(mut object)) => {
                self.strip(&mut object);
                self.writer.apply_watcher_event(&Event::Apply(object.clone()));
                self.came(context, &object);
            }
            Event::InitApply(Ok(mut object)) => {
                self.strip(&mut object);
                // The index is complete before the cache counts as ready.
                self.cache.index().apply(&object);
                self.writer.apply_watcher_event(&Event::InitApply(object));
            }
            Event::Delete(Ok(object)) => {
                self.writer.apply_watcher_event(&Event::Delete(object.clone()));
                self.went(context, &object);
            }
            // The last version that could be decoded stays, and is fenced off by its resourceVersion.
            Event::Apply(Err(meta)) | Event::InitApply(Err(meta)) => {
                context.undecodable.note::<K>(&meta);
                undecodable_changed::<K>(context);
                skip::<K>(context, &meta);
            }
            Event::Delete(Err(meta)) => {
                self.decodable(context, &meta);
                let mut key = ObjectRef::new(meta.name.as_deref().unwrap_or_default());
                key.namespace.clone_from(&meta.namespace);
                if let Some(known) = self.cache.get(&key) {
                    self.writer.apply_watcher_event(&Event::Delete(known.as_ref().clone()));
                    self.went(context, &known);
                }
            }
            Event::Init => {
                context.undecodable.list_begins::<K>();
                self.writer.apply_watcher_event(&Event::Init);
            }
            Event::InitDone => {
                if context.undecodable.list_ends::<K>() {
                    undecodable_changed::<K>(context);
                }
                let before: Vec<Arc<K>> = self.cache.all();
                self.writer.apply_watcher_event(&Event::InitDone);
                let is_gone = |old: &&Arc<K>| self.cache.get(&ObjectRef::from_obj(old.as_ref())).is_none();
                before.iter().filter(is_gone).for_each(|object| self.went(context, object));
                self.cache.all().iter().for_each(|object| self.changed(context, object));
            }
        }
    }

    fn strip(&self, object: &mut K) {
        object.managed_fields_mut().clear();
        (self.strip)(object);
    }

    /// An object is gone, or can be decoded again.
    fn decodable(&self, context: &Context, meta: &ObjectMeta) {
        if context.undecodable.forget::<K>(meta) {
            undecodable_changed::<K>(context);
        }
    }

    fn came(&self, context: &Context, object: &K) {
        self.decodable(context, object.meta());
        self.cache.index().apply(object);
        self.changed(context, object);
    }

    fn went(&self, context: &Context, object: &K) {
        self.decodable(context, object.meta());
        self.cache.index().delete(object);
        self.changed(context, object);
    }

    /// Asks for the reconciles that follow, with the identity of the object.
    fn changed(&self, context: &Context, object: &K) {
        match K::Scope::identify(object) {
            Ok(id) => (self.on_change)(context, &context.ask, &id, object),
            Err(error) => {
                let kind = K::kind(&());
                tracing::error!(%kind, %error, "an object is skipped");
                context.metrics.skipped(&kind, "unidentified");
            }
        }
    }
}

/// The objects of a kind that the operator is responsible for: those of its namespace, if it has one and the kind is
/// namespaced.
pub trait Reach: Sized {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: &Client, namespace: Option<&str>) -> Api<K>;

    fn identify<K: Resource>(object: &K) -> Result<ObjectId, Unidentified>;
}

impl Reach for NamespaceResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: &Client, namespace: Option<&str>) -> Api<K> {
        match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }

    fn identify<K: Resource>(object: &K) -> Result<ObjectId, Unidentified> {
        ObjectId::of(object)
    }
}

impl Reach for ClusterResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: &Client, _: Option<&str>) -> Api<K> {
        Api::all(client.clone())
    }

    fn identify<K: Resource>(object: &K) -> Result<ObjectId, Unidentified> {
        ObjectId::of_cluster_scoped(object)
    }
}

/// A Policy that nobody can read holds for everything, so everything is looked at when one comes or goes.
fn undecodable_changed<K: Resource<DynamicType = ()>>(context: &Context) {
    if K::kind(&()) == Policy::kind(&()) {
        crate::policy::ask_all(context, &context.ask);
    }
}

/// Reports an object that cannot be decoded. The decoder's message stays out: it can quote a value of the object.
fn skip<K: Resource<DynamicType = ()>>(context: &Context, meta: &ObjectMeta) {
    let kind = K::kind(&());
    tracing::warn!(
        %kind,
        namespace = meta.namespace.as_deref().unwrap_or_default(),
        name = meta.name.as_deref().unwrap_or_default(),
        "an object cannot be decoded and is skipped"
    );
    context.metrics.skipped(&kind, "undecodable");
    let object = ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(kind.clone().into_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        ..ObjectReference::default()
    };
    let event = knoll_core::events::Event {
        warning: true,
        reason: reason::UNDECODABLE.to_owned(),
        message: format!(
            "This {kind} does not have the form that this version of Knoll reads, so it is skipped. Compare it with \
             `kubectl explain {}`, and install the CustomResourceDefinitions of this version.",
            kind.to_lowercase()
        ),
    };
    context.events.record(event, object);
}

fn map<T, U>(event: Event<T>, with: impl FnOnce(T) -> U) -> Event<U> {
    match event {
        Event::Apply(object) => Event::Apply(with(object)),
        Event::Delete(object) => Event::Delete(with(object)),
        Event::InitApply(object) => Event::InitApply(with(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

#[cfg(test)]
pub(crate) mod tests;
