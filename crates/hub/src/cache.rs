//! Watched copies of objects, so that a request of a runner needs no request to the API.
//!
//! *Caveat.* A copy can be older than what this process wrote itself; who writes, remembers what it wrote.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::reflector::{ObjectRef, Store, reflector, store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// All objects of one kind that the hub is responsible for.
pub struct Cache<K>
where
    K: Resource<DynamicType = ()> + 'static,
{
    store: Store<K>,
    changes: watch::Receiver<u64>,
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Starts to watch one namespace, or all, until `shutdown`.
    pub fn start(client: &Client, namespace: Option<&str>, shutdown: &CancellationToken) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        let (store, writer) = store();
        let (changed, changes) = watch::channel(0);
        let api = match namespace {
            Some(namespace) => Api::<K>::namespaced(client.clone(), namespace),
            None => Api::<K>::all(client.clone()),
        };
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let mut events = Box::pin(reflector(writer, events));
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            let watching = async {
                while let Some(event) = events.next().await {
                    match event {
                        Ok(_) => changed.send_modify(|count| *count += 1),
                        Err(error) => tracing::debug!(%error, "a watch of the hub is interrupted"),
                    }
                }
            };
            tokio::select! {
                () = watching => {}
                () = shutdown.cancelled() => {}
            }
        });
        Cache { store, changes }
    }

    /// Returns when the first list has arrived.
    pub async fn ready(&self) {
        // It fails only when the watch has ended, and then nothing becomes ready any more.
        let _ = self.store.wait_until_ready().await;
    }

    /// The object as it was last seen.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// Whether one of the objects is so.
    pub fn any(&self, is_so: impl Fn(&K) -> bool) -> bool {
        self.store.find(|object| is_so(object)).is_some()
    }

    /// Asks `found` after each change until it has an answer or the time is over.
    pub async fn wait_for<T>(&self, limit: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
        let mut changes = self.changes.clone();
        let waiting = async {
            loop {
                // Marked as seen before asking, so that a change in between is not missed.
                changes.borrow_and_update();
                if let Some(answer) = found() {
                    return answer;
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(limit, waiting).await.ok()
    }
}
