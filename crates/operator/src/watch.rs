//! One watch a kind: what it brings is stored first, then whoever depends on it is told to look.
//!
//! *Guarantee.* A reconcile that an event asks for sees at least that event. Deletions ask as well, also those
//! that happened while the watch was interrupted.

use std::{fmt::Debug, hash::Hash, sync::Arc};

use futures::{StreamExt, channel::mpsc::UnboundedSender};
use knoll_api::{Approval, Atom, AtomVersion, Run, Stack, Workspace};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store, store::Writer},
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// Where to ask for a reconcile.
#[derive(Clone, Debug)]
pub struct Triggers {
    /// Of a Workspace.
    pub workspaces: UnboundedSender<ObjectRef<Workspace>>,
    /// Of a Run.
    pub runs: UnboundedSender<ObjectRef<Run>>,
    /// Of an Approval.
    pub approvals: UnboundedSender<ObjectRef<Approval>>,
    /// Of a Stack.
    pub stacks: UnboundedSender<ObjectRef<Stack>>,
    /// Of an Atom.
    pub atoms: UnboundedSender<ObjectRef<Atom>>,
    /// Of an AtomVersion.
    pub atom_versions: UnboundedSender<ObjectRef<AtomVersion>>,
}

impl Triggers {
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
}

fn ask<K>(sender: &UnboundedSender<ObjectRef<K>>, namespace: &str, name: &str)
where
    K: Resource<DynamicType = ()>,
{
    // It fails only when the controller has stopped, and then nobody has to look any more.
    let _ = sender.unbounded_send(ObjectRef::new(name).within(namespace));
}

/// Keeps `writer` up to date and tells `on_change` of every object that came, changed or went.
///
/// `trim` takes away what no controller reads, so that it is not kept in memory.
pub async fn feed<K>(
    api: Api<K>,
    config: watcher::Config,
    mut writer: Writer<K>,
    trim: fn(&mut K),
    on_change: impl Fn(&K),
    shutdown: CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let reader: Store<K> = writer.as_reader();
    let trim = move |object: &mut K| {
        object.managed_fields_mut().clear();
        trim(object);
    };
    let events =
        kube::runtime::watcher(api, config).default_backoff().modify(trim).take_until(shutdown.cancelled_owned());
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object)) => {
                writer.apply_watcher_event(&Event::Apply(object.clone()));
                on_change(&object);
            }
            Ok(Event::Delete(object)) => {
                writer.apply_watcher_event(&Event::Delete(object.clone()));
                on_change(&object);
            }
            Ok(Event::InitDone) => {
                let before: Vec<Arc<K>> = reader.state();
                writer.apply_watcher_event(&Event::InitDone);
                let went = before.into_iter().filter(|old| reader.get(&ObjectRef::from_obj(old.as_ref())).is_none());
                went.chain(reader.state()).for_each(|object| on_change(&object));
            }
            Ok(event @ (Event::Init | Event::InitApply(_))) => writer.apply_watcher_event(&event),
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), %error, "a watch was interrupted and starts again")
            }
        }
    }
}
