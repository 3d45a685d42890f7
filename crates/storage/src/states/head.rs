//! How the state of a Workspace lies in Secrets, and which writes bring a new version there.
//!
//! The head Secret holds the current version: its packed content when that fits, else the names of the Secrets that hold its
//! parts; and the list of the earlier versions that are kept, one a run. Writes are a list of values, made by a pure
//! function: first what the new head needs, then the head, last what nobody needs any more. Cut off anywhere, that list
//! leaves the old version or the new one, and making the same write again completes it.
//!
//! The head also names its writer. A pod claims it before it reads the state, and each write is made on condition that
//! the head is still the one that was read, so no write of an earlier writer can follow on a claim.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use knoll_api::names::{self, annotation, content, label, secret_type};
use knoll_api::workspace::{Workspace, WorkspaceDeletionPolicy};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::file::StateFile;
use crate::chunks::{self, Packed};

/// The key of packed content in a Secret.
pub const CONTENT: &str = "content";
/// The key of the [`Index`] in a head.
const INDEX: &str = "index";
/// The key of the dependency lock file in a head.
const LOCK: &str = "lock";
/// All annotations of an object together have at most 256 KiB.
const PUBLIC_OUTPUTS: usize = 128 * 1024;

/// One version of a state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Terraform's count of its writes.
    pub serial: u64,
    /// Terraform's name for the state's history.
    pub lineage: String,
    /// `sha256:` and the hash of its bytes.
    pub digest: String,
    /// How many resource instances it holds.
    pub resources: u32,
    /// When it was written (RFC 3339).
    pub updated_at: String,
    /// The Run that wrote it.
    pub run: String,
    /// The Secrets that hold its parts, in order; none when the head itself holds the content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
}

/// What a head knows beside its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// The current version; none when only a lock file was handed in yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Version>,
    /// Earlier versions, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Version>,
}

/// A head, read from its Secret.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// Of the Secret that was read; none when there is none yet.
    pub resource_version: Option<String>,
    /// What is stored where.
    pub index: Index,
    /// The packed content of the current version, when it has no parts.
    pub inline: Option<Vec<u8>>,
    /// The dependency lock file.
    pub lock: Option<Vec<u8>>,
    /// Who claimed it last, in the words of [`claim`].
    pub writer: Option<String>,
}

/// Whose state it is.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The Workspace's name.
    pub workspace: String,
    /// Set when the state has to go with the Workspace.
    pub reference: Option<OwnerReference>,
    /// How many versions are kept, the current one included.
    pub keep: usize,
}

/// One request to the API.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Creates a Secret that never changes. One that exists already has the same content, by its name.
    Create(Box<Secret>),
    /// Creates the head, or replaces the one of the resourceVersion in it.
    Head(Box<Secret>),
    /// Deletes a Secret that no head names any more.
    Delete(String),
}

/// A head that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("the Secret `{name}` is no state of Knoll's: {source}; restore it, or move it away to start anew")]
pub struct HeadError {
    name: String,
    source: serde_json::Error,
}

impl Head {
    /// Reads a head; `None` for a Secret that does not exist.
    ///
    /// # Errors
    /// When the Secret is something else.
    pub fn read(secret: Option<&Secret>) -> Result<Self, HeadError> {
        let Some(secret) = secret else {
            return Ok(Head::default());
        };
        let value = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.clone());
        let index = match value(INDEX) {
            None => Index::default(),
            Some(index) => serde_json::from_slice(&index)
                .map_err(|source| HeadError { name: secret.metadata.name.clone().unwrap_or_default(), source })?,
        };
        Ok(Head {
            resource_version: secret.metadata.resource_version.clone(),
            index,
            inline: value(CONTENT),
            lock: value(LOCK),
            writer: secret.metadata.annotations.as_ref().and_then(|notes| notes.get(annotation::WRITER).cloned()),
        })
    }
}

