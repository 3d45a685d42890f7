//! The outputs of a Stack: those that are not sensitive go to its status, and all of them to the Secret that the spec
//! names.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use knoll_api::{
    Digest, Stack,
    names::{self, content, field_manager, label, reason},
};
use knoll_core::{
    events::Event,
    identity::Subject,
    outputs::{SHOWN_BYTES, shown},
    stack::{StackOutcome, is_owned, owner_annotations, owner_labels, selected},
};
use knoll_storage::{Output, StateFile};
use kube::{
    Resource,
    api::{Patch, PatchParams},
};
use serde_json::Value;

use crate::{context::Context, controller::Error};

/// Reads the outputs from the state, and writes the Secret.
pub(super) async fn read(context: &Context, stack: &Subject<Stack>) -> Result<StackOutcome, Error> {
    let state = context.storage.states().read(stack.namespace(), stack.name()).await;
    let state = match state {
        Ok(state) => state,
        Err(knoll_storage::Error::Api(error)) => {
            return Err(Error::api("cannot read the outputs of a Stack")(error));
        }
        Err(error) => return Err(Error::State(error.to_string())),
    };
    let spec = stack.spec.outputs.as_ref();
    let mut outputs: BTreeMap<String, Output> = match &state {
        Some(state) => StateFile::parse(state).map_err(|error| Error::State(error.to_string()))?.outputs,
        None => BTreeMap::new(),
    };
    outputs.retain(|name, _| selected(spec, name));
    if let Some(spec) = spec {
        write(context, stack, &spec.secret_name, &outputs).await?;
    }
    let public = outputs.into_iter().filter(|(_, output)| !output.sensitive);
    let public = public.map(|(name, output)| (name, output.value)).collect();
    Ok(StackOutcome::OutputsRead {
        state: state.as_ref().map(|state| Digest::of(state).into()),
        outputs: shown(&public, SHOWN_BYTES),
    })
}

/// Writes the Secret: each output as plain text under its own name, and all with their types as JSON.
async fn write(
    context: &Context,
    stack: &Subject<Stack>,
    name: &str,
    outputs: &BTreeMap<String, Output>,
) -> Result<(), Error> {
    let api = context.api::<Secret>(stack.namespace());
    let there = api.get_metadata_opt(name).await.map_err(Error::api("cannot read the Secret of a Stack's outputs"))?;
    if there.is_some_and(|found| !is_owned(&found, stack)) {
        let message = format!(
            "The Secret `{name}` was not created by this Stack, so the outputs are not written to it. Choose another spec.outputs.secretName."
        );
        let event = Event { warning: true, reason: reason::OBJECT_CONFLICT.to_owned(), message };
        context.events.record(event, stack.object_ref(&()));
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
