//! The controller of Runs: it gives each its pod when its turn has come, and ends it when that pod is lost.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::{
    Approval, Run, Workspace,
    names::{finalizer, label, reason},
    run::{RunPhase, RunStatus},
};
use knoll_core::{
    approval, events,
    fate::{self, Fate},
    pod,
    run::{self, Action, Decision, Observed},
    status,
    steps::Stage,
};
use knoll_storage::{
    Origin, SourceError,
    bundles::{self, StoreError},
};
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
    runtime::{controller, reflector::ObjectRef},
};

use crate::{
    context::Context,
    controller::{Error, Published, code, requeue_at},
};

/// How soon to try again what somebody else has to clear first.
const HINDERED: Duration = Duration::from_secs(5);

/// Brings one run a step further.
pub async fn reconcile(run: Arc<Run>, context: Arc<Context>) -> Result<controller::Action, Error> {
    if context.runs.is_stale(&run) {
        return Ok(controller::Action::await_change());
    }
    let now = context.now();
    let mut seen = observe(&context, &run).await?;
    if let Err(message) = keep_files(&context, &run, &mut seen).await? {
        let status = run::refused(&run, status::of(&run), reason::SOURCE_FAILED, &message, now);
        return publish(&context, &run, Next { status, requeue: controller::Action::await_change() }, now).await;
    }
    let approvals: Vec<&Approval> = seen.approvals.iter().map(AsRef::as_ref).collect();
    let decision = run::decide(&seen.view(&run, &approvals), now);
    let next = act(&context, &run, &seen, decision, now).await?;
    publish(&context, &run, next, now).await
}

/// What was read for one decision.
struct Seen {
    workspace: Option<Arc<Workspace>>,
    pod: Option<Arc<Pod>>,
    approvals: Vec<Arc<Approval>>,
    /// The files that a person is asked to approve together with a command.
    files: Option<String>,
}

