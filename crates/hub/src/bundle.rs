//! The files of a run: packed when the run begins, and kept, so that whatever follows has the same files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use knoll_api::run::{Operation, Run};
use knoll_api::workspace::Workspace;
use knoll_api::{Digest, DigestError};
use knoll_core::identity::{ObjectId, Subject};
use knoll_storage::{Bundle, BundleError, Bundles, Origin, SourceError, Sources, UNUSED_FOR, message_of};

use crate::cache::Cache;
use crate::session::Session;

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source cannot be used.
    #[error("the run's source cannot be used: {0}")]
    Source(SourceError),
    /// The bundle cannot be used.
    #[error(transparent)]
    Store(BundleError),
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// Nothing says which files to run.
    #[error("the run has no source, and nothing was applied in its Workspace yet; give it a source")]
    NoSource,
    #[error("the Kubernetes API failed: {}", message_of(.0))]
    Api(#[from] kube::Error),
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Api(error) => Error::Api(error),
            error => Error::Source(error),
        }
    }
}

impl From<BundleError> for Error {
    fn from(error: BundleError) -> Self {
        match error {
            BundleError::Api(error) => Error::Api(error),
            error => Error::Store(error),
        }
    }
}

/// The packed files of a run, or nothing for a run that can do without. Files that nobody has kept yet are stored while
/// the run goes on; [`is_kept`] waits for that. `marked` says when they were stored or marked as used.
///
/// # Errors
/// When its source is not there or cannot be used.
pub async fn of(
    bundles: &Bundles,
    session: &Session,
    run: &Subject<Run>,
    workspace: &Workspace,
    sources: &Sources,
    marked: &Arc<Marked>,
    runs: &Arc<Cache<Run>>,
) -> Result<Option<Vec<u8>>, Error> {
    let pinned = run.status.as_ref().and_then(|status| status.bundle.as_deref());
    let applied = workspace.status.as_ref().and_then(|status| status.bundle.as_deref());
    let digest = match (pinned, run.spec.module()) {
        // An earlier pod had these files, or a person has approved them.
        (Some(digest), _) => digest.parse()?,
        (None, Some(source)) => match sources.resolve(run.namespace(), &source, None).await? {
            Origin::Stored(digest) => digest,
            Origin::Files { bundle, .. } => {
                let bytes = bundle.bytes.clone();
                *session.files.lock().unwrap_or_else(PoisonError::into_inner) = Some(bundle.digest.clone());
                let was_applied = applied == Some(bundle.digest.as_str());
                let keeping = keep(bundles.clone(), run.id.clone(), bundle, was_applied, marked.clone(), runs.clone());
                *session.storing.lock().await = Some(tokio::spawn(keeping));
                return Ok(Some(bytes));
            }
        },
        (None, None) => match applied.filter(|_| !is_approved_without_files(run)) {
            Some(digest) => digest.parse()?,
            // A command such as `state list` needs no files.
            None if run.spec.operation == Operation::Command => return Ok(None),
            None => return Err(Error::NoSource),
        },
    };
    Ok(Some(bundles.fetch(run.namespace(), &digest).await?))
}

/// Whether a person has approved the run before it started, when there were no files for it. What was applied in its
/// Workspace since is not what they approved.
fn is_approved_without_files(run: &Run) -> bool {
    let status = run.status.as_ref();
    let is_approved = status.is_some_and(|status| status.decision.is_some() && status.bundle.is_none());
    is_approved && matches!(run.spec.operation, Operation::Command | Operation::Plan)
}

/// `was_applied` says that the Workspace was applied with the same files, so that they are most likely stored.
async fn keep(
    bundles: Bundles,
    run: ObjectId,
    bundle: Bundle,
    was_applied: bool,
    marked: Arc<Marked>,
    runs: Arc<Cache<Run>>,
) -> Result<(), BundleError> {
    let key = (run.namespace.clone(), bundle.digest.clone());
    let mark = marked.lately(&key);
    // A mark alone could be one of an earlier namespace of that name, but not while the run that left it is there.
    if mark.as_ref().is_some_and(|mark| mark.is_of_this_namespace(&runs)) {
        return Ok(());
    }
    let is_stored = mark.is_some() && bundles.is_stored(&key.0, &key.1).await?;
    match was_applied || mark.is_some() {
        _ if is_stored => {}
        true => bundles.store_again(&key.0, &bundle).await?,
        false => bundles.store(&key.0, &bundle).await?,
    }
    let at = mark.filter(|_| is_stored).map_or_else(Instant::now, |mark| mark.at);
    marked.note(key, Mark { at, run });
    Ok(())
}

/// When this replica has stored a bundle, or marked it as used: by namespace and digest.
#[derive(Default)]
pub struct Marked(Mutex<HashMap<(String, Digest), Mark>>);

/// A bundle was known to be stored.
#[derive(Clone)]
struct Mark {
    /// When it was stored, or marked as used.
    at: Instant,
    /// The run that has it.
    run: ObjectId,
}

impl Mark {
    fn is_of_this_namespace(&self, runs: &Cache<Run>) -> bool {
        let run = runs.get(&self.run.namespace, &self.run.name);
        run.is_some_and(|run| run.metadata.uid.as_deref() == Some(self.run.uid.as_str()))
    }
}

/// How long a mark is as good as a new one. It is far from making a bundle one that nobody has used for long.
const LATELY: Duration = Duration::from_secs(UNUSED_FOR.as_secs() / 6);

impl Marked {
    fn lately(&self, key: &(String, Digest)) -> Option<Mark> {
        self.lock().get(key).filter(|mark| mark.at.elapsed() < LATELY).cloned()
    }

    fn note(&self, key: (String, Digest), mark: Mark) {
        let mut marks = self.lock();
        marks.retain(|_, mark| mark.at.elapsed() < LATELY);
        marks.insert(key, mark);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, Digest), Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the files of this digest, which the run says it has, are kept.
///
/// # Errors
/// When the API fails, so that it may be asked again.
pub async fn is_kept(
    bundles: &Bundles,
    session: &Session,
    run: &Subject<Run>,
    digest: &Digest,
    sources: &Sources,
) -> Result<bool, Error> {
    if run.status.as_ref().is_some_and(|status| status.bundle.is_some()) {
        return Ok(true);
    }
    // The files that the Run names by their digest are those, whatever its runner says.
    if let Some(named) = run.spec.bundle() {
        return Ok(*digest == *named);
    }
    let Some(source) = run.spec.module() else {
        return Ok(true);
    };
    // One report at a time comes here, and the next one finds the bundle.
    let mut storing = session.storing.lock().await;
    let given = session.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if given.as_ref().is_some_and(|given| given != digest) {
        return Ok(false);
    }
    let stored = match storing.take() {
        Some(task) => matches!(task.await, Ok(Ok(()))),
        None => false,
    };
    // The second pod of a run with a frozen job fetches what is stored, so a mark of this replica is not enough there.
    let has_second_pod = run.status.as_ref().is_some_and(|status| status.job.is_some());
    if stored && !has_second_pod {
        return Ok(true);
    }
    if given.is_some() && bundles.is_stored(run.namespace(), digest).await? {
        return Ok(true);
    }
    // They could not be stored, or another replica gave them out: then the source says whether they are the run's.
    match sources.resolve(run.namespace(), &source, None).await {
        Ok(Origin::Files { bundle, .. }) if bundle.digest == *digest => {
            bundles.store(run.namespace(), &bundle).await?;
            Ok(true)
        }
        Ok(_) => Ok(false),
        Err(SourceError::Api(error)) => Err(error.into()),
        Err(_) => Ok(false),
    }
}
