//! The logs of Runs: the hub appends to them, commands read them with the user's own rights.
//!
//! A part of a log is a ConfigMap with the Run's UID among its owners. Other ConfigMaps with the same labels are ignored,
//! such as those of an earlier Run of the same name.

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::run::{Run, StepName, StepStatus};
use knoll_core::identity::{ObjectId, Unidentified};
use kube::Api;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};

use crate::blob::BlobError;
use crate::{ContentKind, Storage};

mod pieces;
mod writer;

pub use writer::LogWriter;
use writer::{is_part_of, selector, start, text};

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot read the log: {}", crate::message_of(.0))]
    Api(#[from] kube::Error),
    #[error("cannot follow the log: {0}")]
    Watch(#[from] watcher::Error),
    #[error("cannot read the log: {0}")]
    Damaged(#[from] BlobError),
    #[error("cannot read the log of a Run: {0}")]
    Unidentified(#[from] Unidentified),
}

/// A range of a log's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    pub from: u64,
    /// The byte behind the last; the log's end when absent.
    pub to: Option<u64>,
}

impl LogRange {
    pub const WHOLE: LogRange = LogRange { from: 0, to: None };

    /// What a step printed; nothing when the run has no such step, or has not come to it.
    #[must_use]
    pub fn of_step(run: &Run, step: StepName) -> Option<Self> {
        let steps = &run.status.as_ref()?.steps;
        let from = steps.iter().find(|known| known.name == step)?.log_offset?;
        // A step that prints nothing, such as `setup`, begins where the next one does, and that one has the text.
        let silent = |known: &&StepStatus| known.log_offset == Some(from) && known.name > step;
        let later = steps.iter().filter(|known| known.name != step).filter_map(|known| known.log_offset);
        let to = match steps.iter().find(silent) {
            Some(_) => Some(from),
            None => later.filter(|offset| *offset > from).min(),
        };
        Some(LogRange { from, to })
    }

    /// What of a piece that begins at `start` lies in the range.
    fn cut<'a>(&self, start: u64, piece: &'a [u8]) -> &'a [u8] {
        // Whoever may write ConfigMaps chooses where a part says that it begins.
        let end = start.saturating_add(piece.len() as u64);
        let place = |offset: u64| usize::try_from(offset.clamp(start, end) - start).unwrap_or(piece.len());
        let (from, to) = (place(self.from), place(self.to.unwrap_or(end)));
        piece.get(from..to).unwrap_or_default()
    }
}

/// Parts of one answer of the API server when a log begins to be followed.
const PAGE: u32 = 16;

/// The logs of Runs.
pub struct Logs {
    storage: Storage,
}

impl Logs {
    pub(crate) fn new(storage: Storage) -> Self {
        Logs { storage }
    }

    /// Appends to the log of a Run. It has read nothing yet.
    #[must_use]
    pub fn writer(&self, run: &ObjectId, workspace: &str) -> LogWriter {
        LogWriter::new(self.storage.clone(), run, workspace)
    }

