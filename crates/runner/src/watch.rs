//! Hears from the kernel what changes in a folder.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

/// A folder that is watched as long as this lives.
pub struct FolderWatch {
    events: AsyncFd<Events>,
}

/// The kernel's news, as tokio can wait for them.
struct Events(Inotify);

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl FolderWatch {
    /// Watches for files that are written, or moved into the folder. What happened before is not told.
    ///
    /// # Errors
    /// When the folder cannot be watched.
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
    /// When the watch is broken.
    pub async fn changed(&self, name: impl Fn(&OsString) -> bool) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            match ready.try_io(|events| events.get_ref().0.read_events().map_err(io::Error::from)) {
                // An event without a name says that some were lost: anything may have changed.
                Ok(Ok(batch)) if batch.iter().any(|event| event.name.as_ref().is_none_or(&name)) => return Ok(()),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }
}
