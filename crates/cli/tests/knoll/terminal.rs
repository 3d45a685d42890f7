//! A terminal with a readable screen and a keyboard.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pty_process::blocking::{Command, Pty};

use super::{Home, PATIENCE};

/// A command in a terminal.
pub struct Terminal {
    screen: vt100::Parser,
    /// Everything that was printed, with escape sequences.
    pub printed: String,
    output: Receiver<Vec<u8>>,
    pty: Pty,
    child: std::process::Child,
}

impl Terminal {
    /// Runs `knoll WORDS` in a terminal of this size.
    pub fn run(home: &Home, words: &[&str], rows: u16, columns: u16) -> Self {
        Self::run_with(home, words, rows, columns, &[])
    }

    /// The same with additional environment variables.
    pub fn run_with(home: &Home, words: &[&str], rows: u16, columns: u16, variables: &[(&str, &str)]) -> Self {
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(pty_process::Size::new(rows, columns)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_knoll"))
            .args(words)
            .env_clear()
            .envs(home.environment())
            .envs(variables.iter().copied())
            .current_dir(home.module())
            .spawn(pts)
            .unwrap();
        let mut reader = std::fs::File::from(rustix::io::dup(&pty).unwrap());
        let (tell, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if tell.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        // A large scrollback keeps all lines.
        Terminal {
            screen: vt100::Parser::new(cells(rows), cells(columns), 1000),
            printed: String::new(),
            output,
            pty,
            child,
        }
    }

    pub fn screen(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen shows this text.
    #[track_caller]
    pub fn sees(&mut self, text: &str) {
        self.until(text, |screen, _| screen.contains(text));
    }

    /// Waits until this text was printed, even if it has scrolled away.
    #[track_caller]
    pub fn prints(&mut self, text: &str) {
        self.until(text, |_, printed| printed.contains(text));
    }

    #[track_caller]
    fn until(&mut self, what: &str, wanted: impl Fn(&str, &str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !wanted(&self.screen(), &self.printed) {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.take(&bytes),
                Err(RecvTimeoutError::Timeout) => panic!("`{what}` is not there in time:\n{}", self.screen()),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended without `{what}`:\n{}", self.printed),
            }
        }
    }

    pub fn types(&mut self, keys: &str) {
        self.pty.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.pty.resize(pty_process::Size::new(rows, columns)).unwrap();
        self.screen.screen_mut().set_size(cells(rows), cells(columns));
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Whether typed letters are echoed, as outside of raw mode.
    pub fn echoes(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.pty).unwrap().local_modes;
        modes.contains(rustix::termios::LocalModes::ECHO)
    }

    /// Waits for the end of the command, and returns its exit code.
    #[track_caller]
    pub fn ends(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.take(&bytes),
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().unwrap(),
                Err(RecvTimeoutError::Timeout) => panic!("it does not end:\n{}", self.screen()),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        self.printed.push_str(&String::from_utf8_lossy(bytes));
    }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A failed test must not leave the process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
