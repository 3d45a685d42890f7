//! How the state of a Workspace lies in Secrets, and which writes bring a new version there.
//!
//! The head Secret holds the current version: its packed content when that fits, else the names of the Secrets that hold its
//! parts; and the list of the earlier versions that are kept, one a run. Its annotations summarise the current version for
//! readers of metadata. Pure.
//!
//! *Guarantees.* A new version is a [`Writes`]: first the parts that the new head needs, then the head, last the parts that
//! nothing needs any more. Cut off anywhere, it leaves the old version or the new one, and making the same write again
//! completes it. The head also names its writer. A pod claims the head before it reads the state, and each write carries
//! the resourceVersion that was read, so no write of an earlier writer lands behind a claim.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use knoll_api::Digest;
use knoll_api::names::{self, annotation, content, finalizer, label, secret_type};
use knoll_api::run::Run;
use knoll_api::workspace::{StateSummary, Workspace, WorkspaceDeletionPolicy};
use knoll_core::outputs::{SHOWN_BYTES, Shown, shown};
use knoll_core::stack::is_launched;
use knoll_core::workspace::Head as Summary;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::file::StateFile;
use crate::blob::{Blob, CONTENT, NAME_DIGITS};
use crate::messages::json_fault;

/// The most earlier versions that are kept until they are copied: a head names each of them in less than 1 KiB, and lies in
/// one object of 1 MiB together with a packed state of up to half of that.
const MOST_HELD: usize = 200;
/// The most parts that those versions may have together, for the same reason.
const MOST_HELD_PARTS: usize = 1000;
/// The key of the [`Index`] in a head.
const INDEX: &str = "index";
/// The key of the dependency lock file in a head.
const LOCK: &str = "lock";

/// One version of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Terraform's count of its writes.
    pub serial: u64,
    /// Terraform's name for the state's history.
    pub lineage: String,
    /// The digest of its bytes.
    pub digest: Digest,
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

impl Index {
    /// The versions that are kept, the current one first.
    pub fn versions(&self) -> impl Iterator<Item = &Version> {
        self.current.iter().chain(&self.history)
    }

    /// The names of all Secrets that hold a part of a version.
    #[must_use]
    pub fn parts(&self) -> HashSet<&str> {
        self.versions().flat_map(|version| &version.parts).map(String::as_str).collect()
    }
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
    /// Who claimed it last, as `claim` writes it.
    pub writer: Option<String>,
    /// Whether it has the finalizer.
    pub is_held: bool,
    /// Whether it is being deleted. The API takes no further finalizers then.
    pub is_going: bool,
}

/// Whose state it is.
#[derive(Clone, Debug)]
pub struct Owner {
    pub workspace: String,
    /// Set when the state has to go with the Workspace.
    pub reference: Option<OwnerReference>,
    /// How many versions are kept, the current one included.
    pub keep: usize,
    /// Set where states are copied out of the cluster: versions that are not copied yet are kept beyond `keep`.
    pub copied: Option<CopiedUpTo>,
    /// Set when a Stack is responsible for the state: its Secrets stay until the Stack lets go of them.
    pub is_held: bool,
}

/// The newest version that is copied, by its digest; none when nothing is copied yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedUpTo(pub Option<String>);

/// The requests that store a new version, in their order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Writes {
    /// Secrets that never change, created first. One that exists already has the same content, by its name.
    pub parts: Vec<Secret>,
    /// The head, created or replaced on the resourceVersion in it.
    pub head: Secret,
    /// The names of Secrets that the new head does not name any more, deleted last.
    pub unneeded: Vec<String>,
}

/// A Secret with the name of a head that is none.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    #[error(
        "the Secret `{name}` is no state of Knoll's: {}; restore it, or move it away to start anew",
        json_fault(.source)
    )]
    Index { name: String, source: serde_json::Error },
    /// No state can be written into it: Kubernetes lets nobody change these fields.
    #[error("the Secret `{name}` is no state of Knoll's: it is {found}; restore it, or move it away to start anew")]
    Fixed { name: String, found: String },
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
            Some(index) => {
                serde_json::from_slice(&index).map_err(|source| HeadError::Index { name: secret.name_any(), source })?
            }
        };
        Ok(Head {
            resource_version: secret.metadata.resource_version.clone(),
            index,
            inline: value(CONTENT),
            lock: value(LOCK),
            writer: secret.metadata.annotations.as_ref().and_then(|notes| notes.get(annotation::WRITER).cloned()),
            is_held: secret.finalizers().iter().any(|held| held == finalizer::STATE),
            is_going: secret.metadata.deletion_timestamp.is_some(),
        })
    }
}