impl Seen {
    fn view<'a>(&'a self, run: &'a Run, approvals: &'a [&'a Approval]) -> Observed<'a> {
        let source = run.spec.source.as_ref().and_then(|source| source.bundle.as_ref());
        let applied = self.workspace.as_ref().and_then(|workspace| workspace.status.as_ref()?.bundle.as_deref());
        let pinned = run.status.as_ref().and_then(|status| status.bundle.as_deref());
        let bundle = if run.spec.source.is_some() { source.map(|bundle| bundle.digest.as_str()) } else { applied };
        Observed {
            run,
            workspace: self.workspace.as_deref(),
            pod: self.pod.as_deref(),
            approvals,
            bundle: pinned.or(self.files.as_deref()).or(bundle),
        }
    }
}

async fn observe(context: &Context, run: &Run) -> Result<Seen, Error> {
    let (namespace, name) = (run.namespace().unwrap_or_default(), run.name_any());
    let workspace = ObjectRef::new(&run.spec.workspace).within(&namespace);
    let waits = run.status.as_ref().is_none_or(|status| !status.phase.is_finished());
    let approvals = if waits {
        context.caches.approvals.state_filter(|approval| {
            approval.spec.run == name && approval.metadata.namespace.as_deref() == Some(&namespace)
        })
    } else {
        Vec::new()
    };
    Ok(Seen {
        workspace: context.caches.workspaces.get(&workspace),
        pod: current_pod(context, run, &namespace).await?,
        approvals,
        files: None,
    })
}

/// Keeps the files of a privileged command before anybody is asked to approve it, so that what runs is what was approved.
/// The inner error is a sentence about a source that cannot be used.
async fn keep_files(context: &Context, run: &Run, seen: &mut Seen) -> Result<Result<(), String>, Error> {
    let status = run.status.as_ref();
    let pinned = status.is_some_and(|status| status.bundle.is_some() || status.phase != RunPhase::Pending);
    let privileged =
        seen.workspace.as_ref().is_some_and(|workspace| approval::is_privileged(&run.spec, &workspace.spec));
    let (false, true, Some(source)) = (pinned, privileged, &run.spec.source) else {
        return Ok(Ok(()));
    };
    let namespace = run.namespace().unwrap_or_default();
    let failed = Error::api("cannot read the files of a run");
    let bundle = match context.sources.resolver().resolve(&namespace, source, None).await {
        Ok(Origin::Stored(_)) => return Ok(Ok(())),
        Ok(Origin::Files { bundle, .. }) => bundle,
        Err(SourceError::Api(error)) => return Err(failed(error)),
        Err(error) => return Ok(Err(format!("The run's source cannot be used: {error}"))),
    };
    match bundles::store(&context.client, &namespace, &bundle).await {
        Ok(()) => seen.files = Some(bundle.digest),
        Err(StoreError::Api(error)) => return Err(failed(error)),
        Err(error) => return Ok(Err(format!("The files of the run cannot be kept: {error}"))),
    }
    Ok(Ok(()))
}

/// The pod that the run's status names. A pod counts as gone only when the API itself says so: the cache may not have
/// it yet.
async fn current_pod(context: &Context, run: &Run, namespace: &str) -> Result<Option<Arc<Pod>>, Error> {
    let Some(status) = &run.status else {
        return Ok(None);
    };
    let (Some(name), Some(uid)) = (&status.pod_name, &status.pod_uid) else {
        return Ok(None);
    };
    let is_it = |pod: &Pod| pod.metadata.uid.as_ref() == Some(uid);
    let cached = context.caches.pods.get(&ObjectRef::new(name).within(namespace)).filter(|pod| is_it(pod));
    if let Some(pod) = cached.or_else(|| context.created.get(uid)) {
        return Ok(Some(pod));
    }
    // Nothing depends any more on whether the pod of an ended run, or of one in review, is still there.
    if status.phase.is_finished() || status.review_digest.is_some() {
        return Ok(None);
    }
    let found =
        context.api::<Pod>(namespace).get_opt(name).await.map_err(Error::api("cannot read the pod of a run"))?;
    Ok(found.filter(is_it).map(Arc::new))
}

/// What has to be written after the action.
struct Next {
    status: RunStatus,
    requeue: controller::Action,
}

async fn act(context: &Context, run: &Run, seen: &Seen, decision: Decision, now: Timestamp) -> Result<Next, Error> {
    let Decision { status, action, requeue_at: at } = decision;
    let namespace = run.namespace().unwrap_or_default();
    let requeue = requeue_at(at, now);
    match action {
        None => Ok(Next { status, requeue }),
        Some(action @ (Action::AddFinalizer | Action::RemoveFinalizer)) => {
            let held = action == Action::AddFinalizer;
            context.runs.hold(&context.api(&namespace), run, finalizer::RUN, held).await?;
            // The watch brings the run as it is now.
            Ok(Next { status: status::of(run), requeue })
        }
        Some(Action::CreatePod(stage)) => {
            let created = create_pod(context, run, seen, stage, &namespace).await?;
            Ok(match created {
                PodCreation::Done(pod) => Next { status: run::started(run, status, &pod, context.now()), requeue },
                PodCreation::Impossible { reason, message } => {
                    Next { status: run::refused(run, status, reason, &message, now), requeue }
                }
                PodCreation::Hindered(message) => {
                    Next { status: run::hindered(run, &message, now), requeue: controller::Action::requeue(HINDERED) }
                }
            })
        }
        Some(Action::DeletePod { name, uid }) => {
            let preconditions = Preconditions { uid: Some(uid), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match context.api::<Pod>(&namespace).delete(&name, &params).await {
                // Gone already, or another pod has its name.
                Err(error) if matches!(code(&error), Some(404 | 409)) => {}
                result => drop(result.map_err(Error::api("cannot delete the pod of a run"))?),
            }
            Ok(Next { status, requeue })
        }
        Some(Action::DeleteRun) => {
            let preconditions = Preconditions { uid: run.uid(), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
            match context.api::<Run>(&namespace).delete(&run.name_any(), &params).await {
                Err(error) if matches!(code(&error), Some(404 | 409)) => {}
                result => drop(result.map_err(Error::api("cannot delete a run that was kept long enough"))?),
            }
            Ok(Next { status, requeue })
        }
    }
}

enum PodCreation {
    /// The run has its pod, from now or from an attempt before.
    Done(Box<Pod>),
    /// It cannot have one as things are, and never will.
    Impossible { reason: &'static str, message: String },
    /// It cannot have one until somebody does something about it.
    Hindered(String),
}

async fn create_pod(
    context: &Context,
    run: &Run,
    seen: &Seen,
    stage: Stage,
    namespace: &str,
) -> Result<PodCreation, Error> {
    let Some(workspace) = seen.workspace.as_deref() else {
        return Ok(PodCreation::Hindered(format!("Workspace `{}` is gone.", run.spec.workspace)));
    };
    if let Some(pod) = leftover(context, run, namespace) {
        return Ok(PodCreation::Hindered(format!(
            "Pod `{pod}` of an earlier run of this name is still at work; the run goes on when it has ended."
        )));
    }
    let wanted = match pod::build(run, workspace, stage, &context.platform) {
        Ok(pod) => pod,
        Err(error) => {
            return Ok(PodCreation::Impossible {
                reason: reason::INVALID_SPEC,
                message: format!("No pod can be made: {error}."),
            });
        }
    };
    let api = context.api::<Pod>(namespace);
    match api.create(&PostParams::default(), &wanted).await {
        Ok(pod) => {
            context.created.remember(&pod);
            Ok(PodCreation::Done(Box::new(pod)))
        }
        // Perhaps our own, from an attempt whose answer was lost.
        Err(error) if code(&error) == Some(409) => {
            let name = wanted.name_any();
            let found = api.get_opt(&name).await.map_err(Error::api("cannot read the pod of a run"))?;
            Ok(match found {
                Some(pod) if pod::is_of(&pod, run) => PodCreation::Done(Box::new(pod)),
                _ => PodCreation::Hindered(format!(
                    "There is another pod `{name}`; the run goes on when it is gone. Delete it if nobody needs it."
                )),
            })
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(PodCreation::Impossible {
            reason: reason::POD_FAILED,
            message: format!("The API refused the pod: {}", status.message),
        }),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Ok(PodCreation::Hindered(format!("The API does not allow the pod: {}", status.message)))
        }
        Err(error) => Err(Error::api("cannot create the pod of a run")(error)),
    }
}

/// A pod of an earlier run of the same name that may still be at work.
fn leftover(context: &Context, run: &Run, namespace: &str) -> Option<String> {
    let name = run.name_any();
    let now = context.now();
    let found = context.caches.pods.find(|other| {
        other.metadata.namespace.as_deref() == Some(namespace)
            && other.labels().get(label::RUN) == Some(&name)
            && !pod::is_of(other, run)
            && !matches!(fate::of(other, now), Fate::Ended(_))
    });
    found.map(|pod| pod.name_any())
}

async fn publish(context: &Context, run: &Run, next: Next, now: Timestamp) -> Result<controller::Action, Error> {
    let Next { status, requeue } = next;
    tell(context, run, run.status.as_ref());
    let api = context.api::<Run>(&run.namespace().unwrap_or_default());
    match context.runs.publish(&api, run, run.status.as_ref(), &status).await? {
        Published::Written => tell(context, run, Some(&status)),
        Published::Unchanged => {}
        // What was decided is void; the watch brings the newer run, and this only makes sure of it.
        Published::Overtaken => return Ok(requeue_at(now.checked_add(HINDERED).ok(), now)),
    }
    Ok(requeue)
}

/// Tells of the run's phase, when nobody has yet.
fn tell(context: &Context, run: &Run, status: Option<&RunStatus>) {
    let Some(status) = status else { return };
    let transition = context.told.note(run, status, context.now());
    if transition.before.phase != status.phase {
        context.metrics.run_changed(&transition, status);
    }
    if let Some(event) = events::of_run(&transition.before, status) {
        context.events.tell(event, run.object_ref(&()));
    }
}