    /// The log of a Run, as far as it is stored.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(&self, run: &Run, range: LogRange) -> Result<Vec<u8>, LogError> {
        let id = ObjectId::of(run)?;
        let ObjectId { namespace, name, .. } = &id;
        let sealer = self.storage.sealer(ContentKind::Log, namespace, name);
        let mut parts = self.api(namespace).list(&ListParams::default().labels(&selector(name))).await?.items;
        parts.retain(|part| is_part_of(part, &id));
        parts.sort_by_key(start);
        let mut log = Vec::new();
        for part in parts {
            log.extend_from_slice(range.cut(start(&part).unwrap_or_default(), &text(&part, &sealer)?));
        }
        Ok(log)
    }

    /// The log of a Run from `offset` on, piece by piece as it is stored. The stream does not end by itself: a log is
    /// complete when its Run has ended, and then [`Logs::read`] gives the bytes that the stream has not brought yet.
    ///
    /// # Errors
    /// When the Run was never created.
    pub fn follow(
        &self,
        run: &Run,
        offset: u64,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, LogError>> + use<>, LogError> {
        let id = ObjectId::of(run)?;
        let ObjectId { namespace, name, .. } = &id;
        let sealer = self.storage.sealer(ContentKind::Log, namespace, name);
        let config = watcher::Config::default().labels(&selector(name)).page_size(PAGE);
        let changes = watcher(self.api(namespace), config).default_backoff().applied_objects().map_err(LogError::from);
        let own = move |part: &Result<ConfigMap, LogError>| match part {
            Ok(part) => is_part_of(part, &id),
            Err(_) => true,
        };
        // The first list comes in any order, so parts that are early wait for those before them.
        let begin = (offset, Vec::<(u64, Vec<u8>)>::new());
        let pieces = changes
            .filter(move |part| std::future::ready(own(part)))
            .scan(begin, move |(printed, waiting), part| {
                let piece = part.and_then(|part| {
                    waiting.push((start(&part).unwrap_or_default(), text(&part, &sealer)?));
                    Ok(take(printed, waiting))
                });
                std::future::ready(Some(piece))
            })
            .filter(|piece| std::future::ready(!matches!(piece, Ok(piece) if piece.is_empty())));
        Ok(pieces)
    }

    fn api(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.storage.client().clone(), namespace)
    }
}

/// Everything that follows on what is printed.
fn take(printed: &mut u64, waiting: &mut Vec<(u64, Vec<u8>)>) -> Vec<u8> {
    waiting.sort_by_key(|(start, _)| *start);
    let mut piece = Vec::new();
    waiting.retain(|(start, text)| {
        if *start > *printed {
            return true;
        }
        let more = LogRange { from: *printed, to: None }.cut(*start, text);
        piece.extend_from_slice(more);
        *printed += more.len() as u64;
        false
    });
    piece
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use knoll_api::run::{RunSpec, RunStatus};

    use super::*;

    #[test]
    fn a_step_printed_what_lies_before_the_next_one() {
        let mut run = Run::new("r", RunSpec::default());
        let at = |name, offset| StepStatus::started(name, MicroTime(jiff::Timestamp::UNIX_EPOCH), offset);
        let steps =
            vec![at(StepName::Setup, 0), at(StepName::Init, 0), at(StepName::Plan, 40), at(StepName::Apply, 90)];
        run.status = Some(RunStatus { steps, ..RunStatus::default() });
        let range = |step| LogRange::of_step(&run, step).map(|range| (range.from, range.to));
        assert_eq!(range(StepName::Setup), Some((0, Some(0))));
        assert_eq!(range(StepName::Init), Some((0, Some(40))));
        assert_eq!(range(StepName::Plan), Some((40, Some(90))));
        assert_eq!(range(StepName::Apply), Some((90, None)));
        assert_eq!(range(StepName::PostApply), None);
    }

    /// The offset is an annotation, and the sum with the length of the part had no room in its type.
    #[test]
    fn a_part_at_the_end_of_all_numbers_stopped_every_reader() {
        for start in [u64::MAX, u64::MAX - 2] {
            assert_eq!(LogRange::WHOLE.cut(start, b"abcd").len() as u64, u64::MAX - start);
            assert_eq!(LogRange { from: u64::MAX, to: None }.cut(start, b"abcd"), b"");
        }
        let (mut printed, mut waiting) = (u64::MAX, vec![(u64::MAX - 1, b"abcd".to_vec())]);
        assert_eq!((take(&mut printed, &mut waiting), printed), (Vec::new(), u64::MAX));
    }

    #[test]
    fn parts_are_printed_once_and_in_order() {
        let (mut printed, mut waiting) = (2, Vec::new());
        let mut push = |start: u64, text: &str| {
            waiting.push((start, text.as_bytes().to_vec()));
            String::from_utf8(take(&mut printed, &mut waiting)).unwrap()
        };
        assert_eq!(push(4, "efgh"), "");
        assert_eq!(push(0, "abcd"), "cdefgh");
        assert_eq!(push(4, "efghij"), "ij");
        assert_eq!(push(4, "efghij"), "");
    }
}