impl Owner {
    /// The owner of the state that `run` writes.
    #[must_use]
    pub fn of(workspace: &Workspace, run: &Run) -> Self {
        let delete = workspace.spec.deletion_policy == WorkspaceDeletionPolicy::Delete;
        Owner {
            workspace: workspace.name_any(),
            reference: delete.then(|| workspace.owner_ref(&())).flatten(),
            keep: usize::try_from(workspace.spec.state_history).unwrap_or(usize::MAX),
            copied: copied_up_to(workspace),
            is_held: is_launched(run),
        }
    }
}

/// What the Workspace's status says about copies of the state. It may be older than the copies are: then a version is kept
/// a while longer than it has to be.
fn copied_up_to(workspace: &Workspace) -> Option<CopiedUpTo> {
    let backup = workspace.status.as_ref()?.backup.as_ref()?;
    Some(CopiedUpTo(backup.digest.clone()))
}

/// How many of these earlier versions, the newest first, are kept because they are not copied yet. `current` is the
/// version that follows on them.
fn held(owner: &Owner, current: &Version, history: &[Version]) -> usize {
    let Some(CopiedUpTo(copied)) = &owner.copied else { return 0 };
    let is_copied = |version: &&Version| copied.as_deref() == Some(version.digest.as_str());
    if is_copied(&current) {
        return 0;
    }
    // Versions are copied in their order, so all before one that is copied are copied too.
    let mut parts = 0;
    let uncopied = history.iter().take_while(|version| !is_copied(version)).take(MOST_HELD);
    let uncopied = uncopied.take_while(|version| {
        parts += version.parts.len();
        parts <= MOST_HELD_PARTS
    });
    uncopied.count()
}

/// Whether a state can be written into a Secret.
///
/// # Errors
/// When it is immutable, or of another type than states.
pub(super) fn is_writable(secret: &Secret) -> Result<(), HeadError> {
    let type_ = secret.type_.as_deref().unwrap_or("Opaque");
    let found = match (type_ == secret_type::STATE, secret.immutable == Some(true)) {
        (true, false) => return Ok(()),
        (true, true) => "immutable".to_owned(),
        (false, _) => format!("of the type `{type_}`"),
    };
    Err(HeadError::Fixed { name: secret.name_any(), found })
}

