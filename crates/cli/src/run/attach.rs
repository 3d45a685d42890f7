//! Connects the user's terminal to that of a run: output, keys and window size.
//!
//! *Guarantee.* Everything the pod printed is printed here once and in order. Output that an attached stream misses, at
//! its beginning, in a gap or at its end, comes from the pod's log.

use std::io::{self, Write};
use std::pin::pin;
use std::time::Duration;

use anyhow::Result;
use futures::SinkExt;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::names::{condition, pod as names};
use kube::Api;
use kube::api::{AttachParams, TerminalSize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::keys::{self, Raw};
use super::logs::{self, End, Stage};
use super::position;
use super::stop::Request;

/// The size of the buffer between the connection and the screen.
const BUFFER: usize = 64 << 10;
/// How long to wait, after the stream has ended, for the status to say that the run has.
const PATIENCE: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long after the first live bytes the log is taken to contain no more of them.
const SETTLED: Duration = Duration::from_millis(100);
/// How long one try to connect may take. Keys are not read meanwhile.
const CONNECT: Duration = Duration::from_secs(5);
const CTRL_C: u8 = 3;

/// The user's keyboard. It is read once and shared by all connections.
pub struct Keyboard {
    keys: mpsc::Receiver<Vec<u8>>,
    /// Ctrl-C is passed to the program in the pod instead of cancelling the run.
    pub passes_interrupt: bool,
}

impl Keyboard {
    pub fn new(passes_interrupt: bool) -> Self {
        Keyboard { keys: keys::typed(), passes_interrupt }
    }
}

/// Why a connection ended.
enum Disconnect {
    /// The pod's output or the connection has ended.
    Stream,
    /// The user leaves the run, with this signal.
    Left(i32),
}

/// Shows the terminal of the stage's pod until the pod is done.
pub async fn show(stage: &mut Stage<'_>, keyboard: &mut Keyboard) -> Result<End> {
    let pods: Api<Pod> = stage.session.api();
    let raw = Raw::enter()?;
    let mut pause = FIRST_PAUSE;
    let mut told = false;
    let mut whole = false;
    let end = loop {
        whole = match connection(stage, &pods, keyboard).await {
            Ok(Disconnect::Left(signal)) => break End::Left(signal),
            Ok(Disconnect::Stream) => {
                pause = FIRST_PAUSE;
                true
            }
            Err(error) => {
                tracing::debug!(%error, "cannot attach");
                false
            }
        };
        if let Some(end) = idle(stage, keyboard, PATIENCE).await {
            break end;
        }
        if !told {
            told = true;
            say("connection lost; the run continues, reconnecting");
        }
        if let Some(end) = idle(stage, keyboard, pause).await {
            break end;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    if end == End::Over && !whole {
        // The pod ended before anyone could attach.
        drop(raw);
        return logs::show(stage).await;
    }
    if end == End::Over {
        // The stream may have been cut before its end; the log is complete.
        let log = logs::complete(&pods, &stage.pod).await;
        print_rest(&log, &mut stage.printed);
    }
    drop(raw);
    Ok(end)
}

/// Waits without a connection: for this long, for the end of the pod, or until the user leaves the run.
async fn idle(stage: &mut Stage<'_>, keyboard: &mut Keyboard, time: Duration) -> Option<End> {
    let pod = stage.pod.clone();
    let mut over = pin!(tokio::time::sleep(time));
    loop {
        let presses = tokio::select! {
            _ = stage.watched.until(|seen| seen.is_past(&pod)) => return Some(End::Over),
            () = &mut over => return None,
            Some(keys) = keyboard.keys.recv() => keys.iter().filter(|key| **key == CTRL_C).count(),
            request = stage.signals.next() => match request {
                Request::Leave(signal) => return Some(End::Left(signal)),
                Request::Stop => 1,
            },
        };
        for _ in 0..presses {
            let (text, leave) = stage.presses.another(stage.session, stage.run).await;
            say(&text);
            if leave {
                return Some(End::Left(2));
            }
        }
    }
}

async fn connection(stage: &mut Stage<'_>, pods: &Api<Pod>, keyboard: &mut Keyboard) -> Result<Disconnect> {
    // The runner may have started to print at any time, because another client attached or the attach timeout passed.
    let before = tokio::time::timeout(CONNECT, printed(stage, pods)).await??;
    let params = AttachParams {
        container: Some(names::CONTAINER.to_owned()),
        stdin: true,
        stdout: true,
        stderr: false,
        tty: true,
        max_stdin_buf_size: Some(BUFFER),
        max_stdout_buf_size: Some(BUFFER),
        ..AttachParams::default()
    };
    let mut attached = tokio::time::timeout(CONNECT, pods.attach(&stage.pod, &params)).await??;
    let (Some(mut output), Some(mut input), Some(mut sizes)) =
        (attached.stdout(), attached.stdin(), attached.terminal_size())
    else {
        anyhow::bail!("the API server returned no streams");
    };
    // The streams do not end when the connection breaks, but the status channel does.
    let status = attached.take_status();
    let mut over = pin!(async {
        match status {
            Some(status) => drop(status.await),
            None => std::future::pending().await,
        }
    });
    let mut closed = false;
    let after = printed(stage, pods).await?;
    print_rest(&after, &mut stage.printed);
    let between = position::plain(position::behind(&after, position::count(&before)));
    let mut merger = StreamMerger { between, ..StreamMerger::default() };
    let mut resizes = signal(SignalKind::window_change())?;
    let mut view = stage.watched.view();
    let mut nudges = tokio::time::interval(Duration::from_millis(300));
    nudges.tick().await;
    let (columns, rows) = keys::size();
    sizes.send(TerminalSize { width: columns, height: rows }).await?;
    // The runner starts when it notices the client. The terminal size is sent repeatedly until it has printed
    // something.
    let mut noticed = stage.printed > 0;
    let mut narrower = false;
    let mut buffer = vec![0; BUFFER];
    loop {
        tokio::select! {
            read = output.read(&mut buffer) => match read {
                // Bytes that the merger still holds back are in the log.
                Ok(0) | Err(_) => return Ok(Disconnect::Stream),
                Ok(count) => {
                    noticed = true;
                    print(&merger.take(&buffer[..count]), &mut stage.printed);
                }
            },
            () = &mut over, if !closed => closed = true,
            // Bytes that arrived before the end are read first.
            () = tokio::time::sleep(SETTLED), if closed => return Ok(Disconnect::Stream),
            // The stream seems to be behind the log. The log has the missing bytes.
            () = tokio::time::sleep(SETTLED), if merger.waits() => {
                let now = printed(stage, pods).await?;
                merger.between.extend(position::plain(position::behind(&now, stage.printed)));
                print_rest(&now, &mut stage.printed);
            }
            Some(keys) = keyboard.keys.recv() => {
                if closed {
                    continue;
                }
                if !keyboard.passes_interrupt && keys.contains(&CTRL_C) {
                    let (text, leave) = stage.presses.another(stage.session, stage.run).await;
                    say(&text);
                    if leave {
                        return Ok(Disconnect::Left(2));
                    }
                    continue;
                }
                input.write_all(&keys).await?;
            }
            _ = resizes.recv() => {
                let (columns, rows) = keys::size();
                sizes.send(TerminalSize { width: columns, height: rows }).await?;
            }
            _ = nudges.tick(), if !noticed => {
                narrower = !narrower;
                let (columns, rows) = keys::size();
                sizes.send(TerminalSize { width: columns - u16::from(narrower), height: rows }).await?;
            }
            changed = view.changed(), if !noticed => {
                let conditions = view.borrow_and_update().status().conditions;
                noticed = changed.is_err() || conditions.iter().any(|condition| condition.type_ == condition::ATTACHED);
                if noticed && narrower {
                    let (columns, rows) = keys::size();
                    sizes.send(TerminalSize { width: columns, height: rows }).await?;
                }
            }
            request = stage.signals.next() => match request {
                Request::Leave(signal) => return Ok(Disconnect::Left(signal)),
                Request::Stop => {
                    let (text, leave) = stage.presses.another(stage.session, stage.run).await;
                    say(&text);
                    if leave {
                        return Ok(Disconnect::Left(2));
                    }
                }
            },
        }
    }
}

/// The pod's output so far. A pod that was just started, and whose log its node does not have yet, is waiting for this
/// client and has printed nothing.
async fn printed(stage: &Stage<'_>, pods: &Api<Pod>) -> Result<Vec<u8>, kube::Error> {
    match logs::until_now(pods, &stage.pod).await {
        Err(kube::Error::Api(_)) if !stage.late => Ok(Vec::new()),
        log => log,
    }
}

/// Joins a log that was already printed with a live stream that began in the meantime.
#[derive(Default)]
struct StreamMerger {
    /// The end of the log around the start of the stream, without `\r`. The stream begins somewhere in it or right
    /// after it.
    between: Vec<u8>,
    /// The stream's bytes so far, as long as they may overlap with `between`.
    live: Vec<u8>,
}

impl StreamMerger {
    /// Whether live bytes are held back because they may still overlap with the log.
    fn waits(&self) -> bool {
        !self.live.is_empty()
    }

    /// The part of the stream's next bytes that was not printed yet.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.live.extend_from_slice(bytes);
        let live = position::plain(&self.live);
        let ends = (0..=self.between.len()).map(|start| &self.between[start..]);
        // The longest suffix of the log with which the stream can have begun. The stream may not have reached its end
        // yet.
        let shared = ends.into_iter().find(|end| end.starts_with(&live) || live.starts_with(end));
        let shared = shared.map_or(0, <[u8]>::len);
        if shared > live.len() {
            return Vec::new();
        }
        self.between.clear();
        position::behind(&std::mem::take(&mut self.live), shared).to_vec()
    }
}

/// Prints the part of the log that was not printed yet.
fn print_rest(log: &[u8], printed: &mut usize) {
    print(&position::for_terminal(position::behind(log, *printed)), printed);
}

fn print(bytes: &[u8], printed: &mut usize) {
    if bytes.is_empty() {
        return;
    }
    *printed += position::count(bytes);
    let mut out = io::stdout().lock();
    // A closed terminal sends SIGHUP, which ends this command.
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// Prints a message of Knoll's own to a terminal in raw mode.
pub fn say(text: &str) {
    let _ = write!(io::stderr(), "\r\nknoll: {}\r\n", text.replace('\n', "\r\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(between: &str, live: &[&str], expect: &str) {
        let mut merger = StreamMerger { between: between.into(), ..StreamMerger::default() };
        let mut got = Vec::new();
        for piece in live {
            got.extend_from_slice(&merger.take(piece.as_bytes()));
        }
        assert_eq!(String::from_utf8_lossy(&got), expect);
    }

    #[test]
    fn what_the_log_and_the_stream_share_is_printed_once() {
        check("", &["abc"], "abc");
        check("abc", &["abc", "def"], "def");
        check("abc", &["c", "de", "f"], "def");
        check("abc", &["def"], "def");
        check("aab", &["ab", "c"], "c");
        check("abcd", &["bc"], "");
        check("abcd", &["a", "b", "c", "d", "e"], "e");
        check("aab", &["a", "b", "c"], "c");
        check("abc", &[], "");
        check("b\nc\n", &["b\r\r\nc\r", "\r\nd\r\r\n"], "d\r\r\n");
        check("b\nc\n", &["b\r\r\nc\r\r\n"], "");
    }
}
