//! The output of a finished command, with assertions for tests.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// The result of a command.
#[derive(Debug)]
pub struct CommandResult {
    pub words: String,
    /// The exit code, or none if a signal ended the process.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl CommandResult {
    /// Runs a command to its end, with `input` as its standard input.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn by(command: &mut Command, input: &str) -> Self {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("`{words}` cannot be started: {error}"));
        // A command that does not read its input may have exited already.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        CommandResult { words, code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// The standard output of a successful command.
    ///
    /// # Panics
    /// If it failed.
    #[track_caller]
    #[must_use]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "`{}` failed: {}{}", self.words, self.stdout, self.stderr);
        self.stdout
    }

    /// The standard error of a failed command.
    ///
    /// # Panics
    /// If it succeeded.
    #[track_caller]
    #[must_use]
    pub fn refused(self) -> String {
        assert_ne!(self.code, Some(0), "`{}` must fail, and said: {}", self.words, self.stdout);
        self.stderr
    }
}
