//! Watched copies of objects, so that a request of a runner needs no request to the API. Objects are looked up by name.
//!
//! *Caveat.* A cached object can be older than the last write of this process; a writer keeps the object that the API
//! server returned.

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
    /// Watches one namespace, or all of them, until `shutdown`.
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
        // An error means that the watch has ended: the hub is shutting down.
        let _ = self.store.wait_until_ready().await;
    }

    /// The object as the watch last delivered it.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// Calls `found` after each change until it returns a value or `limit` has passed.
    pub async fn wait_for<T>(&self, limit: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
        let mut changes = self.changes.clone();
        let waiting = async {
            loop {
                // The change is marked as seen before `found` is called, so that a later change is not missed.
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
