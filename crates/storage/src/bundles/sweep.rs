//! Deletes bundles that nothing refers to.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::Digest;
use knoll_api::names::{annotation, content, label};
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt};

use super::Bundles;
use crate::blob::delete_unchanged;
use crate::sweep::{Swept, is_unused};

impl Bundles {
    /// Deletes every bundle that is not in `referenced` (by namespace and digest) and was not used for a while. Counts
    /// ConfigMaps.
    ///
    /// `referenced` is asked after the bundles are listed, so that an object that was created before the list counts. A
    /// bundle that is used again in between has another resourceVersion by then, and stays.
    ///
    /// # Errors
    /// When the API does not list the bundles or what refers to them.
    pub async fn sweep(
        &self,
        namespace: Option<&str>,
        referenced: impl AsyncFnOnce() -> Result<HashSet<(String, Digest)>, kube::Error>,
        now: Timestamp,
    ) -> Result<Swept, kube::Error> {
        let client = self.storage.client();
        let all: Api<ConfigMap> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let params = ListParams::default().labels(&format!("{}={}", label::CONTENT, content::BUNDLE));
        let mut found: Vec<PartialObjectMeta<ConfigMap>> = all.list_metadata(&params).await?.items;
        found.retain(|map| is_unused(&map.metadata, now));
        if found.is_empty() {
            return Ok(Swept::default());
        }
        let referenced = referenced().await?;
        // Heads have the shorter names, and go first: no reader finds the rest of a bundle without its head.
        found.sort_by_key(|map| map.name_any().len());
        let mut swept = Swept::default();
        for map in found {
            let Some(namespace) = map.namespace() else { continue };
            let digest = map.annotations().get(annotation::DIGEST).and_then(|text| text.parse::<Digest>().ok());
            if digest.is_some_and(|digest| referenced.contains(&(namespace.clone(), digest))) {
                continue;
            }
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
            let deleted = delete_unchanged(&api, &map).await.map(usize::from);
            swept.count(&namespace, &map.name_any(), deleted.map_err(Into::into));
        }
        Ok(swept)
    }
}