/// Reads the labels and annotations of a head Secret; `None` when it holds no state yet.
#[must_use]
pub fn summary(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> Option<Summary> {
    let text = |key: &str| annotations.get(key).map(String::as_str);
    let summary = StateSummary {
        serial: text(annotation::SERIAL)?.parse().ok()?,
        lineage: text(annotation::LINEAGE)?.to_owned(),
        digest: text(annotation::DIGEST)?.to_owned(),
        resources: text(annotation::RESOURCES).and_then(|count| count.parse().ok()).unwrap_or_default(),
        updated_at: text(annotation::UPDATED_AT).and_then(|time| time.parse().ok()).map(MicroTime),
        run: labels.get(label::RUN).cloned(),
    };
    let outputs = text(annotation::OUTPUTS).and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
    let hidden = text(annotation::OUTPUTS_HIDDEN).and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
    Some(Summary { summary, outputs, hidden })
}

/// A patch for server-side apply that names the writer of a head from now on, and changes nothing else of it.
#[must_use]
pub(super) fn claim(owner: &Owner, writer: &str) -> Secret {
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
pub(super) fn put(owner: &Owner, head: &Head, file: &StateFile, blob: Blob, run: &str, now: jiff::Timestamp) -> Writes {
    let Blob { digest, parts } = blob;
    let mut version = Version {
        serial: file.serial,
        lineage: file.lineage.clone(),
        digest,
        resources: file.resources,
        updated_at: micros(now),
        run: run.to_owned(),
        parts: Vec::new(),
    };
    let is_held = head.is_held || (owner.is_held && !head.is_going);
    let kept = owner.keep.max(1) - 1;
    let mut created = Vec::new();
    let mut inline = None;
    if let [only] = &parts[..] {
        inline = Some(only.clone());
    } else {
        for (number, part) in parts.into_iter().enumerate() {
            let secret = part_secret(owner, &version, number, part, is_held);
            version.parts.extend(secret.metadata.name.clone());
            created.push(secret);
        }
    }
    let mut gone = Vec::new();
    let mut history = head.index.history.clone();
    if let Some(mut last) = head.index.current.clone() {
        if last.run == run || kept == 0 {
            // One version a run is kept, and that is its last one.
            gone.push(last);
        } else {
            if let (true, Some(content)) = (last.parts.is_empty(), &head.inline) {
                let secret = part_secret(owner, &last, 0, content.clone(), is_held);
                last.parts.extend(secret.metadata.name.clone());
                created.push(secret);
            }
            history.insert(0, last);
        }
    }
    let kept = kept.max(held(owner, &version, &history));
    if history.len() > kept {
        gone.extend(history.split_off(kept));
    }
    let index = Index { current: Some(version), history };
    // The same content may be current again under the same name.
    let needed = index.parts();
    let unneeded = gone.into_iter().flat_map(|version| version.parts).filter(|name| !needed.contains(name.as_str()));
    let unneeded = unneeded.collect();
    let (resource_version, lock, writer) = (head.resource_version.clone(), head.lock.clone(), head.writer.clone());
    let next = Head { resource_version, index, inline, lock, writer, is_held, is_going: head.is_going };
    Writes { parts: created, head: head_secret(owner, &next, Some(file)), unneeded }
}

/// The head with another dependency lock file.
pub(super) fn put_lock(owner: &Owner, head: &Head, secret: Option<&Secret>, lock: Vec<u8>) -> Secret {
    let mut next = match secret {
        Some(secret) => secret.clone(),
        None => head_secret(owner, head, None),
    };
    next.metadata.managed_fields = None;
    next.data.get_or_insert_default().insert(LOCK.to_owned(), ByteString(lock));
    next
}

fn head_secret(owner: &Owner, head: &Head, file: Option<&StateFile>) -> Secret {
    let mut annotations = BTreeMap::new();
    let mut labels = labels(owner, content::STATE);
    if let (Some(version), Some(file)) = (&head.index.current, file) {
        labels.insert(label::RUN.to_owned(), version.run.clone());
        annotations = version_annotations(version);
        annotations.extend(output_annotations(file));
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
            finalizers: finalizers(head.is_held),
            ..ObjectMeta::default()
        },
        type_: Some(secret_type::STATE.to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

fn finalizers(is_held: bool) -> Option<Vec<String>> {
    is_held.then(|| vec![finalizer::STATE.to_owned()])
}

fn part_secret(owner: &Owner, version: &Version, number: usize, part: Vec<u8>, is_held: bool) -> Secret {
    let name = names::state_part_secret(&owner.workspace, version.serial, version.digest.short(NAME_DIGITS), number);
    let mut labels = labels(owner, content::STATE_PART);
    labels.insert(label::RUN.to_owned(), version.run.clone());
    Secret {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(labels),
            annotations: Some(version_annotations(version)),
            owner_references: owner.reference.clone().map(|reference| vec![reference]),
            finalizers: finalizers(is_held),
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
        (annotation::DIGEST.to_owned(), version.digest.to_string()),
        (annotation::UPDATED_AT.to_owned(), version.updated_at.clone()),
    ])
}

/// The outputs that everybody may see. Maps of JSON values can always be written.
fn output_annotations(file: &StateFile) -> BTreeMap<String, String> {
    let Shown { values, hidden } = shown(&file.public_outputs(), SHOWN_BYTES);
    let mut annotations = BTreeMap::new();
    annotations.insert(annotation::OUTPUTS.to_owned(), serde_json::to_string(&values).unwrap_or_default());
    if hidden.count > 0 {
        annotations.insert(annotation::OUTPUTS_HIDDEN.to_owned(), serde_json::to_string(&hidden).unwrap_or_default());
    }
    annotations
}

/// With microseconds, as the API has them.
fn micros(now: jiff::Timestamp) -> String {
    jiff::Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::super::file::Output;
    use super::*;
    use crate::blob;
    use crate::seal::tests::plain;

    #[test]
    fn versions_that_are_not_copied_are_kept_beyond_the_history() {
        let digest = |n: u64| Some(Digest::of(n.to_string()).to_string());
        // What is copied, how many versions are kept; the current one is 9, of earlier ones there are 8 to 1.
        let rows = [
            (None, 3),
            (Some(CopiedUpTo(None)), 9),
            (Some(CopiedUpTo(digest(9))), 3),
            (Some(CopiedUpTo(digest(8))), 3),
            (Some(CopiedUpTo(digest(5))), 4),
            (Some(CopiedUpTo(digest(1))), 8),
            (Some(CopiedUpTo(digest(77))), 9),
        ];
        for (copied, expect) in rows {
            let owner = Owner { copied: copied.clone(), ..owner(3) };
            let mut head = Head::default();
            for serial in 1..=9 {
                // Nothing is copied while the earlier versions are written.
                let owner =
                    if serial < 9 { Owner { copied: Some(CopiedUpTo(None)), ..owner.clone() } } else { owner.clone() };
                let file = StateFile { serial, lineage: "l".to_owned(), resources: 0, outputs: BTreeMap::new() };
                let blob = Blob { digest: Digest::of(serial.to_string()), parts: vec![vec![0]] };
                let writes = put(&owner, &head, &file, blob, &format!("r{serial}"), jiff::Timestamp::UNIX_EPOCH);
                head = Head::read(Some(&writes.head)).unwrap();
            }
            assert_eq!(head.index.versions().count(), expect, "{copied:?}");
        }
    }

    #[test]
    fn held_versions_are_bounded() {
        let version = |parts: usize| Version {
            serial: 1,
            lineage: "l".to_owned(),
            digest: Digest::of("x"),
            resources: 0,
            updated_at: String::new(),
            run: "r".to_owned(),
            parts: vec![String::new(); parts],
        };
        let owner = Owner { copied: Some(CopiedUpTo(None)), ..owner(3) };
        assert_eq!(held(&owner, &version(0), &vec![version(0); 1000]), MOST_HELD);
        assert_eq!(held(&owner, &version(0), &vec![version(128); 1000]), MOST_HELD_PARTS / 128);
    }

    /// One request to the API.
    #[derive(Debug)]
    enum Write<'a> {
        Create(&'a Secret),
        Head(&'a Secret),
        Delete(&'a str),
    }

    fn in_order(writes: &Writes) -> Vec<Write<'_>> {
        let Writes { parts, head, unneeded } = writes;
        let parts = parts.iter().map(Write::Create);
        parts.chain([Write::Head(head)]).chain(unneeded.iter().map(|name| Write::Delete(name))).collect()
    }

    /// An API server as far as Secrets go: creating twice, a stale resourceVersion and a full immutable are refused.
    #[derive(Clone, Default)]
    struct Api {
        secrets: BTreeMap<String, Secret>,
        revision: u64,
    }

    impl Api {
        fn apply(&mut self, write: &Write<'_>) {
            self.revision += 1;
            match write {
                Write::Create(secret) => {
                    let name = secret.metadata.name.clone().unwrap();
                    let known = self.secrets.entry(name).or_insert_with(|| (*secret).clone());
                    assert_eq!(known.data, secret.data, "one name, two contents");
                }
                Write::Head(secret) => {
                    let name = secret.metadata.name.clone().unwrap();
                    let has = self.secrets.get(&name).and_then(|known| known.metadata.resource_version.clone());
                    assert_eq!(has, secret.metadata.resource_version, "a stale write");
                    let mut secret = (*secret).clone();
                    secret.metadata.resource_version = Some(self.revision.to_string());
                    self.secrets.insert(name, secret);
                }
                Write::Delete(name) => {
                    assert!(self.secrets.remove(*name).is_some(), "{name} is not there")
                }
            }
        }

        fn apply_all(&mut self, writes: &Writes) {
            in_order(writes).iter().for_each(|write| self.apply(write));
        }

        fn head(&self) -> Head {
            Head::read(self.secrets.get("knoll-state-w")).unwrap()
        }

        fn content(&self, version: &Version, inline: Option<&Vec<u8>>) -> Vec<u8> {
            let stored: Vec<u8> = match inline {
                Some(inline) if version.parts.is_empty() => inline.clone(),
                _ => version
                    .parts
                    .iter()
                    .flat_map(|name| self.secrets[name].data.as_ref().unwrap()[CONTENT].0.clone())
                    .collect(),
            };
            blob::unpack(stored, &version.digest, &plain()).unwrap()
        }

        /// The current state, and all of the history, as a reader finds it.
        fn read(&self) -> (Option<Vec<u8>>, Vec<Vec<u8>>) {
            let head = self.head();
            let current = head.index.current.as_ref().map(|version| self.content(version, head.inline.as_ref()));
            (current, head.index.history.iter().map(|version| self.content(version, None)).collect())
        }
    }

    fn owner(keep: usize) -> Owner {
        Owner { workspace: "w".into(), reference: None, keep, copied: None, is_held: false }
    }

    /// Noise does not pack, so its length decides about the number of parts.
    fn state(serial: u64, noise: &[u8]) -> Vec<u8> {
        let noise: String = noise.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(r#"{{"version":4,"serial":{serial},"lineage":"l","resources":[],"noise":"{noise}"}}"#).into_bytes()
    }

    fn writes(api: &Api, keep: usize, content: &[u8], run: &str) -> Writes {
        let blob = Blob::pack(content, &plain(), 100).unwrap();
        let file = StateFile::parse(content).unwrap();
        put(&owner(keep), &api.head(), &file, blob, run, jiff::Timestamp::UNIX_EPOCH)
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
                let writes_of_this = writes(&api, keep, &content, &run);
                let all = in_order(&writes_of_this);
                for cut in 0..=all.len() {
                    let mut crashed = api.clone();
                    all[..cut].iter().for_each(|write| crashed.apply(write));
                    let (current, history) = crashed.read();
                    prop_assert!(current == old.0 || current.as_ref() == Some(&content));
                    prop_assert!(history.len() < keep);
                    // The same write, made again after the crash, completes it.
                    if current.as_ref() != Some(&content) {
                        let again = writes(&crashed, keep, &content, &run);
                        crashed.apply_all(&again);
                        prop_assert_eq!(crashed.read().0, Some(content.clone()));
                    }
                }
                all.iter().for_each(|write| api.apply(write));
                // Nothing lies around that no head names.
                let head = api.head();
                prop_assert_eq!(api.secrets.len(), head.index.parts().len() + 1);
            }
        }
    }

    #[test]
    fn one_version_a_run_is_kept_and_no_more_than_asked_for() {
        let mut api = Api::default();
        for (serial, run) in [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c"), (6, "d")] {
            let content = state(serial, &[]);
            let all = writes(&api, 3, &content, run);
            api.apply_all(&all);
        }
        let (current, history) = api.read();
        assert_eq!(current, Some(state(6, &[])));
        assert_eq!(history, [state(5, &[]), state(4, &[])]);
    }

    #[test]
    fn the_secrets_of_a_stacks_state_are_held_unless_the_head_is_already_going() {
        let held = |secret: &Secret| secret.finalizers() == [finalizer::STATE];
        // Whether a Stack's run writes, whether the head is held and going, whether the new one is held.
        let rows = [
            (false, false, false, false),
            (true, false, false, true),
            (true, true, true, true),
            (true, false, true, false),
            // A run that is not the Stack's takes nothing from it.
            (false, true, false, true),
            (false, true, true, true),
        ];
        let content = state(2, &[7; 200]);
        let file = StateFile::parse(&content).unwrap();
        for (of_stack, is_held, is_going, expect) in rows {
            let head = Head { is_held, is_going, ..Head::default() };
            let owner = Owner { is_held: of_stack, ..owner(3) };
            let blob = Blob::pack(&content, &plain(), 20).unwrap();
            let writes = put(&owner, &head, &file, blob, "a", jiff::Timestamp::UNIX_EPOCH);
            assert_eq!(held(&writes.head), expect, "{of_stack} {is_held} {is_going}");
            assert!(writes.parts.len() > 1 && writes.parts.iter().all(|part| held(part) == expect));
        }
    }

    #[test]
    fn a_small_state_is_one_write_a_serial() {
        let mut api = Api::default();
        for serial in 1..=3 {
            let all = writes(&api, 10, &state(serial, &[]), "a");
            assert!(matches!(in_order(&all)[..], [Write::Head(_)]), "{all:?}");
            api.apply_all(&all);
        }
    }

    #[test]
    fn a_lock_file_stays_when_the_state_changes_and_may_come_first() {
        let mut api = Api::default();
        api.apply(&Write::Head(&put_lock(&owner(1), &Head::default(), None, b"lock".to_vec())));
        assert_eq!(api.head().index.current, None);
        let all = writes(&api, 1, &state(1, &[]), "a");
        api.apply_all(&all);
        assert_eq!(api.head().lock.as_deref(), Some(&b"lock"[..]));
        let head = api.head();
        let secret = api.secrets.get("knoll-state-w").cloned();
        api.apply(&Write::Head(&put_lock(&owner(1), &head, secret.as_ref(), b"new".to_vec())));
        assert_eq!(api.head().lock.as_deref(), Some(&b"new"[..]));
        assert_eq!(api.read().0, Some(state(1, &[])));
    }

    #[test]
    fn the_annotations_of_a_head_say_what_its_index_says() {
        let mut api = Api::default();
        api.apply(&Write::Head(&put_lock(&owner(1), &Head::default(), None, b"lock".to_vec())));
        let read = |api: &Api| {
            let head = &api.secrets["knoll-state-w"];
            summary(head.labels(), head.annotations())
        };
        assert_eq!(read(&api), None, "a lock file is no state");
        let all = writes(&api, 1, &state(7, &[]), "a");
        api.apply_all(&all);
        let (version, Summary { summary, outputs, hidden }) = (api.head().index.current.unwrap(), read(&api).unwrap());
        assert_eq!(summary.run, Some(version.run));
        assert_eq!((summary.serial, summary.lineage, summary.resources), (7, version.lineage, version.resources));
        assert_eq!(version.digest, *summary.digest);
        assert_eq!(summary.updated_at.unwrap().0.to_string(), version.updated_at);
        assert!(outputs.is_empty());
        assert_eq!(hidden.count, 0);
    }

    #[test]
    fn an_output_too_large_for_the_annotations_hides_only_itself() {
        let output = |value: &str| Output { value: value.into(), sensitive: false };
        let outputs = [("a", output(&"x".repeat(SHOWN_BYTES))), ("b", output("shown"))];
        let outputs = outputs.into_iter().map(|(name, output)| (name.to_owned(), output)).collect();
        let file = StateFile { serial: 1, lineage: "l".to_owned(), resources: 0, outputs };
        let annotations = output_annotations(&file);
        assert_eq!(annotations[annotation::OUTPUTS], r#"{"b":"shown"}"#);
        assert_eq!(annotations[annotation::OUTPUTS_HIDDEN], r#"{"count":1,"names":["a"]}"#);
    }

    /// The head of a state as version 0.1 wrote it.
    #[test]
    fn a_head_of_an_earlier_version_is_read() {
        let digest = Digest::of("x");
        let index = format!(
            r#"{{"current": {{"serial": 3, "lineage": "l", "digest": "{digest}", "resources": 1, "updatedAt":
            "2026-01-01T00:00:00Z", "run": "r"}}, "history": [{{"serial": 1, "lineage": "l", "digest": "{digest}",
            "resources": 0, "updatedAt": "2026-01-01T00:00:00Z", "run": "q", "parts": ["knoll-state-w-1-x-0"]}}]}}"#
        );
        let data = [(INDEX, index.as_bytes()), (CONTENT, b"zstd"), (LOCK, b"lock")];
        let data = data.map(|(key, bytes)| (key.to_owned(), ByteString(bytes.to_vec())));
        let head = Head::read(Some(&Secret { data: Some(data.into()), ..Secret::default() })).unwrap();
        assert_eq!(head.index.versions().map(|version| version.serial).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(head.index.parts(), HashSet::from(["knoll-state-w-1-x-0"]));
        assert_eq!((head.inline.as_deref(), head.lock.as_deref()), (Some(&b"zstd"[..]), Some(&b"lock"[..])));
    }
}
