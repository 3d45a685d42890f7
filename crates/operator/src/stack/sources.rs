//! Sources outside of the cluster: git repositories and archives.
//!
//! *Guarantees.* A reconcile never waits for a fetch: the fetch goes on beside it, and asks for another reconcile at its
//! end. The files are stored in the cluster before the Stack's status names them. So neither another operator nor a server
//! that is gone makes a Stack lose its files.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use knoll_api::{Stack, stack::Fetched};
use knoll_core::{
    identity::Subject,
    stack::{FetchRecord, FetchRequest, RemoteSource, StartedFetch, credentials},
};
use knoll_storage::{Earlier, Origin, SourceError};
use kube::runtime::reflector::ObjectRef;

use super::inputs::version;
use crate::{context::Context, fetches::FetchSlots};

/// The fetches of all Stacks.
pub struct RemoteSources {
    resolver: knoll_storage::Sources,
    records: Mutex<HashMap<ObjectRef<Stack>, FetchRecord>>,
    slots: FetchSlots,
}

impl RemoteSources {
    pub fn new(resolver: knoll_storage::Sources) -> Self {
        Self { resolver, records: Mutex::default(), slots: FetchSlots::default() }
    }

    /// Resolves a source to a bundle.
    pub fn resolver(&self) -> &knoll_storage::Sources {
        &self.resolver
    }

    /// The places of fetches.
    pub fn slots(&self) -> &FetchSlots {
        &self.slots
    }

    /// Forgets a Stack that is gone.
    pub fn forget(&self, stack: &Stack) {
        self.lock().remove(&ObjectRef::from_obj(stack));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<Stack>, FetchRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of a source outside of the cluster; `None` for any other source. Starts a fetch if one is due.
pub(super) fn observe(context: &Arc<Context>, stack: &Subject<Stack>) -> Option<RemoteSource> {
    if stack.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let secret = credentials(&stack.spec.source);
    let secret = secret.map(|secret| version(&context.caches.secrets, stack.namespace(), &secret.name));
    let request = FetchRequest::of(stack, &secret.unwrap_or_default())?;
    let published = stack.status.as_ref().and_then(|status| status.fetched.as_ref());
    let mut records = context.sources.lock();
    let record = records.entry(ObjectRef::from_obj(&**stack)).or_default();
    if let Some(started) = record.start(&request, published, context.now()) {
        tokio::spawn(fetch(context.clone(), stack.clone(), started));
    }
    Some(record.source())
}

/// Fetches, records the result, and asks for a reconcile.
async fn fetch(context: Arc<Context>, stack: Subject<Stack>, started: StartedFetch) {
    let sources = &context.sources;
    let Some(_slot) = sources.slots.acquire(stack.namespace()).await else { return };
    let result = newest(&context, &stack, &started).await;
    if let Some(record) = sources.lock().get_mut(&ObjectRef::from_obj(&*stack)) {
        record.finish(&started.request, result, context.now());
    }
    context.ask.stack(stack.namespace(), stack.name());
}

/// The newest files, stored in the cluster. Files that are stored already are not fetched again.
async fn newest(context: &Context, stack: &Subject<Stack>, started: &StartedFetch) -> Result<Fetched, SourceError> {
    let known = started.known.as_ref();
    let bundle = known.and_then(|known| known.fetched.bundle.parse().ok());
    let earlier = known.zip(bundle.as_ref()).map(|(known, bundle)| Earlier {
        revision: &known.fetched.revision,
        bundle,
        is_stored: known.verified,
    });
    let resolver = context.sources.resolver();
    match (resolver.resolve(stack.namespace(), &stack.spec.source, earlier).await?, known) {
        (Origin::Files { bundle, revision: Some(revision) }, _) => {
            context.storage.bundles().store(stack.namespace(), &bundle).await?;
            Ok(Fetched { source: started.request.source.clone(), revision, bundle: bundle.digest.into() })
        }
        (Origin::Stored(_), Some(known)) => Ok(known.fetched.clone()),
        // Only a source outside of the cluster is fetched.
        _ => Err(SourceError::Nothing),
    }
}
