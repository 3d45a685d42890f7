//! Carries out what the machine of a Stack has decided. Each action can be repeated, and be the last before a crash.

use k8s_openapi::{NamespaceResourceScope, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use knoll_api::{
    Run, Stack, Workspace,
    names::{annotation, content, field_manager, finalizer, label},
    stack::StackStatus,
};
use knoll_core::stack::{self, Action, Decision, Inputs, is_owned, owner_annotations, owner_labels};
use knoll_storage::{BundleError, Origin, VariablesError};
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Seen, inputs, outputs};
use crate::{
    context::Context,
    controller::{Error, by_us, code, namespace_goes},
};

/// Carries out all actions. `None` when the Stack itself was changed, so that what was decided is not to be written.
pub(super) async fn all(
    context: &Context,
    stack: &Stack,
    seen: &Seen,
    decision: &Decision,
) -> Result<Option<StackStatus>, Error> {
    let namespace = stack.namespace().unwrap_or_default();
    let mut status = decision.status.clone();
    for action in &decision.actions {
        match action {
            Action::AddFinalizer | Action::RemoveFinalizer => {
                let held = *action == Action::AddFinalizer;
                context.stacks.hold(&context.api(&namespace), stack, finalizer::STACK, held).await?;
                return Ok(None);
            }
            Action::ApplyWorkspace => {
                if !apply_workspace(context, stack, &namespace).await? {
                    return Ok(Some(stack::without_namespace(stack, context.now())));
                }
            }
            Action::Keep => {
                if !keep(context, stack, seen, &namespace).await? {
                    return Ok(None);
                }
            }
            Action::Start(run) => {
                if !start(context, stack, run, &namespace).await? {
                    return Ok(Some(stack::without_namespace(stack, context.now())));
                }
            }
            Action::Supersede(name) => annotate(context, &namespace, name, annotation::SUPERSEDED).await?,
            Action::Cancel(name) => annotate(context, &namespace, name, annotation::CANCEL).await?,
            Action::ReadOutputs => outputs::read(context, stack, &namespace, &mut status).await?,
            Action::CleanUp => clean_up(context, stack, &namespace).await?,
        }
    }
    Ok(Some(status))
}

/// Makes the Workspace what the Stack says; false when it cannot be made any more because the namespace goes.
async fn apply_workspace(context: &Context, stack: &Stack, namespace: &str) -> Result<bool, Error> {
    let wanted = stack::workspace(stack);
    let params = PatchParams { force: true, ..PatchParams::apply(field_manager::OPERATOR) };
    let api = context.api::<Workspace>(namespace);
    match api.patch(&stack.name_any(), &params, &Patch::Apply(&wanted)).await {
        Err(error) if namespace_goes(&error) => Ok(false),
        applied => applied.map(|_| true).map_err(Error::api("cannot write the Workspace of a Stack")),
    }
}

/// Keeps the files and the variables of the revision that was decided on; false when it is another one by now.
async fn keep(context: &Context, stack: &Stack, seen: &Seen, namespace: &str) -> Result<bool, Error> {
    let fetched;
    let made_of = match &seen.found.made_of {
        Some(made_of) => made_of,
        None => {
            let again = inputs::fetch(context, stack, namespace, seen.found.fetched()).await?;
            if again.inputs != seen.found.inputs {
                context.memory.forget(stack);
                return Err(Error::Changed);
            }
            let Some(made_of) = again.made_of else { return Ok(false) };
            fetched = made_of;
            &fetched
        }
    };
    let Inputs::Resolved { snapshot, .. } = &seen.found.inputs else { return Ok(false) };
    if let Origin::Files { bundle, .. } = &made_of.origin {
        match context.storage.bundles().store(namespace, bundle).await {
            Ok(()) => {}
            Err(BundleError::Api(error)) => return Err(Error::api("cannot keep the files of a Stack")(error)),
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
    match context.storage.variables().put(namespace, metadata, &made_of.variables).await {
        Ok(()) => Ok(true),
        Err(VariablesError::Api(error)) => Err(Error::api("cannot keep the variables of a Stack")(error)),
        Err(error) => Err(Error::Store(error.to_string())),
    }
}

/// Creates a Run; false when nothing can be created any more because the namespace goes.
async fn start(context: &Context, stack: &Stack, run: &Run, namespace: &str) -> Result<bool, Error> {
    let api = context.api::<Run>(namespace);
    let created = match api.create(&PostParams::default(), run).await {
        // Perhaps our own, from an attempt whose answer was lost.
        Err(error) if code(&error) == Some(409) => {
            let found = api.get_opt(&run.name_any()).await.map_err(Error::api("cannot read a run of a Stack"))?;
            found.filter(|found| is_owned(found, stack))
        }
        Err(error) if namespace_goes(&error) => return Ok(false),
        result => Some(result.map_err(Error::api("cannot start a run of a Stack"))?),
    };
    if let Some(run) = created {
        context.started.remember(run);
    }
    Ok(true)
}

async fn annotate(context: &Context, namespace: &str, run: &str, with: &str) -> Result<(), Error> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {with: "by its Stack"}}}));
    match context.api::<Run>(namespace).patch(run, &by_us(), &patch).await {
        Err(error) if code(&error) == Some(404) => Ok(()),
        result => result.map(drop).map_err(Error::api("cannot stop a run of a Stack")),
    }
}

