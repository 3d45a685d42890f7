//! The controller of Runs: it creates the pod of each when its turn has come, and ends the Run when that pod is lost.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::{
    Approval, Run, RunStatus, Source, Stack, Workspace,
    names::{finalizer, reason},
};
use knoll_core::{
    events::{self, Event},
    identity::Subject,
    machine::Settled,
    pod,
    policy::Effective,
    run::{self, RunAction, RunDecision, RunFacts, RunOutcome},
    steps::Stage,
};
use knoll_storage::{BundleError, Origin, SourceError};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};

use crate::{
    context::Context,
    controller::{Error, Written, code},
    driver::{Effect, Observation, Reconciler, set_finalizer},
    index::Target,
    policy,
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
}

impl SeenRun {
    fn with_facts<T>(&self, then: impl FnOnce(&RunFacts<'_>) -> T) -> T {
        let Self { run, workspace, pod, pods, approvals, stack, policy } = self;
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
        let stack = caches.stacks.named(namespace, &run.spec.workspace);
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
            RunAction::StoreSource(source) => store_source(context, run, &source).await?,
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

/// Stores the files of a source as a bundle.
async fn store_source(context: &Context, run: &Subject<Run>, source: &Source) -> Result<RunOutcome, Error> {
    let failed = Error::api("cannot read the files of a run");
    let bundle = match context.sources.resolver().resolve(run.namespace(), source, None).await {
        Ok(Origin::Stored(_)) => return Ok(RunOutcome::SourceStored(None)),
        Ok(Origin::Files { bundle, .. }) => bundle,
        Err(SourceError::Api(error)) => return Err(failed(error)),
        Err(error) => {
            return Ok(RunOutcome::SourceUnusable(format!("The run's source cannot be used: {error}")));
        }
    };
    match context.storage.bundles().store(run.namespace(), &bundle).await {
        Ok(()) => Ok(RunOutcome::SourceStored(Some(bundle.digest.into()))),
        Err(BundleError::Api(error)) => Err(failed(error)),
        Err(error) => Ok(RunOutcome::SourceUnusable(format!("The files of the run cannot be stored: {error}"))),
    }
}

async fn create_pod(
    context: &Context,
    seen: &SeenRun,
    stage: Stage,
    status: Box<RunStatus>,
) -> Result<RunOutcome, Error> {
    let run = &seen.run;
    let Some(workspace) = seen.workspace.as_deref() else {
        return Ok(RunOutcome::PodBlocked(format!("Workspace `{}` is gone.", run.spec.workspace)));
    };
    let desired = match pod::build(run, workspace, stage, &context.platform) {
        Ok(pod) => pod,
        Err(error) => {
            let message = format!("No pod can be made: {error}.");
            return Ok(RunOutcome::PodRejected { reason: reason::INVALID_SPEC, message, status });
        }
    };
    let created = |pod: &Pod| RunOutcome::PodCreated {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        status: status.clone(),
    };
    let api = context.api::<Pod>(run.namespace());
    match api.create(&PostParams::default(), &desired).await {
        Ok(pod) => {
            context.created.remember(&pod);
            Ok(created(&pod))
        }
        // The pod may be this Run's, from an attempt whose answer was lost.
        Err(error) if code(&error) == Some(409) => {
            let name = desired.name_any();
            let found = api.get_opt(&name).await.map_err(Error::api("cannot read the pod of a run"))?;
            Ok(match found {
                Some(pod) if pod::is_of(&pod, run) => created(&pod),
                _ => RunOutcome::PodBlocked(format!(
                    "There is another pod `{name}`; the run goes on when it is gone. Delete it if nobody needs it."
                )),
            })
        }
        Err(kube::Error::Api(refusal)) if matches!(refusal.code, 400 | 422) => {
            let message = format!("The API refused the pod: {}", refusal.message);
            Ok(RunOutcome::PodRejected { reason: reason::POD_FAILED, message, status })
        }
        Err(kube::Error::Api(refusal)) if refusal.code == 403 => {
            Ok(RunOutcome::PodBlocked(format!("The API does not allow the pod: {}", refusal.message)))
        }
        Err(error) => Err(Error::api("cannot create the pod of a run")(error)),
    }
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
