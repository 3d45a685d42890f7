//! Copies the objects that belong to states: Workspaces and Stacks with the files of their modules, Policies, and the
//! labels of namespaces, by which Policies select.

use std::collections::BTreeMap;

use knoll_api::names::label;
use knoll_api::{Digest, Policy, Stack, Workspace};
use knoll_backup::kinds::{NAMESPACE, POLICY, STACK, WORKSPACE};
use knoll_backup::{ArchiveError, ObjectAddress, StoredObject};
use knoll_core::backup::CopyOutcome;
use kube::{Resource, ResourceExt, runtime::reflector::ObjectRef};
use serde::Serialize;
use serde_json::{Value, json};

use super::Backups;
use crate::context::Context;

/// The prefix of labels and annotations that Knoll itself writes.
const OWN: &str = "knoll.dev/";
/// What `kubectl apply` remembers. It repeats the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The kind of an object that is copied.
pub fn kind<K: Resource<DynamicType = ()>>() -> Option<&'static str> {
    match K::kind(&()).as_ref() {
        "Workspace" => Some(WORKSPACE),
        "Stack" => Some(STACK),
        "Policy" => Some(POLICY),
        "Namespace" => Some(NAMESPACE),
        _ => None,
    }
}

/// Copies an object as the cache has it; one that is gone is marked.
pub async fn copy(
    context: &Context,
    backups: &Backups,
    kind: &'static str,
    namespace: Option<&str>,
    name: &str,
) -> CopyOutcome {
    let address =
        ObjectAddress { kind: kind.to_owned(), namespace: namespace.map(str::to_owned), name: name.to_owned() };
    match try_copy(context, backups, &address).await {
        Ok(()) => CopyOutcome::Object,
        Err(error @ ArchiveError::Target { .. }) => CopyOutcome::Unreachable(error.to_string()),
        Err(error) => CopyOutcome::Failed(error.to_string()),
    }
}

async fn try_copy(context: &Context, backups: &Backups, address: &ObjectAddress) -> Result<(), ArchiveError> {
    let Some(object) = current(context, address) else {
        backups.archive.mark_deleted(address).await?;
        backups.objects().remove(address);
        return Ok(());
    };
    let digest = Digest::of(serde_json::to_vec(&object).unwrap_or_default());
    if backups.objects().get(address) == Some(&digest) {
        return Ok(());
    }
    if let Some(namespace) = &address.namespace {
        copy_bundles(context, backups, namespace, &object).await?;
    }
    backups.archive.put_object(address, &object).await?;
    backups.objects().insert(address.clone(), digest);
    Ok(())
}

fn current(context: &Context, address: &ObjectAddress) -> Option<StoredObject> {
    let ObjectAddress { kind, namespace, name } = address;
    let namespace = namespace.as_deref().unwrap_or_default();
    match kind.as_str() {
        WORKSPACE => {
            let workspace = context.caches.workspaces.named(namespace, name)?;
            let bundle = workspace.status.as_ref().and_then(|status| status.bundle.clone());
            let status = bundle.map(|bundle| json!({ "bundle": bundle })).unwrap_or_default();
            Some(StoredObject { status, ..stored::<Workspace>(&workspace) })
        }
        STACK => context.caches.stacks.named(namespace, name).map(|stack| stored::<Stack>(&stack)),
        POLICY => context.caches.policies.get(&ObjectRef::new(name)).map(|policy| stored::<Policy>(&policy)),
        NAMESPACE => {
            let namespace = context.caches.namespaces.get(&ObjectRef::new(name))?;
            let metadata = json!({"name": name, "labels": kept(namespace.labels())});
            let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            Some(StoredObject { manifest, status: Value::Null })
        }
        _ => None,
    }
}

/// The object as a client applies it.
fn stored<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> StoredObject {
    let all = serde_json::to_value(object).unwrap_or_default();
    let mut metadata = json!({"name": object.name_any(), "labels": kept(object.labels()),
        "annotations": kept(object.annotations())});
    if let Some(namespace) = object.namespace() {
        metadata["namespace"] = namespace.into();
    }
    let (version, kind) = (K::api_version(&()), K::kind(&()));
    let manifest = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": all["spec"]});
    StoredObject { manifest, status: Value::Null }
}

/// The labels or annotations that users wrote, and the label by which a Stack takes its Workspace over.
fn kept(all: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let is_own = |key: &str| key.starts_with(OWN) && key != label::STACK;
    let kept = all.iter().filter(|(key, _)| !is_own(key) && *key != LAST_APPLIED);
    kept.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// Copies the bundles that an object names and its namespace has.
async fn copy_bundles(
    context: &Context,
    backups: &Backups,
    namespace: &str,
    object: &StoredObject,
) -> Result<(), ArchiveError> {
    for digest in bundles_of(object) {
        if backups.archive.has_bundle(&digest).await? {
            continue;
        }
        // A bundle that is gone, or is damaged, has nothing to copy.
        if let Ok(bytes) = context.storage.bundles().fetch(namespace, &digest).await {
            backups.archive.put_bundle(&digest, bytes).await?;
        }
    }
    Ok(())
}

/// The bundles in the fields that name one. A text elsewhere is a user's: each one that looks like a digest would cost
/// requests.
fn bundles_of(object: &StoredObject) -> Vec<Digest> {
    let named = [object.manifest.pointer("/spec/source/bundle/digest"), object.status.pointer("/bundle")];
    named.into_iter().flatten().filter_map(|digest| digest.as_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An editor's list of digests kept the copies of all states waiting.
    #[test]
    fn every_text_that_looked_like_a_digest_cost_two_requests() {
        let digest = |number: u32| Digest::of(number.to_be_bytes()).to_string();
        let many: Vec<String> = (0..15_000).map(digest).collect();
        let spec = json!({"variables": {"many": many}, "source": {"bundle": {"digest": digest(1)}}});
        let manifest = json!({"metadata": {"labels": {"a": digest(2)}}, "spec": spec});
        let object = StoredObject { manifest, status: json!({"bundle": digest(3)}) };
        let found: Vec<String> = bundles_of(&object).iter().map(ToString::to_string).collect();
        assert_eq!(found, [digest(1), digest(3)]);
        assert!(bundles_of(&StoredObject { manifest: json!({"spec": "x"}), status: Value::Null }).is_empty());
    }
}
