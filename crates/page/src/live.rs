//! Live updates of a Run: its status and its log, as server-sent events, driven by watches with the user's own client.
//!
//! An event `run` has the top of the page, `log` has whole lines, `fold` says from which line on the log is that of a
//! step, and `end` says that nothing more follows. The id of an event is the place in the log up to which the stream
//! has come, so a browser that connects again goes on there.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use knoll_api::run::{Run, StepName};
use knoll_core::visible::visible;
use knoll_serve::Held;
use knoll_storage::Storage;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;

use crate::ansi::spans;
use crate::error::PageError;
use crate::html;
use crate::logs::{LogLine, starts, step_at};
use crate::user::User;
use crate::view::run;

/// How long a stream lives before the browser connects again: a token that was revoked reads no longer than this.
const LONGEST: Duration = Duration::from_secs(600);
/// How often an idle stream shows that it is alive, so that proxies keep it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events that wait for a slow reader; the watches wait then.
const WAITING: usize = 32;
/// Lines of one event: a browser stays responsive between two.
const LINES: usize = 500;
/// Lines whose places are remembered until the status says whose they are.
const REMEMBERED: usize = 5000;
/// An unfinished line that is kept until its end. A longer one is shown in pieces.
const LONGEST_PIECE: usize = 64 * 1024;

/// Where in a log a stream begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub offset: u64,
    /// The number of lines before it.
    pub line: u64,
}

impl Place {
    /// The place of an event's id.
    pub fn parse(id: &str) -> Option<Self> {
        let (offset, line) = id.split_once(':')?;
        Some(Self { offset: offset.parse().ok()?, line: line.parse().ok()? })
    }

    fn id(self) -> String {
        format!("{}:{}", self.offset, self.line)
    }
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Fragments for the page.
    Html,
    Json,
}

/// Lines of one step, as JSON.
#[derive(Serialize)]
struct LogEvent<'a> {
    step: &'a str,
    lines: &'a [LogLine],
}

/// Lines of one step, as a fragment of the page.
#[derive(Serialize)]
struct LogFragment<'a> {
    step: &'a str,
    html: String,
}

