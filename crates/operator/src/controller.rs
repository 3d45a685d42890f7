//! What the controllers share: how they are driven, and how they write a status.

use std::{
    collections::HashMap,
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture};
use jiff::Timestamp;
use knoll_api::names::field_manager;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{
        controller::{self, Action, Config},
        reflector::{ObjectRef, Store},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// How many objects of one kind are worked on at a time.
const CONCURRENCY: u16 = 32;

/// Brings one object a step further.
pub type Reconcile<K, C> = fn(Arc<K>, Arc<C>) -> BoxFuture<'static, Result<Action, Error>>;

/// Why a reconcile has to be tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused a request or could not be reached.
    #[error("{what}: {}", knoll_storage::message_of(source))]
    Api {
        what: &'static str,
        /// What the API said.
        source: Box<kube::Error>,
    },
    /// A status could not be written as JSON.
    #[error("a status could not be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the files or the variables of a Stack cannot be stored: {0}")]
    Store(String),
    #[error("the frozen job of a run cannot be read: {0}")]
    FrozenJob(String),
    /// A state could not be read.
    #[error("the outputs of a Stack cannot be read: {0}")]
    State(String),
    #[error(
        "Policy `{0}` cannot be read, so the service account of an Atom that names none is not known; correct the Policy, or name an account in spec.serviceAccountName"
    )]
    UnreadablePolicy(String),
    /// What was decided on is not so any more.
    #[error("the inputs of a Stack have changed while they were looked at")]
    Changed,
}

impl Error {
    /// An answer of the API to what was tried.
    pub fn api(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { what, source: Box::new(source) }
    }
}

/// The HTTP status of the API's refusal.
#[must_use]
pub fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Reconciles what `asked` names until `shutdown`, and returns when the last reconcile has ended.
///
/// Nothing is delayed: a request that comes while its object is worked on is served right after. An object
/// whose reconcile fails waits longer each time.
pub async fn drive<K, C>(
    context: Arc<C>,
    store: Store<K>,
    asked: impl Stream<Item = ObjectRef<K>>,
    reconcile: Reconcile<K, C>,
    metrics: Metrics,
    shutdown: CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
    C: Send + Sync + 'static,
{
    let failures: Mutex<HashMap<ObjectRef<K>, u32>> = Mutex::default();
    let lock = || failures.lock().unwrap_or_else(PoisonError::into_inner);
    let on_error = |object: Arc<K>, _: &Error, _: Arc<C>| {
        let mut failures = lock();
        let count = failures.entry(ObjectRef::from_obj(object.as_ref())).or_default();
        *count = count.saturating_add(1);
        Action::requeue(backoff(*count))
    };
    let controller = K::plural(&());
    let queue = asked.map(Ok::<_, std::convert::Infallible>).take_until(shutdown.cancelled_owned());
    let config = Config::default().concurrency(CONCURRENCY);
    controller::applier(reconcile, on_error, context, store, queue, config)
        .for_each(|result| {
            match result {
                Ok((object, _)) => {
                    metrics.reconciled(&controller, false);
                    lock().remove(&object);
                }
                Err(controller::Error::ReconcilerFailed(error, object)) => {
                    metrics.reconciled(&controller, true);
                    tracing::warn!(%object, %error, "a reconcile failed and is tried again");
                }
                // Its object went while it waited for its turn.
                Err(controller::Error::ObjectNotFound(object)) => {
                    let object = ObjectRef::new(&object.name).within(object.namespace.as_deref().unwrap_or_default());
                    lock().remove(&object);
                }
                Err(error) => tracing::error!(%error, "a controller cannot go on"),
            }
            std::future::ready(())
        })
        .await;
}

/// How long to wait after that many failures in a row.
fn backoff(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(30);
    FIRST.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(LONGEST)
}

/// When to look again: never later than asked for, and never in a busy loop.
#[must_use]
pub fn requeue_at(time: Option<Timestamp>, now: Timestamp) -> Action {
    match time {
        None => Action::await_change(),
        Some(time) => {
            let left = Duration::try_from(time.duration_since(now)).unwrap_or_default();
            Action::requeue(left.max(Duration::from_millis(1)))
        }
    }
}

/// What this process wrote last, so that it does not decide on an object older than that.
///
/// A write carries the resourceVersion it was decided on. When the cache still shows that one, the write has not come
/// back yet; the watch brings it, and asks for a reconcile again.
#[derive(Debug)]
pub struct Written<K: Resource<DynamicType = ()>> {
    before: Mutex<HashMap<ObjectRef<K>, Option<String>>>,
}

impl<K: Resource<DynamicType = ()>> Default for Written<K> {
    fn default() -> Self {
        Self { before: Mutex::default() }
    }
}

/// What became of a status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// There was nothing to write.
    Unchanged,
    Written,
    /// Somebody else wrote in between, or the object is gone; the watch brings what there is now.
    Overtaken,
}

