//! What a program said, and how a test takes it.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// The end of a program.
#[derive(Debug)]
pub struct Said {
    /// The words that it was called with.
    pub words: String,
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Said {
    /// Runs a program to its end, with this on its standard input.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn by(command: &mut Command, input: &str) -> Self {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("`{words}` cannot be started: {error}"));
        // A program that does not read its input may be gone already.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said { words, code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// The standard output of a program that succeeded.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    #[must_use]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "`{}` failed: {}{}", self.words, self.stdout, self.stderr);
        self.stdout
    }

    /// The standard error of a program that failed.
    ///
    /// # Panics
    /// When it succeeded.
    #[track_caller]
    #[must_use]
    pub fn refused(self) -> String {
        assert_ne!(self.code, Some(0), "`{}` must fail, and said: {}", self.words, self.stdout);
        self.stderr
    }
}
