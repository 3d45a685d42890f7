//! Leader election: of several operators, the one that holds the Lease acts.
//!
//! *Assumption.* Clocks need not agree: a holder counts as gone when its Lease has not changed for its duration
//! by the *watcher's* clock. *Guarantee.* A holder that cannot renew steps down before another can take over.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How the Lease is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    pub namespace: String,
    pub name: String,
    /// Who holds it; different for every process.
    pub identity: String,
    /// How long it is good without being renewed.
    pub duration: Duration,
}

impl LeaseSettings {
    /// A Lease of the usual fifteen seconds.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        let duration = Duration::from_secs(15);
        Self { namespace: namespace.into(), name: name.into(), identity: identity.into(), duration }
    }

    fn renew_every(&self) -> Duration {
        self.duration / 3
    }

    /// A renewal that is late by more than this gives the Lease up, before anybody may take it.
    fn give_up_after(&self) -> Duration {
        self.duration * 2 / 3
    }
}

/// Why there is no leader.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process took over, or this one could not renew in time.
    #[error("the Lease `{name}` was lost: {why}")]
    Lost {
        /// The name of the Lease.
        name: String,
        why: String,
    },
}

/// A Lease that this process holds.
#[derive(Debug)]
pub struct Held {
    api: Api<Lease>,
    settings: LeaseSettings,
    lease: Lease,
    renewed: Instant,
}

