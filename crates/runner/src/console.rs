//! What a run prints: to the runner's own standard output, for `kubectl logs` and attached clients, and to the log that the
//! hub keeps.

use std::sync::{Arc, PoisonError};

use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;

use crate::log::Log;
use crate::redact::{Redactor, Stream};

/// Where everything that a run prints goes. Cheap to clone.
#[derive(Clone)]
pub struct Console {
    log: Log,
    redactor: Redactor,
    /// One piece after the other, also when hooks and terraform print at the same time.
    out: Arc<Mutex<tokio::io::Stdout>>,
    /// Where it is kept instead, for a console that holds back.
    held: Option<Arc<std::sync::Mutex<Vec<u8>>>>,
}

impl Console {
    /// Prints without `redactor`'s values, also to `log`.
    pub fn new(log: Log, redactor: Redactor) -> Self {
        Console { log, redactor, out: Arc::new(Mutex::new(tokio::io::stdout())), held: None }
    }

    /// A console that prints nothing until [`Console::release`] is given it.
    pub fn hold(&self) -> Self {
        Console { held: Some(Arc::default()), ..self.clone() }
    }

    /// Prints what `held` has held back.
    pub async fn release(&self, held: &Console) {
        let bytes =
            held.held.as_ref().map(|held| std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner)));
        self.print(&bytes.unwrap_or_default()).await;
    }

    /// How many bytes were printed, those of earlier pods included.
    pub fn offset(&self) -> u64 {
        self.log.offset()
    }

    /// `text` without sensitive values.
    pub fn redact(&self, text: &str) -> String {
        self.redactor.text(text)
    }

    /// What a step says that fails with this output.
    pub fn message(&self, output: &[u8]) -> String {
        let mut tail = Tail::default();
        tail.push(self.redact(&String::from_utf8_lossy(output)).as_bytes());
        tail.message()
    }

    /// Masks these texts too from now on.
    pub fn learn(&self, sensitive: &[String]) {
        self.redactor.learn(sensitive.iter().map(String::as_str));
    }

    /// Prints a line of the runner's own.
    pub async fn line(&self, text: &str) {
        self.print(format!("{}\n", self.redactor.text(text)).as_bytes()).await;
    }

    /// For the output of one process.
    pub fn pipe(&self) -> Pipe {
        Pipe { console: self.clone(), stream: self.redactor.stream(), tail: Tail::default() }
    }

    async fn print(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Some(held) = &self.held {
            held.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            return;
        }
        let mut out = self.out.lock().await;
        self.log.append(bytes);
        // Nobody has to read along: the log has it, and a run does not end because a reader is gone.
        let _ = out.write_all(bytes).await;
        let _ = out.flush().await;
    }
}

/// The output of one process on its way to the console.
pub struct Pipe {
    console: Console,
    stream: Stream,
    tail: Tail,
}

impl Pipe {
    /// Prints the next piece.
    pub async fn push(&mut self, piece: &[u8]) {
        let harmless = self.stream.push(piece);
        self.tail.push(&harmless);
        self.console.print(&harmless).await;
    }

    /// Prints what was held back and returns the last lines, as a message.
    pub async fn finish(mut self) -> String {
        let rest = self.stream.finish();
        self.tail.push(&rest);
        self.console.print(&rest).await;
        self.tail.message()
    }
}

/// The end of an output, kept for the message of a step that fails.
#[derive(Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    /// What is kept is more than a message may have, because colours and frames are taken out.
    const KEPT: usize = 16 * 1024;
    /// A message fits into a status and on a screen.
    const MESSAGE: usize = 2048;
    const LINES: usize = 20;

    fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        if self.bytes.len() > 2 * Self::KEPT {
            self.bytes.drain(..self.bytes.len() - Self::KEPT);
        }
    }

    /// The last error that terraform printed, or else the last lines, without colours and frames.
    fn message(&self) -> String {
        let plain = plain(&String::from_utf8_lossy(&self.bytes));
        let lines: Vec<&str> = plain.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let error = lines.iter().rposition(|line| line.starts_with("Error: "));
        let shown = match error {
            Some(at) => &lines[at..lines.len().min(at + Self::LINES)],
            None => &lines[lines.len().saturating_sub(Self::LINES)..],
        };
        let mut message = shown.join("\n");
        if message.len() > Self::MESSAGE {
            let cut = (0..=Self::MESSAGE).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(cut);
            message.push('…');
        }
        message
    }
}

/// Text without terminal sequences and without the frame that terraform draws around its messages.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // A control sequence ends with its first letter.
            for c in chars.by_ref() {
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        } else if c != '\r' {
            out.push(c);
        }
    }
    let frame = |line: &str| line.trim_start_matches(['│', '╷', '╵']).strip_prefix(' ').unwrap_or_default().to_owned();
    out.lines()
        .map(|line| if line.starts_with(['│', '╷', '╵']) { frame(line) } else { line.to_owned() })
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, expect: &str) {
        let mut tail = Tail::default();
        tail.push(output.as_bytes());
        assert_eq!(tail.message(), expect);
    }

    #[test]
    fn the_error_of_terraform_is_the_message() {
        check(
            "Initializing...\n\u{1b}[31m╷\u{1b}[0m\u{1b}[0m\n\u{1b}[31m│\u{1b}[0m \u{1b}[0m\u{1b}[1m\u{1b}[31mError: \
             \u{1b}[0m\u{1b}[0m\u{1b}[1mbad thing\u{1b}[0m\n\u{1b}[31m│\u{1b}[0m \u{1b}[0m\n\u{1b}[31m│\u{1b}[0m \
             \u{1b}[0mdo this\u{1b}[0m\n\u{1b}[31m╵\u{1b}[0m\u{1b}[0m\n",
            "Error: bad thing\ndo this",
        );
    }

    #[test]
    fn without_an_error_the_last_lines_are_the_message() {
        let lines: Vec<String> = (0..50).map(|n| format!("line {n}")).collect();
        check(&lines.join("\n"), &lines[30..].join("\n"));
        check("", "");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let mut tail = Tail::default();
        tail.push("é".repeat(5000).as_bytes());
        let message = tail.message();
        assert!(message.len() <= Tail::MESSAGE + '…'.len_utf8() && message.ends_with('…'));
    }
}
