//! Reading a container's log: the records that the shim wrote, put together again.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::net::UnixStream;

use super::container::connect;
use super::shim::files;
use super::shim::wire::Frame;
use knoll_kube_apiserver::LogOptions;

/// How much of the file is read at once.
const CHUNK: usize = 64 << 10;

/// Streams the log of an instance as `pods/log` gives it.
pub async fn stream(folder: &Path, options: LogOptions) -> io::Result<BoxStream<'static, io::Result<Bytes>>> {
    let path = folder.join(files::LOG);
    // Connected before the first read: whatever is written after that wakes us.
    let follower = if options.follow { connect(folder, &Frame::Follow).await.ok() } else { None };
    let start = match options.tail_lines {
        Some(lines) => {
            let path = path.clone();
            tokio::task::spawn_blocking(move || tail_start(&path, lines)).await.map_err(io::Error::other)??
        }
        None => 0,
    };
    let reader =
        Reader { path, file: None, start, rest: Vec::new(), filter: Filter::new(&options), follower, ended: false };
    let stream = futures::stream::unfold(reader, |mut reader| async move {
        let item = reader.next().await.transpose()?;
        Some((item, reader))
    });
    Ok(stream.boxed())
}

/// The last lines of a log, as they were written.
pub fn last_lines(path: &Path, lines: u64) -> io::Result<Vec<u8>> {
    let start = tail_start(path, lines)?;
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Filter::new(&LogOptions::default()).take(&bytes))
}

struct Reader {
    path: std::path::PathBuf,
    file: Option<tokio::fs::File>,
    start: u64,
    /// The beginning of a record whose end is not written yet.
    rest: Vec<u8>,
    filter: Filter,
    /// The shim that wakes us; `None` once it said that there will be no more.
    follower: Option<UnixStream>,
    ended: bool,
}

impl Reader {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if self.filter.full() || self.ended {
                return Ok(None);
            }
            let length = self.fill().await?;
            if length > 0 {
                let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let records: Vec<u8> = self.rest.drain(..whole).collect();
                let text = self.filter.take(&records);
                if !text.is_empty() {
                    return Ok(Some(text.into()));
                }
                continue;
            }
            match &mut self.follower {
                None => self.ended = true,
                // A disconnect means that the container has ended; what it wrote last is read once more.
                Some(shim) => {
                    if !matches!(Frame::read(shim).await, Ok(Some(_))) {
                        self.follower = None;
                    }
                }
            }
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            None => match tokio::fs::File::open(&self.path).await {
                Ok(mut file) => {
                    file.seek(SeekFrom::Start(self.start)).await?;
                    self.file.insert(file)
                }
                // A container that has written nothing may have no log yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
                Err(error) => return Err(error),
            },
        };
        self.rest.reserve(CHUNK);
        file.read_buf(&mut self.rest).await
    }
}

/// Turns records into what the client asked for.
struct Filter {
    since: Option<String>,
    timestamps: bool,
    left: Option<u64>,
    at_line_start: bool,
}

impl Filter {
    fn new(options: &LogOptions) -> Self {
        Self {
            since: options.since.map(|since| format!("{since:.9}")),
            timestamps: options.timestamps,
            left: options.limit_bytes,
            at_line_start: true,
        }
    }

    fn full(&self) -> bool {
        self.left == Some(0)
    }

    /// The text of whole records. One that is none is left out.
    fn take(&mut self, records: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(records.len());
        for record in records.split_inclusive(|byte| *byte == b'\n').filter_map(Record::parse) {
            if self.since.as_deref().is_some_and(|since| record.time < since) {
                continue;
            }
            if self.timestamps && self.at_line_start {
                text.extend_from_slice(record.time.as_bytes());
                text.push(b' ');
            }
            text.extend_from_slice(record.text);
            if record.whole {
                text.push(b'\n');
            }
            self.at_line_start = record.whole;
        }
        if let Some(left) = &mut self.left {
            text.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= u64::try_from(text.len()).unwrap_or(*left).min(*left);
        }
        text
    }
}

/// One record of the log.
struct Record<'a> {
    /// Always of the same length, so that it compares as text.
    time: &'a str,
    /// The line ends here.
    whole: bool,
    text: &'a [u8],
}

impl<'a> Record<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\n")?;
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(parts.next()?).ok()?;
        time.parse::<Timestamp>().ok()?;
        let _stream = parts.next()?;
        let whole = parts.next()? == b"F";
        Some(Self { time, whole, text: parts.next()? })
    }
}

