//! Sources outside of the cluster: git repositories and archives.
//!
//! *Guarantees.* A reconcile never waits for a fetch: it goes on beside, and asks for another reconcile when it has
//! something to tell. What was fetched is kept in the cluster before anybody hears of it, and the Stack's status says which
//! commit gave which bundle; so neither another operator nor a server that is gone makes a Stack forget what it has.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use knoll_api::{
    Digest, Stack,
    names::annotation,
    source::{GitSource, LocalRef, Source, SourceKind},
    stack::Fetched,
};
use knoll_core::stack::Elsewhere;
use knoll_storage::{Earlier, Origin, SourceError, Storage};
use kube::{ResourceExt, runtime::reflector::ObjectRef};
use tokio::sync::Semaphore;

use super::inputs::sentence;
use crate::context::Context;

/// How many fetches go on at a time.
const AT_ONCE: usize = 8;
/// How often a Stack looks for a newer commit when it does not say so.
const INTERVAL: Duration = Duration::from_secs(60);
/// The wait after the first failure; it doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);

/// What is known of the sources of all Stacks.
pub struct Sources {
    resolver: knoll_storage::Sources,
    known: Mutex<HashMap<ObjectRef<Stack>, Known>>,
    permits: Semaphore,
}

/// What is known of one.
#[derive(Default)]
struct Known {
    /// What was looked for: the source as it is written, the version of its Secret, and whether a person asked.
    asked: String,
    fetched: Option<Fetched>,
    trouble: Option<String>,
    /// Whether this process knows that the bundle is kept; while the status names it, it stays.
    verified: bool,
    failures: u32,
    busy: bool,
    due: Option<Timestamp>,
}

impl Sources {
    /// Knows nothing yet.
    pub fn new(resolver: knoll_storage::Sources) -> Self {
        Self { resolver, known: Mutex::default(), permits: Semaphore::new(AT_ONCE) }
    }

    /// Resolves a source to a bundle.
    pub fn resolver(&self) -> &knoll_storage::Sources {
        &self.resolver
    }

    /// Forgets a Stack that is gone.
    pub fn forget(&self, stack: &Stack) {
        self.lock().remove(&ObjectRef::from_obj(stack));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<Stack>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a source has to be fetched from outside of the cluster.
pub fn is_outside(source: &Source) -> bool {
    matches!(source.kind(), Some(SourceKind::Git(_) | SourceKind::Archive(_)))
}

/// The Secret that a source outside of the cluster names.
pub fn secret(source: &Source) -> Option<&LocalRef> {
    match source.kind()? {
        SourceKind::Git(source) => source.secret_ref.as_ref(),
        SourceKind::Archive(source) => source.secret_ref.as_ref(),
        _ => None,
    }
}

/// What is known of the source of a Stack, if it is outside of the cluster; starts to look for more when it is time.
/// `version` is that of its Secret.
pub fn look(context: &Arc<Context>, stack: &Stack, version: &str) -> Option<Elsewhere> {
    let source = &stack.spec.source;
    if !is_outside(source) {
        return None;
    }
    let (now, written) = (context.now(), written(source));
    let person = stack.annotations().get(annotation::RECONCILE).map(String::as_str).unwrap_or_default();
    let asked = format!("{written} {version} {person}");
    let key = ObjectRef::from_obj(stack);
    let mut all = context.sources.lock();
    let known = all.entry(key.clone()).or_default();
    // What an earlier operator has fetched, or the one of an earlier source of this Stack, is of use if it is of this one.
    let recorded = stack.status.as_ref().and_then(|status| status.fetched.clone());
    if known.fetched.as_ref().is_none_or(|fetched| fetched.source != written) {
        known.fetched = recorded.filter(|fetched| fetched.source == written);
        known.verified = false;
    }
    if known.asked != asked {
        known.trouble = None;
        known.failures = 0;
        known.due = Some(now);
        known.asked.clone_from(&asked);
    }
    if !known.busy && known.due.is_some_and(|due| due <= now) {
        known.busy = true;
        let before = known.fetched.clone().map(|fetched| (fetched, known.verified));
        tokio::spawn(fetch(context.clone(), key, stack.clone(), asked, written, before));
    }
    let next = known.due.filter(|_| !known.busy);
    Some(Elsewhere { fetched: known.fetched.clone(), trouble: known.trouble.clone(), next })
}

/// Fetches, notes what came of it, and asks for a reconcile.
async fn fetch(
    context: Arc<Context>,
    key: ObjectRef<Stack>,
    stack: Stack,
    asked: String,
    written: String,
    before: Option<(Fetched, bool)>,
) {
    let sources = &context.sources;
    let found = match sources.permits.acquire().await {
        Ok(_permit) => newest(&context.storage, &sources.resolver, &stack, written, before.as_ref()).await,
        // It is never closed.
        Err(_) => return,
    };
    let now = context.now();
    {
        let mut all = sources.lock();
        let Some(known) = all.get_mut(&key) else { return };
        known.busy = false;
        if known.asked == asked {
            match found {
                Ok(fetched) => {
                    known.failures = 0;
                    known.trouble = None;
                    known.fetched = Some(fetched);
                    known.verified = true;
                    // An archive never changes: its digest is a part of what is asked for.
                    known.due = match stack.spec.source.kind() {
                        Some(SourceKind::Git(git)) => later(now, interval(git)),
                        _ => None,
                    };
                }
                Err(error) => {
                    known.failures = known.failures.saturating_add(1);
                    known.trouble = Some(sentence(&error.to_string()));
                    known.due = later(now, backoff(known.failures));
                }
            }
        }
    }
    context.ask.stack(&stack.namespace().unwrap_or_default(), &stack.name_any());
}

fn later(now: Timestamp, wait: Duration) -> Option<Timestamp> {
    now.checked_add(wait).ok()
}

fn interval(git: &GitSource) -> Duration {
    git.interval.as_ref().map_or(INTERVAL, |interval| interval.get())
}

fn backoff(failures: u32) -> Duration {
    FIRST.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(LONGEST)
}

/// The source as it is written, without how often it is looked at.
fn written(source: &Source) -> String {
    let mut source = source.clone();
    if let Some(git) = &mut source.git {
        git.interval = None;
        git.secret_ref = None;
    }
    if let Some(archive) = &mut source.archive {
        archive.secret_ref = None;
    }
    Digest::of(serde_json::to_vec(&source).unwrap_or_default()).into()
}

/// The newest files, stored in the cluster. Files that are stored already are not fetched again.
async fn newest(
    storage: &Storage,
    resolver: &knoll_storage::Sources,
    stack: &Stack,
    written: String,
    before: Option<&(Fetched, bool)>,
) -> Result<Fetched, SourceError> {
    let namespace = stack.namespace().unwrap_or_default();
    let bundle = before.and_then(|(before, _)| before.bundle.parse().ok());
    let earlier = before.zip(bundle.as_ref()).map(|((before, verified), bundle)| Earlier {
        revision: &before.revision,
        bundle,
        is_stored: *verified,
    });
    match (resolver.resolve(&namespace, &stack.spec.source, earlier).await?, before) {
        (Origin::Files { bundle, revision: Some(revision) }, _) => {
            storage.bundles().store(&namespace, &bundle).await?;
            Ok(Fetched { source: written, revision, bundle: bundle.digest.into() })
        }
        (Origin::Stored(_), Some((before, _))) => Ok(before.clone()),
        // Only a source outside of the cluster comes here.
        _ => Err(SourceError::Nothing),
    }
}
