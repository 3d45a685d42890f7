//! Events on objects, told in the background: no reconcile waits for them, and none fails with them.
//!
//! *Guarantee.* An event that was published never gets another meaning: only the same event again, note included, counts
//! as its repetition. `kube`'s own recorder leaves the note out, and shows a new event with the note of an old one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event as EventObject, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use knoll_core::events::Event;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::controller::code;

/// How many events may wait to be told.
const WAITING: usize = 1024;

/// How many are told at a time.
const CONCURRENCY: usize = 8;

/// The longest note that Kubernetes takes, in bytes.
const NOTE_MAX: usize = 1024;

/// How long after an event the same event counts as its repetition, as in `client-go`.
const SERIES: Duration = Duration::from_secs(360);

const REPORTER: &str = "knoll";

#[derive(Clone, Debug)]
pub struct Recorder {
    sender: mpsc::Sender<RecordedEvent>,
}

#[derive(Debug)]
struct RecordedEvent {
    event: Event,
    object: ObjectReference,
    at: Timestamp,
}

impl Recorder {
    /// Starts to tell events; the handle ends when the last recorder is dropped and all is told.
    #[must_use]
    pub fn start(client: Client, instance: Option<String>) -> (Self, JoinHandle<()>) {
        let (sender, receiver) = mpsc::channel::<RecordedEvent>(WAITING);
        let publisher = Arc::new(Publisher { client, instance, published: Mutex::default() });
        let receiver = futures::stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|event| (event, receiver))
        });
        let told = receiver.for_each_concurrent(CONCURRENCY, move |recorded| {
            let publisher = Arc::clone(&publisher);
            async move {
                if let Err(error) = publisher.publish(recorded).await {
                    tracing::debug!(%error, "an event was not told");
                }
            }
        });
        (Self { sender }, tokio::spawn(told))
    }

    /// Records an event about an object. When too many wait, it is dropped: events are for people, who read few.
    pub fn record(&self, event: Event, object: ObjectReference) {
        let recorded = RecordedEvent { event: shortened(event), object, at: Timestamp::now() };
        if let Err(error) = self.sender.try_send(recorded) {
            tracing::debug!(%error, "an event was dropped");
        }
    }
}

/// The event with a message that fits into a note.
fn shortened(mut event: Event) -> Event {
    event.message.truncate(event.message.floor_char_boundary(NOTE_MAX));
    event
}

struct Publisher {
    client: Client,
    instance: Option<String>,
    /// The events of the last [`SERIES`], by the UID of their object and by everything that they say.
    published: Mutex<HashMap<(Option<String>, Event), PublishedEvent>>,
}

/// An event object that the API has.
#[derive(Clone, Debug)]
struct PublishedEvent {
    name: String,
    count: i32,
    at: Timestamp,
}

impl Publisher {
    async fn publish(&self, recorded: RecordedEvent) -> Result<(), kube::Error> {
        let RecordedEvent { event, object, at } = recorded;
        let api = Api::namespaced(self.client.clone(), object.namespace.as_deref().unwrap_or("default"));
        let key = (object.uid.clone(), event);
        let published = match self.repeat(&api, &key, at).await? {
            Some(repeated) => repeated,
            None => self.create(&api, &key.1, object, at).await?,
        };
        self.published.lock().unwrap_or_else(PoisonError::into_inner).insert(key, published);
        Ok(())
    }

    /// Counts the event as a repetition; `None` when it is none, or when the first one has expired.
    async fn repeat(
        &self,
        api: &Api<EventObject>,
        key: &(Option<String>, Event),
        at: Timestamp,
    ) -> Result<Option<PublishedEvent>, kube::Error> {
        let known = {
            let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
            published.retain(|_, known| at.duration_since(known.at).unsigned_abs() < SERIES);
            published.get(key).cloned()
        };
        let Some(known) = known else { return Ok(None) };
        let count = known.count.saturating_add(1);
        let patch = json!({"series": EventSeries { count, last_observed_time: MicroTime(at) }});
        match api.patch(&known.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if code(&error) == Some(404) => Ok(None),
            result => result.map(|_| Some(PublishedEvent { count, at, ..known })),
        }
    }

    async fn create(
        &self,
        api: &Api<EventObject>,
        event: &Event,
        object: ObjectReference,
        at: Timestamp,
    ) -> Result<PublishedEvent, kube::Error> {
        let name = format!("{}.{:x}", object.name.as_deref().unwrap_or(REPORTER), at.as_nanosecond());
        let Event { warning, reason, message } = event.clone();
        let created = EventObject {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: object.namespace.clone(),
                ..ObjectMeta::default()
            },
            type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
            action: Some(reason.clone()),
            reason: Some(reason),
            note: Some(message),
            event_time: Some(MicroTime(at)),
            regarding: Some(object),
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some(self.instance.clone().unwrap_or_else(|| REPORTER.to_owned())),
            ..EventObject::default()
        };
        api.create(&PostParams::default(), &created).await?;
        Ok(PublishedEvent { name, count: 1, at })
    }
}