impl<K> Written<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    /// Whether the cache shows an object that this process has written over.
    pub fn is_stale(&self, object: &K) -> bool {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let key = ObjectRef::from_obj(object);
        match before.get(&key) {
            Some(version) if *version == object.resource_version() => true,
            Some(_) => {
                before.remove(&key);
                false
            }
            None => false,
        }
    }

    /// Puts a finalizer on exactly the object that was read, or takes it off. The watch brings the object as it is then.
    ///
    /// # Errors
    /// When the API does not take it for another reason than that the object has moved on.
    pub async fn hold(&self, api: &Api<K>, object: &K, finalizer: &str, held: bool) -> Result<(), Error> {
        let mut all: Vec<String> = object.finalizers().iter().filter(|other| *other != finalizer).cloned().collect();
        all.extend(held.then(|| finalizer.to_owned()));
        let patch = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": all}});
        match api.patch(&object.name_any(), &patch_params(), &Patch::Merge(patch)).await {
            Err(error) if matches!(code(&error), Some(404 | 409)) => {}
            result => {
                result.map_err(Error::api("cannot write a finalizer"))?;
                let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
                before.insert(ObjectRef::from_obj(object), object.resource_version());
            }
        }
        Ok(())
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, object: &K) {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).remove(&ObjectRef::from_obj(object));
    }

    /// Writes the status of exactly the object that was read, when it differs.
    ///
    /// # Errors
    /// When the API does not take it for another reason than that the object has moved on.
    pub async fn publish<S: Serialize + Default + PartialEq>(
        &self,
        api: &Api<K>,
        object: &K,
        from: Option<&S>,
        to: &S,
    ) -> Result<Published, Error> {
        let version = object.resource_version();
        let Some(patch) = knoll_core::patch::status(version.as_deref(), from, to)? else {
            return Ok(Published::Unchanged);
        };
        match api.patch_status(&object.name_any(), &patch_params(), &Patch::Merge(patch)).await {
            Ok(_) => {
                let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
                before.insert(ObjectRef::from_obj(object), version);
                Ok(Published::Written)
            }
            Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(Published::Overtaken),
            Err(error) => Err(Error::api("cannot write a status")(error)),
        }
    }
}

/// The parameters of a patch by the operator as its field manager.
#[must_use]
pub fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PatchParams::default() }
}

/// Makes a reconcile function one that [`drive`] takes.
pub fn boxed<F>(future: F) -> BoxFuture<'static, Result<Action, Error>>
where
    F: Future<Output = Result<Action, Error>> + Send + 'static,
{
    future.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_and_is_bounded() {
        let waits: Vec<u64> = [1, 2, 3, 9, 10, 4000]
            .into_iter()
            .map(|failures| u64::try_from(backoff(failures).as_millis()).unwrap_or_default())
            .collect();
        assert_eq!(waits, [100, 200, 400, 25_600, 30_000, 30_000]);
    }

    #[test]
    fn a_time_that_has_passed_is_looked_at_soon() {
        let now = Timestamp::from_second(100).unwrap_or_default();
        let past = Timestamp::from_second(50).unwrap_or_default();
        assert_eq!(requeue_at(Some(past), now), Action::requeue(Duration::from_millis(1)));
        assert_eq!(requeue_at(None, now), Action::await_change());
    }
}
