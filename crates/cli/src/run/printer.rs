//! Prints the log of a run without a terminal: terraform's output to standard output, the rest to standard error.
//!
//! The log of a reading command is held back until the run has ended. Where the log differs from the answer of the command,
//! because sensitive values are masked in it, the answer is printed instead.

use std::io::{self, Write};

use knoll_api::wire::Answer;

use super::split::{LogSplitter, Stream};
use crate::style;
use crate::workspace::Session;

/// Prints the output of a run.
#[derive(Default)]
pub struct Printer {
    splitter: LogSplitter,
    /// The log of a reading command.
    held: Option<Vec<u8>>,
}

impl Printer {
    /// `answers`: the output of the run is the answer of a reading command.
    pub fn new(answers: bool) -> Self {
        Printer { held: answers.then(Vec::new), ..Printer::default() }
    }

    /// Prints the next part of the log.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn print(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.held {
            Some(held) => held.extend_from_slice(bytes),
            None => {
                for (stream, part) in self.splitter.push(bytes) {
                    write(stream, &part)?;
                }
            }
        }
        Ok(())
    }

    /// Prints what was held back, when the run has ended.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn finish(&mut self, session: &Session, run: &str) -> io::Result<()> {
        if let Some(held) = self.held.take() {
            match session.storage().answers().get(&session.namespace, run).await {
                Ok(Some(Answer { stdout, stderr })) => {
                    write(Stream::Stderr, &stderr.0)?;
                    return write(Stream::Stdout, &stdout.0);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "the answer cannot be read");
                    style::note(
                        "sensitive values are masked: to see them, ask for the role `knoll-user`, or for the right to \
                         `get` `secrets`",
                    );
                }
            }
            self.print(&held)?;
        }
        match self.splitter.finish() {
            Some((stream, rest)) => write(stream, &rest),
            None => Ok(()),
        }
    }
}

fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    let written = match stream {
        Stream::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Stream::Stderr => io::stderr().write_all(bytes),
    };
    match written {
        // The reader has closed the pipe; the run continues.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result,
    }
}
