//! Watches: every change after a revision, in order, as a stream of JSON lines.

use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use http::header;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};

use crate::list::Cursor;
use crate::query::Form;
use crate::read::{self, Selection};
use crate::status::{ApiError, Result};
use crate::{Call, Server, object, options};
use knoll_kube_model::table;
use knoll_kube_store::{self as store, Entry, Event, EventKind, Extent, Page, Watch};

/// How often a client that takes bookmarks hears how far the server has come.
const BOOKMARK_EVERY: Duration = Duration::from_secs(30);
/// The shortest time that a watch without a limit of its own lives. Each lives up to twice as long, so that clients
/// do not all come back at once.
const LIFE: u64 = 1800;
/// How long after an event the next one is sent at the earliest, for each watch that sees the same: about what it costs
/// to serve them all, so that many events become one packet where much happens and many look on.
const GATHER: Duration = Duration::from_micros(50);
/// A shorter pause than that saves nothing. An event that few look at is sent at once.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// `GET` with `watch=1`.
pub fn watch(server: &Server, call: Call) -> Result<Response> {
    let query = &call.query;
    options::check_list(query, true)?;
    let selection = Selection::parse(&call)?;
    let initial = query.get("sendInitialEvents").to_owned();
    let bookmarks = query.flag("allowWatchBookmarks");
    let text = query.get("resourceVersion").to_owned();
    let asked: u64 = if text.is_empty() { 0 } else { text.parse().map_err(|_| read::unreadable_version(&text))? };
    let newest = server.store.revision();
    if asked > newest {
        return Err(read::too_new(asked, newest));
    }
    // Without a version, or from version 0, a watch begins with what is there, unless that was declined.
    let from_scratch = if initial.is_empty() { asked == 0 } else { query.flag("sendInitialEvents") };
    let life = match query.number("timeoutSeconds")?.filter(|n| *n > 0) {
        Some(seconds) => u64::try_from(seconds).unwrap_or(LIFE).min(24 * 3600),
        None => LIFE + rand::random_range(0..LIFE),
    };
    let (first, from) = if from_scratch {
        let mut cursor = Cursor::new(server, &without_paging(&call), &selection)?;
        let page = cursor.read(server, Extent::Piece)?;
        let from = page.revision;
        (Some(First { cursor, page, tell_end: !initial.is_empty() && bookmarks }), from)
    } else {
        (None, if asked == 0 { newest } else { asked })
    };
    let feed = Feed { server: server.clone(), call, selection, header_sent: false };
    let prefix = feed.call.resource.prefix(feed.call.target.namespace.as_deref());
    let source = match server.store.watch(&prefix, from) {
        Ok(source) => Source::Live(source),
        Err(error) => Source::Ended(Some(Feed::error(&watch_error(error, from)))),
    };
    let now = Instant::now();
    let end = now + Duration::from_secs(life);
    let state = Stream {
        stopping: Box::pin(server.stopping()),
        pause: Box::pin(tokio::time::sleep_until(now)),
        timer: Box::pin(tokio::time::sleep_until(if bookmarks { end.min(now + BOOKMARK_EVERY) } else { end })),
        feed,
        first,
        source,
        end,
        bookmarks,
        told: from,
    };
    let body = Body::from_stream(stream::unfold(state, |mut state| async move {
        state.next().await.map(|chunk| (Ok::<_, std::convert::Infallible>(chunk), state))
    }));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, http::HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

fn without_paging(call: &Call) -> Call {
    let mut call = call.clone();
    call.query = crate::query::Query::default();
    call
}

fn watch_error(error: store::Error, from: u64) -> ApiError {
    match error {
        store::Error::Compacted { oldest } => ApiError::expired(format!("too old resource version: {from} ({oldest})")),
        store::Error::Future { asked, newest } => read::too_new(asked, newest),
        error => ApiError::internal(error),
    }
}

enum Source {
    Live(Watch),
    /// What is left to say before the stream ends.
    Ended(Option<Bytes>),
}

/// What a watch begins with.
struct First {
    cursor: Cursor,
    page: Page,
    /// The client wants to hear when it has seen all of it.
    tell_end: bool,
}

struct Stream {
    feed: Feed,
    /// What is there already, as far as it was not sent yet.
    first: Option<First>,
    source: Source,
    end: Instant,
    bookmarks: bool,
    /// The next bookmark, or the end. It waits for as long as the watch lives, and is not begun anew with every event.
    timer: Pin<Box<Sleep>>,
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Until what happened meanwhile is sent together.
    pause: Pin<Box<Sleep>>,
    /// The revision that the client knows it has seen everything up to.
    told: u64,
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        while let Some(first) = &mut self.first {
            let mut out = BytesMut::new();
            first.page.entries.iter().for_each(|entry| self.feed.first(&mut out, entry));
            if !first.page.more {
                if first.tell_end {
                    out.put(self.feed.bookmark(first.page.revision, true));
                }
                self.first = None;
            } else {
                match first.cursor.read(&self.feed.server, Extent::Piece) {
                    Ok(page) => first.page = page,
                    Err(error) => {
                        self.source = Source::Ended(Some(Feed::error(&error)));
                        self.first = None;
                    }
                }
            }
            if !out.is_empty() {
                return Some(out.freeze());
            }
        }
        loop {
            let watch = match &mut self.source {
                Source::Ended(last) => return last.take(),
                Source::Live(watch) => watch,
            };
            let gathered = async {
                self.pause.as_mut().await;
                watch.next().await
            };
            tokio::select! {
                biased;
                batch = gathered => match batch {
                    Ok(events) => {
                        let mut out = BytesMut::new();
                        for event in &events {
                            self.feed.event(&mut out, event);
                            self.told = event.revision;
                        }
                        let pause = GATHER.saturating_mul(u32::try_from(watch.company()).unwrap_or(u32::MAX));
                        if pause >= SHORTEST_PAUSE {
                            self.pause.as_mut().reset(Instant::now() + pause.min(LONGEST_PAUSE));
                        }
                        if !out.is_empty() {
                            return Some(out.freeze());
                        }
                    }
                    Err(error) => {
                        self.source = Source::Ended(Some(Feed::error(&watch_error(error, self.told))));
                    }
                },
                () = &mut self.stopping => return None,
                () = &mut self.timer => {
                    let seen = watch.progress();
                    let now = Instant::now();
                    if now >= self.end {
                        self.source = Source::Ended(None);
                        return self.bookmarks.then(|| self.feed.bookmark(seen, false));
                    }
                    self.timer.as_mut().reset(self.end.min(now + BOOKMARK_EVERY));
                    self.told = seen;
                    return Some(self.feed.bookmark(seen, false));
                }
            }
        }
    }
}

