//! Deletes what crashes leave behind: parts of states that no head names, and bundles that nothing refers to.
//!
//! *Guarantee.* An object that is deleted was unused when it was listed, was not referred to afterwards, and was not touched
//! in between: a writer that uses such an object again marks it first, which changes its resourceVersion.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::names::{self, annotation, content, label};
use knoll_api::{Digest, Run, Stack, Workspace};
use kube::api::{ApiResource, DynamicObject, ListParams, PartialObjectMeta};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::Value;

use crate::Storage;
use crate::blob::delete_unchanged;
use crate::error::Error;
use crate::states::{Head, Index, hold};

/// How long an object that nothing refers to is kept: time enough to write the object that refers to it.
pub const UNUSED_FOR: Duration = Duration::from_secs(3600);

/// Sweeps the bundles and the states of all namespaces.
///
/// # Errors
/// When the API does not list what there is.
pub async fn sweep(storage: &Storage, now: Timestamp) -> Result<Swept, kube::Error> {
    let client = storage.client();
    let Swept { deleted, skipped, bad_heads } =
        storage.bundles().sweep(None, async || references(client).await, now).await?;
    let mut swept = sweep_state_parts(storage, now).await?;
    swept.deleted += deleted;
    swept.skipped.extend(skipped);
    swept.bad_heads.extend(bad_heads);
    Ok(swept)
}

/// The result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many objects were deleted.
    pub deleted: usize,
    /// What could not be swept, by `namespace/name`, and why. It does not keep the sweep from what follows: everything in
    /// a namespace is written by its users.
    pub skipped: Vec<(String, String)>,
    /// The heads of states that cannot be read. Their parts stay.
    pub bad_heads: Vec<BadHead>,
}

/// A Secret that has the name of a state's head and is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadHead {
    pub namespace: String,
    pub workspace: String,
    /// The UID of the Secret.
    pub uid: Option<String>,
    pub why: String,
}

impl Swept {
    pub(crate) fn count(&mut self, namespace: &str, name: &str, deleted: Result<usize, Error>) {
        match deleted {
            Ok(deleted) => self.deleted += deleted,
            Err(error) => self.skipped.push((format!("{namespace}/{name}"), error.to_string())),
        }
    }
}

/// Every digest that a Run, a Workspace or a Stack has anywhere in it, by namespace.
async fn references(client: &Client) -> Result<HashSet<(String, Digest)>, kube::Error> {
    let mut found = HashSet::new();
    digests::<Run>(client, &mut found).await?;
    digests::<Workspace>(client, &mut found).await?;
    digests::<Stack>(client, &mut found).await?;
    Ok(found)
}

