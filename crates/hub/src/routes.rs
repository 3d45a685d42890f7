//! The requests of runners.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{FromRequestParts, Query, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use futures::StreamExt;
use http::request::Parts;
use http::{StatusCode, header};
use k8s_openapi::api::core::v1::Pod;
use knoll_api::Digest;
use knoll_api::run::Run;
use knoll_api::verdict::RuleResult;
use knoll_api::wire::{EndReason, ErrorBody, Exit, Job, PlanJudged, Progress, ProgressReply, path, stored};
use knoll_api::workspace::Workspace;
use knoll_core::identity::Subject;
use knoll_core::queue::{Lane, lane};
use knoll_core::steps::{Stage, stage};
use knoll_core::stop_times::{POLL, Silence};
use knoll_core::{
    pod_outcome,
    run::{
        is_cancelled, must_stop,
        sizes::{self, Content},
    },
};
use knoll_serve::{Budget, Connection, Held};
use knoll_storage::states::may_force;
use knoll_storage::{Error as StorageError, Owner, Sources, States, Storage};
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::auth::{self, Caller, Tokens};
use crate::body::{self, Budgets, holding};
use crate::cache::Cache;
use crate::error::Error;
use crate::judge::{self, Judge};
use crate::session::{Session, Sessions, has_ended_for_its_pod, is_over, is_pod_of};
use crate::trace::{self, Observer};
use crate::{bundle, images, job, progress};

/// How long a runner waits for news of a hook's container before it asks again. Proxies cut longer waits.
const CONTAINER_POLL: Duration = Duration::from_secs(50);
/// How long a Workspace that is not in the copy yet is waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// Waits for containers at the same time, and those of one pod, whose hooks run one after the other.
pub const CONTAINER_WAITS: (u64, u64) = (512, 2);
/// How often a state is claimed for one write.
const CLAIMS: usize = 10;

/// What all requests share.
pub struct Shared {
    pub client: Client,
    /// Whose token is whose.
    pub tokens: Tokens,
    /// The pods that are at work.
    pub sessions: Sessions,
    pub storage: Storage,
    pub states: States,
    pub runs: Arc<Cache<Run>>,
    pub workspaces: Cache<Workspace>,
    /// Which bundles were marked as used.
    pub marked: Arc<bundle::Marked>,
    /// The files of runs.
    pub sources: Sources,
    /// What requests may hold.
    pub budgets: Budgets,
    /// The waits for containers of hooks. Each is a watch of the API server.
    pub container_waits: Arc<Budget>,
    /// How long a runner goes on without an answer.
    pub silence: Silence,
    /// Judges plans by the rules of Policies.
    pub judge: Judge,
    /// Takes the duration of requests.
    pub observer: Observer,
    pub shutdown: CancellationToken,
}

pub fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route(path::JOB, get(get_job))
        .route(path::BUNDLE, get(get_bundle))
        .route(path::STATE, get(get_state).put(put_state))
        .route(path::LOCK, put(put_lock))
        .route(path::PLAN, get(get_plan).put(put_plan))
        .route(path::PLAN_JSON, put(put_plan_json))
        .route(path::PLAN_TEXT, put(put_plan_text))
        .route(path::ANSWER, put(put_answer))
        .route(path::LOG, post(post_log))
        .route(path::PROGRESS, put(put_progress))
        .route(path::CANCEL, get(get_cancel))
        .route(path::HISTORY, get(get_history))
        .route(path::UPLOAD, get(get_upload))
        .route(path::CONTAINER, get(get_container))
        .fallback(|| async { Error::Missing("the hub has no such path".to_owned()) })
        .layer(axum::middleware::from_fn_with_state(shared.observer.clone(), trace::request))
        .with_state(shared)
}

/// A runner that may call.
struct Runner {
    session: Arc<Session>,
    run: Subject<Run>,
}

impl FromRequestParts<Arc<Shared>> for Runner {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Error> {
        let caller = caller(parts, shared).await?;
        let (session, run) = shared.sessions.of(caller).await?;
        admit(parts, &session)?;
        Ok(Runner { session, run })
    }
}

/// A runner that may have made its last report already.
struct LastRunner(Runner);