impl From<&Workspace> for Owner {
    fn from(workspace: &Workspace) -> Self {
        let delete = workspace.spec.deletion_policy == WorkspaceDeletionPolicy::Delete;
        Owner {
            workspace: workspace.name_any(),
            reference: delete.then(|| workspace.owner_ref(&())).flatten(),
            keep: usize::try_from(workspace.spec.state_history).unwrap_or(usize::MAX),
        }
    }
}

/// What is applied to a head, or makes it, to name the one who may write from now on. It changes nothing else.
#[must_use]
pub fn claim(owner: &Owner, writer: &str) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(names::state_secret(&owner.workspace)),
            labels: Some(labels(owner, content::STATE)),
            annotations: Some(BTreeMap::from([(annotation::WRITER.to_owned(), writer.to_owned())])),
            owner_references: owner.reference.clone().map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        type_: Some(secret_type::STATE.to_owned()),
        ..Secret::default()
    }
}

/// The writes that make `file` the current version, written by `run`.
#[must_use]
pub fn put(
    owner: &Owner,
    head: &Head,
    file: &StateFile,
    packed: Packed,
    run: &str,
    now: jiff::Timestamp,
) -> Vec<Write> {
    let Packed { digest, parts } = packed;
    let mut version = Version {
        serial: file.serial,
        lineage: file.lineage.clone(),
        digest,
        resources: file.resources,
        updated_at: micros(now),
        run: run.to_owned(),
        parts: Vec::new(),
    };
    let mut writes = Vec::new();
    let mut inline = None;
    if let [only] = &parts[..] {
        inline = Some(only.clone());
    } else {
        for (number, part) in parts.into_iter().enumerate() {
            let secret = part_secret(owner, &version, number, part);
            version.parts.extend(secret.metadata.name.clone());
            writes.push(Write::Create(Box::new(secret)));
        }
    }
    let mut gone = Vec::new();
    let mut history = head.index.history.clone();
    if let Some(mut last) = head.index.current.clone() {
        if last.run == run {
            // One version a run is kept, and that is its last one.
            gone.push(last);
        } else {
            if let (true, Some(content)) = (last.parts.is_empty(), &head.inline) {
                let secret = part_secret(owner, &last, 0, content.clone());
                last.parts.extend(secret.metadata.name.clone());
                writes.push(Write::Create(Box::new(secret)));
            }
            history.insert(0, last);
        }
    }
    let kept = owner.keep.max(1) - 1;
    if history.len() > kept {
        gone.extend(history.split_off(kept));
    }
    let index = Index { current: Some(version), history };
    let needed: Vec<String> =
        index.current.iter().chain(&index.history).flat_map(|version| version.parts.clone()).collect();
    let (resource_version, lock, writer) = (head.resource_version.clone(), head.lock.clone(), head.writer.clone());
    let next = Head { resource_version, index, inline, lock, writer };
    writes.push(Write::Head(Box::new(head_secret(owner, &next, Some(file)))));
    // The same content may be current again under the same name.
    let unneeded = gone.into_iter().flat_map(|version| version.parts).filter(|name| !needed.contains(name));
    writes.extend(unneeded.map(Write::Delete));
    writes
}

/// The write that keeps a dependency lock file.
#[must_use]
pub fn put_lock(owner: &Owner, head: &Head, secret: Option<&Secret>, lock: Vec<u8>) -> Write {
    let mut next = match secret {
        Some(secret) => secret.clone(),
        None => head_secret(owner, head, None),
    };
    next.metadata.managed_fields = None;
    next.data.get_or_insert_default().insert(LOCK.to_owned(), ByteString(lock));
    Write::Head(Box::new(next))
}