/// Where the last lines begin, found from the end.
fn tail_start(path: &Path, lines: u64) -> io::Result<u64> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    if lines == 0 {
        return Ok(length);
    }
    let mut window = u64::try_from(CHUNK).map_err(io::Error::other)?;
    loop {
        let from = length.saturating_sub(window);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        (&mut file).take(length - from).read_to_end(&mut bytes)?;
        // Unless it is the file's beginning, the window begins inside a record.
        let skipped =
            if from == 0 { 0 } else { bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1) };
        if let Some(start) = line_start(&bytes[skipped..], lines) {
            return Ok(from + u64::try_from(skipped + start).map_err(io::Error::other)?);
        }
        if from == 0 {
            return Ok(0);
        }
        window *= 4;
    }
}

/// Where the last lines begin in whole records; `None` when there are not that many.
fn line_start(records: &[u8], lines: u64) -> Option<usize> {
    let mut at = records.len();
    let mut ends = 0;
    let mut last = true;
    for record in records.split_inclusive(|byte| *byte == b'\n').rev() {
        let whole = Record::parse(record).is_some_and(|record| record.whole);
        // A part at the very end is a line of its own.
        if whole || last {
            ends += 1;
            if ends > lines {
                return Some(at);
            }
        }
        last = false;
        at -= record.len();
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const LOG: &str = "2026-01-01T00:00:01.000000000Z stdout F one\n\
                       2026-01-01T00:00:02.000000000Z stderr P tw\n\
                       torn\n\
                       2026-01-01T00:00:03.000000000Z stderr F o\n\
                       2026-01-01T00:00:04.000000000Z stdout F \n\
                       2026-01-01T00:00:05.000000000Z stdout P Enter a value: \n";

    async fn read(options: LogOptions) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(files::LOG), LOG).unwrap();
        let pieces: Vec<_> = stream(folder.path(), options).await.unwrap().collect().await;
        pieces.into_iter().map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap()).collect()
    }

    #[tokio::test]
    async fn a_log_is_read_as_it_was_asked_for() {
        let options = LogOptions::default;
        for (options, expect) in [
            (options(), "one\ntwo\n\nEnter a value: "),
            (LogOptions { follow: true, ..options() }, "one\ntwo\n\nEnter a value: "),
            (LogOptions { tail_lines: Some(0), ..options() }, ""),
            (LogOptions { tail_lines: Some(1), ..options() }, "Enter a value: "),
            (LogOptions { tail_lines: Some(2), ..options() }, "\nEnter a value: "),
            (LogOptions { tail_lines: Some(3), ..options() }, "two\n\nEnter a value: "),
            (LogOptions { tail_lines: Some(9), ..options() }, "one\ntwo\n\nEnter a value: "),
            (LogOptions { limit_bytes: Some(5), ..options() }, "one\nt"),
            (LogOptions { limit_bytes: Some(0), ..options() }, ""),
            (LogOptions { since: Some("2026-01-01T00:00:03Z".parse().unwrap()), ..options() }, "o\n\nEnter a value: "),
            (
                LogOptions { timestamps: true, tail_lines: Some(3), ..options() },
                "2026-01-01T00:00:02.000000000Z two\n2026-01-01T00:00:04.000000000Z \n2026-01-01T00:00:05.000000000Z Enter a value: ",
            ),
        ] {
            assert_eq!(read(options.clone()).await, expect, "{options:?}");
        }
    }

    #[tokio::test]
    async fn a_log_that_is_not_there_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = stream(folder.path(), LogOptions { tail_lines: Some(3), ..LogOptions::default() }).await.unwrap();
        assert!(log.next().await.is_none());
    }

    #[test]
    fn the_last_lines_of_a_long_log_are_found_from_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let lines: String = (0..5000).map(|n| format!("2026-01-01T00:00:01.000000000Z stdout F line {n}\n")).collect();
        std::fs::write(&path, lines).unwrap();
        let expect: String = (2000..5000).map(|n| format!("line {n}\n")).collect();
        assert_eq!(String::from_utf8(last_lines(&path, 3000).unwrap()).unwrap(), expect);
        assert_eq!(last_lines(&path, 2).unwrap(), b"line 4998\nline 4999\n");
        assert_eq!(
            last_lines(&path, 9999).unwrap().len(),
            (0..5000).map(|n| format!("line {n}\n").len()).sum::<usize>()
        );
    }
}