/// The events of a Run from a place in its log on.
pub fn stream(
    user: User,
    namespace: String,
    name: String,
    from: Place,
    form: Form,
    permit: Held,
    stop: CancellationToken,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (send, receive) = channel(WAITING);
    tokio::spawn(async move {
        let _permit = permit;
        let (rest, sent, known) = (Vec::new(), VecDeque::new(), Vec::new());
        let mut feed = Feed { user, namespace, name, place: from, form, send, rest, sent, known };
        tokio::select! {
            result = feed.run() => if let Err(error) = result {
                // The browser connects again and gets the page that says what is wrong.
                tracing::debug!(%error, "a live stream ended");
            },
            () = tokio::time::sleep(LONGEST) => {}
            () = stop.cancelled() => {}
        }
    });
    Sse::new(events(receive)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

fn events(receive: Receiver<Event>) -> impl Stream<Item = Result<Event, Infallible>> {
    futures::stream::unfold(
        receive,
        |mut receive| async move { receive.recv().await.map(|event| (Ok(event), receive)) },
    )
}

struct Feed {
    user: User,
    namespace: String,
    name: String,
    place: Place,
    form: Form,
    send: Sender<Event>,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
    /// The offsets of the lines that were sent last. A line can come before the status that says whose it is.
    sent: VecDeque<(u64, u64)>,
    /// The steps that the browser knows to have printed, with their offsets.
    known: Vec<(u64, StepName)>,
}

/// The browser is gone, or the run is.
struct Gone;

impl Feed {
    async fn run(&mut self) -> Result<(), PageError> {
        let client: Client = self.user.client.clone();
        let api: Api<Run> = Api::namespaced(client.clone(), &self.namespace);
        let mut last = api.get(&self.name).await?;
        let storage = Storage::new(client);
        // A place far back brings much, part by part; what is followed then is little.
        if self.catch_up(&storage, &last, false).await.is_err() {
            return Ok(());
        }
        let mut log = std::pin::pin!(storage.logs().follow(&last, self.received())?);
        let mut changes = std::pin::pin!(watch_object(api, &self.name));
        loop {
            if self.status(&last).await.is_err() || self.fold(&last).await.is_err() {
                return Ok(());
            }
            if is_finished(&last) {
                break;
            }
            loop {
                tokio::select! {
                    change = changes.next() => match change {
                        Some(Ok(Some(run))) => {
                            last = run;
                            break;
                        }
                        Some(Ok(None)) | None => return Ok(()),
                        // The watch goes on by itself.
                        Some(Err(_)) => {}
                    },
                    piece = log.next() => match piece {
                        Some(Ok(piece)) => {
                            if self.log(&last, &piece, false).await.is_err() {
                                return Ok(());
                            }
                        }
                        Some(Err(_)) => {}
                        None => return Ok(()),
                    },
                }
            }
        }
        // A log is complete when its run has ended; this is what the watch has not brought.
        if self.catch_up(&storage, &last, true).await.is_ok() {
            let _ = self.send.send(self.event("end").data("end")).await;
        }
        Ok(())
    }

    /// Where what has come ends. The place is what a client says.
    fn received(&self) -> u64 {
        self.place.offset.saturating_add(self.rest.len() as u64)
    }

    /// Sends what is stored behind the place; a part that cannot be read ends it.
    async fn catch_up(&mut self, storage: &Storage, run: &Run, ended: bool) -> Result<(), Gone> {
        if let Ok(pieces) = storage.logs().pieces(run, self.received()).await {
            let mut pieces = std::pin::pin!(pieces);
            while let Some(Ok(piece)) = pieces.next().await {
                self.log(run, &piece, false).await?;
            }
        }
        if ended { self.log(run, &[], true).await } else { Ok(()) }
    }

    fn event(&self, name: &str) -> Event {
        Event::default().event(name).id(self.place.id())
    }

    async fn status(&self, run: &Run) -> Result<(), Gone> {
        let seen = run::observe_change(&self.user, run.clone()).await;
        let view = run::view(&seen, Timestamp::now());
        let data = match self.form {
            Form::Html => visible(&html::run::live(&view, self.user.csrf()).into_string()),
            Form::Json => serde_json::to_string(&view).unwrap_or_default(),
        };
        self.send.send(self.event("run").data(data)).await.map_err(|_| Gone)
    }

    /// Tells which lines belong to a step that was not known when they were sent.
    async fn fold(&mut self, run: &Run) -> Result<(), Gone> {
        let starts = starts(run);
        for (from, step) in starts.iter().filter(|start| !self.known.contains(start)) {
            if let Some((_, line)) = self.sent.iter().find(|(offset, _)| offset >= from) {
                let data = json!({"step": step.as_str(), "line": line}).to_string();
                self.send.send(self.event("fold").data(data)).await.map_err(|_| Gone)?;
            }
        }
        self.known = starts;
        Ok(())
    }

    /// Sends the whole lines of what has come; at the end of the run also a last one without its end.
    async fn log(&mut self, run: &Run, piece: &[u8], ended: bool) -> Result<(), Gone> {
        self.rest.extend_from_slice(piece);
        let whole = match self.rest.iter().rposition(|byte| *byte == b'\n') {
            _ if ended || self.rest.len() > LONGEST_PIECE => self.rest.len(),
            Some(last) => last + 1,
            None => return Ok(()),
        };
        let bytes: Vec<u8> = self.rest.drain(..whole).collect();
        let starts = starts(run);
        let mut batch: (&'static str, Vec<LogLine>) = ("", Vec::new());
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let step = step_at(&starts, self.place.offset);
            if (batch.0 != step || batch.1.len() >= LINES) && !batch.1.is_empty() {
                self.send_lines(batch.0, &batch.1).await?;
                batch.1.clear();
            }
            let next = self.place.line.saturating_add(1);
            self.sent.push_back((self.place.offset, next));
            if self.sent.len() > REMEMBERED {
                self.sent.pop_front();
            }
            self.place = Place { offset: self.place.offset.saturating_add(line.len() as u64), line: next };
            let number = self.place.line;
            batch.0 = step;
            batch.1.push(LogLine { number, spans: spans(&String::from_utf8_lossy(line)) });
        }
        if batch.1.is_empty() { Ok(()) } else { self.send_lines(batch.0, &batch.1).await }
    }

    async fn send_lines(&self, step: &str, lines: &[LogLine]) -> Result<(), Gone> {
        let data = match self.form {
            Form::Html => serde_json::to_string(&LogFragment { step, html: html::run::lines(lines).into_string() }),
            Form::Json => serde_json::to_string(&LogEvent { step, lines }),
        };
        self.send.send(self.event("log").data(data.unwrap_or_default())).await.map_err(|_| Gone)
    }
}

fn is_finished(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase.is_finished())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_goes_on_where_it_was() {
        let place = Place { offset: 120, line: 7 };
        assert_eq!(Place::parse(&place.id()), Some(place));
        for bad in ["", "1", "a:b", "-1:2", "1:2:3"] {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
    }
}
