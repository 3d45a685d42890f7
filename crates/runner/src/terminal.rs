//! The terminal of a client that attaches to the run.
//!
//! The pod has a terminal, which receives the client's keys. Terraform gets a second terminal behind it, so that its
//! output can be copied to the log while it still sees a terminal of the right size.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, PoisonError};

use nix::fcntl::OFlag;
use rustix::termios::{OptionalActions, OutputModes, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The runner's own terminal in raw mode. Dropping this restores the previous mode.
pub struct Terminal {
    input: AsyncFd<File>,
    saved: Termios,
    resizes: tokio::sync::Mutex<Signal>,
    /// Keys that were typed before terraform started to read.
    early: Mutex<Vec<u8>>,
}

impl Terminal {
    /// Opens the terminal at standard input. Returns none if standard input is not a terminal.
    ///
    /// # Errors
    /// If the terminal cannot be used.
    pub fn open() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        // The terminal is opened again, because non-blocking mode would otherwise be shared with standard output.
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let file = OpenOptions::new().read(true).custom_flags(flags).open("/proc/self/fd/0")?;
        let saved = tcgetattr(&file)?;
        let mut raw = saved.clone();
        raw.make_raw();
        // The runner's own lines still need `
        // ` to be translated.
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

    /// Waits for a client. A client that attaches sends its window size or a key.
    pub async fn attached(&self) {
        let mut first = [0; 1];
        tokio::select! {
            () = self.resized() => {}
            read = self.read_input(&mut first) => {
                // The key that only announces a client is not passed to terraform.
                if matches!(read, Ok(1)) && !matches!(first[0], b'\r' | b'\n' | 0) {
                    self.early.lock().unwrap_or_else(PoisonError::into_inner).push(first[0]);
                }
            }
        }
    }

    pub fn size(&self) -> pty_process::Size {
        match tcgetwinsize(self.input.get_ref()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => pty_process::Size::new(size.ws_row, size.ws_col),
            _ => pty_process::Size::new(24, 80),
        }
    }

    /// Resolves when the window size has changed.
    pub async fn resized(&self) {
        if self.resizes.lock().await.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Reads the client's keys. It never ends, because clients may come and go.
    ///
    /// # Errors
    /// If the terminal is gone.
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
        // Restores the terminal for its next user.
        let _ = tcsetattr(self.input.get_ref(), OptionalActions::Now, &self.saved);
    }
}
