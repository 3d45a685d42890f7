//! Watches of the objects of Atoms that wait for readiness: one for each kind and namespace, by the Atom's label.
//!
//! *Guarantee.* A watch begins with a list that is made after the last write of its stage, so its objects are never older
//! than that write.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt, channel::mpsc::UnboundedSender};
use knoll_api::{Atom, atom::ObjectKey, names::label};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use serde_json::Value;
use tokio::task::JoinSet;

use super::objects::Objects;

/// How long the first list may take before each object is read on its own.
const PATIENCE: Duration = Duration::from_secs(3);

/// The most watches of one Atom. With more kinds and namespaces, each object is read on its own.
const MAX_WATCHES: usize = 64;

/// The `apiVersion`, kind and namespace of a watch.
type WatchKey = (String, String, Option<String>);

/// The watches of all Atoms.
#[derive(Debug)]
pub struct Watches {
    ask: UnboundedSender<ObjectRef<Atom>>,
    of: Mutex<HashMap<ObjectRef<Atom>, Watching>>,
}

#[derive(Debug)]
struct Watching {
    /// The journal and the stage that the watches were started in.
    stage: String,
    stores: HashMap<WatchKey, (ApiResource, Store<DynamicObject>)>,
    _tasks: JoinSet<()>,
}

impl Watches {
    /// Every change of a watched object sends its Atom to `ask`.
    pub fn new(ask: UnboundedSender<ObjectRef<Atom>>) -> Self {
        Self { ask, of: Mutex::default() }
    }

    /// Ends the watches of an Atom.
    pub fn end(&self, atom: &Atom) {
        self.lock().remove(&ObjectRef::from_obj(atom));
    }

    /// Those of these objects that exist; none when they cannot be watched.
    pub async fn read(
        &self,
        atom: &Atom,
        objects: &Objects<'_>,
        keys: &[ObjectKey],
    ) -> Option<HashMap<ObjectKey, Value>> {
        let status = atom.status.as_ref()?;
        let journal = status.journal.as_ref()?;
        let stage = format!("{} {:?}", journal.secret_name, journal.stage);
        let keys_needed: BTreeSet<WatchKey> = keys.iter().map(watch_key).collect();
        if keys_needed.len() > MAX_WATCHES {
            return None;
        }
        let known = ObjectRef::from_obj(atom);
        let started = self.lock().get(&known).is_some_and(|watching| {
            watching.stage == stage && keys_needed.iter().all(|key| watching.stores.contains_key(key))
        });
        if !started {
            let watching = self.start(atom, objects, stage, keys_needed).await?;
            self.lock().insert(known.clone(), watching);
        }
        let stores = self.lock().get(&known)?.stores.clone();
        let filled = async {
            for (_, store) in stores.values() {
                store.wait_until_ready().await.ok()?;
            }
            Some(())
        };
        tokio::time::timeout(PATIENCE, filled).await.ok()??;
        let found = keys.iter().filter_map(|key| {
            let (resource, store) = stores.get(&watch_key(key))?;
            let mut name = ObjectRef::new_with(&key.name, resource.clone());
            name.namespace.clone_from(&key.namespace);
            let object = store.get(&name)?;
            let mut value = serde_json::to_value(object.as_ref()).ok()?;
            value["apiVersion"] = key.api_version.clone().into();
            value["kind"] = key.kind.clone().into();
            Some((key.clone(), value))
        });
        Some(found.collect())
    }

    async fn start(
        &self,
        atom: &Atom,
        objects: &Objects<'_>,
        stage: String,
        keys: BTreeSet<WatchKey>,
    ) -> Option<Watching> {
        let config = watcher::Config::default().labels(&format!("{}={}", label::ATOM, atom.name_any()));
        let mut stores = HashMap::new();
        let mut tasks = JoinSet::new();
        for watch in keys {
            let (api_version, kind, namespace) = &watch;
            let key = ObjectKey { api_version: api_version.clone(), kind: kind.clone(), ..ObjectKey::default() };
            let resource = objects.kind(&key).await.ok()??.resource;
            let api: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(objects.client().clone(), namespace, &resource),
                None => Api::all_with(objects.client().clone(), &resource),
            };
            let writer = reflector::store::Writer::<DynamicObject>::new(resource.clone());
            stores.insert(watch, (resource, writer.as_reader()));
            let events = watcher(api, config.clone()).default_backoff().modify(|object| {
                object.managed_fields_mut().clear();
            });
            let (ask, atom) = (self.ask.clone(), ObjectRef::from_obj(atom));
            tasks.spawn(async move {
                let mut events = std::pin::pin!(reflector::reflector(writer, events));
                while let Some(event) = events.next().await {
                    match event {
                        Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone) => {
                            // It fails only when the controller has stopped.
                            let _ = ask.unbounded_send(atom.clone());
                        }
                        Ok(_) => {}
                        Err(error) => tracing::debug!(%atom, %error, "a watch of an Atom's objects was interrupted"),
                    }
                }
            });
        }
        Some(Watching { stage, stores, _tasks: tasks })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ObjectRef<Atom>, Watching>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watch_key(key: &ObjectKey) -> WatchKey {
    (key.api_version.clone(), key.kind.clone(), key.namespace.clone())
}
