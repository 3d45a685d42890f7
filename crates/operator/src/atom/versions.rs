//! The controller of AtomVersions: whether a template can be read, what it was when it was first seen, and how many
//! are kept.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{
    Atom, AtomVersion,
    atom::AtomPhase,
    names::{condition, field_manager, label, reason},
};
use knoll_core::{
    atom::{needs::template_digest, template},
    conditions::Pen,
    status::Cause,
};
use knoll_storage::{Lookup, Store};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    runtime::controller::Action,
};
use serde_json::json;

use super::wanted::{sentence, text};
use crate::{
    context::Context,
    controller::{Error, Published, code},
};

/// Reads the template of a version.
pub async fn reconcile(version: Arc<AtomVersion>, context: Arc<Context>) -> Result<Action, Error> {
    if context.atom_versions.is_stale(&version) || version.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let namespace = version.namespace().unwrap_or_default();
    let store = Store::new(context.client.clone());
    let text = text(&mut Lookup::new(&context.client, &store, &namespace), &version).await?;
    let mut status = version.status.clone().unwrap_or_default();
    let read = text.and_then(|text| {
        let objects = template::parse(&text)
            .map_err(|error| Cause::new(reason::TEMPLATE_INVALID, sentence(&error.to_string())))?;
        Ok((template_digest(&text), objects.len()))
    });
    let (ready, cause) = match &read {
        Ok((digest, _)) if status.digest.as_ref().is_some_and(|first| first != digest) => {
            let message = "The template has changed since it was first seen. Create another AtomVersion.";
            (false, Cause::new(reason::TEMPLATE_INVALID, message))
        }
        Ok((digest, objects)) => {
            status.digest = Some(digest.clone());
            (true, Cause::new(reason::SUCCEEDED, format!("It has {objects} objects.")))
        }
        Err(cause) => (false, cause.clone()),
    };
    let generation = version.metadata.generation;
    status.observed_generation = generation;
    Pen::new(&mut status.conditions, generation, context.now())
        .set(condition::READY, ready, &cause.reason, cause.message.clone())
        .set(condition::RECONCILING, false, &cause.reason, "")
        .set(condition::STALLED, !ready, &cause.reason, if ready { "" } else { cause.message.as_str() });
    let api = context.api::<AtomVersion>(&namespace);
    match context.atom_versions.publish(&api, &version, version.status.as_ref(), &status).await? {
        Published::Overtaken => Ok(Action::requeue(super::BEHIND)),
        Published::Written | Published::Unchanged => Ok(Action::await_change()),
    }
}

/// Notes on the version that runs that it is good, and deletes those of the Atom that are too old.
pub(super) async fn keep(context: &Context, atom: &Atom) -> Result<(), Error> {
    let (namespace, name) = (atom.namespace().unwrap_or_default(), atom.name_any());
    let status = atom.status.clone().unwrap_or_default();
    let api = context.api::<AtomVersion>(&namespace);
    if let (AtomPhase::Running, Some(good)) = (status.phase, &status.last_good_version) {
        let patch = json!({"status": {"provenAt": MicroTime(context.now())}});
        let params = PatchParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PatchParams::default() };
        match api.patch_status(good, &params, &Patch::Merge(patch)).await {
            Ok(_) => {}
            Err(error) if code(&error) == Some(404) => {}
            Err(error) => return Err(Error::api("cannot note that an AtomVersion is good")(error)),
        }
    }
    let used = [Some(&atom.spec.version), status.current_version.as_ref(), status.last_good_version.as_ref()];
    let mut old = context.caches.atom_versions.state_filter(|version| {
        version.namespace().as_ref() == Some(&namespace)
            && version.labels().get(label::ATOM) == Some(&name)
            && !used.contains(&version.metadata.name.as_ref())
    });
    old.sort_by_key(|version| {
        let created = version.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(created), std::cmp::Reverse(version.name_any()))
    });
    let limit = usize::try_from(atom.spec.history_limit).unwrap_or(usize::MAX);
    for version in old.into_iter().skip(limit) {
        match api.delete(&version.name_any(), &DeleteParams::default()).await {
            Ok(_) => {}
            Err(error) if code(&error) == Some(404) => {}
            Err(error) => return Err(Error::api("cannot delete an old AtomVersion")(error)),
        }
    }
    Ok(())
}