fn head_secret(owner: &Owner, head: &Head, file: Option<&StateFile>) -> Secret {
    let mut annotations = BTreeMap::new();
    let mut labels = labels(owner, content::STATE);
    if let (Some(version), Some(file)) = (&head.index.current, file) {
        labels.insert(label::RUN.to_owned(), version.run.clone());
        annotations = version_annotations(version);
        annotations.insert(annotation::OUTPUTS.to_owned(), file.public_outputs(PUBLIC_OUTPUTS));
    }
    annotations.extend(head.writer.clone().map(|writer| (annotation::WRITER.to_owned(), writer)));
    let mut data = BTreeMap::new();
    // An index is plain data and can always be written.
    let index = serde_json::to_vec(&head.index).unwrap_or_default();
    data.insert(INDEX.to_owned(), ByteString(index));
    if let Some(inline) = &head.inline {
        data.insert(CONTENT.to_owned(), ByteString(inline.clone()));
    }
    if let Some(lock) = &head.lock {
        data.insert(LOCK.to_owned(), ByteString(lock.clone()));
    }
    Secret {
        metadata: ObjectMeta {
            name: Some(names::state_secret(&owner.workspace)),
            resource_version: head.resource_version.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: owner.reference.clone().map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        type_: Some(secret_type::STATE.to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

fn part_secret(owner: &Owner, version: &Version, number: usize, part: Vec<u8>) -> Secret {
    let name = names::state_part_secret(&owner.workspace, version.serial, chunks::short(&version.digest), number);
    let mut labels = labels(owner, content::STATE_PART);
    labels.insert(label::RUN.to_owned(), version.run.clone());
    Secret {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(labels),
            annotations: Some(version_annotations(version)),
            owner_references: owner.reference.clone().map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        type_: Some(secret_type::STATE.to_owned()),
        immutable: Some(true),
        data: Some(BTreeMap::from([(CONTENT.to_owned(), ByteString(part))])),
        ..Secret::default()
    }
}

fn labels(owner: &Owner, kind: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (label::WORKSPACE.to_owned(), owner.workspace.clone()),
        (label::CONTENT.to_owned(), kind.to_owned()),
        (label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned()),
    ])
}

fn version_annotations(version: &Version) -> BTreeMap<String, String> {
    BTreeMap::from([
        (annotation::SERIAL.to_owned(), version.serial.to_string()),
        (annotation::LINEAGE.to_owned(), version.lineage.clone()),
        (annotation::RESOURCES.to_owned(), version.resources.to_string()),
        (annotation::DIGEST.to_owned(), version.digest.clone()),
        (annotation::UPDATED_AT.to_owned(), version.updated_at.clone()),
    ])
}

/// With microseconds, as the API has them.
fn micros(now: jiff::Timestamp) -> String {
    jiff::Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    /// An API server as far as Secrets go: creating twice, a stale resourceVersion and a full immutable are refused.
    #[derive(Clone, Default)]
    struct Api {
        secrets: BTreeMap<String, Secret>,
        revision: u64,
    }

    impl Api {
        fn apply(&mut self, write: &Write) {
            self.revision += 1;
            match write {
                Write::Create(secret) => {
                    let name = secret.metadata.name.clone().unwrap();
                    let known = self.secrets.entry(name).or_insert_with(|| (**secret).clone());
                    assert_eq!(known.data, secret.data, "one name, two contents");
                }
                Write::Head(secret) => {
                    let name = secret.metadata.name.clone().unwrap();
                    let has = self.secrets.get(&name).and_then(|known| known.metadata.resource_version.clone());
                    assert_eq!(has, secret.metadata.resource_version, "a stale write");
                    let mut secret = (**secret).clone();
                    secret.metadata.resource_version = Some(self.revision.to_string());
                    self.secrets.insert(name, secret);
                }
                Write::Delete(name) => {
                    assert!(self.secrets.remove(name).is_some(), "{name} is not there")
                }
            }
        }

        fn head(&self) -> Head {
            Head::read(self.secrets.get("knoll-state-w")).unwrap()
        }

        fn content(&self, version: &Version, inline: Option<&Vec<u8>>) -> Vec<u8> {
            let parts: Vec<Vec<u8>> = match inline {
                Some(inline) if version.parts.is_empty() => vec![inline.clone()],
                _ => version
                    .parts
                    .iter()
                    .map(|name| self.secrets[name].data.as_ref().unwrap()[CONTENT].0.clone())
                    .collect(),
            };
            chunks::unpack(parts.iter().map(Vec::as_slice), &version.digest).unwrap()
        }

        /// The current state, and all of the history, as a reader finds it.
        fn read(&self) -> (Option<Vec<u8>>, Vec<Vec<u8>>) {
            let head = self.head();
            let current = head.index.current.as_ref().map(|version| self.content(version, head.inline.as_ref()));
            (current, head.index.history.iter().map(|version| self.content(version, None)).collect())
        }
    }

    fn owner(keep: usize) -> Owner {
        Owner { workspace: "w".into(), reference: None, keep }
    }

    /// Noise does not pack, so its length decides about the number of parts.
    fn state(serial: u64, noise: &[u8]) -> Vec<u8> {
        let noise: String = noise.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(r#"{{"version":4,"serial":{serial},"lineage":"l","resources":[],"noise":"{noise}"}}"#).into_bytes()
    }

    fn writes(api: &Api, keep: usize, content: &[u8], run: &str) -> Vec<Write> {
        let packed = chunks::pack(content, 100).unwrap();
        let file = StateFile::parse(content).unwrap();
        put(&owner(keep), &api.head(), &file, packed, run, jiff::Timestamp::UNIX_EPOCH)
    }

    proptest! {
        #[test]
        fn a_crash_after_any_write_leaves_the_old_state_or_the_new(
            noises in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), 0u8..3), 1..8),
            keep in 1usize..4,
        ) {
            let mut api = Api::default();
            for (serial, (noise, run)) in noises.iter().enumerate() {
                let content = state(serial as u64 + 1, noise);
                let run = format!("run-{run}");
                let old = api.read();
                let all = writes(&api, keep, &content, &run);
                for cut in 0..=all.len() {
                    let mut crashed = api.clone();
                    all[..cut].iter().for_each(|write| crashed.apply(write));
                    let (current, history) = crashed.read();
                    prop_assert!(current == old.0 || current.as_ref() == Some(&content));
                    prop_assert!(history.len() < keep);
                    // The same write, made again after the crash, completes it.
                    if current.as_ref() != Some(&content) {
                        writes(&crashed, keep, &content, &run).iter().for_each(|write| crashed.apply(write));
                        prop_assert_eq!(crashed.read().0, Some(content.clone()));
                    }
                }
                all.iter().for_each(|write| api.apply(write));
                // Nothing lies around that no head names.
                let head = api.head();
                let named = head.index.current.iter().chain(&head.index.history).flat_map(|v| v.parts.clone()).count();
                prop_assert_eq!(api.secrets.len(), named + 1);
            }
        }
    }

    #[test]
    fn one_version_a_run_is_kept_and_no_more_than_asked_for() {
        let mut api = Api::default();
        for (serial, run) in [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c"), (6, "d")] {
            let content = state(serial, &[]);
            writes(&api, 3, &content, run).iter().for_each(|write| api.apply(write));
        }
        let (current, history) = api.read();
        assert_eq!(current, Some(state(6, &[])));
        assert_eq!(history, [state(5, &[]), state(4, &[])]);
    }

    #[test]
    fn a_small_state_is_one_write_a_serial() {
        let mut api = Api::default();
        for serial in 1..=3 {
            let all = writes(&api, 10, &state(serial, &[]), "a");
            assert!(matches!(all[..], [Write::Head(_)]), "{all:?}");
            api.apply(&all[0]);
        }
    }

    #[test]
    fn a_lock_file_stays_when_the_state_changes_and_may_come_first() {
        let mut api = Api::default();
        api.apply(&put_lock(&owner(1), &Head::default(), None, b"lock".to_vec()));
        assert_eq!(api.head().index.current, None);
        writes(&api, 1, &state(1, &[]), "a").iter().for_each(|write| api.apply(write));
        assert_eq!(api.head().lock.as_deref(), Some(&b"lock"[..]));
        let head = api.head();
        let secret = api.secrets.get("knoll-state-w").cloned();
        api.apply(&put_lock(&owner(1), &head, secret.as_ref(), b"new".to_vec()));
        assert_eq!(api.head().lock.as_deref(), Some(&b"new"[..]));
        assert_eq!(api.read().0, Some(state(1, &[])));
    }
}
