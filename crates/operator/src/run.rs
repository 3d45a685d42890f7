//! The controller of Runs: it creates the pod of each when its turn has come, and ends the Run when that pod is lost.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::{
    Approval, Run, RunStatus, Source, Stack, Workspace,
    names::{finalizer, reason},
    run::{RunPhase, RunTool},
    source::SourceKind,
};
use knoll_core::{
    events::{self, Event},
    frozen::{self, FrozenJob, PodTemplate},
    identity::Subject,
    machine::Settled,
    pod,
    policy::Effective,
    run::{self, RunAction, RunDecision, RunFacts, RunOutcome, isolated},
    stack::{self, Launched},
    steps::Stage,
};
use knoll_storage::{BundleError, FreezeError, Origin, SourceError};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};

use crate::{
    context::Context,
    controller::{Error, Written, code},
    driver::{Effect, Observation, Reconciler, set_finalizer},
    fetches::FetchStanding,
    index::Target,
    policy, slots,
};

pub struct Runs;

/// The facts of one decision.
pub struct SeenRun {
    run: Subject<Run>,
    workspace: Option<Arc<Workspace>>,
    pod: Option<Arc<Pod>>,
    pods: Vec<Arc<Pod>>,
    approvals: Vec<Arc<Approval>>,
    stack: Option<Arc<Stack>>,
    policy: Effective,
    frozen: Option<FrozenJob>,
}

impl SeenRun {
    fn with_facts<T>(&self, then: impl FnOnce(&RunFacts<'_>) -> T) -> T {
        let Self { run, workspace, pod, pods, approvals, stack, policy, frozen } = self;
        let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
        let approvals: Vec<&Approval> = approvals.iter().map(AsRef::as_ref).collect();
        then(&RunFacts {
            run,
            workspace: workspace.as_deref(),
            pod: pod.as_deref(),
            pods: &pods,
            approvals: &approvals,
            stack: stack.as_deref(),
            policy,
            frozen: frozen.as_ref(),
        })
    }
}

impl Reconciler for Runs {
    type Object = Run;
    type Seen = SeenRun;
    type Action = RunAction;
    type Outcome = RunOutcome;

    fn written(context: &Context) -> &Written<Run> {
        &context.runs
    }

    async fn observe(context: &Arc<Context>, run: &Subject<Run>) -> Result<Observation<SeenRun>, Error> {
        // The hub writes statuses as well: their events are recorded here.
        if let Some(status) = &run.status {
            for event in Self::events(context, run, status) {
                context.events.record(event, run.object_ref(&()));
            }
        }
        let (caches, namespace) = (&context.caches, run.namespace());
        let unfinished = run.status.as_ref().is_none_or(|status| !status.phase.is_finished());
        let approvals =
            if unfinished { caches.approvals.referring_to(Target::Run, namespace, run.name()) } else { Vec::new() };
        let workspace = caches.workspaces.named(namespace, &run.spec.workspace);
        let stack = stack_of(context, run).await?;
        // Nothing depends on the Policies any more when the Run has ended.
        let policy = if unfinished {
            policy::demands_on(context, namespace, workspace.as_deref(), stack.as_deref()).await?
        } else {
            Effective::default()
        };
        Ok(Observation::Complete(SeenRun {
            run: run.clone(),
            workspace,
            pod: current_pod(context, run).await?,
            pods: caches.pods.referring_to(Target::Run, namespace, run.name()),
            approvals,
            stack,
            policy,
            frozen: frozen_job(context, run).await?,
        }))
    }

    fn decide(seen: &SeenRun, now: Timestamp) -> RunDecision {
        seen.with_facts(|facts| run::decide(facts, now))
    }

    async fn act(context: &Arc<Context>, seen: &SeenRun, action: RunAction) -> Result<Effect<RunOutcome>, Error> {
        let run = &seen.run;
        let outcome = match action {
            RunAction::AddFinalizer => return set_finalizer::<Self>(context, run, finalizer::RUN, true).await,
            RunAction::RemoveFinalizer => return set_finalizer::<Self>(context, run, finalizer::RUN, false).await,
            RunAction::FreezeCommand(source) => freeze_command(context, seen, source.as_deref()).await?,
            RunAction::CreatePod(stage, status) => create_pod(context, seen, stage, status).await?,
            RunAction::DeletePod { name, uid, status } => {
                let failed = Error::api("cannot delete the pod of a run");
                delete(&context.api::<Pod>(run.namespace()), &name, uid, DeleteParams::default())
                    .await
                    .map_err(failed)?;
                RunOutcome::PodDeleted(status)
            }
            RunAction::DeleteRun => {
                let (api, uid) = (context.api::<Run>(run.namespace()), run.uid().to_owned());
                let failed = Error::api("cannot delete a run that was kept long enough");
                delete(&api, run.name(), uid, DeleteParams::background()).await.map_err(failed)?;
                RunOutcome::RunDeleted
            }
        };
        Ok(Effect::Outcome(outcome))
    }

