//! Watches a directory with inotify.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

/// A watched directory. The watch ends when this is dropped.
pub struct FolderWatch {
    events: AsyncFd<Events>,
}

/// The inotify descriptor in a form that tokio can poll.
struct Events(Inotify);

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl FolderWatch {
    /// Watches for files that are written in the directory, or moved into it.
    ///
    /// # Errors
    /// If the directory cannot be watched.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let changes = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
        inotify.add_watch(folder, changes)?;
        #[allow(
            deprecated,
            reason = "its successor is unsafe to call; `Events` owns its descriptor as long as it lives"
        )]
        let events = AsyncFd::new(Events(inotify))?;
        Ok(FolderWatch { events })
    }

    /// Waits for a change of the file `name`.
    ///
    /// # Errors
    /// If the watch is broken.
    pub async fn changed(&self, name: impl Fn(&OsString) -> bool) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            match ready.try_io(|events| events.get_ref().0.read_events().map_err(io::Error::from)) {
                // An event without a name means that events were lost, so any file may have changed.
                Ok(Ok(batch)) if batch.iter().any(|event| event.name.as_ref().is_none_or(&name)) => return Ok(()),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }
}
