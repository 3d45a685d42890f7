//! A run's terminal, here: every byte it prints, every key that is typed, its size.
//!
//! *Guarantee.* Whatever the pod printed is printed here, once and in order: what an attached stream misses, at its
//! beginning, in a gap or at its end, is taken from the pod's log.

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
use super::stop::Wish;

/// How much may be on its way between the connection and the screen.
const BUFFER: usize = 64 << 10;
/// How long the stream's end may be ahead of the news that the run has ended.
const PATIENCE: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long after the first live bytes the log is taken to have no more of them.
const SETTLED: Duration = Duration::from_millis(100);
const CTRL_C: u8 = 3;

/// The user's keyboard, which stays the same through all connections.
pub struct Keyboard {
    keys: mpsc::Receiver<Vec<u8>>,
    /// Ctrl-C is a key like any other, for the program that runs there.
    pub passes_interrupt: bool,
}

impl Keyboard {
    /// Reads keys from now on.
    pub fn new(passes_interrupt: bool) -> Self {
        Keyboard { keys: keys::typed(), passes_interrupt }
    }
}

/// Why a connection was over.
enum Broken {
    /// The pod's output has ended, or the connection has.
    Stream,
    /// The user leaves.
    Left(i32),
}

/// Shows the terminal of the stage's pod until the pod is done.
pub async fn show(stage: &mut Stage<'_>, keyboard: &mut Keyboard) -> Result<End> {
    let pods: Api<Pod> = stage.place.api();
    let raw = Raw::enter()?;
    let mut pause = FIRST_PAUSE;
    let mut told = false;
    let mut whole = false;
    let end = loop {
        whole = match connection(stage, &pods, keyboard).await {
            Ok(Broken::Left(signal)) => break End::Left(signal),
            Ok(Broken::Stream) => {
                pause = FIRST_PAUSE;
                true
            }
            Err(error) => {
                tracing::debug!(%error, "cannot attach");
                false
            }
        };
        let pod = stage.pod.clone();
        let over = stage.watched.until(|seen| seen.is_past(&pod));
        if tokio::time::timeout(PATIENCE, over).await.is_ok() {
            break End::Over;
        }
        if !told {
            told = true;
            say("the connection is lost; the run goes on, and this comes back to it");
        }
        let pressed = tokio::select! {
            () = tokio::time::sleep(pause) => {
                pause = (pause * 2).min(LONGEST_PAUSE);
                false
            }
            Some(keys) = keyboard.keys.recv() => keys.contains(&CTRL_C),
            wish = stage.signals.next() => match wish {
                Wish::Leave(signal) => break End::Left(signal),
                Wish::Stop => true,
            },
        };
        if pressed {
            let (text, leave) = stage.presses.another(stage.place, stage.run).await;
            say(&text);
            if leave {
                break End::Left(2);
            }
        }
    };
    if end == End::Over && !whole {
        // It was over before anybody could attach.
        drop(raw);
        return logs::show(stage).await;
    }
    if end == End::Over {
        // The stream may have been cut before its end; the log never is.
        let log = logs::complete(&pods, &stage.pod).await;
        print_rest(&log, &mut stage.printed);
    }
    drop(raw);
    Ok(end)
}

