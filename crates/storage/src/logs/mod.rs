//! The logs of Runs: the hub appends to them, commands read them with the user's own rights.

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::run::{Run, StepName, StepStatus};
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

mod append;

pub use append::LogWriter;
use append::{selector, start, text};

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API failed.
    #[error("cannot read the log: {}", crate::message_of(.0))]
    Api(#[from] kube::Error),
    /// The watch failed.
    #[error("cannot follow the log: {0}")]
    Watch(#[from] watcher::Error),
    /// The log is damaged.
    #[error("a part of the log cannot be unpacked: {0}; somebody changed a ConfigMap of it")]
    Unpack(#[from] std::io::Error),
}

/// A part of a log: from one byte on, up to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub from: u64,
    /// The byte behind the last; the log's end when absent.
    pub to: Option<u64>,
}

impl Range {
    /// All of it.
    pub const WHOLE: Range = Range { from: 0, to: None };

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
        Some(Range { from, to })
    }

    /// What of a piece that begins at `start` lies in the range.
    fn cut<'a>(&self, start: u64, piece: &'a [u8]) -> &'a [u8] {
        let end = start + piece.len() as u64;
        let place = |offset: u64| usize::try_from(offset.clamp(start, end) - start).unwrap_or(piece.len());
        let (from, to) = (place(self.from), place(self.to.unwrap_or(end)));
        piece.get(from..to).unwrap_or_default()
    }
}

/// What is kept of a run's log.
///
/// # Errors
/// When it cannot be read.
pub async fn read(client: &Client, namespace: &str, run: &str, range: Range) -> Result<Vec<u8>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let mut parts = api.list(&ListParams::default().labels(&selector(run))).await?.items;
    parts.sort_by_key(start);
    let mut log = Vec::new();
    for part in parts {
        log.extend_from_slice(range.cut(start(&part).unwrap_or_default(), &text(&part)?));
    }
    Ok(log)
}

/// The log of a run from `offset` on, piece by piece as it is kept. It does not end by itself: a run's log is complete when
/// the run has ended, and then [`read`] gives what a stream has not brought yet.
pub fn follow(client: &Client, namespace: &str, run: &str, offset: u64) -> impl Stream<Item = Result<Vec<u8>, Error>> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let config = watcher::Config::default().labels(&selector(run));
    let changes = watcher(api, config).default_backoff().applied_objects().map_err(Error::from);
    // The first list comes in any order, so parts that are early wait for those before them.
    let begin = (offset, Vec::<(u64, Vec<u8>)>::new());
    changes
        .scan(begin, |(printed, waiting), part| {
            let piece = part.and_then(|part| {
                waiting.push((start(&part).unwrap_or_default(), text(&part)?));
                Ok(take(printed, waiting))
            });
            std::future::ready(Some(piece))
        })
        .filter(|piece| std::future::ready(!matches!(piece, Ok(piece) if piece.is_empty())))
}

/// Everything that follows on what is printed.
fn take(printed: &mut u64, waiting: &mut Vec<(u64, Vec<u8>)>) -> Vec<u8> {
    waiting.sort_by_key(|(start, _)| *start);
    let mut piece = Vec::new();
    waiting.retain(|(start, text)| {
        if *start > *printed {
            return true;
        }
        let more = Range { from: *printed, to: None }.cut(*start, text);
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
        let range = |step| Range::of_step(&run, step).map(|range| (range.from, range.to));
        assert_eq!(range(StepName::Setup), Some((0, Some(0))));
        assert_eq!(range(StepName::Init), Some((0, Some(40))));
        assert_eq!(range(StepName::Plan), Some((40, Some(90))));
        assert_eq!(range(StepName::Apply), Some((90, None)));
        assert_eq!(range(StepName::PostApply), None);
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
