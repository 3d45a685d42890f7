//! The pod that is calling, matched to its Run.
//!
//! *Guarantees.* Only the pod whose UID is in the Run's status gets a session, and only while the run has not ended. A pod
//! that was replaced or given up is fenced off, however late it comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use knoll_api::Digest;
use knoll_api::run::{Run, RunPhase};
use knoll_core::identity::Subject;
use knoll_storage::{BundleError, Claim, LogWriter, Storage};
use kube::{Api, ResourceExt};
use tokio::task::JoinHandle;

use crate::auth::Caller;
use crate::cache::Cache;
use crate::error::Error;
use crate::progress::Reports;

/// How long a pod that is faster than its Run's status is kept waiting.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the hub remembers of a pod between its requests. All of it can be found again when it is lost.
pub struct Session {
    pub caller: Caller,
    /// The name of its Run.
    pub run: String,
    /// The name of the Run's Workspace.
    pub workspace: String,
    pub reports: tokio::sync::Mutex<Reports>,
    /// Stores the files of its run, while they are not yet in the cluster.
    pub storing: tokio::sync::Mutex<Option<JoinHandle<Result<(), BundleError>>>>,
    /// The digest of the files of its source that it was given. It has no others, whatever it reports.
    pub files: Mutex<Option<Digest>>,
    /// The digest of the text of its plan that was stored last, while one is stored at a time.
    pub plan_text: tokio::sync::Mutex<Option<Digest>>,
    /// Held while its plan or its answer is stored: two at the same time would leave parts that belong to neither.
    pub content: tokio::sync::Mutex<()>,
    pub log: LogWriter,
    /// When the last request to the API was sent that confirmed the run as this pod's and unfinished.
    confirmed: Mutex<Option<Instant>>,
}

impl Session {
    /// Notes that the API has confirmed the run as this pod's and unfinished, in answer to a request sent at `asked`.
    pub fn confirm(&self, run: &Run, asked: Instant) {
        if is_pod_of(run, &self.caller.uid) && !is_over(run) {
            *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
        }
    }
}

/// The sessions of this replica, by pod UID.
pub struct Sessions {
    storage: Storage,
    runs: Arc<Cache<Run>>,
    known: Mutex<HashMap<String, Arc<Session>>>,
}

impl Sessions {
    pub fn new(storage: Storage, runs: Arc<Cache<Run>>) -> Self {
        Sessions { storage, runs, known: Mutex::default() }
    }

    /// Whether a Run has this pod, or waits for one that it could be. The `claimed` pod is what a token says of itself:
    /// whether that is so is asked of the API only if something depends on it.
    ///
    /// # Errors
    /// When no Run has anything to do with such a pod.
    pub async fn expects(&self, claimed: &Caller) -> Result<(), Error> {
        let expected = || {
            let mut runs = self.candidates(claimed);
            runs.any(|run| is_pod_of(&run, &claimed.uid) || waits_for_pod(&run)).then_some(())
        };
        let is_known = || self.known.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&claimed.uid);
        let found =
            if expected().is_none() && is_known() { None } else { self.runs.wait_for(PATIENCE, expected).await };
        found.ok_or_else(|| fenced(claimed))
    }

    /// The session of `caller` and its Run as it was last seen, while that goes on.
    ///
    /// # Errors
    /// When the pod is not, or no longer, the one of a Run.
    pub async fn of(&self, caller: Caller) -> Result<(Arc<Session>, Subject<Run>), Error> {
        let (session, run) = self.last_of(caller).await?;
        if has_ended_for_its_pod(&run) {
            return Err(Error::Fenced(format!("the run `{}` has ended, so its pod can change nothing", run.name())));
        }
        Ok((session, run))
    }

    /// The session of `caller`, also when its Run has ended: a last report whose answer got lost is made again.
    ///
    /// # Errors
    /// When the pod is not the last one of a Run.
    pub async fn last_of(&self, caller: Caller) -> Result<(Arc<Session>, Subject<Run>), Error> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&caller.uid).cloned();
        let run = match self.find(&caller) {
            Some(run) => run,
            None if known.is_some() => return Err(fenced(&caller)),
            // The pod may have started before the watch brought its UID.
            None => {
                let found = self.runs.wait_for(PATIENCE, || self.find(&caller)).await;
                found.ok_or_else(|| self.refusal(&caller))?
            }
        };
        let run = Subject::new(run).map_err(|error| Error::Internal(error.to_string()))?;
        let session = known.unwrap_or_else(|| self.begin(caller, &run));
        Ok((session, run))
    }

    /// Forgets a pod that has made its last report.
    pub fn end(&self, session: &Session) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.caller.uid);
    }

    /// Checks that the pod may change the state that it has claimed. A claim is valid once a later read of the Run shows
    /// it unfinished: the next run begins when this one is over and claims the state after that, so this pod was the only
    /// writer until then, and its claim is superseded from then on.
    ///
    /// # Errors
    /// When it may not.
    pub async fn writer(&self, session: &Session, claim: &Claim) -> Result<(), Error> {
        let confirmed = *session.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        if confirmed.is_some_and(|asked| asked >= claim.since) {
            return Ok(());
        }
        self.confirmed(session).await.map(drop)
    }

    /// The Run as the API has it now.
    ///
    /// # Errors
    /// When the run is over, or not the pod's.
    pub async fn confirmed(&self, session: &Session) -> Result<Run, Error> {
        let asked = Instant::now();
        let api: Api<Run> = Api::namespaced(self.storage.client().clone(), &session.caller.namespace);
        let fresh = api.get_opt(&session.run).await?;
        let run = fresh.filter(|run| is_pod_of(run, &session.caller.uid) && !is_over(run));
        let run = run.ok_or_else(|| fenced(&session.caller))?;
        session.confirm(&run, asked);
        Ok(run)
    }

    fn begin(&self, caller: Caller, run: &Subject<Run>) -> Arc<Session> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Pods that never made a last report are forgotten when their run is over.
        known.retain(|uid, session| {
            self.runs
                .get(&session.caller.namespace, &session.run)
                .is_some_and(|run| is_pod_of(&run, uid) && !is_over(&run))
        });
        let session = Session {
            run: run.name_any(),
            workspace: run.spec.workspace.clone(),
            reports: tokio::sync::Mutex::default(),
            storing: tokio::sync::Mutex::default(),
            files: Mutex::default(),
            plan_text: tokio::sync::Mutex::default(),
            content: tokio::sync::Mutex::default(),
            log: self.storage.logs().writer(&run.id, &run.spec.workspace),
            confirmed: Mutex::default(),
            caller,
        };
        Arc::clone(known.entry(session.caller.uid.clone()).or_insert_with(|| Arc::new(session)))
    }

    /// A pod has the name of its run, or that name and a suffix.
    fn find(&self, caller: &Caller) -> Option<Arc<Run>> {
        self.candidates(caller).find(|run| is_pod_of(run, &caller.uid))
    }

    fn candidates(&self, caller: &Caller) -> impl Iterator<Item = Arc<Run>> {
        let names = [Some(caller.pod.as_str()), caller.pod.rsplit_once('-').map(|(name, _)| name)];
        names.into_iter().flatten().filter_map(|name| self.runs.get(&caller.namespace, name))
    }

    fn refusal(&self, caller: &Caller) -> Error {
        if self.candidates(caller).any(|run| waits_for_pod(&run)) {
            return Error::NotYet(format!("the pod `{}` is not yet known to its run", caller.pod));
        }
        fenced(caller)
    }
}