/// Turns stored events into lines for one client.
struct Feed {
    server: Server,
    call: Call,
    selection: Selection,
    header_sent: bool,
}

impl Feed {
    /// An object that is there already.
    fn first(&mut self, out: &mut BytesMut, entry: &Entry) {
        if self.selection.matches(&entry.value)
            && let Err(error) = self.line(out, "ADDED", &entry.value, entry.revision)
        {
            out.put(Self::error(&error));
        }
    }

    /// An object that comes into the selection is added for this client, one that leaves it is deleted.
    fn event(&mut self, out: &mut BytesMut, event: &Event) {
        let is = |bytes: &[u8]| self.selection.matches(bytes);
        let was_in = event.previous.as_ref().is_some_and(|p| self.selection.everything() || is(&p.value));
        let now_in = event.kind == EventKind::Put && is(&event.value);
        let kind = match (was_in, now_in) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return,
        };
        // An object that left the selection is shown as it was when it was still in it.
        let left = kind == "DELETED" && event.kind == EventKind::Put;
        let value = match &event.previous {
            Some(previous) if left => &previous.value,
            _ => &event.value,
        };
        if let Err(error) = self.line(out, kind, value, event.revision) {
            out.put(Self::error(&error));
        }
    }

    /// Adds an event to what is sent; nothing, when it cannot be shown.
    fn line(&mut self, out: &mut BytesMut, kind: &str, stored: &[u8], revision: u64) -> Result<()> {
        let shown = if self.call.form == Form::Object && !read::converts(&self.call.resource) {
            None
        } else {
            let object = read::load_bytes(&self.call.resource, stored, revision)?;
            Some(match self.call.form {
                Form::Object => object,
                Form::Metadata | Form::MetadataList => table::partial_object_metadata(&object),
                Form::Table => {
                    let header = !std::mem::replace(&mut self.header_sent, true);
                    read::tabled(&self.server, &self.call, &object, header)?
                }
            })
        };
        out.reserve(stored.len() + 80);
        out.put_slice(b"{\"type\":\"");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\",\"object\":");
        match shown {
            None => object::splice(out, stored, revision),
            Some(shown) => out.put_slice(shown.to_string().as_bytes()),
        }
        out.put_slice(b"}\n");
        Ok(())
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Bytes {
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.call.form {
            Form::Object => {
                json!({"kind": self.call.resource.kind, "apiVersion": self.call.api_version, "metadata": meta})
            }
            Form::Metadata | Form::MetadataList => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta})
            }
            Form::Table => {
                json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": [], "rows": []})
            }
        };
        Self::encode("BOOKMARK", &object)
    }

    fn error(error: &ApiError) -> Bytes {
        Self::encode("ERROR", &error.status())
    }

    fn encode(kind: &str, object: &Value) -> Bytes {
        let mut line = json!({"type": kind, "object": object}).to_string();
        line.push('\n');
        line.into()
    }
}
