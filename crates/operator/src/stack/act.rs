//! Carries out the actions of the Stack machine. Each can be repeated, and can be interrupted after any of its writes.

use k8s_openapi::{NamespaceResourceScope, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use knoll_api::{
    Run, Stack, Workspace,
    names::{annotation, cancel, content, field_manager, finalizer, label},
    stack::{LaunchIntent, Snapshot},
};
use knoll_core::{
    identity::Subject,
    stack::{
        self, IntendedRun, Intent, Launch, OwnedObject, Prune, StackAction, StackOutcome, is_owned, owner_annotations,
        owner_labels,
    },
};
use knoll_storage::{BundleError, Origin, VariablesError, is_namespace_terminating};
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{SeenStack, inputs, outputs};
use crate::{
    context::Context,
    controller::{Error, code, patch_params},
    driver::Effect,
};

pub(super) async fn act(
    context: &Context,
    seen: &SeenStack,
    action: StackAction,
) -> Result<Effect<StackOutcome>, Error> {
    let stack = &seen.stack;
    let outcome = match action {
        StackAction::AddFinalizer => return hold(context, stack, true).await,
        StackAction::RemoveFinalizer => {
            let released = context.storage.states().release(stack.namespace(), stack.name()).await;
            released.map_err(Error::api("cannot let go of the state of a Stack"))?;
            return hold(context, stack, false).await;
        }
        StackAction::CleanUp => {
            clean_up(context, stack).await?;
            return hold(context, stack, false).await;
        }
        StackAction::Intend(intent) => intend(context, stack, *intent),
        StackAction::Launch(launch) => launch_run(context, seen, *launch).await?,
        StackAction::Supersede(run) => annotate(context, stack.namespace(), &run, annotation::SUPERSEDED).await?,
        StackAction::Cancel(run) => annotate(context, stack.namespace(), &run, annotation::CANCEL).await?,
        StackAction::ReadOutputs => outputs::read(context, stack).await?,
        StackAction::ApplyWorkspace => apply_workspace(context, stack).await?,
        StackAction::Prune(prune) => delete_old(context, stack, prune).await?,
    };
    Ok(Effect::Outcome(outcome))
}

async fn hold(context: &Context, stack: &Subject<Stack>, held: bool) -> Result<Effect<StackOutcome>, Error> {
    context.stacks.hold(&context.api(stack.namespace()), stack, finalizer::STACK, held).await?;
    Ok(Effect::ObjectChanged)
}

/// Chooses the nonce of a Run.
fn intend(context: &Context, stack: &Subject<Stack>, intent: Intent) -> StackOutcome {
    let Intent { number, purpose, run } = intent;
    let nonce = format!("{:032x}", rand::random::<u128>());
    let commitment = stack::commitment(&run, &nonce);
    context.nonces.remember(stack.uid(), commitment.clone(), nonce);
    StackOutcome::Intended(LaunchIntent { name: run.name_any(), number, purpose, commitment })
}

/// Stores the snapshot, applies the Workspace and creates the Run, in this order: a Run never starts before what it needs.
async fn launch_run(context: &Context, seen: &SeenStack, launch: Launch) -> Result<StackOutcome, Error> {
    let Launch { store, apply_workspace: apply, mut run, intent } = launch;
    if let Some(snapshot) = store {
        store_snapshot(context, seen, &snapshot).await?;
    }
    if apply && apply_workspace(context, &seen.stack).await? == StackOutcome::NamespaceTerminating {
        return Ok(StackOutcome::NamespaceTerminating);
    }
    let nonce = context.nonces.take(seen.stack.uid(), &intent.commitment);
    let Some(nonce) = nonce.filter(|nonce| stack::commitment(&run, nonce) == intent.commitment) else {
        return Ok(StackOutcome::NonceLost);
    };
    run.annotations_mut().insert(annotation::NONCE.to_owned(), nonce.clone());
    let outcome = create_run(context, &seen.stack, &run, &intent).await?;
    if outcome == StackOutcome::NamespaceTerminating {
        // Nothing was created, so the intent holds as it is.
        context.nonces.remember(seen.stack.uid(), intent.commitment, nonce);
    }
    Ok(outcome)
}

async fn apply_workspace(context: &Context, stack: &Subject<Stack>) -> Result<StackOutcome, Error> {
    let params = PatchParams { force: true, ..PatchParams::apply(field_manager::OPERATOR) };
    let api = context.api::<Workspace>(stack.namespace());
    let mut desired = stack::workspace(stack);
    let found = context.caches.workspaces.named(stack.namespace(), stack.name());
    if found.is_some_and(|found| {
        found.metadata.deletion_timestamp.is_some()
            && !found.finalizers().iter().any(|held| held == finalizer::WORKSPACE)
    }) {
        // The API adds no finalizer to an object that is being deleted, and something else still keeps this one.
        desired.metadata.finalizers = None;
    }
    match api.patch(stack.name(), &params, &Patch::Apply(&desired)).await {
        Err(error) if is_namespace_terminating(&error) => Ok(StackOutcome::NamespaceTerminating),
        applied => applied.map(|_| StackOutcome::Done).map_err(Error::api("cannot write the Workspace of a Stack")),
    }
}

/// Stores the files and the variables of the decided revision. If the inputs have changed since the decision, nothing is
/// stored and the next decision takes them in.
async fn store_snapshot(context: &Context, seen: &SeenStack, snapshot: &Snapshot) -> Result<(), Error> {
    let stack = &seen.stack;
    let again;
    let contents = match &seen.inputs.contents {
        Some(contents) => contents,
        None => {
            let fetched = seen.remote.as_ref().and_then(|remote| remote.fetched.as_ref());
            again = inputs::read(context, stack, fetched).await?;
            match again.contents.as_ref().filter(|_| again.inputs == seen.inputs.inputs) {
                Some(contents) => contents,
                None => {
                    context.stack_inputs.forget(stack);
                    return Err(Error::Changed);
                }
            }
        }
    };
    let namespace = stack.namespace();
    if let Origin::Files { bundle, .. } = &contents.origin {
        match context.storage.bundles().store(namespace, bundle).await {
            Ok(()) => {}
            Err(BundleError::Api(error)) => return Err(Error::api("cannot store the files of a Stack")(error)),
            Err(error) => return Err(Error::Store(error.to_string())),
        }
    }
    let mut labels = owner_labels(stack);
    labels.insert(label::CONTENT.to_owned(), content::VARIABLES.to_owned());
    let metadata = ObjectMeta {
        name: Some(snapshot.variables.clone()),
        labels: Some(labels),
        annotations: Some(owner_annotations(stack)),
        ..ObjectMeta::default()
    };
    match context.storage.variables().put(namespace, metadata, &contents.variables).await {
        Ok(()) => Ok(()),
        Err(VariablesError::Api(error)) => Err(Error::api("cannot store the variables of a Stack")(error)),
        Err(error) => Err(Error::Store(error.to_string())),
    }
}

async fn create_run(
    context: &Context,
    stack: &Subject<Stack>,
    run: &Run,
    intent: &LaunchIntent,
) -> Result<StackOutcome, Error> {
    let api = context.api::<Run>(stack.namespace());
    let created = match api.create(&PostParams::default(), run).await {
        // Perhaps from an attempt whose answer was lost.
        Err(error) if code(&error) == Some(409) => {
            let found = api.get_opt(&intent.name).await.map_err(Error::api("cannot read a run of a Stack"))?;
            match IntendedRun::of(intent, found.as_ref()) {
                IntendedRun::Created(run) => run.clone(),
                IntendedRun::Taken => return Ok(StackOutcome::NameTaken),
                IntendedRun::Absent => return Ok(StackOutcome::NonceLost),
            }
        }
        Err(error) if is_namespace_terminating(&error) => return Ok(StackOutcome::NamespaceTerminating),
        result => result.map_err(Error::api("cannot start a run of a Stack"))?,
    };
    context.started.remember(created.clone());
    Ok(StackOutcome::Launched(Box::new(created)))
}

async fn annotate(context: &Context, namespace: &str, run: &str, with: &str) -> Result<StackOutcome, Error> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {with: cancel::BY_STACK}}}));
    match context.api::<Run>(namespace).patch(run, &patch_params(), &patch).await {
        Err(error) if code(&error) == Some(404) => Ok(StackOutcome::Done),
        result => result.map(|_| StackOutcome::Done).map_err(Error::api("cannot stop a run of a Stack")),
    }
}

