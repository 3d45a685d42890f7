//! The pod that is calling, matched to its Run.
//!
//! *Guarantees.* Only the pod whose UID is in the Run's status gets a session, and only while the run has not ended. A pod
//! that was replaced or given up is fenced off, however late it comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use knoll_api::run::{Run, RunPhase};
use knoll_bundle::StoreError;
use knoll_core::queue::{Lane, lane};
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinHandle;

use crate::auth::Caller;
use crate::cache::Cache;
use crate::error::Error;
use crate::log::LogEnd;
use crate::progress::Reports;

/// How long a pod that is faster than its Run's status is kept waiting.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the API's word on a run is taken, while the watched copy agrees.
const TRUST: Duration = Duration::from_secs(3);

/// What the hub remembers of a pod between its requests. All of it can be found again when it is lost.
pub struct Session {
    /// The pod.
    pub caller: Caller,
    /// The name of its Run.
    pub run: String,
    /// The name of the Run's Workspace.
    pub workspace: String,
    /// Its reports.
    pub reports: tokio::sync::Mutex<Reports>,
    /// Stores the files of its run, while they are not yet in the cluster.
    pub storing: tokio::sync::Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
    /// The end of its log.
    pub log: tokio::sync::Mutex<Option<LogEnd>>,
    /// When the API was last asked whether this pod may write.
    confirmed: Mutex<Option<Instant>>,
}

impl Session {
    /// Takes the API's word, given after `asked`, that the run is this pod's and goes on.
    pub fn confirm(&self, run: &Run, asked: Instant) {
        if is_pod_of(run, &self.caller.uid) && !is_over(run) {
            *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
        }
    }
}

/// The sessions of this replica, by pod UID.
pub struct Sessions {
    client: Client,
    runs: Arc<Cache<Run>>,
    known: Mutex<HashMap<String, Arc<Session>>>,
}

impl Sessions {
    /// None yet.
    pub fn new(client: Client, runs: Arc<Cache<Run>>) -> Self {
        Sessions { client, runs, known: Mutex::default() }
    }

    /// The session of `caller` and its Run as it was last seen, while that goes on.
    ///
    /// # Errors
    /// When the pod is not, or no longer, the one of a Run.
    pub async fn of(&self, caller: Caller) -> Result<(Arc<Session>, Arc<Run>), Error> {
        let (session, run) = self.last_of(caller).await?;
        if has_said_its_last_word(&run) {
            return Err(Error::Fenced(format!(
                "the run `{}` has ended, so its pod can change nothing",
                run.name_any()
            )));
        }
        Ok((session, run))
    }

    /// The session of `caller`, also when its Run has ended: a last report whose answer got lost is made again.
    ///
    /// # Errors
    /// When the pod is not the last one of a Run.
    pub async fn last_of(&self, caller: Caller) -> Result<(Arc<Session>, Arc<Run>), Error> {
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
        let session = known.unwrap_or_else(|| self.begin(caller, &run));
        Ok((session, run))
    }

    /// Forgets a pod that has made its last report.
    pub fn end(&self, session: &Session) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.caller.uid);
    }

    /// Makes sure that the pod may change the state: by the watched copy, and by the API itself from time to time, because
    /// a copy that is no longer updated looks like one to which nothing happens.
    ///
    /// # Errors
    /// When it may not.
    pub async fn writer(&self, session: &Session, run: &Run) -> Result<(), Error> {
        if lane(&run.spec) == Lane::AtOnce {
            let operation = run.spec.operation.as_str();
            return Err(Error::Fenced(format!(
                "a run with `operation: {operation}` that does not wait in the queue cannot change the state"
            )));
        }
        let confirmed = *session.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        if confirmed.is_some_and(|at| at.elapsed() < TRUST) {
            return Ok(());
        }
        let asked = Instant::now();
        let api: Api<Run> = Api::namespaced(self.client.clone(), &session.caller.namespace);
        let fresh = api.get_opt(&session.run).await?;
        match fresh.filter(|run| is_pod_of(run, &session.caller.uid) && !is_over(run)) {
            None => Err(fenced(&session.caller)),
            Some(run) => {
                session.confirm(&run, asked);
                Ok(())
            }
        }
    }

    fn begin(&self, caller: Caller, run: &Run) -> Arc<Session> {
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
            log: tokio::sync::Mutex::default(),
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
        let waits = |run: &Run| run.status.as_ref().is_none_or(|status| status.pod_uid.is_none()) && !is_over(run);
        if self.candidates(caller).any(|run| waits(&run)) {
            return Error::NotYet(format!("the pod `{}` is not yet known to its run", caller.pod));
        }
        fenced(caller)
    }
}

fn is_pod_of(run: &Run, uid: &str) -> bool {
    run.status.as_ref().is_some_and(|status| status.pod_uid.as_deref() == Some(uid))
}

/// Whether nothing follows from the pod that the Run has now.
pub fn has_said_its_last_word(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase.is_finished() || status.phase == RunPhase::Review)
}

fn is_over(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase.is_finished())
}

fn fenced(caller: &Caller) -> Error {
    let Caller { namespace, pod, uid } = caller;
    Error::Fenced(format!("the pod `{pod}` ({uid}) in `{namespace}` is not, or no longer, the pod of a run"))
}
