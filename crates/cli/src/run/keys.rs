//! Puts the user's terminal into raw mode while a run is attached, and restores it afterwards.

use std::io::{self, IsTerminal, Read};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

/// Whether standard input and standard output are terminals.
pub fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The terminal in raw mode. Dropping this restores the previous mode.
pub struct Raw {
    saved: Termios,
}

impl Raw {
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

/// The number of columns and rows of the terminal.
pub fn size() -> (u16, u16) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => (80, 24),
    }
}

/// Reads the keyboard in a thread. The thread ends with the process, because a blocking read cannot be cancelled.
pub fn typed() -> mpsc::Receiver<Vec<u8>> {
    let (sender, keys) = mpsc::channel(64);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            match io::stdin().read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                        return;
                    }
                }
            }
        }
    });
    keys
}
