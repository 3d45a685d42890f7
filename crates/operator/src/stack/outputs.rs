//! The outputs of a Stack: those that are not sensitive in its status, all of them in a Secret when one is wanted.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use knoll_api::{
    Digest, Stack,
    names::{self, content, field_manager, label, reason},
    stack::StackStatus,
};
use knoll_core::{
    events::Event,
    stack::{is_owned, outputs_digest, owner_annotations, owner_labels, selected},
};
use knoll_storage::{Output, StateFile};
use kube::{
    Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::Value;

use crate::{context::Context, controller::Error};

/// Reads the outputs from the state, writes the Secret, and notes in the status what was read.
pub(super) async fn read(
    context: &Context,
    stack: &Stack,
    namespace: &str,
    status: &mut StackStatus,
) -> Result<(), Error> {
    let state = context.storage.states().read(namespace, &stack.name_any()).await;
    let state = match state {
        Ok(state) => state,
        Err(knoll_storage::Error::Api(error)) => {
            return Err(Error::api("cannot read the outputs of a Stack")(error));
        }
        Err(error) => return Err(Error::State(error.to_string())),
    };
    let wanted = stack.spec.outputs.as_ref();
    let mut outputs: BTreeMap<String, Output> = match &state {
        Some(state) => StateFile::parse(state).map_err(|error| Error::State(error.to_string()))?.outputs,
        None => BTreeMap::new(),
    };
    outputs.retain(|name, _| selected(wanted, name));
    if let Some(wanted) = wanted {
        write(context, stack, namespace, &wanted.secret_name, &outputs).await?;
    }
    let public = outputs.into_iter().filter(|(_, output)| !output.sensitive);
    status.outputs = public.map(|(name, output)| (name, output.value)).collect();
    let digest = state.as_ref().map(Digest::of);
    status.outputs_digest = Some(outputs_digest(digest.as_ref().map(Digest::as_str), &stack.spec));
    Ok(())
}

/// Writes the Secret: each output as plain text under its own name, and all with their types as JSON.
async fn write(
    context: &Context,
    stack: &Stack,
    namespace: &str,
    name: &str,
    outputs: &BTreeMap<String, Output>,
) -> Result<(), Error> {
    let api = context.api::<Secret>(namespace);
    let there = api.get_metadata_opt(name).await.map_err(Error::api("cannot read the Secret of a Stack's outputs"))?;
    if there.is_some_and(|found| !is_owned(&found, stack)) {
        let message = format!(
            "The Secret `{name}` for the outputs belongs to somebody else and is left alone. Write another spec.outputs.secretName."
        );
        let event = Event { warning: true, reason: reason::OBJECT_CONFLICT.to_owned(), message };
        context.events.tell(event, stack.object_ref(&()));
        return Ok(());
    }
    let typed: BTreeMap<&str, &Value> = outputs.iter().map(|(name, output)| (name.as_str(), &output.value)).collect();
    let mut data: BTreeMap<String, ByteString> = outputs
        .iter()
        .map(|(name, output)| {
            let text = output.value.as_str().map_or_else(|| output.value.to_string(), str::to_owned);
            (name.clone(), ByteString(text.into_bytes()))
        })
        .collect();
    data.insert(names::OUTPUTS_KEY.to_owned(), ByteString(serde_json::to_vec(&typed)?));
    let mut labels = owner_labels(stack);
    labels.insert(label::CONTENT.to_owned(), content::OUTPUTS.to_owned());
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            annotations: Some(owner_annotations(stack)),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..Secret::default()
    };
    let params = PatchParams { force: true, ..PatchParams::apply(field_manager::OPERATOR) };
    api.patch(name, &params, &Patch::Apply(&secret))
        .await
        .map(drop)
        .map_err(Error::api("cannot write the Secret of a Stack's outputs"))
}
