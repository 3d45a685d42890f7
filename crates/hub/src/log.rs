//! Keeps a run's log in Secrets that outlive its pod and go with the Run.
//!
//! Each Secret holds a part of the log, packed: the last one is written again with what is appended to it until it is
//! full. Its annotations say where it begins and how long it is, so a log is read by listing its parts.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use knoll_api::names::{self, annotation, content, label, secret_type};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};

use crate::content::labels;
use crate::error::Error;
use crate::session::Session;
use crate::versions::CONTENT;

/// How much of the log a part holds, before it is packed.
const PART: usize = 512 * 1024;

/// The last part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// Its number.
    part: usize,
    /// Where in the log it begins.
    start: u64,
    /// What it holds.
    text: Vec<u8>,
    /// Of its Secret; none before it is written.
    resource_version: Option<String>,
}

impl LogEnd {
    /// Where the log ends.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.start + self.text.len() as u64
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

/// How long the log is that earlier pods of the run left.
///
/// # Errors
/// When it cannot be read.
pub async fn offset(client: &Client, session: &Session) -> Result<u64, Error> {
    let mut end = session.log.lock().await;
    let found = find_end(client, session).await?;
    let offset = found.offset();
    *end = Some(found);
    Ok(offset)
}

/// Appends `piece`, which begins at `offset`.
///
/// # Errors
/// When the log does not end there, or cannot be written.
pub async fn append(
    client: &Client,
    session: &Session,
    owner: OwnerReference,
    offset: u64,
    piece: &[u8],
) -> Result<(), Error> {
    let mut end = session.log.lock().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &session.caller.namespace);
    let mut known = match end.take() {
        Some(known) => known,
        // A log that begins needs no look for its end: if there is one, creating its first part fails.
        None if offset == 0 => LogEnd::default(),
        None => find_end(client, session).await?,
    };
    if known.offset() != offset {
        let has = known.offset();
        *end = Some(known);
        return Err(Error::Offset { has });
    }
    for mut part in known.append(piece, PART) {
        let secret = secret(session, &owner, &part)?;
        let name = secret.metadata.name.clone().unwrap_or_default();
        let written = match &part.resource_version {
            None => api.create(&PostParams::default(), &secret).await,
            Some(_) => api.replace(&name, &PostParams::default(), &secret).await,
        };
        match written {
            Ok(stored) => part.resource_version = stored.metadata.resource_version,
            // An earlier request was served by another replica, or its answer got lost.
            Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_conflict() => {
                let found = find_end(client, session).await?;
                let has = found.offset();
                *end = Some(found);
                return Err(Error::Offset { has });
            }
            Err(error) => return Err(error.into()),
        }
        known = part;
    }
    *end = Some(known);
    Ok(())
}

async fn find_end(client: &Client, session: &Session) -> Result<LogEnd, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &session.caller.namespace);
    let selector = format!("{}={},{}={}", label::RUN, session.run, label::CONTENT, content::LOG);
    let parts = api.list(&ListParams::default().labels(&selector)).await?.items;
    let start = |secret: &Secret| {
        secret.metadata.annotations.as_ref().and_then(|all| all.get(annotation::OFFSET)?.parse::<u64>().ok())
    };
    let Some(last) = parts.iter().max_by_key(|secret| start(secret)) else {
        return Ok(LogEnd::default());
    };
    let packed = last.data.as_ref().and_then(|data| data.get(CONTENT)).map(|content| content.0.as_slice());
    let text = zstd::decode_all(packed.unwrap_or_default())
        .map_err(|error| Error::Conflict(format!("the stored log cannot be unpacked: {error}")))?;
    Ok(LogEnd {
        part: parts.len() - 1,
        start: start(last).unwrap_or_default(),
        text,
        resource_version: last.metadata.resource_version.clone(),
    })
}

fn secret(session: &Session, owner: &OwnerReference, part: &LogEnd) -> Result<Secret, Error> {
    let packed = zstd::encode_all(&part.text[..], zstd::DEFAULT_COMPRESSION_LEVEL)
        .map_err(|error| Error::Internal(error.to_string()))?;
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(names::log_secret(&session.run, part.part)),
            resource_version: part.resource_version.clone(),
            labels: Some(labels(content::LOG, &session.run, &session.workspace)),
            annotations: Some(BTreeMap::from([
                (annotation::OFFSET.to_owned(), part.start.to_string()),
                (annotation::SIZE.to_owned(), part.text.len().to_string()),
            ])),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        type_: Some(secret_type::CONTENT.to_owned()),
        data: Some(BTreeMap::from([(CONTENT.to_owned(), ByteString(packed))])),
        ..Secret::default()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
