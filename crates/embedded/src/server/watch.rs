//! Watches: every change after a revision, in order, as a stream of JSON lines.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use http::header;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::server::query::Form;
use crate::server::read::{self, Selection};
use crate::server::status::{ApiError, Result};
use crate::server::{Call, Server, object, options};
use crate::store::{self, Event, EventKind, Watch};
use crate::table;

/// How often a client that takes bookmarks hears how far the server has come.
const BOOKMARK_EVERY: Duration = Duration::from_secs(30);
/// The shortest time that a watch without a limit of its own lives. Each lives up to twice as long, so that clients
/// do not all come back at once.
const LIFE: u64 = 1800;

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
    let mut first: Vec<Bytes> = Vec::new();
    let mut feed = Feed { server: server.clone(), call, selection, header_sent: false };
    let from = if from_scratch {
        let listed = read::select(server, &without_paging(&feed.call), &feed.selection)?;
        for entry in &listed.entries {
            first.push(feed.line("ADDED", &entry.value, entry.revision)?);
        }
        if !initial.is_empty() && bookmarks {
            first.push(feed.bookmark(listed.revision, true));
        }
        listed.revision
    } else if asked == 0 {
        newest
    } else {
        asked
    };
    let prefix = feed.call.resource.prefix(feed.call.target.namespace.as_deref());
    let source = match server.store.watch(&prefix, from) {
        Ok(source) => Source::Live(source),
        Err(error) => Source::Ended(Some(Feed::error(&watch_error(error, from)))),
    };
    let state = Stream {
        feed,
        first: first.into_iter(),
        source,
        end: Instant::now() + Duration::from_secs(life),
        next_bookmark: bookmarks.then(|| Instant::now() + BOOKMARK_EVERY),
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
    call.query = crate::server::query::Query::default();
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

struct Stream {
    feed: Feed,
    first: std::vec::IntoIter<Bytes>,
    source: Source,
    end: Instant,
    next_bookmark: Option<Instant>,
    /// The revision that the client knows it has seen everything up to.
    told: u64,
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        if self.first.len() > 0 {
            let mut out = BytesMut::new();
            while out.len() < 256 * 1024
                && let Some(line) = self.first.next()
            {
                out.put(line);
            }
            return Some(out.freeze());
        }
        loop {
            let watch = match &mut self.source {
                Source::Ended(last) => return last.take(),
                Source::Live(watch) => watch,
            };
            let bookmark = self.next_bookmark.unwrap_or(self.end);
            let stopping = self.feed.server.stopping();
            tokio::select! {
                biased;
                batch = watch.next() => match batch {
                    Ok(events) => {
                        let mut out = BytesMut::new();
                        for event in &events {
                            self.feed.event(&mut out, event);
                            self.told = event.revision;
                        }
                        if !out.is_empty() {
                            return Some(out.freeze());
                        }
                    }
                    Err(error) => {
                        self.source = Source::Ended(Some(Feed::error(&watch_error(error, self.told))));
                    }
                },
                () = stopping => return None,
                () = tokio::time::sleep_until(self.end.min(bookmark)) => {
                    let seen = watch.progress();
                    if Instant::now() >= self.end {
                        let last = (self.next_bookmark.is_some()).then(|| self.feed.bookmark(seen, false));
                        self.source = Source::Ended(None);
                        return last;
                    }
                    self.next_bookmark = Some(Instant::now() + BOOKMARK_EVERY);
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
        match self.line(kind, value, event.revision) {
            Ok(line) => out.put(line),
            Err(error) => out.put(Self::error(&error)),
        }
    }

    fn line(&mut self, kind: &str, stored: &[u8], revision: u64) -> Result<Bytes> {
        let mut out = BytesMut::with_capacity(stored.len() + 80);
        out.put_slice(b"{\"type\":\"");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\",\"object\":");
        if self.call.form == Form::Object && !read::converts(&self.call.resource) {
            object::splice(&mut out, stored, revision);
        } else {
            let object = read::load_bytes(&self.call.resource, stored, revision)?;
            let shown = match self.call.form {
                Form::Object => object,
                Form::Metadata | Form::MetadataList => table::partial_object_metadata(&object),
                Form::Table => {
                    let header = !std::mem::replace(&mut self.header_sent, true);
                    read::tabled(&self.server, &self.call, &object, header)?
                }
            };
            out.put_slice(shown.to_string().as_bytes());
        }
        out.put_slice(b"}\n");
        Ok(out.freeze())
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
