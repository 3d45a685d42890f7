//! The bodies of requests: how large each may be, how long it may take, and how much all of them may hold.
//!
//! *Guarantees.* A body that is too large is refused by its declared length, before any of it is read. A body is read only
//! for a runner that is known, and only while the [`Budget`] has room for it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::header;
use knoll_api::wire::{LARGEST_CONTENT, LARGEST_PLAN_JSON, LARGEST_PLAN_TEXT};
use knoll_serve::{Budget, Held};

use crate::error::Error;

/// The largest state or plan.
pub const CONTENT: u64 = LARGEST_CONTENT;
/// The largest text of a plan.
pub const PLAN_TEXT: u64 = LARGEST_PLAN_TEXT;
/// The largest JSON of a plan.
pub const PLAN_JSON: u64 = LARGEST_PLAN_JSON;
/// The largest piece of a log. A runner sends 256 KiB at a time.
pub const LOG: u64 = 2 << 20;
/// The largest report. A plan's description is capped by the runner, and a status by the API server at about 1 MiB.
pub const REPORT: u64 = 2 << 20;
/// The largest dependency lock file. One of a hundred providers has 150 KiB.
pub const LOCK: u64 = 256 << 10;

/// All states, plans and texts of plans on their way to the hub: four of the largest, and one of each namespace.
const CONTENT_BUDGET: (u64, u64) = (4 * CONTENT, CONTENT);
/// The JSON of plans, which is held until the rules have judged it: as many of the largest, and one of each namespace. What
/// waits for its turn there keeps no state waiting.
const JSON_BUDGET: (u64, u64) = (4 * PLAN_JSON, PLAN_JSON);
/// All other bodies on their way to the hub.
const CONTROL_BUDGET: (u64, u64) = (32 << 20, 8 << 20);
/// States, plans and bundles that the hub has in memory to send them.
const DOWNLOADS: (u64, u64) = (16, 4);

/// The time for a body of any size, and the slowest rate beyond it, in bytes a second. Runner and hub are in one cluster.
const BODY_TIME: Duration = Duration::from_secs(30);
const SLOWEST: u64 = 1 << 20;

/// The budgets of the hub.
pub struct Budgets {
    content: Arc<Budget>,
    json: Arc<Budget>,
    control: Arc<Budget>,
    downloads: Arc<Budget>,
}

impl Default for Budgets {
    fn default() -> Self {
        let of = |(all, share)| Budget::new(all, share);
        let (content, json) = (of(CONTENT_BUDGET), of(JSON_BUDGET));
        Self { content, json, control: of(CONTROL_BUDGET), downloads: of(DOWNLOADS) }
    }
}

impl Budgets {
    /// Reads a body of at most `largest` bytes. The second value holds its share of the budget.
    pub async fn read(&self, namespace: &str, request: Request, largest: u64) -> Result<(Bytes, Held), Error> {
        let length = declared(&request)?;
        if length > largest {
            return Err(Error::TooLarge(largest));
        }
        let budget = match largest {
            PLAN_JSON => &self.json,
            PLAN_TEXT.. => &self.content,
            _ => &self.control,
        };
        let held = budget.take(namespace, length).await.ok_or(Error::Crowded)?;
        let time = BODY_TIME + Duration::from_secs(length / SLOWEST);
        let body = tokio::time::timeout(time, collect(request, length)).await.map_err(|_| Error::Slow(time))??;
        Ok((body, held))
    }

    /// Waits until another content may be loaded to be sent. It is held until the response is sent or given up.
    pub async fn download(&self, namespace: &str) -> Result<Held, Error> {
        self.downloads.take(namespace, 1).await.ok_or(Error::Crowded)
    }
}

/// Lets a response hold its share of the budget until it is sent.
pub fn holding(response: Response, held: Held) -> Response {
    response.map(|body| {
        let chunks = body.into_data_stream().map(move |chunk| {
            let _held = &held;
            chunk
        });
        axum::body::Body::from_stream(chunks)
    })
}

/// The declared length. Runners know what they send, so a body without one is not theirs.
fn declared(request: &Request) -> Result<u64, Error> {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    length.and_then(|length| length.parse().ok()).ok_or(Error::NoLength)
}

async fn collect(request: Request, length: u64) -> Result<Bytes, Error> {
    let capacity = usize::try_from(length).map_err(|_| Error::TooLarge(length))?;
    let mut chunks = request.into_body().into_data_stream();
    let mut content = BytesMut::with_capacity(capacity);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Error::Invalid(format!("the request broke off: {error}")))?;
        if content.len() + chunk.len() > capacity {
            return Err(Error::TooLarge(length));
        }
        content.extend_from_slice(&chunk);
    }
    Ok(content.freeze())
}
