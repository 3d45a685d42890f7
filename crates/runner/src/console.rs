//! Prints a run's output to the runner's standard output, for `kubectl logs` and attached clients, and to the log
//! stored by the hub.

use std::sync::{Arc, PoisonError};

use tokio::io::AsyncWriteExt;
use tokio::sync::{Mutex, watch};

use crate::backend_notice::BackendNotice;
use crate::log::Log;
use crate::prompt::{PromptReader, Shown};
use crate::redact::{Redactor, Stream};

/// The destination of all output of a run. Cheap to clone.
#[derive(Clone)]
pub struct Console {
    log: Log,
    redactor: Redactor,
    /// The lock keeps chunks whole when hooks and terraform print at the same time.
    out: Arc<Mutex<tokio::io::Stdout>>,
    /// The buffer of a console that holds its output back.
    held: Option<Arc<std::sync::Mutex<Vec<u8>>>>,
    /// Processes print without terraform's notice about the runner's backend.
    hides_backend: bool,
    /// Takes what the output of processes shows.
    shown: Option<Arc<watch::Sender<Shown>>>,
}

impl Console {
    /// Prints with the values of `redactor` masked, also to `log`.
    pub fn new(log: Log, redactor: Redactor) -> Self {
        Console {
            log,
            redactor,
            out: Arc::new(Mutex::new(tokio::io::stdout())),
            held: None,
            hides_backend: false,
            shown: None,
        }
    }

    /// A console without terraform's notice about the runner's backend.
    pub fn hiding_backend(&self) -> Self {
        Console { hides_backend: true, ..self.clone() }
    }

    /// A console that passes on what the output of processes shows.
    pub fn observed(&self, shown: Arc<watch::Sender<Shown>>) -> Self {
        Console { shown: Some(shown), ..self.clone() }
    }

    /// A console that buffers its output until [`Console::release`].
    pub fn hold(&self) -> Self {
        Console { held: Some(Arc::default()), ..self.clone() }
    }

    /// Prints the buffered output of `held`.
    pub async fn release(&self, held: &Console) {
        let bytes =
            held.held.as_ref().map(|held| std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner)));
        self.print(&bytes.unwrap_or_default()).await;
    }

    /// The number of bytes printed so far, including those of earlier pods.
    pub fn offset(&self) -> u64 {
        self.log.offset()
    }

    /// Masks sensitive values in `text`.
    pub fn redact(&self, text: &str) -> String {
        self.redactor.text(text)
    }

    /// The message of a step that failed with this output.
    pub fn message(&self, output: &[u8]) -> String {
        let mut tail = Tail::default();
        tail.push(self.redact(&String::from_utf8_lossy(output)).as_bytes());
        tail.message()
    }

    /// Whether masking changes `output`.
    pub fn is_masked(&self, output: &[u8]) -> bool {
        self.redactor.bytes(output) != output
    }

    /// Prints the two streams of a process that has ended, and returns the message of a step that failed with them.
    pub async fn show(&self, stdout: &[u8], stderr: &[u8]) -> String {
        let mut tail = Tail::default();
        for output in [stdout, stderr] {
            let harmless = self.redactor.bytes(output);
            tail.push(&harmless);
            self.print(&harmless).await;
        }
        tail.message()
    }

    /// Adds values to mask.
    pub fn learn(&self, sensitive: &[String]) {
        self.redactor.learn(sensitive.iter().map(String::as_str));
    }

    /// Prints a message of the runner's own.
    pub async fn line(&self, text: &str) {
        self.print(format!("{}\n", self.redactor.text(text)).as_bytes()).await;
    }

    /// A pipe for the output of one process.
    pub fn pipe(&self) -> Pipe {
        let notice = self.hides_backend.then(BackendNotice::default);
        Pipe {
            console: self.clone(),
            notice,
            stream: self.redactor.stream(),
            tail: Tail::default(),
            prompt: PromptReader::default(),
        }
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
        // A closed standard output does not fail the run, because the log has the output as well.
        let _ = out.write_all(bytes).await;
        let _ = out.flush().await;
    }
}

/// The output of one process on its way to the console.
pub struct Pipe {
    console: Console,
    notice: Option<BackendNotice>,
    stream: Stream,
    tail: Tail,
    prompt: PromptReader,
}

impl Pipe {
    pub async fn push(&mut self, piece: &[u8]) {
        let kept = self.notice.as_mut().map(|notice| notice.push(piece));
        let harmless = self.stream.push(kept.as_deref().unwrap_or(piece));
        self.tail.push(&harmless);
        self.console.print(&harmless).await;
        if let Some(shown) = &self.console.shown {
            self.prompt.push(&harmless);
            shown.send_if_modified(|now| {
                let changed = *now != self.prompt.shown;
                now.clone_from(&self.prompt.shown);
                changed
            });
        }
    }

    /// Prints the buffered rest, and returns the last lines as a message.
    pub async fn finish(mut self) -> String {
        let kept = self.notice.as_mut().map(BackendNotice::finish).unwrap_or_default();
        let mut rest = self.stream.push(&kept);
        rest.extend(self.stream.finish());
        self.tail.push(&rest);
        self.console.print(&rest).await;
        self.tail.message()
    }
}

/// The end of an output, for the message of a step that fails.
#[derive(Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    /// More than the maximum message, because colours and frames are removed from it.
    const KEPT: usize = 16 * 1024;
    /// The maximum length of a message, which has to fit into a status.
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

/// Removes terminal escape sequences, and the frame that terraform draws around its messages.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // An escape sequence ends with its first letter.
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
