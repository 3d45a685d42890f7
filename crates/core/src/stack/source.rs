//! Sources outside of the cluster: when a source is fetched, and again after a success or a failure.
//!
//! *Guarantees.* One fetch of a source is under way at a time. The result of a fetch counts only while it is still what the
//! Stack asks for. A result stays known until another fetch of the same source succeeds.

use std::time::Duration;

use jiff::Timestamp;
use knoll_api::{
    names::annotation,
    source::{Source, SourceKind},
    stack::{Fetched, Stack},
};
use kube::ResourceExt;

use super::{backoff, digest, inputs::sentence};

/// The time between two checks for a newer commit when the source has no `interval`.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
/// The wait after the first failure: most failures are short interruptions of a network.
const FIRST_RETRY: Duration = Duration::from_secs(5);
/// The longest wait after failures in a row, so that a server that is back is noticed within minutes.
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// The known state of a source outside of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteSource {
    /// The result of the last fetch that succeeded.
    pub fetched: Option<Fetched>,
    /// The error of the last fetch, if it failed.
    pub error: Option<String>,
    /// The time of the next fetch, unless one is under way.
    pub next: Option<Timestamp>,
}

/// What a Stack asks a fetch for. A change of any part starts another fetch at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The digest of the source as it is written, without its interval and its credentials.
    pub source: String,
    /// The version of the Secret with the credentials.
    credentials: String,
    /// The value of [`annotation::RECONCILE`].
    request: Option<String>,
    /// The time between two fetches. An archive never changes: its digest is a part of the source.
    interval: Option<Duration>,
}

impl FetchRequest {
    /// The request of a Stack; `None` when its source is in the cluster. `credentials` is the version of the source's
    /// Secret.
    #[must_use]
    pub fn of(stack: &Stack, credentials: &str) -> Option<Self> {
        let interval = match stack.spec.source.kind()? {
            SourceKind::Git(git) => Some(git.interval.as_ref().map_or(DEFAULT_INTERVAL, |interval| interval.get())),
            SourceKind::Archive(_) => None,
            SourceKind::ConfigMap(_) | SourceKind::Inline(_) | SourceKind::Bundle(_) => return None,
        };
        Some(Self {
            source: source_digest(&stack.spec.source),
            credentials: credentials.to_owned(),
            request: stack.annotations().get(annotation::RECONCILE).cloned(),
            interval,
        })
    }
}

fn source_digest(source: &Source) -> String {
    let mut source = source.clone();
    if let Some(git) = &mut source.git {
        git.interval = None;
        git.secret_ref = None;
    }
    if let Some(archive) = &mut source.archive {
        archive.secret_ref = None;
    }
    digest(&source)
}

/// A result that need not be fetched again while the source has the same revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFetch {
    pub fetched: Fetched,
    /// This process knows that the bundle is stored. It stays stored while the status names it.
    pub verified: bool,
}

/// A fetch to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedFetch {
    pub request: FetchRequest,
    pub known: Option<KnownFetch>,
}

/// The record of the fetches of one Stack's source.
#[derive(Clone, Debug, Default)]
pub struct FetchRecord {
    request: Option<FetchRequest>,
    known: Option<KnownFetch>,
    error: Option<String>,
    failures: u32,
    under_way: bool,
    due: Option<Timestamp>,
}

impl FetchRecord {
    /// Takes in the request of the Stack. Returns the fetch that is due, which counts as under way from now on.
    ///
    /// `published` is the result in the Stack's status, perhaps of an earlier operator.
    pub fn start(
        &mut self,
        request: &FetchRequest,
        published: Option<&Fetched>,
        now: Timestamp,
    ) -> Option<StartedFetch> {
        let is_of_source = |fetched: &Fetched| fetched.source == request.source;
        if !self.known.as_ref().is_some_and(|known| is_of_source(&known.fetched)) {
            let published = published.filter(|fetched| is_of_source(fetched)).cloned();
            self.known = published.map(|fetched| KnownFetch { fetched, verified: false });
        }
        if self.request.as_ref() != Some(request) {
            self.request = Some(request.clone());
            self.error = None;
            self.failures = 0;
            self.due = Some(now);
        }
        if self.under_way || self.due.is_none_or(|due| due > now) {
            return None;
        }
        self.under_way = true;
        Some(StartedFetch { request: request.clone(), known: self.known.clone() })
    }

    /// Takes in the result of the fetch that was started for `request`.
    pub fn finish<E: ToString>(&mut self, request: &FetchRequest, result: Result<Fetched, E>, now: Timestamp) {
        self.under_way = false;
        if self.request.as_ref() != Some(request) {
            return;
        }
        let wait = match result {
            Ok(fetched) => {
                self.failures = 0;
                self.error = None;
                self.known = Some(KnownFetch { fetched, verified: true });
                request.interval
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.error = Some(sentence(&error.to_string()));
                Some(backoff::doubled(FIRST_RETRY, LONGEST_RETRY, self.failures))
            }
        };
        self.due = wait.and_then(|wait| now.checked_add(wait).ok());
    }

    /// The state of the source for the Stack machine.
    #[must_use]
    pub fn source(&self) -> RemoteSource {
        RemoteSource {
            fetched: self.known.as_ref().map(|known| known.fetched.clone()),
            error: self.error.clone(),
            next: self.due.filter(|_| !self.under_way),
        }
    }
}