/// Deletes what the Stack has made, what others may still need last. All of its infrastructure is destroyed, so its state
/// and the earlier versions of it are of no use any more; they would only keep secrets.
async fn clean_up(context: &Context, stack: &Stack, namespace: &str) -> Result<(), Error> {
    delete_owned::<Secret>(context, stack, namespace).await?;
    let name = stack.name_any();
    let workspace = context.api::<Workspace>(namespace).get_metadata_opt(&name).await;
    let workspace = workspace.map_err(Error::api("cannot read the Workspace of a Stack"))?;
    // Another Stack of this name may have taken Workspace and state over.
    if workspace.is_some_and(|workspace| is_owned(&workspace, stack)) {
        let api = context.api::<Secret>(namespace);
        // The head goes first: without it nobody looks for the parts.
        for holds in [content::STATE, content::STATE_PART] {
            let labels = format!("{}={name},{}={holds}", label::WORKSPACE, label::CONTENT);
            let found = api.list_metadata(&ListParams::default().labels(&labels)).await;
            for secret in found.map_err(Error::api("cannot list the states of a Stack"))?.items {
                delete(&api, &secret.name_any(), secret.uid()).await?;
            }
        }
    }
    delete_owned::<Run>(context, stack, namespace).await?;
    delete_owned::<Workspace>(context, stack, namespace).await
}

async fn delete_owned<K>(context: &Context, stack: &Stack, namespace: &str) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let api = context.api::<K>(namespace);
    let mine = ListParams::default().labels(&format!("{}={}", label::STACK, stack.name_any()));
    let found = api.list_metadata(&mine).await.map_err(Error::api("cannot list what a Stack has made"))?;
    for object in found.items.iter().filter(|object| is_owned(*object, stack)) {
        delete(&api, &object.name_any(), object.uid()).await?;
    }
    Ok(())
}

async fn delete<K>(api: &kube::Api<K>, name: &str, uid: Option<String>) -> Result<(), Error>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let preconditions = Preconditions { uid, resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match api.delete(name, &params).await {
        Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
        result => result.map(drop).map_err(Error::api("cannot delete what a Stack has made")),
    }
}

/// How many of its Runs a Stack keeps after their end.
const RUNS_KEPT: usize = 10;

/// Deletes what is of no use any more: variables of earlier revisions, a Secret of outputs that was given another name,
/// and the oldest Runs.
pub(super) async fn prune(context: &Context, stack: &Stack, status: &StackStatus) -> Result<(), Error> {
    let namespace = stack.namespace().unwrap_or_default();
    let here = |found: &Option<String>| found.as_ref() == Some(&namespace);
    let name = stack.name_any();
    let mut runs = context.caches.runs.state_filter(|run| here(&run.metadata.namespace) && is_owned(run, stack));
    let goes_on = |run: &Run| run.status.as_ref().is_none_or(|status| !status.phase.is_finished());
    if runs.iter().any(|run| goes_on(run)) || !context.started.of(&namespace, &name).is_empty() {
        return Ok(());
    }
    runs.sort_by_key(|run| std::cmp::Reverse((run.creation_timestamp().map(|time| time.0), run.name_any())));
    let api = context.api::<Run>(&namespace);
    for run in runs.iter().skip(RUNS_KEPT).filter(|run| status.last_run != run.metadata.name) {
        delete(&api, &run.name_any(), run.uid()).await?;
    }
    let outputs = stack.spec.outputs.as_ref().map(|outputs| outputs.secret_name.clone());
    let attempted = status.attempted.as_ref().map(|attempted| attempted.variables.clone());
    let previous = status.previous.as_ref().map(|previous| previous.variables.clone());
    let wanted = [status.variables.clone(), attempted, previous, outputs];
    let stale = context.caches.secrets.state_filter(|secret| {
        here(&secret.metadata.namespace) && is_owned(secret, stack) && !wanted.contains(&secret.metadata.name)
    });
    let api = context.api::<Secret>(&namespace);
    for secret in stale {
        delete(&api, &secret.name_any(), secret.uid()).await?;
    }
    Ok(())
}
