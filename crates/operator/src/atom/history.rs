//! The history of an Atom: it marks the version that runs as proven, and deletes versions beyond the history limit.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{Atom, AtomVersion};
use knoll_core::{atom::history, identity::Subject};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, Preconditions},
};
use serde_json::json;

use crate::{
    context::Context,
    controller::{Error, code, patch_params},
    index::Target,
};

pub(super) async fn prune(context: &Context, atom: &Subject<Atom>) -> Result<(), Error> {
    let api = context.api::<AtomVersion>(atom.namespace());
    if let Some(proven) = history::proven(atom) {
        let patch = json!({"status": {"provenAt": MicroTime(context.now())}});
        let patched = api.patch_status(proven, &patch_params(), &Patch::Merge(patch)).await;
        unless_gone(patched).map_err(Error::api("cannot mark an AtomVersion as proven"))?;
    }
    let versions = context.caches.atom_versions.referring_to(Target::Atom, atom.namespace(), atom.name());
    for version in history::expired(atom, versions.iter().map(AsRef::as_ref)) {
        let preconditions = Preconditions { uid: version.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let deleted = api.delete(&version.name_any(), &params).await;
        unless_gone(deleted).map_err(Error::api("cannot delete an old AtomVersion"))?;
    }
    Ok(())
}

/// The result of a request. It is no error when the object is gone, or another one has its name.
fn unless_gone<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if !matches!(code(&error), Some(404 | 409)) => Err(error),
        _ => Ok(()),
    }
}
