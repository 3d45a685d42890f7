//! Uploads every state that terraform writes to the hub, as it is written.
//!
//! Terraform's local backend rewrites one file after each resource, and that of OpenTofu at most every 20 seconds. The
//! runner watches the directory of that file. It uploads a file that parses as a complete state and ignores a partially
//! written one. One upload is in flight at a time, and the newest state wins. The file that exists after terraform has
//! exited is authoritative: [`StateUploader::settle`] returns once the hub has it.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::hub;
use crate::watch::FolderWatch;

/// Why a state was not delivered.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot watch the state file: {0}")]
    Watch(#[source] io::Error),
    #[error("cannot read the state file: {0}")]
    Read(#[source] io::Error),
    /// The state file is not valid JSON.
    #[error("terraform left a corrupt state file ({0}); the workspace keeps the last valid state")]
    Damaged(#[source] serde_json::Error),
    /// The hub refused the state.
    #[error(transparent)]
    Refused(#[from] Arc<hub::HubError>),
}

/// A complete state, as terraform wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    /// Terraform's change counter within a lineage.
    pub serial: u64,
    /// The id that terraform gives to a state when it creates it.
    pub lineage: String,
    pub content: Bytes,
}

#[derive(Deserialize)]
struct Header {
    serial: u64,
    lineage: String,
}

impl StateFile {
    /// Parses `content` as a state.
    ///
    /// # Errors
    /// If it is not a complete state, for example because it is partially written.
    pub fn parse(content: Bytes) -> Result<Self, serde_json::Error> {
        let Header { serial, lineage } = serde_json::from_slice(&content)?;
        Ok(StateFile { serial, lineage, content })
    }

    /// Returns the state with a serial higher than that of `delivered`.
    ///
    /// Terraform counts from the state it read at its start. A state that changed and changed back therefore has a
    /// serial that was already used for another content. The hub accepts only higher serials, and a higher serial does
    /// not affect terraform.
    fn after(self, delivered: Option<&StateFile>) -> Self {
        match delivered {
            Some(delivered)
                if delivered.lineage == self.lineage
                    && delivered.serial >= self.serial
                    && delivered.content != self.content =>
            {
                self.with_serial(delivered.serial + 1)
            }
            _ => self,
        }
    }

    /// Replaces only the digits of the serial, because a parser would lose the precision of large numbers elsewhere.
    fn with_serial(self, serial: u64) -> Self {
        const KEY: &[u8] = b"\"serial\"";
        let digits = self.content.windows(KEY.len()).position(|window| window == KEY).and_then(|key| {
            let start = key + KEY.len() + self.content[key + KEY.len()..].iter().position(u8::is_ascii_digit)?;
            let length = self.content[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            Some(start..start + length)
        });
        let Some(digits) = digits else { return self };
        let mut content = Vec::with_capacity(self.content.len() + 4);
        content.extend_from_slice(&self.content[..digits.start]);
        content.extend_from_slice(serial.to_string().as_bytes());
        content.extend_from_slice(&self.content[digits.end..]);
        match StateFile::parse(content.into()) {
            Ok(snapshot) if snapshot.serial == serial => snapshot,
            _ => self,
        }
    }
}

/// The destination of states: the hub, or a list in tests.
pub trait Store: Clone + Send + Sync + 'static {
    /// Stores `snapshot`, and returns once it is durable.
    fn put(&self, snapshot: StateFile) -> impl Future<Output = Result<(), hub::HubError>> + Send;
}

/// The progress of the uploads.
#[derive(Clone, Default)]
struct Delivered {
    /// The last content that the hub has, as terraform wrote it, before its serial was raised.
    written: Option<Bytes>,
    /// The hub's refusal, which ends all uploads.
    refused: Option<Arc<hub::HubError>>,
}

/// Watches one state file, and uploads each state that is written to it.
pub struct StateUploader {
    file: PathBuf,
    newest: watch::Sender<Option<StateFile>>,
    delivered: watch::Receiver<Delivered>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl StateUploader {
    /// Starts to watch `file`, whose directory exists. `known` is the state that the hub has.
    ///
    /// # Errors
    /// If the directory cannot be watched.
    pub fn start(file: &Path, known: Option<StateFile>, store: impl Store) -> Result<Self, StateError> {
        let folder = FolderWatch::new(file.parent().unwrap_or(Path::new("."))).map_err(StateError::Watch)?;
        let (newest, changes) = watch::channel(known.clone());
        let first = Delivered { written: known.as_ref().map(|known| known.content.clone()), refused: None };
        let (done, delivered) = watch::channel(first);
        let reader = tokio::spawn(take_each(folder, file.to_owned(), newest.clone()));
        let uploader = tokio::spawn(deliver(changes, known, store, done));
        Ok(StateUploader {
            file: file.to_owned(),
            newest,
            delivered,
            _tasks: [AbortOnDropHandle::new(reader), AbortOnDropHandle::new(uploader)],
        })
    }

    /// Resolves when the hub refuses a state. A refusal is final: this pod has lost the Workspace.
    pub async fn refused(&self) -> Arc<hub::HubError> {
        let mut delivered = self.delivered.clone();
        let refused = match delivered.wait_for(|now| now.refused.is_some()).await {
            Ok(now) => now.refused.clone(),
            Err(_) => None,
        };
        match refused {
            Some(refused) => refused,
            // The task lives as long as this uploader. Without it there is no refusal.
            None => std::future::pending().await,
        }
    }

    /// Returns once the hub has the state that terraform left, however long the hub is unavailable. Call it after
    /// terraform has exited.
    ///
    /// # Errors
    /// If the file is corrupt or the hub refuses it.
    pub async fn settle(&self) -> Result<Option<StateFile>, StateError> {
        let last = match read(&self.file).map_err(StateError::Read)? {
            None => None,
            Some(content) => Some(StateFile::parse(content).map_err(StateError::Damaged)?),
        };
        let Some(last) = last else { return Ok(None) };
        offer(&self.newest, last.clone());
        let mut delivered = self.delivered.clone();
        let end = delivered
            .wait_for(|now| now.refused.is_some() || now.written.as_ref() == Some(&last.content))
            .await
            .map(|now| now.refused.clone());
        match end {
            Ok(Some(refused)) => Err(refused.into()),
            Ok(None) | Err(_) => Ok(Some(last)),
        }
    }
}

/// Queues `snapshot` for upload, unless it already is the newest.
fn offer(newest: &watch::Sender<Option<StateFile>>, snapshot: StateFile) {
    newest.send_if_modified(|now| {
        let changed = now.as_ref() != Some(&snapshot);
        if changed {
            *now = Some(snapshot);
        }
        changed
    });
}

async fn take_each(folder: FolderWatch, file: PathBuf, newest: watch::Sender<Option<StateFile>>) {
    loop {
        // The kind of the event does not matter, because the file itself has the newest state.
        if let Err(error) = folder.changed(|name| Some(name.as_os_str()) == file.file_name()).await {
            tracing::warn!(%error, "the watch of the state file failed; only the final state will be uploaded");
            return;
        }
        // A file that cannot be read or parsed is still being written, and the end of the write is another event.
        if let Ok(Some(content)) = read(&file)
            && let Ok(snapshot) = StateFile::parse(content)
        {
            offer(&newest, snapshot);
        }
    }
}

/// The file's content, or none if there is no file or it changed during the read.
fn read(file: &Path) -> io::Result<Option<Bytes>> {
    let mark = |meta: &fs::Metadata| (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    let before = match fs::metadata(file) {
        Ok(meta) => mark(&meta),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let content = fs::read(file)?;
    let whole = mark(&fs::metadata(file)?) == before && content.len() as u64 == before.1;
    Ok((whole && !content.is_empty()).then(|| content.into()))
}

async fn deliver(
    mut changes: watch::Receiver<Option<StateFile>>,
    mut known: Option<StateFile>,
    store: impl Store,
    done: watch::Sender<Delivered>,
) {
    while changes.changed().await.is_ok() {
        let Some(newest) = changes.borrow_and_update().clone() else {
            continue;
        };
        let written = newest.content.clone();
        let next = newest.after(known.as_ref());
        match store.put(next.clone()).await {
            Ok(()) => {
                known = Some(next);
                done.send_replace(Delivered { written: Some(written), refused: None });
            }
            Err(error) => {
                let refused = Some(Arc::new(error));
                done.send_modify(|now| now.refused = refused);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Write;
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;

    /// A store that accepts one state per permit, so that a test controls when an upload ends.
    #[derive(Clone)]
    struct Shelf {
        taken: Arc<Mutex<Vec<StateFile>>>,
        permits: Arc<Semaphore>,
    }

    impl Shelf {
        fn new(permits: usize) -> Self {
            Shelf { taken: Arc::default(), permits: Arc::new(Semaphore::new(permits)) }
        }

        fn serials(&self) -> Vec<u64> {
            self.taken.lock().unwrap().iter().map(|snapshot| snapshot.serial).collect()
        }
    }

    impl Store for Shelf {
        async fn put(&self, snapshot: StateFile) -> Result<(), hub::HubError> {
            self.permits.acquire().await.unwrap().forget();
            self.taken.lock().unwrap().push(snapshot);
            Ok(())
        }
    }

    fn content(serial: u64, note: &str) -> String {
        format!(r#"{{"version": 4, "serial": {serial}, "lineage": "l", "resources": [], "check_results": "{note}"}}"#)
    }

    fn snapshot(serial: u64, note: &str) -> StateFile {
        StateFile::parse(content(serial, note).into()).unwrap()
    }

    async fn until(condition: impl Fn() -> bool) {
        let waited = async {
            while !condition() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), waited).await.unwrap();
    }

    #[tokio::test]
    async fn each_write_arrives_and_a_half_written_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("terraform.tfstate");
        let shelf = Shelf::new(10);
        let uploader = StateUploader::start(&file, None, shelf.clone()).unwrap();
        // One handle, truncated and rewritten repeatedly, as terraform does it.
        let mut handle = fs::File::create(&file).unwrap();
        for serial in 1..=3 {
            handle.set_len(0).unwrap();
            io::Seek::rewind(&mut handle).unwrap();
            let whole = content(serial, "");
            let (head, tail) = whole.split_at(20);
            handle.write_all(head.as_bytes()).unwrap();
            handle.sync_data().unwrap();
            handle.write_all(tail.as_bytes()).unwrap();
            until(|| shelf.serials().last() == Some(&serial)).await;
        }
        assert_eq!(uploader.settle().await.unwrap().unwrap().serial, 3);
        assert_eq!(shelf.serials(), [1, 2, 3]);
    }

    #[tokio::test]
    async fn the_newest_wins_while_an_upload_is_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("terraform.tfstate");
        let shelf = Shelf::new(0);
        let uploader = StateUploader::start(&file, None, shelf.clone()).unwrap();
        for serial in 1..=5 {
            fs::write(&file, content(serial, "")).unwrap();
            until(|| uploader.newest.borrow().as_ref().is_some_and(|now| now.serial == serial)).await;
        }
        shelf.permits.add_permits(10);
        uploader.settle().await.unwrap();
        let serials = shelf.serials();
        assert!(serials.len() <= 2 && serials.last() == Some(&5), "{serials:?}");
    }

    #[tokio::test]
    async fn a_state_that_changed_back_follows_on_what_the_hub_has() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("terraform.tfstate");
        let shelf = Shelf::new(10);
        let uploader = StateUploader::start(&file, Some(snapshot(7, "a")), shelf.clone()).unwrap();
        fs::write(&file, content(7, "b")).unwrap();
        uploader.settle().await.unwrap();
        assert_eq!(*shelf.taken.lock().unwrap(), [snapshot(8, "b")]);
        fs::write(&file, content(7, "a")).unwrap();
        uploader.settle().await.unwrap();
        assert_eq!(shelf.taken.lock().unwrap().last(), Some(&snapshot(9, "a")));
    }

    #[tokio::test]
    async fn what_the_hub_has_already_is_not_sent_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("terraform.tfstate");
        fs::write(&file, content(7, "a")).unwrap();
        let shelf = Shelf::new(10);
        let uploader = StateUploader::start(&file, Some(snapshot(7, "a")), shelf.clone()).unwrap();
        assert_eq!(uploader.settle().await.unwrap(), Some(snapshot(7, "a")));
        assert!(shelf.serials().is_empty());
    }

    #[tokio::test]
    async fn a_damaged_file_is_reported_and_never_sent() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("terraform.tfstate");
        let shelf = Shelf::new(10);
        let uploader = StateUploader::start(&file, None, shelf.clone()).unwrap();
        assert_eq!(uploader.settle().await.unwrap(), None);
        fs::write(&file, &content(1, "")[..30]).unwrap();
        assert!(matches!(uploader.settle().await, Err(StateError::Damaged(_))));
        assert!(shelf.serials().is_empty());
    }

    #[test]
    fn only_the_digits_of_the_serial_change() {
        let long = r#"{"version": 4, "serial":1, "lineage":"l","x":0.1234567890123456789012345}"#;
        let changed = StateFile::parse(long.into()).unwrap().with_serial(12);
        assert_eq!(changed.content, long.replace("\"serial\":1", "\"serial\":12"));
    }
}
