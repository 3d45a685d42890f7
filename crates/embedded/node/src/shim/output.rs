//! What a container writes: to its log, and to those who are attached.
//!
//! The log has one record a line: time, stream, `F` for a whole line or `P` for a part of one, and the text, as the
//! container runtimes of Kubernetes write it. A part is written when a line is longer than [`PART`], when the process
//! pauses in the middle of one (a prompt), or when it ends there; records put together give back every byte.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::timeout;

use super::wire::{Attach, Frame};

/// The longest text of a record.
const PART: usize = 16 << 10;
/// A line that is not finished after that long is written as it is.
const PAUSE: Duration = Duration::from_millis(20);
/// An attached client that takes nothing for that long is let go, so that it cannot hold up the process for ever.
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);

/// One of a process's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or the terminal.
    Stdout,
    Stderr,
}

impl Stream {
    /// Its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Everything that goes out.
pub struct Output {
    /// An exec has no log.
    log: Option<File>,
    clients: Vec<Client>,
    grown: watch::Sender<()>,
}

struct Client {
    wants: Attach,
    to: mpsc::Sender<Frame>,
}

impl Output {
    /// Output to a log file, or to clients only.
    pub fn new(log: Option<&Path>) -> io::Result<Arc<Mutex<Self>>> {
        let log = log.map(|path| OpenOptions::new().create(true).append(true).mode(0o600).open(path)).transpose()?;
        Ok(Arc::new(Mutex::new(Self { log, clients: Vec::new(), grown: watch::Sender::new(()) })))
    }

    /// Sends a client what comes from now on.
    pub fn attach(&mut self, wants: Attach, to: mpsc::Sender<Frame>) {
        self.clients.push(Client { wants, to });
    }

    /// Changes whenever the log has grown.
    pub fn grown(&self) -> watch::Receiver<()> {
        self.grown.subscribe()
    }

    /// The process has ended: clients get no more, and see the end of their channels.
    pub fn close(&mut self) {
        self.clients.clear();
    }

    async fn deliver(&mut self, stream: Stream, bytes: &Bytes) {
        let mut gone = Vec::new();
        for (index, client) in self.clients.iter().enumerate() {
            let frame = match stream {
                Stream::Stdout if client.wants.stdout => Frame::Stdout(bytes.clone()),
                Stream::Stderr if client.wants.stderr => Frame::Stderr(bytes.clone()),
                _ => continue,
            };
            if !matches!(timeout(CLIENT_PATIENCE, client.to.send(frame)).await, Ok(Ok(()))) {
                gone.push(index);
            }
        }
        for index in gone.into_iter().rev() {
            self.clients.swap_remove(index);
        }
    }

    /// Appends to the log. A full disk must not end the process, so what cannot be written is left out.
    fn record(&mut self, records: &[u8]) {
        if let Some(log) = &mut self.log
            && !records.is_empty()
        {
            let _ = log.write_all(records);
            self.grown.send_replace(());
        }
    }
}

/// Carries one stream until its end.
pub async fn pump(mut from: impl AsyncRead + Unpin, stream: Stream, output: Arc<Mutex<Output>>) {
    let mut lines = Lines::new(stream);
    let mut buffer = vec![0; 32 << 10];
    loop {
        let read = if lines.pending() {
            match timeout(PAUSE, from.read(&mut buffer)).await {
                Ok(read) => read,
                Err(_) => {
                    let records = lines.flush(Timestamp::now());
                    output.lock().await.record(&records);
                    from.read(&mut buffer).await
                }
            }
        } else {
            from.read(&mut buffer).await
        };
        let length = match read {
            Ok(0) | Err(_) => break,
            Ok(length) => length,
        };
        let records = lines.push(&buffer[..length], Timestamp::now());
        let mut output = output.lock().await;
        output.record(&records);
        output.deliver(stream, &Bytes::copy_from_slice(&buffer[..length])).await;
    }
    let records = lines.flush(Timestamp::now());
    output.lock().await.record(&records);
}

/// Cuts a stream into records.
struct Lines {
    stream: Stream,
    rest: Vec<u8>,
}

impl Lines {
    fn new(stream: Stream) -> Self {
        Self { stream, rest: Vec::new() }
    }

    fn pending(&self) -> bool {
        !self.rest.is_empty()
    }

    fn push(&mut self, bytes: &[u8], now: Timestamp) -> Vec<u8> {
        let mut records = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(piece.strip_suffix(b"\n").unwrap_or(piece));
            while self.rest.len() > PART {
                let tail = self.rest.split_off(PART);
                let part = std::mem::replace(&mut self.rest, tail);
                append(&mut records, now, self.stream, b'P', &part);
            }
            if piece.ends_with(b"\n") {
                append(&mut records, now, self.stream, b'F', &self.rest);
                self.rest.clear();
            }
        }
        records
    }

    fn flush(&mut self, now: Timestamp) -> Vec<u8> {
        let mut records = Vec::new();
        if self.pending() {
            append(&mut records, now, self.stream, b'P', &self.rest);
            self.rest.clear();
        }
        records
    }
}

fn append(records: &mut Vec<u8>, now: Timestamp, stream: Stream, tag: u8, text: &[u8]) {
    // Nine digits always, so that times compare as text.
    records.extend_from_slice(format!("{now:.9} {} ", stream.name()).as_bytes());
    records.extend_from_slice(&[tag, b' ']);
    records.extend_from_slice(text);
    records.push(b'\n');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_stream_becomes_records_that_give_back_every_byte() {
        let now = Timestamp::UNIX_EPOCH;
        let at = "1970-01-01T00:00:00.000000000Z stdout";
        let mut lines = Lines::new(Stream::Stdout);
        let mut check = |bytes: &[u8], expect: String| {
            assert_eq!(String::from_utf8(lines.push(bytes, now)).unwrap(), expect);
        };
        check(b"one\ntw", format!("{at} F one\n"));
        check(b"o\n\n", format!("{at} F two\n{at} F \n"));
        let long = "x".repeat(PART);
        check(long.as_bytes(), String::new());
        check(b"yz\n", format!("{at} P {long}\n{at} F yz\n"));
        check(b"Enter a value: ", String::new());
        assert!(lines.pending());
        assert_eq!(String::from_utf8(lines.flush(now)).unwrap(), format!("{at} P Enter a value: \n"));
        assert_eq!(lines.push(b"\n", now), format!("{at} F \n").as_bytes());
    }
}