/// Whether this is the pod that the Run's status names.
pub fn is_pod_of(run: &Run, uid: &str) -> bool {
    run.status.as_ref().is_some_and(|status| status.pod_uid.as_deref() == Some(uid))
}

/// Whether the Run goes on, and its status does not name a pod yet.
fn waits_for_pod(run: &Run) -> bool {
    run.status.as_ref().is_none_or(|status| status.pod_uid.is_none()) && !is_over(run)
}

/// Whether nothing follows from the pod that the Run has now.
pub fn has_ended_for_its_pod(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase.is_finished() || status.phase == RunPhase::Review)
}

/// Whether the run has ended.
pub fn is_over(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase.is_finished())
}

fn fenced(caller: &Caller) -> Error {
    let Caller { namespace, pod, uid } = caller;
    Error::Fenced(format!("the pod `{pod}` ({uid}) in `{namespace}` is not, or no longer, the pod of a run"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use knoll_embedded::Cluster;
    use knoll_storage::Owner;
    use kube::CustomResourceExt;
    use kube::api::{Patch, PatchParams, PostParams};
    use kube::runtime::{conditions::is_crd_established, wait::await_condition};
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// The copy of this replica has stood still since before the run began.
    #[tokio::test]
    async fn who_claims_the_state_when_its_run_is_over_is_fenced_off_by_the_apis_own_word() {
        let cluster = Cluster::memory().await.unwrap();
        let client = cluster.client();
        let kinds = Api::all(client.clone());
        kinds.create(&PostParams::default(), &Run::crd()).await.unwrap();
        await_condition(kinds, Run::crd_name(), is_crd_established()).await.unwrap();
        let runs: Api<Run> = Api::default_namespaced(client.clone());
        let spec = json!({"workspace": "w", "operation": "apply", "source": {"inline": {"main.tf": ""}}});
        let run = Run::new("r", serde_json::from_value(spec).unwrap());
        runs.create(&PostParams::default(), &run).await.unwrap();
        let phase = async |phase: &str| {
            let status = json!({"status": {"phase": phase, "podUID": "uid"}});
            runs.patch_status("r", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap()
        };
        let run = phase("Running").await;

        let stopped = CancellationToken::new();
        stopped.cancel();
        let sessions = Sessions::new(Storage::new(client.clone()), Arc::new(Cache::start(&client, None, &stopped)));
        let caller = Caller { namespace: "default".into(), pod: "r".into(), uid: "uid".into() };
        let session = sessions.begin(caller, &Subject::new(Arc::new(run)).unwrap());
        let store = Storage::new(client.clone()).states();
        let owner = Owner { workspace: "w".to_owned(), reference: None, keep: 1, copied: None, is_held: false };
        let claim = store.claim("default", &owner, "uid").await.unwrap();
        sessions.writer(&session, &claim).await.unwrap();

        phase("Failed").await;
        // Whoever comes next takes the claim away first; until then it may deliver what it has.
        sessions.writer(&session, &claim).await.unwrap();
        store.open("default", &owner, Some("uid")).await.unwrap();
        let again = store.claim("default", &owner, "uid").await.unwrap();
        assert!(matches!(sessions.writer(&session, &again).await, Err(Error::Fenced(_))));
    }
}
