//! The history of an Atom: it marks the version that runs as proven and one that was rolled back as reverted, and deletes
//! versions beyond the history limit.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{Atom, AtomVersion, names::label};
use knoll_core::{atom::history, identity::Subject};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, Preconditions},
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

/// Deletes the versions of an Atom that is deleted: those that carry its label, unless another Atom names them.
pub(super) async fn delete_all(context: &Context, atom: &Subject<Atom>) -> Result<(), Error> {
    let api = context.api::<AtomVersion>(atom.namespace());
    let mine = ListParams::default().labels(&format!("{}={}", label::ATOM, atom.name()));
    let versions = api.list_metadata(&mine).await.map_err(Error::api("cannot list the AtomVersions of an Atom"))?;
    let atoms = context.api::<Atom>(atom.namespace()).list(&ListParams::default()).await;
    let atoms = atoms.map_err(Error::api("cannot list the Atoms beside one that is deleted"))?;
    for version in versions.items {
        if history::is_used_by_others(atom, &version.name_any(), &atoms.items) {
            continue;
        }
        let preconditions = Preconditions { uid: version.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let deleted = api.delete(&version.name_any(), &params).await;
        unless_gone(deleted).map_err(Error::api("cannot delete an AtomVersion of an Atom that is deleted"))?;
    }
    Ok(())
}

/// Marks the version that was rolled back, once a rollback.
pub(super) async fn mark_reverted(context: &Context, atom: &Subject<Atom>) -> Result<(), Error> {
    let Some((name, since)) = history::reverted(atom) else { return Ok(()) };
    let version = context.caches.atom_versions.named(atom.namespace(), name);
    let marked = version.as_ref().and_then(|version| version.status.as_ref()?.reverted_at.as_ref());
    if version.is_none() || marked == Some(since) {
        return Ok(());
    }
    let patch = json!({"status": {"revertedAt": since}});
    let api = context.api::<AtomVersion>(atom.namespace());
    let patched = api.patch_status(name, &patch_params(), &Patch::Merge(patch)).await;
    unless_gone(patched).map_err(Error::api("cannot mark an AtomVersion as reverted"))
}

/// The result of a request. It is no error when the object is gone, or another one has its name.
fn unless_gone<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if !matches!(code(&error), Some(404 | 409)) => Err(error),
        _ => Ok(()),
    }
}