impl FromRequestParts<Arc<Shared>> for LastRunner {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Error> {
        let caller = caller(parts, shared).await?;
        let (session, run) = shared.sessions.last_of(caller).await?;
        admit(parts, &session)?;
        Ok(LastRunner(Runner { session, run }))
    }
}

/// Who is calling. Tokens of pods that no Run expects are not reviewed.
async fn caller(parts: &Parts, shared: &Shared) -> Result<Caller, Error> {
    let token = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
    let token = token.ok_or_else(|| Error::Unauthorized("the request has no bearer token".to_owned()))?;
    shared.sessions.expects(&auth::claimed(token)?).await?;
    shared.tokens.caller(token, connection(parts)?.address()).await
}

/// Counts the connection as one of the runner of this session and of its namespace. That of any other client stays a
/// stranger's, which has to make room.
fn admit(parts: &Parts, session: &Session) -> Result<(), Error> {
    trace::identify(session);
    let Caller { namespace, uid, pod: _ } = &session.caller;
    if connection(parts)?.identify(uid, Some(namespace)) { Ok(()) } else { Err(Error::Crowded) }
}

fn connection(parts: &Parts) -> Result<&Connection, Error> {
    let missing = || Error::Internal("the address of the client is not known".to_owned());
    parts.extensions.get::<Connection>().ok_or_else(missing)
}

impl Runner {
    async fn workspace(&self, shared: &Shared) -> Result<Arc<Workspace>, Error> {
        let Session { workspace, caller, .. } = &*self.session;
        let found = shared.workspaces.wait_for(PATIENCE, || shared.workspaces.get(&caller.namespace, workspace)).await;
        found.ok_or_else(|| Error::NotYet(format!("the Workspace `{workspace}` does not exist")))
    }

    /// The pod that has to claim the state, when it may change it.
    fn writer(&self) -> Option<&str> {
        let may_write = lane(&self.run.spec) == Lane::Queue && self.stage() != Stage::Judge;
        may_write.then_some(self.session.caller.uid.as_str())
    }

    fn stage(&self) -> Stage {
        stage(&self.run.spec, &self.run.status.clone().unwrap_or_default())
    }

    /// Refuses a pod whose run has its plan described by another one.
    fn describes_plan(&self) -> Result<(), Error> {
        let verdict = self.run.status.as_ref().and_then(|status| status.plan_verdict.as_ref());
        let is_isolated = verdict.is_some_and(|verdict| verdict.isolated.is_some());
        match self.stage() {
            Stage::Whole | Stage::Plan if !is_isolated => Ok(()),
            Stage::Judge => Ok(()),
            Stage::Whole | Stage::Plan | Stage::Apply => {
                Err(Error::Fenced("another pod of this run describes its plan".to_owned()))
            }
        }
    }

    /// Refuses the pod that describes a stored plan: it gets the plan, and hands in what that says.
    fn has_module(&self) -> Result<(), Error> {
        match self.stage() {
            Stage::Judge => Err(Error::Fenced(
                "the pod that describes a plan for the rules of Policies has nothing else of its run".to_owned(),
            )),
            Stage::Whole | Stage::Plan | Stage::Apply => Ok(()),
        }
    }
}

async fn get_job(State(shared): State<Arc<Shared>>, runner: Runner) -> Result<Json<Job>, Error> {
    let workspace = runner.workspace(&shared).await?;
    // Only a second pod finds a log of an earlier one.
    let second = runner.run.status.as_ref().is_some_and(|status| !status.steps.is_empty());
    let log_offset = if second { runner.session.log.offset().await? } else { 0 };
    let stop = shared.silence.times();
    let job = match images::are_those_of_the_plan(&shared.client, &runner.session.caller, &runner.run).await {
        Ok(()) => {
            job::of(&shared.storage, &shared.states, &runner.run, &workspace, runner.writer(), log_offset, stop).await
        }
        Err(error) => Err(error),
    };
    let (reason, error) = match job {
        Ok(job) => return Ok(Json(job)),
        Err(error @ Error::Invalid(_)) => (EndReason::VariablesFailed, error),
        Err(error @ Error::Changed(_)) => (EndReason::ChangedSincePlanned, error),
        Err(error @ Error::Storage(StorageError::Head(_))) => (EndReason::StateUnreadable, error),
        Err(error) => return Err(error),
    };
    progress::fail(&shared.client, &runner.session, &runner.run, reason, &error.to_string()).await?;
    Err(error)
}