/// Deletes the objects that the Stack has created, those that others may still need last. The infrastructure is destroyed,
/// so the state and its earlier versions are of no use any more; they would only keep secrets.
async fn clean_up(context: &Context, stack: &Subject<Stack>) -> Result<(), Error> {
    let (namespace, name) = (stack.namespace(), stack.name());
    delete_owned::<Secret>(context, stack).await?;
    let workspace = context.api::<Workspace>(namespace).get_metadata_opt(name).await;
    let workspace = workspace.map_err(Error::api("cannot read the Workspace of a Stack"))?;
    // Another Stack of this name may have taken Workspace and state over.
    if workspace.is_some_and(|workspace| is_owned(&workspace, stack)) {
        let deleted = context.storage.states().delete(namespace, name).await;
        deleted.map_err(Error::api("cannot delete the state of a Stack"))?;
    }
    let runs = context.api::<Run>(namespace);
    for run in stack.status.iter().flat_map(stack::deleted_with) {
        delete(&runs, &run).await?;
    }
    delete_owned::<Workspace>(context, stack).await
}

async fn delete_owned<K>(context: &Context, stack: &Subject<Stack>) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let api = context.api::<K>(stack.namespace());
    let mine = ListParams::default().labels(&format!("{}={}", label::STACK, stack.name()));
    let found = api.list_metadata(&mine).await.map_err(Error::api("cannot list the objects of a Stack"))?;
    for object in found.items.iter().filter(|object| is_owned(*object, stack)) {
        delete(&api, &OwnedObject::of(object)).await?;
    }
    Ok(())
}

async fn delete<K>(api: &kube::Api<K>, object: &OwnedObject) -> Result<(), Error>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let preconditions = Preconditions { uid: object.uid.clone(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match api.delete(&object.name, &params).await {
        Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
        result => result.map(drop).map_err(Error::api("cannot delete an object of a Stack")),
    }
}

async fn delete_old(context: &Context, stack: &Subject<Stack>, prune: Prune) -> Result<StackOutcome, Error> {
    let (runs, secrets) = (context.api::<Run>(stack.namespace()), context.api::<Secret>(stack.namespace()));
    for run in &prune.runs {
        delete(&runs, run).await?;
    }
    for secret in &prune.secrets {
        delete(&secrets, secret).await?;
    }
    Ok(StackOutcome::Pruned(prune))
}
