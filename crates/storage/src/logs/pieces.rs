//! A log part by part, for readers that must not hold all of it.
//!
//! *Guarantee.* A few parts are in memory at a time, however long the log is.

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::names::annotation;
use knoll_api::run::Run;
use knoll_core::identity::ObjectId;
use kube::ResourceExt;
use kube::api::ListParams;

use super::writer::{is_part_of, selector, start, text};
use super::{LogError, LogRange, Logs};
use crate::ContentKind;

/// Parts that are read at the same time.
const AT_ONCE: usize = 4;

impl Logs {
    /// What is stored of a log from `from` on, in its order.
    ///
    /// # Errors
    /// When the parts cannot be listed.
    pub async fn pieces(
        &self,
        run: &Run,
        from: u64,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, LogError>> + Send + use<>, LogError> {
        let id = ObjectId::of(run)?;
        let ObjectId { namespace, name, .. } = &id;
        let sealer = self.storage.sealer(ContentKind::Log, namespace, name);
        let api = self.api(namespace);
        let known = api.list_metadata(&ListParams::default().labels(&selector(name))).await?.items;
        let mut parts: Vec<(u64, String)> = Vec::new();
        for part in known {
            let part = ConfigMap { metadata: part.metadata, ..ConfigMap::default() };
            let begin = start(&part).unwrap_or_default();
            let size = part.annotations().get(annotation::SIZE).and_then(|size| size.parse::<u64>().ok());
            // The last part may have grown since.
            let is_before = size.is_some_and(|size| begin.saturating_add(size) < from);
            if is_part_of(&part, &id) && !is_before {
                parts.push((begin, part.name_any()));
            }
        }
        parts.sort();
        let read = futures::stream::iter(parts).map(move |(_, name)| {
            let (api, id, sealer) = (api.clone(), id.clone(), sealer.clone());
            async move {
                let part = api.get_opt(&name).await?.filter(|part| is_part_of(part, &id));
                let Some(part) = part else { return Ok(None) };
                Ok(Some((start(&part).unwrap_or_default(), text(&part, &sealer)?)))
            }
        });
        let pieces = read.buffered(AT_ONCE).scan(from, |position, part: Result<Option<(u64, Vec<u8>)>, LogError>| {
            let piece = part.map(|part| {
                let Some((start, text)) = part else { return Vec::new() };
                let piece = LogRange { from: *position, to: None }.cut(start, &text).to_vec();
                *position = start.saturating_add(text.len() as u64).max(*position);
                piece
            });
            std::future::ready(Some(piece))
        });
        Ok(pieces.filter(|piece| std::future::ready(!matches!(piece, Ok(piece) if piece.is_empty()))))
    }
}
