//! Appends to a Run's log, in ConfigMaps that outlive its pod and are deleted with the Run.
//!
//! They are no Secrets: the runner takes sensitive values out of a log, and reading a log must not need the right to read
//! Secrets. Each ConfigMap holds a part of the log. The last part is written again with each piece that is appended, until
//! it is full. Annotations say where a part begins and how long it is, so a log is read by listing its parts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::names::{self, annotation, content, label};
use knoll_api::run::Run;
use knoll_core::identity::ObjectId;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use tokio::sync::Mutex;

use crate::blob::{self, BlobError, CONTENT};
use crate::error::Error;
use crate::owned::{owner_reference, run_labels};
use crate::seal::Sealer;
use crate::{ContentKind, Storage};

/// How much of the log a part holds. The last part is written again with each piece, so a part is not as large as it could
/// be.
const PART: usize = 128 * 1024;
/// The largest part that is read. It is far above [`PART`], which another version may have chosen differently.
const LARGEST: u64 = 16 * 1024 * 1024;

/// How many names of parts may be taken by ConfigMaps of others before the log is refused.
const TAKEN_NAMES: usize = 16;

/// The most that one pod adds to a log. Terraform prints a few MB of a plan with thousands of resources; a program that
/// prints for ever would fill the store of the cluster.
const MOST: u64 = 64 * 1024 * 1024;
/// The end of what a pod adds that is more than that.
const CUT: &str = "\nknoll: the log of this pod is cut here: it has more than 64 MiB\n";

/// The last part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LogEnd {
    /// The index of the part, counted from 0.
    part: usize,
    /// Where in the log it begins.
    start: u64,
    text: Vec<u8>,
    /// Of its ConfigMap; none before it is written.
    resource_version: Option<String>,
}

impl LogEnd {
    /// Where the log ends.
    fn offset(&self) -> u64 {
        self.start.saturating_add(self.text.len() as u64)
    }

    /// The parts that have to be written so that `piece` is part of the log; the last one is the new end.
    fn append(&self, piece: &[u8], limit: usize) -> Vec<LogEnd> {
        let mut parts = vec![self.clone()];
        let mut rest = piece;
        while !rest.is_empty() {
            let Some(last) = parts.last_mut() else { break };
            let room = limit.saturating_sub(last.text.len());
            if room == 0 {
                let next = LogEnd { part: last.part + 1, start: last.offset(), ..LogEnd::default() };
                parts.push(next);
                continue;
            }
            let (now, later) = rest.split_at(room.min(rest.len()));
            last.text.extend_from_slice(now);
            rest = later;
        }
        // A part that was full before is as it was.
        parts.retain(|part| part.part != self.part || part.text.len() != self.text.len());
        parts
    }
}

/// Appends to the log of one run, and remembers its end.
pub struct LogWriter {
    storage: Storage,
    run: ObjectId,
    workspace: String,
    end: Mutex<Option<LogEnd>>,
    /// Where the log of the pod begins, behind that of an earlier one.
    begin: OnceLock<u64>,
}

impl LogWriter {
    /// The writer of the log of this run. It has read nothing yet.
    pub(super) fn new(storage: Storage, run: &ObjectId, workspace: &str) -> Self {
        LogWriter {
            storage,
            run: run.clone(),
            workspace: workspace.to_owned(),
            end: Mutex::default(),
            begin: OnceLock::new(),
        }
    }