async fn connection(stage: &mut Stage<'_>, pods: &Api<Pod>, keyboard: &mut Keyboard) -> Result<Broken> {
    // Nobody's word says whether it has begun: it may have, in this very moment, because another client was there or none
    // came in time.
    let before = printed(stage, pods).await?;
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
    let mut attached = pods.attach(&stage.pod, &params).await?;
    let (Some(mut output), Some(mut input), Some(mut sizes)) =
        (attached.stdout(), attached.stdin(), attached.terminal_size())
    else {
        anyhow::bail!("the cluster gave no streams");
    };
    // The streams do not end with a connection that breaks; this does.
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
    let mut joint = Joint { between, ..Joint::default() };
    let mut resizes = signal(SignalKind::window_change())?;
    let mut view = stage.watched.view();
    let mut nudges = tokio::time::interval(Duration::from_millis(300));
    nudges.tick().await;
    let (columns, rows) = keys::size();
    sizes.send(TerminalSize { width: columns, height: rows }).await?;
    // The runner begins when it notices the client; a size that it missed is told again until it does.
    let mut noticed = stage.printed > 0;
    let mut narrower = false;
    let mut buffer = vec![0; BUFFER];
    loop {
        tokio::select! {
            read = output.read(&mut buffer) => match read {
                // What the joint still holds back is in the log.
                Ok(0) | Err(_) => return Ok(Broken::Stream),
                Ok(count) => {
                    noticed = true;
                    print(&joint.take(&buffer[..count]), &mut stage.printed);
                }
            },
            () = &mut over, if !closed => closed = true,
            // What had arrived before the end is read first.
            () = tokio::time::sleep(SETTLED), if closed => return Ok(Broken::Stream),
            // The stream is behind the log, or seems to be: whatever it is, the log has it.
            () = tokio::time::sleep(SETTLED), if joint.waits() => {
                let now = printed(stage, pods).await?;
                joint.between.extend(position::plain(position::behind(&now, stage.printed)));
                print_rest(&now, &mut stage.printed);
            }
            Some(keys) = keyboard.keys.recv() => {
                if closed {
                    continue;
                }
                if !keyboard.passes_interrupt && keys.contains(&CTRL_C) {
                    let (text, leave) = stage.presses.another(stage.place, stage.run).await;
                    say(&text);
                    if leave {
                        return Ok(Broken::Left(2));
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
            wish = stage.signals.next() => match wish {
                Wish::Leave(signal) => return Ok(Broken::Left(signal)),
                Wish::Stop => {
                    let (text, leave) = stage.presses.another(stage.place, stage.run).await;
                    say(&text);
                    if leave {
                        return Ok(Broken::Left(2));
                    }
                }
            },
        }
    }
}

/// What the pod has printed until now. One that started under our eyes, and that its node does not know of yet, waits for
/// us and has printed nothing.
async fn printed(stage: &Stage<'_>, pods: &Api<Pod>) -> Result<Vec<u8>, kube::Error> {
    match logs::until_now(pods, &stage.pod).await {
        Err(kube::Error::Api(_)) if !stage.late => Ok(Vec::new()),
        log => log,
    }
}

/// Where a log that was printed and a live stream that began meanwhile meet.
#[derive(Default)]
struct Joint {
    /// What the log got around the time that the stream began, without `\r`: the stream begins somewhere in it, or at its
    /// end.
    between: Vec<u8>,
    /// What the stream gave so far, as long as that may be a part of it.
    live: Vec<u8>,
}

impl Joint {
    /// Whether it holds live bytes back because more of what the log has may follow them.
    fn waits(&self) -> bool {
        !self.live.is_empty()
    }

    /// What of the stream's next bytes was not printed yet.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.live.extend_from_slice(bytes);
        let live = position::plain(&self.live);
        let ends = (0..=self.between.len()).map(|start| &self.between[start..]);
        // The longest end of the log that the stream can have begun with. It may not be through with it yet.
        let shared = ends.into_iter().find(|end| end.starts_with(&live) || live.starts_with(end));
        let shared = shared.map_or(0, <[u8]>::len);
        if shared > live.len() {
            return Vec::new();
        }
        self.between.clear();
        position::behind(&std::mem::take(&mut self.live), shared).to_vec()
    }
}

/// Prints what the log has more than was printed.
fn print_rest(log: &[u8], printed: &mut usize) {
    print(&position::for_terminal(position::behind(log, *printed)), printed);
}

/// Prints the pod's bytes as they are.
fn print(bytes: &[u8], printed: &mut usize) {
    if bytes.is_empty() {
        return;
    }
    *printed += position::count(bytes);
    let mut out = io::stdout().lock();
    // A terminal that is gone sends a hangup, which is what ends this.
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// A line of our own, in a terminal without line editing.
pub fn say(text: &str) {
    let _ = write!(io::stderr(), "\r\nknoll: {text}\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(between: &str, live: &[&str], expect: &str) {
        let mut joint = Joint { between: between.into(), ..Joint::default() };
        let mut got = Vec::new();
        for piece in live {
            got.extend_from_slice(&joint.take(piece.as_bytes()));
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
