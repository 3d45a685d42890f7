//! The user's terminal: without line editing while a run is attached, as it was afterwards.

use std::io::{self, IsTerminal, Read};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

/// Whether a person sits in front of both ends.
pub fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The terminal in raw mode, for as long as this lives.
pub struct Raw {
    saved: Termios,
}

impl Raw {
    /// Passes every key on as it is typed.
    pub fn enter() -> io::Result<Self> {
        let saved = tcgetattr(io::stdin())?;
        let mut raw = saved.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Raw { saved })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.saved);
    }
}

/// Columns and rows of the terminal.
pub fn size() -> (u16, u16) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => (80, 24),
    }
}

/// What is typed. The reading thread ends with the process: a blocked read cannot be called back.
pub fn typed() -> mpsc::Receiver<Vec<u8>> {
    let (tell, keys) = mpsc::channel(64);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            match io::stdin().read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    if tell.blocking_send(buffer[..count].to_vec()).is_err() {
                        return;
                    }
                }
            }
        }
    });
    keys
}
