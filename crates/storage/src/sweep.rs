//! Takes away what crashes leave behind: parts of states that no head names, and bundles that nothing refers to.
//!
//! *Guarantee.* What is deleted was old when it was listed, was not referred to afterwards, and has not been touched in
//! between: whoever uses such a thing again marks it first, which changes its resourceVersion.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use knoll_api::names::{self, annotation, content, label};
use knoll_api::{Run, Stack, Workspace};
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::states::Head;

/// How often.
const EVERY: Duration = Duration::from_secs(3600);
/// How old a part is before it counts as left behind.
const OLD: Duration = Duration::from_secs(3600);

/// Sweeps from time to time, until `shutdown`.
pub async fn sweep_until(client: Client, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = shutdown.cancelled() => return,
        }
        let now = Timestamp::now();
        let bundles = crate::bundles::sweep(&client, None, async || references(&client).await, now).await;
        match (bundles, state_parts(&client, now).await) {
            (Ok(0), Ok(0)) => {}
            (Ok(bundles), Ok(parts)) => tracing::info!(bundles, parts, "swept what nothing refers to"),
            (Err(error), _) => tracing::warn!(%error, "bundles cannot be swept; this is tried again later"),
            (_, Err(error)) => tracing::warn!(%error, "states cannot be swept; this is tried again later"),
        }
    }
}

/// Every digest that an object of ours names, by namespace.
async fn references(client: &Client) -> Result<HashSet<(String, String)>, kube::Error> {
    let mut found = HashSet::new();
    digests::<Run>(client, &mut found).await?;
    digests::<Workspace>(client, &mut found).await?;
    digests::<Stack>(client, &mut found).await?;
    Ok(found)
}

async fn digests<K>(client: &Client, found: &mut HashSet<(String, String)>) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let objects = Api::<K>::all(client.clone()).list(&ListParams::default()).await?;
    for object in objects {
        let namespace = object.namespace().unwrap_or_default();
        let mut values = vec![serde_json::to_value(&object).unwrap_or_default()];
        while let Some(value) = values.pop() {
            match value {
                Value::String(text) if text.starts_with("sha256:") => {
                    found.insert((namespace.clone(), text));
                }
                Value::Array(items) => values.extend(items),
                Value::Object(fields) => values.extend(fields.into_iter().map(|(_, value)| value)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Deletes parts of states that were never, or are no longer, named by a head. Without a head nothing is deleted: somebody
/// may want to restore it.
pub(crate) async fn state_parts(client: &Client, now: Timestamp) -> Result<usize, Error> {
    let selector = format!("{}={}", label::CONTENT, content::STATE_PART);
    let parts = Api::<Secret>::all(client.clone()).list_metadata(&ListParams::default().labels(&selector)).await?;
    let mut by_workspace: BTreeMap<(String, String), Vec<PartialObjectMeta<Secret>>> = BTreeMap::new();
    for part in parts.items.into_iter().filter(|part| is_old(part, now)) {
        let workspace = part.labels().get(label::WORKSPACE).cloned().unwrap_or_default();
        by_workspace.entry((part.namespace().unwrap_or_default(), workspace)).or_default().push(part);
    }
    let mut gone = 0;
    for ((namespace, workspace), parts) in by_workspace {
        let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
        let Some(head) = api.get_opt(&names::state_secret(&workspace)).await? else { continue };
        let index = Head::read(Some(&head))?.index;
        let named: HashSet<&String> =
            index.current.iter().chain(&index.history).flat_map(|version| &version.parts).collect();
        for part in parts.iter().filter(|part| !named.contains(&part.name_any())) {
            let preconditions = Preconditions { uid: part.uid(), resource_version: part.resource_version() };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
            match api.delete(&part.name_any(), &params).await {
                Ok(_) => gone += 1,
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(gone)
}

fn is_old(part: &PartialObjectMeta<Secret>, now: Timestamp) -> bool {
    let created = part.creation_timestamp().map(|time| time.0);
    let used = part.annotations().get(annotation::USED_AT).and_then(|time| time.parse().ok());
    created.max(used).is_none_or(|last| last + OLD <= now)
}