    /// How long the log is that earlier pods of the run left.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn offset(&self) -> Result<u64, Error> {
        let mut end = self.end.lock().await;
        let found = self.find_end().await?;
        let offset = found.offset();
        *end = Some(found);
        // It is known from the first time on: a pod that asks again has the same room.
        self.begin.get_or_init(|| offset);
        Ok(offset)
    }

    /// Appends `piece`, which begins at `offset`. What is beyond the most that a pod may add is dropped.
    ///
    /// # Errors
    /// When the log does not end there, or cannot be written.
    pub async fn append(&self, offset: u64, piece: &[u8]) -> Result<(), Error> {
        let mut end = self.end.lock().await;
        let api = self.api();
        let mut known = match end.take() {
            Some(known) => known,
            // The end of a log that begins is not looked for: if there is one, creating its first part fails.
            None if offset == 0 => LogEnd::default(),
            None => self.find_end().await?,
        };
        let most = self.begin.get().copied().unwrap_or_default().saturating_add(MOST);
        if known.offset() >= most {
            *end = Some(known);
            return Ok(());
        }
        if known.offset() != offset {
            let has = known.offset();
            *end = Some(known);
            return Err(Error::Offset { has });
        }
        // The names that others have taken move all later parts on.
        let mut taken = 0;
        for mut part in known.append(&within(piece, most - known.offset()), PART) {
            part.part += taken;
            loop {
                let map = self.config_map(&part)?;
                let name = map.metadata.name.clone().unwrap_or_default();
                let written = match &part.resource_version {
                    None => api.create(&PostParams::default(), &map).await,
                    Some(_) => api.replace(&name, &PostParams::default(), &map).await,
                };
                match written {
                    Ok(stored) => {
                        part.resource_version = stored.metadata.resource_version;
                        break;
                    }
                    Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_conflict() => {
                        let found = self.find_end().await?;
                        let is_next = part.resource_version.is_none() && found.offset() == part.start;
                        if is_next && taken < TAKEN_NAMES {
                            // Nothing of this log is there, so the name is that of somebody else's ConfigMap.
                            (part.part, taken) = (part.part + 1, taken + 1);
                            continue;
                        }
                        // An earlier request was served by another replica, or its answer got lost.
                        let has = found.offset();
                        *end = Some(found);
                        return Err(Error::Offset { has });
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            known = part;
        }
        *end = Some(known);
        Ok(())
    }

    async fn find_end(&self) -> Result<LogEnd, Error> {
        let mut parts = self.api().list(&ListParams::default().labels(&selector(&self.run.name))).await?.items;
        parts.retain(|part| is_part_of(part, &self.run));
        let Some(last) = parts.iter().max_by_key(|map| start(map)) else {
            return Ok(LogEnd::default());
        };
        let text = text(last, &self.sealer())?;
        Ok(LogEnd {
            part: number(last).unwrap_or(parts.len() - 1),
            start: start(last).unwrap_or_default(),
            text,
            resource_version: last.metadata.resource_version.clone(),
        })
    }

    fn config_map(&self, part: &LogEnd) -> Result<ConfigMap, Error> {
        let stored = blob::encode(&part.text, &self.sealer())?;
        Ok(ConfigMap {
            metadata: ObjectMeta {
                name: Some(names::log_config_map(&self.run.name, part.part)),
                resource_version: part.resource_version.clone(),
                labels: Some(run_labels(content::LOG, &self.run.name, &self.workspace)),
                annotations: Some(BTreeMap::from([
                    (annotation::OFFSET.to_owned(), part.start.to_string()),
                    (annotation::SIZE.to_owned(), part.text.len().to_string()),
                ])),
                owner_references: Some(vec![owner_reference::<Run>(&self.run)]),
                ..ObjectMeta::default()
            },
            binary_data: Some(BTreeMap::from([(CONTENT.to_owned(), ByteString(stored))])),
            ..ConfigMap::default()
        })
    }

    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.storage.client().clone(), &self.run.namespace)
    }

    fn sealer(&self) -> Sealer {
        self.storage.sealer(ContentKind::Log, &self.run.namespace, &self.run.name)
    }
}

/// The beginning of a piece that has room, and a sentence in place of the rest.
fn within(piece: &[u8], room: u64) -> Cow<'_, [u8]> {
    match usize::try_from(room).ok().and_then(|room| piece.get(..room)) {
        Some(first) if first.len() < piece.len() => Cow::Owned([first, CUT.as_bytes()].concat()),
        _ => Cow::Borrowed(piece),
    }
}

/// Whether a ConfigMap is a part of the log of this Run. Any user can write the labels and the owner of one; only the
/// operator creates one with the name of a log.
pub(super) fn is_part_of(part: &ConfigMap, run: &ObjectId) -> bool {
    let has_its_name = number(part).is_some_and(|number| part.name_any() == names::log_config_map(&run.name, number));
    has_its_name && part.owner_references().iter().any(|owner| owner.uid == run.uid)
}

/// The number at the end of a part's name.
fn number(part: &ConfigMap) -> Option<usize> {
    part.metadata.name.as_deref()?.rsplit_once('-')?.1.parse().ok()
}

/// Where in the log a part begins.
pub(super) fn start(part: &ConfigMap) -> Option<u64> {
    part.metadata.annotations.as_ref()?.get(annotation::OFFSET)?.parse().ok()
}

/// The text of a part.
pub(super) fn text(part: &ConfigMap, sealer: &Sealer) -> Result<Vec<u8>, BlobError> {
    let stored = part.binary_data.as_ref().and_then(|data| data.get(CONTENT)).map(|content| content.0.clone());
    blob::decode(stored.unwrap_or_default(), sealer, LARGEST)
}

/// Selects the parts of a Run's log.
pub(super) fn selector(run: &str) -> String {
    format!("{}={run},{}={}", label::RUN, label::CONTENT, content::LOG)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_log_that_never_ended_filled_the_store() {
        let text = |room| String::from_utf8(within(b"0123", room).into_owned()).unwrap_or_default();
        assert_eq!(text(5), "0123");
        assert_eq!(text(4), "0123");
        assert_eq!(text(2), format!("01{CUT}"));
        assert_eq!(text(u64::MAX), "0123");
    }

    proptest! {
        #[test]
        fn the_parts_are_the_log(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..20)) {
            let mut stored = BTreeMap::new();
            let mut end = LogEnd::default();
            for piece in &pieces {
                let parts = end.append(piece, 16);
                prop_assert!(!parts.is_empty());
                for part in parts {
                    prop_assert!(part.text.len() <= 16);
                    stored.insert(part.part, (part.start, part.text.clone()));
                    end = part;
                }
            }
            let whole: Vec<u8> = stored.values().flat_map(|(_, text)| text.clone()).collect();
            prop_assert_eq!(&whole, &pieces.concat());
            prop_assert_eq!(end.offset(), whole.len() as u64);
            let mut at = 0;
            for (start, text) in stored.values() {
                prop_assert_eq!(*start, at);
                at += text.len() as u64;
            }
        }
    }
}