/// Waits until this process holds the Lease; `None` when it was told to stop before.
pub async fn acquire(client: &Client, settings: &LeaseSettings, shutdown: &CancellationToken) -> Option<Held> {
    let api: Api<Lease> = Api::namespaced(client.clone(), &settings.namespace);
    let mut seen: Option<(Option<String>, Instant)> = None;
    loop {
        let started = Instant::now();
        match attempt(&api, settings, &mut seen).await {
            Ok(Some(lease)) => {
                tracing::info!(lease = settings.name, identity = settings.identity, "this process leads");
                return Some(Held { api, settings: settings.clone(), lease, renewed: started });
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(%error, lease = settings.name, "the Lease cannot be had now")
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(settings.renew_every()) => {}
        }
    }
}

impl Held {
    /// Renews the Lease until `shutdown`, then lets it go so that the next one need not wait.
    ///
    /// # Errors
    /// When the Lease is lost: whoever held it must stop at once.
    pub async fn keep(mut self, shutdown: CancellationToken) -> Result<(), Error> {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => {
                    self.release().await;
                    return Ok(());
                }
                () = tokio::time::sleep(self.settings.renew_every()) => {}
            }
            let started = Instant::now();
            let left = self.settings.give_up_after().saturating_sub(self.renewed.elapsed());
            let renewed = replaced(&self.settings, &self.lease, Timestamp::now());
            let params = PostParams::default();
            let write = self.api.replace(&self.settings.name, &params, &renewed);
            match tokio::time::timeout(left, write).await {
                Ok(Ok(lease)) => {
                    self.lease = lease;
                    self.renewed = started;
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 409 || status.code == 404 => {
                    return Err(self.lost("another process took it"));
                }
                Ok(Err(error)) if self.renewed.elapsed() < self.settings.give_up_after() => {
                    tracing::warn!(%error, "the Lease was not renewed; trying again");
                }
                Ok(Err(error)) => return Err(self.lost(error)),
                Err(_) => return Err(self.lost("the API did not answer in time")),
            }
        }
    }

    fn lost(&self, why: impl ToString) -> Error {
        Error::Lost { name: self.settings.name.clone(), why: why.to_string() }
    }

    async fn release(&self) {
        let preconditions = Preconditions {
            resource_version: self.lease.metadata.resource_version.clone(),
            uid: self.lease.metadata.uid.clone(),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        if let Err(error) = self.api.delete(&self.settings.name, &params).await {
            tracing::debug!(%error, "the Lease was not let go; it runs out by itself");
        }
    }
}

/// One attempt to get the Lease.
async fn attempt(
    api: &Api<Lease>,
    settings: &LeaseSettings,
    seen: &mut Option<(Option<String>, Instant)>,
) -> Result<Option<Lease>, kube::Error> {
    let Some(lease) = api.get_opt(&settings.name).await? else {
        let first = Lease {
            metadata: ObjectMeta { name: Some(settings.name.clone()), ..ObjectMeta::default() },
            ..Lease::default()
        };
        let created = api.create(&PostParams::default(), &replaced(settings, &first, Timestamp::now())).await?;
        return Ok(Some(created));
    };
    let version = lease.metadata.resource_version.clone();
    let unchanged_for = match seen {
        Some((known, since)) if *known == version => since.elapsed(),
        _ => {
            *seen = Some((version, Instant::now()));
            Duration::ZERO
        }
    };
    if !is_free(lease.spec.as_ref(), &settings.identity, unchanged_for) {
        return Ok(None);
    }
    let mine = replaced(settings, &lease, Timestamp::now());
    api.replace(&settings.name, &PostParams::default(), &mine).await.map(Some)
}

/// Whether a Lease may be taken: nobody holds it, this process does, or its holder has been silent for too long.
fn is_free(spec: Option<&LeaseSpec>, identity: &str, unchanged_for: Duration) -> bool {
    let Some(spec) = spec else { return true };
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
    holder.is_empty() || holder == identity || unchanged_for >= Duration::from_secs(seconds)
}

/// The Lease as this process holds it. Its resourceVersion stays, so that of two writers one is refused.
fn replaced(settings: &LeaseSettings, lease: &Lease, now: Timestamp) -> Lease {
    let old = lease.spec.clone().unwrap_or_default();
    let mine = old.holder_identity.as_deref() == Some(settings.identity.as_str());
    let transitions = old.lease_transitions.unwrap_or_default();
    let spec = LeaseSpec {
        holder_identity: Some(settings.identity.clone()),
        lease_duration_seconds: i32::try_from(settings.duration.as_secs()).ok(),
        acquire_time: if mine { old.acquire_time } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if mine { transitions } else { transitions.saturating_add(1) }),
        ..LeaseSpec::default()
    };
    let mut metadata = lease.metadata.clone();
    metadata.managed_fields = None;
    Lease { metadata, spec: Some(spec) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(holder: &str) -> LeaseSpec {
        LeaseSpec { holder_identity: Some(holder.to_owned()), lease_duration_seconds: Some(15), ..LeaseSpec::default() }
    }

    #[test]
    fn a_lease_is_taken_only_when_its_holder_is_silent() {
        let rows = [
            (None, 0, true),
            (Some(spec("")), 0, true),
            (Some(spec("me")), 0, true),
            (Some(spec("other")), 0, false),
            (Some(spec("other")), 14, false),
            (Some(spec("other")), 15, true),
        ];
        for (spec, silent, expect) in rows {
            assert_eq!(is_free(spec.as_ref(), "me", Duration::from_secs(silent)), expect, "{spec:?} {silent}");
        }
    }

    #[test]
    fn a_renewal_keeps_when_it_was_acquired_and_a_takeover_counts() {
        let settings = LeaseSettings::new("ns", "knoll", "me");
        let at = |second| Timestamp::from_second(second).unwrap_or_default();
        let first = replaced(&settings, &Lease::default(), at(1));
        let renewed = replaced(&settings, &first, at(2)).spec.unwrap_or_default();
        assert_eq!((renewed.acquire_time, renewed.lease_transitions), (Some(MicroTime(at(1))), Some(1)));
        let other = LeaseSettings { identity: "other".to_owned(), ..settings };
        let taken = replaced(&other, &first, at(3)).spec.unwrap_or_default();
        assert_eq!((taken.acquire_time, taken.lease_transitions), (Some(MicroTime(at(3))), Some(2)));
    }

    #[test]
    fn a_holder_steps_down_before_its_lease_runs_out() {
        let settings = LeaseSettings::new("ns", "knoll", "me");
        assert!(settings.renew_every() < settings.give_up_after());
        assert!(settings.give_up_after() < settings.duration);
    }
}
