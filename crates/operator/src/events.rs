//! Events on objects, told in the background: no reconcile waits for them, and none fails with them.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use knoll_core::events::Event;
use kube::{
    Client,
    runtime::events::{self, EventType, Reporter},
};
use tokio::{sync::mpsc, task::JoinHandle};

/// How many events may wait to be told.
const WAITING: usize = 1024;

/// How many are told at a time.
const CONCURRENCY: usize = 8;

/// The longest note that Kubernetes takes, in bytes.
const NOTE_MAX: usize = 1024;

#[derive(Clone, Debug)]
pub struct Recorder {
    sender: mpsc::Sender<(Event, ObjectReference)>,
}

impl Recorder {
    /// Starts to tell events; the handle ends when the last recorder is dropped and all is told.
    #[must_use]
    pub fn start(client: Client, instance: Option<String>) -> (Self, JoinHandle<()>) {
        let (sender, receiver) = mpsc::channel::<(Event, ObjectReference)>(WAITING);
        let recorder = events::Recorder::new(client, Reporter { controller: "knoll".to_owned(), instance });
        let receiver = futures::stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|event| (event, receiver))
        });
        let told = receiver.for_each_concurrent(CONCURRENCY, move |(event, object)| {
            let recorder = recorder.clone();
            async move {
                if let Err(error) = recorder.publish(&written(event), &object).await {
                    tracing::debug!(%error, "an event was not told");
                }
            }
        });
        (Self { sender }, tokio::spawn(told))
    }

    /// Records an event about an object. When too many wait, it is dropped: events are for people, who read few.
    pub fn record(&self, event: Event, object: ObjectReference) {
        if let Err(error) = self.sender.try_send((event, object)) {
            tracing::debug!(%error, "an event was dropped");
        }
    }
}

fn written(event: Event) -> events::Event {
    let Event { warning, reason, message } = event;
    let end = (0..=NOTE_MAX.min(message.len())).rfind(|end| message.is_char_boundary(*end)).unwrap_or_default();
    events::Event {
        type_: if warning { EventType::Warning } else { EventType::Normal },
        action: reason.clone(),
        reason,
        note: Some(message[..end].to_owned()),
        secondary: None,
    }
}
