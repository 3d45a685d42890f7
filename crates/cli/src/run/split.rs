//! Separates terraform's own output from the rest of a run's log: `init`, hooks and the runner's lines. Pure.
//!
//! The runner prints a heading before the output of each step ([`step_heading`]). Terraform's commands go to standard
//! output, so that `knoll plan -json | jq` works; everything else goes to standard error.

use knoll_api::step::StepName;
use knoll_api::wire::{OWN_LINE, STEP_HEADING, step_heading};

/// Where a part of the log goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stream {
    #[default]
    Stdout,
    Stderr,
}

/// Separates a log that arrives in chunks.
#[derive(Default)]
pub struct LogSplitter {
    /// Where the output of the current step goes.
    stream: Stream,
    /// The beginning of the current line, as long as it may be one of the runner's own.
    held: Vec<u8>,
    /// The rest of the current line belongs to the current step.
    passes: bool,
}

impl LogSplitter {
    /// Takes the next chunk, and returns its parts with their streams.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<(Stream, Vec<u8>)> {
        let mut parts: Vec<(Stream, Vec<u8>)> = Vec::new();
        let mut add = |stream: Stream, bytes: &[u8]| match parts.last_mut() {
            Some((last, part)) if *last == stream => part.extend_from_slice(bytes),
            _ => parts.push((stream, bytes.to_vec())),
        };
        for byte in bytes {
            if self.passes {
                add(self.stream, &[*byte]);
            } else {
                self.held.push(*byte);
                let is_own = self.held.starts_with(OWN_LINE.as_bytes());
                if is_own && *byte == b'\n' {
                    self.stream = self.heading().unwrap_or(self.stream);
                    add(Stream::Stderr, &std::mem::take(&mut self.held));
                } else if !is_own && !OWN_LINE.as_bytes().starts_with(&self.held) {
                    add(self.stream, &std::mem::take(&mut self.held));
                    self.passes = true;
                }
            }
            if *byte == b'\n' {
                self.passes = false;
            }
        }
        parts
    }

    /// The rest, when nothing follows.
    pub fn finish(&mut self) -> Option<(Stream, Vec<u8>)> {
        let rest = std::mem::take(&mut self.held);
        let stream = if rest.starts_with(OWN_LINE.as_bytes()) { Stream::Stderr } else { self.stream };
        (!rest.is_empty()).then_some((stream, rest))
    }

    /// The stream of the step whose heading the held line is.
    fn heading(&self) -> Option<Stream> {
        let line = std::str::from_utf8(&self.held).ok()?.trim_end();
        line.strip_prefix(STEP_HEADING)?;
        let step = StepName::ALL.into_iter().find(|step| step_heading(*step) == line)?;
        let is_terraform = matches!(step, StepName::Plan | StepName::Apply | StepName::Command);
        Some(if is_terraform { Stream::Stdout } else { Stream::Stderr })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(log: &str, stdout: &str, stderr: &str) {
        for size in [1, 3, 1000] {
            let mut splitter = LogSplitter::default();
            let mut parts = Vec::new();
            for piece in log.as_bytes().chunks(size) {
                parts.extend(splitter.push(piece));
            }
            parts.extend(splitter.finish());
            let of = |stream| -> String {
                let parts = parts.iter().filter(|(to, _)| *to == stream);
                parts.map(|(_, bytes)| String::from_utf8_lossy(bytes)).collect()
            };
            assert_eq!((of(Stream::Stdout).as_str(), of(Stream::Stderr).as_str()), (stdout, stderr), "{size}");
        }
    }

    #[test]
    fn only_terraforms_own_commands_print_to_standard_output() {
        check(
            "knoll: step init\nInitializing\nknoll: init failed, attempt 1 of 3\nmore\nknoll: step plan\n{\"a\":1}\n\
             knoll: step post-plan\nhook\nknoll: step apply\n{\"b\":2}\n",
            "{\"a\":1}\n{\"b\":2}\n",
            "knoll: step init\nInitializing\nknoll: init failed, attempt 1 of 3\nmore\nknoll: step plan\n\
             knoll: step post-plan\nhook\nknoll: step apply\n",
        );
    }

    #[test]
    fn the_log_of_a_command_is_its_output() {
        check("{\"x\": 1}\nno end of line", "{\"x\": 1}\nno end of line", "");
        check("knoll", "knoll", "");
        check("a knoll: step init\n", "a knoll: step init\n", "");
        check("one\nknoll: it failed", "one\n", "knoll: it failed");
        check("knoll: step nonsense\nx\n", "x\n", "knoll: step nonsense\n");
    }
}