async fn digests<K>(client: &Client, found: &mut HashSet<(String, Digest)>) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()>,
{
    // An object that the kind cannot decode still refers to what it names.
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    for object in api.list(&ListParams::default()).await? {
        // All of these kinds are namespaced.
        let Some(namespace) = object.namespace() else { continue };
        let mut values = vec![serde_json::to_value(&object).unwrap_or_default()];
        while let Some(value) = values.pop() {
            match value {
                Value::String(text) => found.extend(text.parse().ok().map(|digest| (namespace.clone(), digest))),
                Value::Array(items) => values.extend(items),
                Value::Object(fields) => values.extend(fields.into_iter().map(|(_, value)| value)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Deletes parts of states that no head names. A head that cannot be read is skipped: its parts stay.
///
/// # Errors
/// When the API does not list the parts.
pub async fn sweep_state_parts(storage: &Storage, now: Timestamp) -> Result<Swept, kube::Error> {
    let client = storage.client();
    let selector = format!("{}={}", label::CONTENT, content::STATE_PART);
    let parts = Api::<Secret>::all(client.clone()).list_metadata(&ListParams::default().labels(&selector)).await?;
    let mut by_workspace: BTreeMap<(String, String), Vec<PartialObjectMeta<Secret>>> = BTreeMap::new();
    for part in parts.items.into_iter().filter(|part| is_unused(&part.metadata, now)) {
        let workspace = part.labels().get(label::WORKSPACE).cloned().unwrap_or_default();
        let Some(namespace) = part.namespace() else { continue };
        by_workspace.entry((namespace, workspace)).or_default().push(part);
    }
    let mut swept = Swept::default();
    for ((namespace, workspace), parts) in by_workspace {
        let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
        let name = names::state_secret(&workspace);
        let head = match api.get_opt(&name).await {
            Ok(head) => head,
            Err(error) => {
                swept.count(&namespace, &name, Err(error.into()));
                continue;
            }
        };
        let index = head.as_ref().map(|head| Head::read(Some(head)).map(|head| head.index)).transpose();
        match index {
            Ok(index) => swept.count(&namespace, &name, sweep_parts_of(&api, index.as_ref(), &parts, now).await),
            Err(error) => swept.bad_heads.push(BadHead {
                namespace,
                workspace,
                uid: head.and_then(|head| head.metadata.uid),
                why: Error::from(error).to_string(),
            }),
        }
    }
    Ok(swept)
}

async fn sweep_parts_of(
    api: &Api<Secret>,
    head: Option<&Index>,
    parts: &[PartialObjectMeta<Secret>],
    now: Timestamp,
) -> Result<usize, Error> {
    let mut deleted = 0;
    for part in parts.iter().filter(|part| is_left_behind(&part.metadata, head, now)) {
        let was_deleted = delete_unchanged(api, part).await?;
        if was_deleted {
            hold::release(api, &part.name_any()).await?;
        }
        deleted += usize::from(was_deleted);
    }
    Ok(deleted)
}

/// Whether a part of a state can be deleted: it is unused, and the head of its state does not name it. Without a head
/// nothing is deleted, as somebody may want to restore the head.
fn is_left_behind(part: &ObjectMeta, head: Option<&Index>, now: Timestamp) -> bool {
    let named = |index: &Index| part.name.as_deref().is_none_or(|name| index.parts().contains(name));
    head.is_some_and(|index| !named(index)) && is_unused(part, now)
}

/// Whether an object was neither created nor marked as used within [`UNUSED_FOR`].
pub(crate) fn is_unused(object: &ObjectMeta, now: Timestamp) -> bool {
    let created = object.creation_timestamp.as_ref().map(|time| time.0);
    let used = object.annotations.as_ref().and_then(|notes| notes.get(annotation::USED_AT)?.parse().ok());
    let patience = SignedDuration::try_from(UNUSED_FOR).unwrap_or(SignedDuration::MAX);
    created.max(used).is_none_or(|last| now.duration_since(last) >= patience)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::states::Version;

    fn part(name: &str, created: i64, used: Option<i64>) -> ObjectMeta {
        let second = |at: i64| Timestamp::from_second(at).unwrap();
        ObjectMeta {
            name: Some(name.to_owned()),
            creation_timestamp: Some(Time(second(created))),
            annotations: used.map(|used| [(annotation::USED_AT.to_owned(), second(used).to_string())].into()),
            ..ObjectMeta::default()
        }
    }

    fn version(parts: &[&str]) -> Version {
        let parts: Vec<&str> = parts.to_vec();
        serde_json::from_value(serde_json::json!({"serial": 1, "lineage": "l", "digest": Digest::of("x"),
            "resources": 0, "updatedAt": "", "run": "r", "parts": parts}))
        .unwrap()
    }

    #[test]
    fn a_part_is_left_behind_when_it_is_old_and_a_head_does_not_name_it() {
        let head = Index { current: Some(version(&["current"])), history: vec![version(&["old-0", "old-1"])] };
        let inline = Index { current: Some(version(&[])), history: Vec::new() };
        let now = 10_000;
        // The part (name, created, marked as used), the head of its state, whether it can be deleted.
        let rows = [
            (part("loose", 0, None), Some(&head), true),
            (part("loose", 0, None), Some(&inline), true),
            (part("loose", now - 3600, None), Some(&head), true),
            (part("loose", now - 3599, None), Some(&head), false),
            (part("loose", 0, Some(now - 3600)), Some(&head), true),
            (part("loose", 0, Some(now - 3599)), Some(&head), false),
            (part("loose", now - 1, Some(0)), Some(&head), false),
            (part("current", 0, None), Some(&head), false),
            (part("old-0", 0, None), Some(&head), false),
            (part("old-1", 0, Some(0)), Some(&head), false),
            (part("old-1", 0, Some(0)), Some(&inline), true),
            (part("loose", 0, None), None, false),
            (ObjectMeta { name: None, ..part("", 0, None) }, Some(&head), false),
            // A clock that was set back makes nothing old.
            (part("loose", now + 9000, None), Some(&head), false),
            // Nonsense in the annotation counts as no mark.
            (
                ObjectMeta {
                    annotations: Some([(annotation::USED_AT.to_owned(), "soon".to_owned())].into()),
                    ..part("loose", 0, None)
                },
                Some(&head),
                true,
            ),
        ];
        for (part, head, expect) in rows {
            let decided = is_left_behind(&part, head, Timestamp::from_second(now).unwrap());
            assert_eq!(decided, expect, "{part:?} {head:?}");
        }
    }
}