    fn settle(seen: &SeenRun, outcome: RunOutcome, now: Timestamp) -> Settled<RunStatus> {
        seen.with_facts(|facts| run::settle(facts, outcome, now))
    }

    /// The events of a phase that nobody has recorded yet. The Run's phase is measured at the same time.
    fn events(context: &Context, run: &Subject<Run>, status: &RunStatus) -> Vec<Event> {
        let transition = context.reported.note(run, status, context.now());
        if transition.before.phase != status.phase {
            context.metrics.run_changed(&transition, status);
        }
        events::of_run(run, &transition.before, status).into_iter().collect()
    }
}

/// The Stack of the Run's Workspace. Only a Run of a Stack that has not started needs one newer than the cache, which may
/// be older than the Run.
async fn stack_of(context: &Context, run: &Subject<Run>) -> Result<Option<Arc<Stack>>, Error> {
    let (namespace, name) = (run.namespace(), run.spec.workspace.as_str());
    let cached = context.caches.stacks.named(namespace, name);
    let phase = run.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let waits = matches!(phase, RunPhase::Pending | RunPhase::Queued) && stack::is_launched(run);
    if !waits || stack::launched(cached.as_deref(), run) == Launched::Confirmed {
        return Ok(cached);
    }
    let found = context.api::<Stack>(namespace).get_opt(name).await;
    Ok(found.map_err(Error::api("cannot read the Stack of a run"))?.map(Arc::new))
}

/// The frozen job of a Run that has no pod: the next decision judges it. None when it is not what was frozen.
async fn frozen_job(context: &Context, run: &Subject<Run>) -> Result<Option<FrozenJob>, Error> {
    let Some(status) = &run.status else { return Ok(None) };
    let waits = matches!(status.phase, RunPhase::Pending | RunPhase::Queued | RunPhase::Review);
    let Some(summary) = status.job.as_ref().filter(|_| waits) else { return Ok(None) };
    match context.storage.frozen_jobs().stored(&run.id, summary).await {
        Ok(job) => Ok(Some(job)),
        Err(FreezeError::Changed(_)) => Ok(None),
        Err(FreezeError::Api(error)) => Err(Error::api("cannot read the frozen job of a run")(error)),
        Err(error) => Err(Error::FrozenJob(error.to_string())),
    }
}

/// The pod that the Run's status names. A pod counts as gone only when the API itself says so: the cache may not have
/// it yet.
async fn current_pod(context: &Context, run: &Subject<Run>) -> Result<Option<Arc<Pod>>, Error> {
    let Some(status) = &run.status else {
        return Ok(None);
    };
    let (Some(name), Some(uid)) = (&status.pod_name, &status.pod_uid) else {
        return Ok(None);
    };
    let is_it = |pod: &Pod| pod.metadata.uid.as_ref() == Some(uid);
    let cached = context.caches.pods.named(run.namespace(), name).filter(|pod| is_it(pod));
    if let Some(pod) = cached.or_else(|| context.created.get(uid)) {
        return Ok(Some(pod));
    }
    // Nothing depends any more on whether the pod of an ended run, or of one in review, is still there.
    if status.phase.is_finished() || status.review_digest.is_some() {
        return Ok(None);
    }
    let found = context.api::<Pod>(run.namespace()).get_opt(name).await;
    Ok(found.map_err(Error::api("cannot read the pod of a run"))?.filter(is_it).map(Arc::new))
}

/// Freezes the job of a command, and stores the files of its source as a bundle.
async fn freeze_command(context: &Arc<Context>, seen: &SeenRun, source: Option<&Source>) -> Result<RunOutcome, Error> {
    let run = &seen.run;
    let stored = match source {
        Some(source) => stored_source(context, run, source).await,
        None => Some(Ok(Ok(None))),
    };
    let bundle = match stored.transpose()? {
        Some(Ok(bundle)) => bundle,
        Some(Err(message)) => return Ok(RunOutcome::CommandRejected { reason: reason::SOURCE_FAILED, message }),
        None => {
            let message = "The files of the source are being fetched.".to_owned();
            return Ok(RunOutcome::PodBlocked { reason: reason::FETCHING, message, job: None });
        }
    };
    let Some(workspace) = seen.workspace.as_deref() else {
        return Ok(RunOutcome::PodBlocked {
            reason: reason::POD_FAILED,
            message: format!("Workspace `{}` was deleted.", run.spec.workspace),
            job: None,
        });
    };
    let template = pod::template(&workspace.spec, &seen.policy, &context.platform);
    let supplied = seen.policy.supplied(&workspace.spec);
    Ok(match context.storage.frozen_jobs().freeze(run, workspace, template, &supplied).await {
        Ok((_, job)) => RunOutcome::CommandFrozen { bundle, job: Box::new(job) },
        Err(error) => {
            let (reason, message) = why_not_frozen(error)?;
            RunOutcome::CommandRejected { reason, message }
        }
    })
}

/// The digest of files that were stored, or why they cannot be used. There is no digest for files that were stored already.
pub type StoredSource = Result<Result<Option<String>, String>, Error>;

/// The files of a source, stored as a bundle. Those from outside of the cluster are fetched beside the reconcile, which is
/// repeated at their end: a server that never answers would hold up other Runs. `None` while that goes on.
async fn stored_source(context: &Arc<Context>, run: &Subject<Run>, source: &Source) -> Option<StoredSource> {
    if !matches!(source.kind(), Some(SourceKind::Git(_) | SourceKind::Archive(_))) {
        return Some(store_source(context, run, source).await);
    }
    match context.run_fetches.next(run.uid()) {
        FetchStanding::Done(result) => Some(result),
        FetchStanding::Underway => None,
        FetchStanding::Due => {
            let (context, run, source) = (context.clone(), run.clone(), source.clone());
            tokio::spawn(async move {
                let _slot = context.sources.slots().acquire(run.namespace()).await;
                context.run_fetches.finish(run.uid(), store_source(&context, &run, &source).await);
                context.ask.run(run.namespace(), run.name());
            });
            None
        }
    }
}

/// Stores the files of a source as a bundle.
async fn store_source(context: &Context, run: &Subject<Run>, source: &Source) -> StoredSource {
    let failed = Error::api("cannot read the files of a run");
    let bundle = match context.sources.resolver().resolve(run.namespace(), source, None).await {
        Ok(Origin::Stored(_)) => return Ok(Ok(None)),
        Ok(Origin::Files { bundle, .. }) => bundle,
        Err(SourceError::Api(error)) => return Err(failed(error)),
        Err(error) => return Ok(Err(format!("The run's source cannot be used: {error}"))),
    };
    match context.storage.bundles().store(run.namespace(), &bundle).await {
        Ok(()) => Ok(Ok(Some(bundle.digest.into()))),
        Err(BundleError::Api(error)) => Err(failed(error)),
        Err(error) => Ok(Err(format!("The files of the run cannot be stored: {error}"))),
    }
}

/// Why a job cannot be frozen, or cannot be used any more, for the Run's conditions.
fn why_not_frozen(error: FreezeError) -> Result<(&'static str, String), Error> {
    let reason = match error {
        FreezeError::Api(error) => return Err(Error::api("cannot freeze the job of a run")(error)),
        FreezeError::Variables(_) => reason::VARIABLES_FAILED,
        FreezeError::Settings(_) => reason::INVALID_SPEC,
        FreezeError::Changed(_) => reason::CHANGED_SINCE_PLANNED,
        FreezeError::Missing(_) | FreezeError::Store(_) => reason::POD_FAILED,
    };
    let message = error.to_string();
    let mut letters = message.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    Ok((reason, first.into_iter().chain(letters).collect()))
}

/// What the pods of the Run are built from. A run of more than one pod, and one to which Policies supply something, has a
/// frozen job from here on, which `status` names; any other run takes its Workspace as it is now.
async fn template(
    context: &Context,
    run: &Run,
    workspace: &Workspace,
    policy: &Effective,
    stage: Stage,
    status: &mut RunStatus,
) -> Result<PodTemplate, FreezeError> {
    let jobs = context.storage.frozen_jobs();
    match (&status.job, stage) {
        (Some(summary), Stage::Judge) => {
            let isolated =
                status.plan_verdict.as_ref().and_then(|verdict| verdict.isolated.clone()).unwrap_or_default();
            Ok(isolated::template(&jobs.get(run, summary).await?, &isolated, policy.proxy(), &context.platform))
        }
        (Some(summary), _) => {
            let pinned = frozen::pinned(run, summary);
            Ok(PodTemplate { pinned, ..jobs.get(run, summary).await?.template(&run.name_any(), &summary.digest) })
        }
        (None, Stage::Whole) if !policy.supplies() => {
            // The image and the runner's job have the same tool, whatever becomes of the Workspace in between.
            let (name, version) = (workspace.spec.tool, workspace.spec.version.clone());
            status.tool = Some(RunTool { name, version });
            Ok(pod::template(&workspace.spec, policy, &context.platform))
        }
        (None, Stage::Whole | Stage::Plan) => {
            let template = pod::template(&workspace.spec, policy, &context.platform);
            let supplied = policy.supplied(&workspace.spec);
            let (job, summary) = jobs.freeze(run, workspace, template, &supplied).await?;
            let template = job.template(&run.name_any(), &summary.digest);
            status.job = Some(summary);
            Ok(template)
        }
        (None, Stage::Judge | Stage::Apply) => {
            Err(FreezeError::Changed("The status, which names no frozen job,".to_owned()))
        }
    }
}

/// Creates the pod of a stage. Its UID is taken from the answer to this creation alone: a pod that exists already is
/// never the Run's, whatever it says of itself, because any user who may create pods can write the same.
async fn create_pod(
    context: &Context,
    seen: &SeenRun,
    stage: Stage,
    mut status: Box<RunStatus>,
) -> Result<RunOutcome, Error> {
    let run = &seen.run;
    let blocked = |reason: &'static str, message: String, status: &RunStatus| {
        Ok(RunOutcome::PodBlocked { reason, message, job: status.job.clone().map(Box::new) })
    };
    let Some(workspace) = seen.workspace.as_deref() else {
        return blocked(reason::POD_FAILED, format!("Workspace `{}` was deleted.", run.spec.workspace), &status);
    };
    if let Err(full) = slots::take(context, run, status.pod_uid.as_deref(), &seen.policy) {
        return Ok(RunOutcome::NoSlot { message: full.message(), again_in: slots::ASK_AGAIN });
    }
    let template = match template(context, run, workspace, &seen.policy, stage, &mut status).await {
        Ok(template) => template,
        Err(error) => {
            let (reason, message) = why_not_frozen(error)?;
            return Ok(RunOutcome::PodRejected { reason, message, status });
        }
    };
    let desired = match pod::build(run, &template, stage, &context.platform) {
        Ok(pod) => pod,
        Err(error) => {
            let message = format!("No pod can be made: {error}.");
            return Ok(RunOutcome::PodRejected { reason: reason::INVALID_SPEC, message, status });
        }
    };
    let api = context.api::<Pod>(run.namespace());
    match api.create(&PostParams::default(), &desired).await {
        Ok(pod) => {
            context.created.remember(&pod);
            Ok(RunOutcome::PodCreated { name: pod.name_any(), uid: pod.uid().unwrap_or_default(), status })
        }
        Err(error) if code(&error) == Some(409) => {
            let name = desired.name_any();
            let found = api.get_opt(&name).await.map_err(Error::api("cannot read the pod of a run"))?;
            match found {
                Some(pod) if pod::is_of(&pod, run) => {
                    delete_foreign(&api, run, &pod).await?;
                    let message = format!(
                        "Pod `{name}` names this run as its owner, but the operator did not create it. It gets no job and is deleted, and then the run continues."
                    );
                    blocked(reason::FOREIGN_POD, message, &status)
                }
                _ => {
                    let message = format!(
                        "Another pod has the name `{name}`. The run continues when it is deleted; delete it if it is not needed."
                    );
                    blocked(reason::POD_FAILED, message, &status)
                }
            }
        }
        Err(kube::Error::Api(refusal)) if matches!(refusal.code, 400 | 422) => {
            let message = format!("The API refused the pod: {}", refusal.message);
            Ok(RunOutcome::PodRejected { reason: reason::POD_FAILED, message, status })
        }
        Err(kube::Error::Api(refusal)) if refusal.code == 403 => {
            blocked(reason::POD_FAILED, format!("The API does not allow the pod: {}", refusal.message), &status)
        }
        Err(error) => Err(Error::api("cannot create the pod of a run")(error)),
    }
}

/// Deletes a pod that has the name of the Run's pod, once the Run's status says so. It may be one that an earlier operator
/// made and whose UID it could not write any more; after that write it never can.
async fn delete_foreign(api: &Api<Pod>, run: &Run, pod: &Pod) -> Result<(), Error> {
    if !run::reports_foreign_pod(run) {
        return Ok(());
    }
    // Its runner, if it has one, never got a job, so there is nothing to wait for.
    let params = DeleteParams::default().grace_period(0);
    let failed = Error::api("cannot delete a pod that is not the run's");
    delete(api, &pod.name_any(), pod.uid().unwrap_or_default(), params).await.map_err(failed)
}

/// Deletes exactly the object of this UID. One that is gone, or whose name another object has, counts as deleted.
async fn delete<K>(api: &Api<K>, name: &str, uid: String, params: DeleteParams) -> Result<(), kube::Error>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let preconditions = Preconditions { uid: Some(uid), resource_version: None };
    match api.delete(name, &DeleteParams { preconditions: Some(preconditions), ..params }).await {
        Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
        result => result.map(drop),
    }
}
