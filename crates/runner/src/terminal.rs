//! The terminal of a client that attaches to the run.
//!
//! The pod has a terminal of its own; what a client types arrives there. Terraform gets another one behind it, so that its
//! output can be copied to the log on the way and it still sees a terminal of the right size.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, PoisonError};

use nix::fcntl::OFlag;
use rustix::termios::{OptionalActions, OutputModes, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The runner's own terminal, without line editing and echo for as long as this lives.
pub struct Terminal {
    input: AsyncFd<File>,
    saved: Termios,
    resizes: tokio::sync::Mutex<Signal>,
    /// What was typed before terraform was there to read it.
    early: Mutex<Vec<u8>>,
}

impl Terminal {
    /// The terminal that is standard input, or nothing when that is no terminal.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub fn open() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        // Opened anew: not to block is a property of what is shared with standard output otherwise.
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let file = OpenOptions::new().read(true).custom_flags(flags).open("/proc/self/fd/0")?;
        let saved = tcgetattr(&file)?;
        let mut raw = saved.clone();
        raw.make_raw();
        // Lines of the runner's own still end as lines do.
        raw.output_modes |= OutputModes::OPOST;
        tcsetattr(&file, OptionalActions::Now, &raw)?;
        let resizes = tokio::sync::Mutex::new(signal(SignalKind::window_change())?);
        #[allow(
            deprecated,
            reason = "its successor is unsafe to call; a file owns its descriptor for as long as it lives"
        )]
        let input = AsyncFd::new(file)?;
        Ok(Some(Terminal { input, saved, resizes, early: Mutex::default() }))
    }

    /// Waits for a client: a client that attaches tells its size, or types.
    pub async fn attached(&self) {
        let mut first = [0; 1];
        tokio::select! {
            () = self.resized() => {}
            read = self.read_input(&mut first) => {
                // The key that only says "I am here" is not meant for terraform.
                if matches!(read, Ok(1)) && !matches!(first[0], b'\r' | b'\n' | 0) {
                    self.early.lock().unwrap_or_else(PoisonError::into_inner).push(first[0]);
                }
            }
        }
    }

    /// The terminal's size.
    pub fn size(&self) -> pty_process::Size {
        match tcgetwinsize(self.input.get_ref()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => pty_process::Size::new(size.ws_row, size.ws_col),
            _ => pty_process::Size::new(24, 80),
        }
    }

    /// Resolves when the size has changed.
    pub async fn resized(&self) {
        if self.resizes.lock().await.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// What the client typed. Never ends: a client may go, and another one may come.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        {
            let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
            if !early.is_empty() {
                let count = early.len().min(buffer.len());
                buffer[..count].copy_from_slice(&early[..count]);
                early.drain(..count);
                return Ok(count);
            }
        }
        match self.read_input(buffer).await? {
            0 => std::future::pending().await,
            count => Ok(count),
        }
    }

    async fn read_input(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.input.readable().await?;
            match ready.try_io(|input| input.get_ref().read(buffer)) {
                Ok(read) => return read,
                Err(_would_block) => {}
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Whoever looks at the terminal afterwards finds it as it was.
        let _ = tcsetattr(self.input.get_ref(), OptionalActions::Now, &self.saved);
    }
}