async fn get_bundle(State(shared): State<Arc<Shared>>, runner: Runner) -> Result<Response, Error> {
    runner.has_module()?;
    let workspace = runner.workspace(&shared).await?;
    let held = shared.budgets.download(&runner.session.caller.namespace).await?;
    let (bundles, marked, runs) = (shared.storage.bundles(), &shared.marked, &shared.runs);
    let bundle = bundle::of(&bundles, &runner.session, &runner.run, &workspace, &shared.sources, marked, runs).await?;
    Ok(match bundle {
        Some(bundle) => {
            fits(&runner.run, Content::Bundle, bundle.len())?;
            holding(([(header::CONTENT_TYPE, "application/zstd")], bundle).into_response(), held)
        }
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

async fn get_state(State(shared): State<Arc<Shared>>, runner: Runner) -> Result<Response, Error> {
    runner.has_module()?;
    let Session { caller, workspace, .. } = &*runner.session;
    let replace = may_force(&runner.run.spec);
    let held = shared.budgets.download(&caller.namespace).await?;
    let state = shared.states.opened(&caller.namespace, workspace, replace).await?;
    let stage = stage(&runner.run.spec, &runner.run.status.clone().unwrap_or_default());
    fits(&runner.run, Content::State(stage), state.as_ref().map_or(0, |state| state.len()))?;
    Ok(content_or_nothing(state, held))
}

/// Whether content of so many bytes is as large as the Policies allow.
fn fits(run: &Run, content: Content, bytes: usize) -> Result<(), Error> {
    sizes::refused(run, content, bytes).map_or(Ok(()), |why| Err(Error::Invalid(why)))
}

async fn put_state(State(shared): State<Arc<Shared>>, runner: Runner, request: Request) -> Result<StatusCode, Error> {
    runner.has_module()?;
    let Some(pod) = runner.writer() else {
        let operation = runner.run.spec.operation.as_str();
        return Err(Error::Fenced(format!(
            "a run with `operation: {operation}` that does not wait in the queue cannot change the state"
        )));
    };
    if runner.stage() == Stage::Plan {
        return Err(Error::Fenced(
            "the pod that plans cannot change the state, which only the pod that applies the plan may do; a hook or a module has written it"
                .to_owned(),
        ));
    }
    let owner = Owner::of(&*runner.workspace(&shared).await?, &runner.run);
    let Session { caller, run, .. } = &*runner.session;
    let (content, _held) = shared.budgets.read(&caller.namespace, request, body::CONTENT).await?;
    let force = may_force(&runner.run.spec);
    for _ in 0..CLAIMS {
        let claim = shared.states.claim(&caller.namespace, &owner, pod).await?;
        shared.sessions.writer(&runner.session, &claim).await?;
        match shared.states.put(&caller.namespace, &owner, &claim, run, content.clone(), force).await {
            // By the same pod at another replica, or by one that is fenced off: whoever is in the right claims it back.
            Err(StorageError::Superseded) => {}
            stored => return Ok(stored.map(|_| StatusCode::NO_CONTENT)?),
        }
    }
    Err(StorageError::Superseded.into())
}

async fn put_lock(State(shared): State<Arc<Shared>>, runner: Runner, request: Request) -> Result<StatusCode, Error> {
    runner.has_module()?;
    let (content, _held) = shared.budgets.read(&runner.session.caller.namespace, request, body::LOCK).await?;
    if std::str::from_utf8(&content).is_err() {
        return Err(Error::Invalid("a dependency lock file is text".to_owned()));
    }
    let owner = Owner::of(&*runner.workspace(&shared).await?, &runner.run);
    shared.states.put_lock(&runner.session.caller.namespace, &owner, &content).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn put_plan(State(shared): State<Arc<Shared>>, runner: Runner, request: Request) -> Result<StatusCode, Error> {
    if runner.stage() != Stage::Plan {
        return Err(Error::Fenced("only a pod that plans for another one stores a plan".to_owned()));
    }
    let (content, _held) = shared.budgets.read(&runner.session.caller.namespace, request, body::CONTENT).await?;
    fits(&runner.run, Content::Plan, content.len())?;
    let _alone = runner.session.content.lock().await;
    shared.storage.plans().put(&runner.run, &content).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct PlanDigest {
    digest: Digest,
}

/// Judges a plan by the rules of Policies, and keeps its JSON. The verdict is in the Run's status before the answer.
async fn put_plan_json(
    State(shared): State<Arc<Shared>>,
    runner: Runner,
    Query(PlanDigest { digest }): Query<PlanDigest>,
    request: Request,
) -> Result<Json<PlanJudged>, Error> {
    runner.describes_plan()?;
    let verdict = runner.run.status.as_ref().and_then(|status| status.plan_verdict.as_ref());
    let workspace = runner.workspace(&shared).await?;
    let (json, _held) = shared.budgets.read(&runner.session.caller.namespace, request, body::PLAN_JSON).await?;
    let mut judged = PlanJudged::default();
    if verdict.is_some() {
        let verdict = judge::plan(&shared.judge, &runner.run, &workspace, digest.as_str(), json.clone()).await?;
        progress::judged(&shared.client, &runner.session, &runner.run, &verdict).await?;
        judged.results = verdict.results.iter().map(RuleResult::sentence).collect();
    }
    // New rules are tried on the plans that are kept; a run does not fail for want of that.
    if let Err(error) = shared.storage.descriptions().put(&runner.run, &json).await {
        tracing::warn!(run = runner.session.run, %error, "the JSON of a plan cannot be kept");
    }
    Ok(Json(judged))
}

async fn put_plan_text(
    State(shared): State<Arc<Shared>>,
    runner: Runner,
    request: Request,
) -> Result<StatusCode, Error> {
    if runner.stage() == Stage::Whole {
        return Err(Error::Fenced("nobody decides on the plan of this run, so its text is not stored".to_owned()));
    }
    runner.describes_plan()?;
    let (text, _held) = shared.budgets.read(&runner.session.caller.namespace, request, body::PLAN_TEXT).await?;
    let mut last = runner.session.plan_text.lock().await;
    let digest = Digest::of(&text);
    let earlier = last.replace(digest.clone()).filter(|earlier| *earlier != digest);
    // Each text has a name of its own, so an earlier one of this pod would stay beside it.
    if let Some(earlier) = earlier {
        shared.storage.plan_texts().delete(&runner.run, &earlier).await?;
    }
    shared.storage.plan_texts().put(&runner.run, &text).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn get_plan(State(shared): State<Arc<Shared>>, runner: Runner) -> Result<Response, Error> {
    let Session { caller, run, .. } = &*runner.session;
    let held = shared.budgets.download(&caller.namespace).await?;
    Ok(content_or_nothing(shared.storage.plans().get(&caller.namespace, run).await?, held))
}

async fn put_answer(State(shared): State<Arc<Shared>>, runner: Runner, request: Request) -> Result<StatusCode, Error> {
    let (content, _held) = shared.budgets.read(&runner.session.caller.namespace, request, body::CONTENT).await?;
    // The parser's own message could contain a value.
    let answer = serde_json::from_slice(&content).map_err(|_| Error::Invalid("this is not an answer".to_owned()))?;
    let _alone = runner.session.content.lock().await;
    shared.storage.answers().put(&runner.run, &answer).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct Serial {
    serial: u64,
}

async fn get_history(
    State(shared): State<Arc<Shared>>,
    runner: Runner,
    Query(Serial { serial }): Query<Serial>,
) -> Result<Response, Error> {
    let Session { caller, workspace, .. } = &*runner.session;
    let held = shared.budgets.download(&caller.namespace).await?;
    let content = shared.states.version(&caller.namespace, workspace, serial).await.map_err(|error| match error {
        StorageError::Api(error) => Error::Api(error),
        error => Error::Invalid(error.to_string()),
    })?;
    Ok(holding(content.into_response(), held))
}

/// The state that was handed in for the run; the client does so right after it has created the Run.
async fn get_upload(State(shared): State<Arc<Shared>>, runner: Runner) -> Result<Response, Error> {
    let Session { caller, run, .. } = &*runner.session;
    let named = runner.run.spec.args.iter().find_map(|arg| arg.strip_prefix(stored::UPLOAD)?.parse::<Digest>().ok());
    let unnamed = || Error::Invalid("the run does not name the digest of the state that it pushes".to_owned());
    let digest = named.ok_or_else(unnamed)?;
    let held = shared.budgets.download(&caller.namespace).await?;
    let found = shared.storage.uploads().get(&caller.namespace, run, &digest).await.map_err(|error| match error {
        StorageError::Api(error) => Error::Api(error),
        error => Error::Invalid(format!("the state that was handed in is not the one that the run names: {error}")),
    })?;
    if let Some(content) = found {
        return Ok(holding(content.into_response(), held));
    }
    let missing = "no state was handed in for this run; push it again with `knoll state push`".to_owned();
    Err(if job::is_late(&runner.run) { Error::Invalid(missing) } else { Error::NotYet(missing) })
}

#[derive(Deserialize)]
struct ContainerName {
    name: String,
}

/// Answers when a container of the runner's own pod will not come; with 204 when it may for a while.
async fn get_container(
    State(shared): State<Arc<Shared>>,
    runner: Runner,
    Query(ContainerName { name }): Query<ContainerName>,
) -> Result<Response, Error> {
    let Caller { namespace, pod, uid } = &runner.session.caller;
    let _wait = shared.container_waits.try_take(uid, 1).ok_or(Error::Crowded)?;
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), namespace);
    let looks = watch_object(api, pod).filter_map(|look| {
        let pod = look.ok().flatten().filter(|pod| pod.metadata.uid.as_ref() == Some(uid));
        std::future::ready(pod.and_then(|pod| pod_outcome::will_not_come(&pod, &name)))
    });
    let mut looks = std::pin::pin!(looks);
    let trouble = tokio::select! {
        trouble = tokio::time::timeout(CONTAINER_POLL, looks.next()) => trouble.ok().flatten(),
        () = shared.shutdown.cancelled() => None,
    };
    Ok(match trouble {
        Some(trouble) => Json(ErrorBody { error: trouble.message }).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

#[derive(Deserialize)]
struct Offset {
    offset: u64,
}

async fn post_log(
    State(shared): State<Arc<Shared>>,
    runner: Runner,
    Query(Offset { offset }): Query<Offset>,
    request: Request,
) -> Result<StatusCode, Error> {
    let (piece, _held) = shared.budgets.read(&runner.session.caller.namespace, request, body::LOG).await?;
    let log = &runner.session.log;
    match sizes::of_log(&runner.run) {
        Some((most, line)) if offset.saturating_add(piece.len() as u64) > most => {
            if let Ok(rest @ 1..) = usize::try_from(most.saturating_sub(offset)) {
                log.append(offset, &[piece.get(..rest).unwrap_or_default(), line.as_bytes()].concat()).await?;
            }
            Err(Error::Invalid(line.trim().to_owned()))
        }
        _ => Ok(log.append(offset, &piece).await.map(|()| StatusCode::NO_CONTENT)?),
    }
}

async fn put_progress(
    State(shared): State<Arc<Shared>>,
    LastRunner(runner): LastRunner,
    request: Request,
) -> Result<Json<ProgressReply>, Error> {
    let (content, _held) = shared.budgets.read(&runner.session.caller.namespace, request, body::REPORT).await?;
    let mut report: Progress = serde_json::from_slice(&content)
        .map_err(|error| Error::Invalid(format!("this is no report of a runner: {error}")))?;
    if has_ended_for_its_pod(&runner.run) {
        return match report.exit {
            Some(_) => Ok(Json(ProgressReply { cancel: false })),
            None => Err(Error::Fenced(format!("the run `{}` has ended", runner.session.run))),
        };
    }
    if let Some(digest) = &report.bundle
        && !bundle::is_kept(&shared.storage.bundles(), &runner.session, &runner.run, digest, &shared.sources).await?
    {
        tracing::warn!(run = runner.session.run, "the files of a run are not kept: its source has changed meanwhile");
        report.bundle = None;
    }
    if let Some(exit) = report.exit.as_mut().filter(|exit| exit.reason == Some(EndReason::Cancelled))
        && must_stop(&runner.run)
        && !is_cancelled(&runner.run)
    {
        // The hub told the runner to stop because its pod is being deleted.
        exit.reason = Some(EndReason::PodDeleted);
    }
    if let Some(exit) = report.exit.as_mut().filter(|exit| exit.reason == Some(EndReason::PodDeleted)) {
        explain_stop(&shared.client, &runner.session.caller, exit).await?;
    }
    if report.exit.as_ref().is_some_and(|exit| exit.code == 0) {
        report.image_digests = images::of_plan(&shared.client, &runner.session.caller, &runner.run).await?;
    }
    let asked = Instant::now();
    if let Some(written) = progress::write(&shared.client, &runner.session, &runner.run, &report).await? {
        // The API's answer confirms the pod as that of the run, so the state that follows needs no other request.
        runner.session.confirm(&written, asked);
    }
    if report.exit.is_some() {
        let Session { caller, workspace, .. } = &*runner.session;
        shared.states.close(&caller.namespace, workspace, &caller.uid).await;
        shared.sessions.end(&runner.session);
    }
    Ok(Json(ProgressReply { cancel: must_stop(&runner.run) }))
}

/// Puts the reason why a runner was stopped into its report: the pod knows it, the runner does not.
async fn explain_stop(client: &Client, caller: &Caller, exit: &mut Exit) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &caller.namespace);
    let pod = api.get_opt(&caller.pod).await?.filter(|pod| pod.metadata.uid.as_deref() == Some(caller.uid.as_str()));
    let Some(pod) = pod else {
        let message = "The pod was deleted at once; terraform was stopped, and what it did is in the state.";
        exit.message = Some(message.to_owned());
        return Ok(());
    };
    let message = exit.message.take().unwrap_or_default();
    (exit.reason, exit.message) = match pod_outcome::told_to_stop(&pod) {
        Some((reason, message)) => (Some(reason), Some(message)),
        None => (Some(EndReason::RunnerLost), Some(format!("{message} Its pod goes on, so a person did that."))),
    };
    Ok(())
}

/// Answers when the runner has to stop; with 204 when that did not happen for a while. To go on needs the API's own word:
/// a replica that does not reach the API keeps no runner going. The end of this pod's run needs no second look: it is final.
async fn get_cancel(State(shared): State<Arc<Shared>>, runner: Runner) -> Result<StatusCode, Error> {
    let Session { caller, run, .. } = &*runner.session;
    let stopped =
        shared.runs.wait_for(POLL, || stopping(shared.runs.get(&caller.namespace, run).as_deref(), &caller.uid));
    let stopped = tokio::select! {
        stopped = stopped => stopped,
        () = shared.shutdown.cancelled() => return Err(Error::NotYet("the hub shuts down; ask again".to_owned())),
    };
    match stopped {
        Some(Stopping::Asked) => return Ok(StatusCode::OK),
        Some(Stopping::Over) => return Err(Error::Fenced(format!("the run `{run}` has ended"))),
        Some(Stopping::Unclear) | None => {}
    }
    let run = shared.sessions.confirmed(&runner.session).await?;
    Ok(if must_stop(&run) { StatusCode::OK } else { StatusCode::NO_CONTENT })
}

/// Why a runner may have to stop.
enum Stopping {
    /// Somebody asked for it.
    Asked,
    /// The run has ended.
    Over,
    /// The watch knows no run of this pod. The API is asked, because the watch may be late.
    Unclear,
}

fn stopping(run: Option<&Run>, pod_uid: &str) -> Option<Stopping> {
    match run.filter(|run| is_pod_of(run, pod_uid)) {
        None => Some(Stopping::Unclear),
        Some(run) if is_over(run) => Some(Stopping::Over),
        Some(run) => must_stop(run).then_some(Stopping::Asked),
    }
}

fn content_or_nothing(content: Option<Bytes>, held: Held) -> Response {
    match content {
        Some(content) => holding(content.into_response(), held),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}
