//! Deletes bundles that nothing refers to.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::names::{annotation, content, label};
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Preconditions};
use kube::{Api, Client, ResourceExt};

/// How long a bundle is kept that nothing refers to: time enough to create the Run that does.
pub const UNUSED_FOR: Duration = Duration::from_secs(3600);

/// Deletes every bundle that is not in `used` (by namespace and digest) and was not touched for a while. Returns how many
/// ConfigMaps went.
///
/// `used` is asked after the bundles are listed, so that an object that was created before the list counts. A bundle that
/// is used again in between has another resourceVersion by then, and stays.
///
/// # Errors
/// When the API fails.
pub async fn sweep(
    client: &Client,
    namespace: Option<&str>,
    used: impl AsyncFnOnce() -> Result<HashSet<(String, String)>, kube::Error>,
    now: Timestamp,
) -> Result<usize, kube::Error> {
    let all: Api<ConfigMap> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let params = ListParams::default().labels(&format!("{}={}", label::CONTENT, content::BUNDLE));
    let mut found: Vec<PartialObjectMeta<ConfigMap>> = all.list_metadata(&params).await?.items;
    found.retain(|map| is_old(map, now));
    if found.is_empty() {
        return Ok(0);
    }
    let used = used().await?;
    // Heads have the shorter names: without its head, what is left of a bundle is found by nobody.
    found.sort_by_key(|map| map.name_any().len());
    let mut gone = 0;
    for map in found {
        let namespace = map.namespace().unwrap_or_default();
        let digest = map.annotations().get(annotation::DIGEST).cloned().unwrap_or_default();
        if used.contains(&(namespace.clone(), digest)) {
            continue;
        }
        let preconditions = Preconditions { uid: map.uid(), resource_version: map.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        match api.delete(&map.name_any(), &params).await {
            Ok(_) => gone += 1,
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(gone)
}

/// Whether nobody has created or used it lately.
fn is_old(map: &PartialObjectMeta<ConfigMap>, now: Timestamp) -> bool {
    let created = map.creation_timestamp().map(|time| time.0);
    let used = map.annotations().get(annotation::USED_AT).and_then(|time| time.parse().ok());
    let patience = SignedDuration::try_from(UNUSED_FOR).unwrap_or(SignedDuration::MAX);
    created.max(used).is_none_or(|last| now.duration_since(last) >= patience)
}
