//! The span and the duration of each request.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::StatusCode;
use knoll_api::wire::path;
use tracing::{Instrument, Span, field};

use crate::session::Session;

type Observe = dyn Fn(&'static str, &'static str, Duration) + Send + Sync;

/// Takes the duration of each request, by route and outcome. Both are words of this crate, fit for labels of metrics.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<Observe>>);

impl Observer {
    pub fn new(observe: impl Fn(&'static str, &'static str, Duration) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

const ROUTES: [&str; 12] = [
    path::JOB,
    path::BUNDLE,
    path::STATE,
    path::LOCK,
    path::PLAN,
    path::ANSWER,
    path::LOG,
    path::PROGRESS,
    path::CANCEL,
    path::HISTORY,
    path::UPLOAD,
    path::CONTAINER,
];

/// Runs one request in a span, and measures it.
pub async fn request(State(observer): State<Observer>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let route = ROUTES.into_iter().find(|route| Some(*route) == matched).unwrap_or("none");
    let span = tracing::info_span!(
        "hub_request",
        method = %request.method(),
        route,
        kind = "Run",
        namespace = field::Empty,
        name = field::Empty,
    );
    let started = Instant::now();
    let response = next.run(request).instrument(span).await;
    if let Observer(Some(observe)) = &observer {
        observe(route, outcome(response.status()), started.elapsed());
    }
    response
}

/// Names the Run of a request in its span.
pub fn identify(session: &Session) {
    let span = Span::current();
    span.record("namespace", session.caller.namespace.as_str());
    span.record("name", session.run.as_str());
}

fn outcome(status: StatusCode) -> &'static str {
    match status.as_u16() {
        ..400 => "ok",
        401 => "unauthorized",
        403 => "fenced",
        409 => "conflict",
        400..500 => "refused",
        _ => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_one_of_a_few_outcomes() {
        let rows = [(200, "ok"), (204, "ok"), (401, "unauthorized"), (403, "fenced"), (409, "conflict")];
        let more = [(404, "refused"), (422, "refused"), (500, "failed"), (503, "failed")];
        for (code, expect) in rows.into_iter().chain(more) {
            assert_eq!(outcome(StatusCode::from_u16(code).unwrap_or_default()), expect, "{code}");
        }
    }
}
