//! The addresses of the page and of its API, and the layers that every answer passes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Form, Path, Query, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::StreamExt;
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use knoll_api::approval::Decision;
use knoll_api::names::{is_dns_label, is_path_segment};
use knoll_api::run::Run;
use knoll_core::visible::visible;
use knoll_storage::Storage;
use kube::Api;
use maud::Markup;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::act::{self, DecisionRequest};
use crate::app::App;
use crate::error::{Failure, PageError};
use crate::html;
use crate::live::{self, Form as Events, Place};
use crate::logs::{LogTail, LogView};
use crate::server::Hosts;
use crate::user::User;
use crate::view::lists::{ListKind, ListQuery};
use crate::view::{graph, home, lists, objects, plan, run};
use crate::{assets, openapi, signing};

/// The largest body: a comment, a token.
const BODY: usize = 64 * 1024;
/// How long a body may take. A browser sends it with the head.
const BODY_TIME: Duration = Duration::from_secs(10);
/// What a page reads of a log at most: more than a runner can have written.
const MOST_OF_A_LOG: u64 = 256 << 20;

/// Everything may come from this page only, and nothing inline.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                              form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub type Answer<T> = Result<T, PageError>;
pub type Shared = State<Arc<App>>;
type Name = Path<(String, String)>;

/// The pages, the API beside them, and the files.
pub fn router(app: Arc<App>) -> Router {
    let lists = [ListKind::Runs, ListKind::Stacks, ListKind::Workspaces, ListKind::Atoms];
    let mut router = Router::new()
        .route("/", get(home_page))
        .route("/api/home", get(home_json))
        .route("/runs/{namespace}/{name}", get(run_page))
        .route("/runs/{namespace}/{name}/plan", get(plan_page))
        .route("/runs/{namespace}/{name}/log", get(log_text))
        .route("/runs/{namespace}/{name}/events", get(events_html))
        .route("/runs/{namespace}/{name}/decision", post(decide_form))
        .route("/runs/{namespace}/{name}/cancel", post(cancel_form))
        .route("/api/runs/{namespace}/{name}", get(run_json))
        .route("/api/runs/{namespace}/{name}/plan", get(plan_json))
        .route("/api/runs/{namespace}/{name}/log", get(log_json))
        .route("/api/runs/{namespace}/{name}/events", get(events_json))
        .route("/api/runs/{namespace}/{name}/decision", post(decide_json))
        .route("/api/runs/{namespace}/{name}/cancel", post(cancel_json))
        .route("/stacks/{namespace}/{name}", get(stack_page))
        .route("/api/stacks/{namespace}/{name}", get(stack_json))
        .route("/workspaces/{namespace}/{name}", get(workspace_page))
        .route("/api/workspaces/{namespace}/{name}", get(workspace_json))
        .route("/graph", get(graph_page))
        .route("/api/graph", get(graph_json))
        .route("/atoms/{namespace}/{name}", get(atom_page))
        .route("/api/atoms/{namespace}/{name}", get(atom_json))
        .merge(signing::routes())
        .route("/api/openapi.json", get(|| async { Json(openapi::document()) }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/favicon.ico", get(|| async { Redirect::permanent(&assets::path("icon.svg")) }))
        .route("/assets/{version}/{name}", get(asset));
    for kind in lists {
        router = router
            .route(
                &format!("/{}", kind.path()),
                get(move |user: User, query: Query<ListQuery>| list_page(kind, user, query)),
            )
            .route(
                &format!("/api/{}", kind.path()),
                get(move |user: User, query: Query<ListQuery>| list_json(kind, user, query)),
            );
    }
    router
        .fallback(|| async { PageError::nothing_here() })
        .layer(DefaultBodyLimit::max(BODY))
        .layer(from_fn_with_state(Arc::clone(&app), dress))
        .with_state(app)
}

/// The request with its whole body, which a client cannot withhold for long.
async fn with_body(request: Request) -> Result<Request, StatusCode> {
    let (parts, body) = request.into_parts();
    let read = tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, BODY)).await;
    match read.map_err(|_| StatusCode::REQUEST_TIMEOUT)? {
        Ok(body) => Ok(Request::from_parts(parts, Body::from(body))),
        Err(_) => Err(StatusCode::PAYLOAD_TOO_LARGE),
    }
}

/// Checks the name by which the page is called, renders failures, and adds the headers of all answers.
async fn dress(State(app): Shared, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let is_asset = request.uri().path().starts_with("/assets/");
    let address = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let refused = check_host(&app, request.headers());
    let is_form = request.method() == http::Method::POST;
    let mut response = match refused {
        Some(error) => error.into_response(),
        None => match with_body(request).await {
            Ok(request) => next.run(request).await,
            Err(status) => status.into_response(),
        },
    };
    if let Some(Failure { message }) = response.extensions_mut().remove::<Failure>() {
        let status = response.status();
        response = match (is_api, status) {
            (true, _) => (status, Json(json!({"error": message}))).into_response(),
            (false, StatusCode::UNAUTHORIZED) if is_form => Redirect::to("/sign-in").into_response(),
            (false, StatusCode::UNAUTHORIZED) => Redirect::to(&html::sign_in_path(&address)).into_response(),
            (false, _) => (status, page(html::layout::failure(status, &message))).into_response(),
        };
    }
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // With `no-referrer` browsers would hide the origin of our own forms as well.
        (header::REFERRER_POLICY, "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !is_asset {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Refuses a request under a foreign name, and one that another site's form has sent.
fn check_host(app: &App, headers: &HeaderMap) -> Option<PageError> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
    if app.hosts == Hosts::Loopback && !matches!(name, "127.0.0.1" | "localhost" | "[::1]") {
        return Some(PageError::Forbidden(
            "The page is called by the name of this machine only: 127.0.0.1.".to_owned(),
        ));
    }
    let origin = text(header::ORIGIN)?;
    let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
    (authority != host).then(|| PageError::Forbidden("The request was made by another site.".to_owned()))
}

/// A page of this markup. No text of a user, and nothing that a module printed, is invisible in it.
pub fn page(markup: Markup) -> Html<String> {
    Html(visible(&markup.into_string()))
}

/// Does work that grows with what was read, where no other request waits for it.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    let failed = |_| PageError::Busy("The page could not be made. Load it again.".to_owned());
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

/// A view as JSON.
async fn json_of<T: Serialize>(view: impl FnOnce() -> T + Send + 'static) -> Answer<Response> {
    apart(move || Json(view()).into_response()).await
}

/// The namespace and the name of a path, as they may go into the path of a request to the API server.
fn checked(Path((namespace, name)): Name) -> Answer<(String, String)> {
    let good = is_dns_label(&namespace) && is_path_segment(&name);
    if good { Ok((namespace, name)) } else { Err(PageError::nothing_here()) }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HomeQuery {
    namespace: String,
}

async fn home_page(user: User, Query(query): Query<HomeQuery>) -> Answer<Html<String>> {
    let frame = html::layout::Frame::of(&user, "Home", "home", &query.namespace);
    match home::observe(&user, &query.namespace, Timestamp::now()).await {
        // A user without rights on the whole cluster names a namespace.
        Err(PageError::Forbidden(why)) => Ok(page(html::layout::choose_namespace(&frame, &why))),
        seen => {
            let seen = seen?;
            apart(move || page(html::home::page(&frame, &home::view(&seen)))).await
        }
    }
}

async fn home_json(user: User, Query(query): Query<HomeQuery>) -> Answer<Response> {
    let seen = home::observe(&user, &query.namespace, Timestamp::now()).await?;
    json_of(move || home::view(&seen)).await
}

async fn list_page(kind: ListKind, user: User, Query(query): Query<ListQuery>) -> Answer<Html<String>> {
    let frame = html::layout::Frame::of(&user, kind.title(), kind.path(), &query.namespace);
    match lists::observe(&user, kind, &query).await {
        Err(PageError::Forbidden(why)) => Ok(page(html::layout::choose_namespace(&frame, &why))),
        seen => {
            let (rows, truncated) = seen?;
            apart(move || page(html::lists::page(&frame, &lists::view(kind, query, rows, truncated)))).await
        }
    }
}

async fn list_json(kind: ListKind, user: User, Query(query): Query<ListQuery>) -> Answer<Response> {
    let (rows, truncated) = lists::observe(&user, kind, &query).await?;
    json_of(move || lists::view(kind, query, rows, truncated)).await
}

/// The view of a Run and of its log. A log that the user may not read is an empty one with a reason.
async fn run_view(user: &User, name: Name) -> Answer<(run::RunView, LogView, Option<String>)> {
    let (namespace, name) = checked(name)?;
    let seen = run::observe(user, &namespace, &name).await?;
    let view = run::view(&seen, Timestamp::now());
    let (log, problem) = read_log(user, &seen.run).await;
    let ended = view.finished;
    Ok((view, apart(move || log.view(ended)).await?, problem))
}

/// The end of a log, and why it is not all of it.
async fn read_log(user: &User, run: &Run) -> (LogTail, Option<String>) {
    let (mut tail, mut read) = (LogTail::new(run), 0);
    let pieces = Storage::new(user.client.clone()).logs().pieces(run, 0).await;
    let mut pieces = match pieces {
        Ok(pieces) => std::pin::pin!(pieces),
        Err(error) => return (tail, Some(PageError::from(error).to_string())),
    };
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => {
                read += piece.len() as u64;
                tail.push(&piece);
            }
            Err(error) => return (tail, Some(PageError::from(error).to_string())),
        }
        if read > MOST_OF_A_LOG {
            return (tail, Some("The log is too long for a page. The download has all of it.".to_owned()));
        }
    }
    (tail, None)
}

async fn run_page(user: User, name: Name) -> Answer<Html<String>> {
    let (view, log, problem) = run_view(&user, name).await?;
    let frame = html::layout::Frame::of(&user, &view.name, "runs", &view.namespace);
    apart(move || page(html::run::page(&frame, &view, &log, problem.as_deref()))).await
}

async fn run_json(user: User, name: Name) -> Answer<Json<run::RunView>> {
    let (namespace, name) = checked(name)?;
    Ok(Json(run::view(&run::observe(&user, &namespace, &name).await?, Timestamp::now())))
}

async fn log_json(user: User, name: Name) -> Answer<Response> {
    let (_, log, problem) = run_view(&user, name).await?;
    match problem {
        Some(why) => Err(PageError::Forbidden(why)),
        None => json_of(move || log).await,
    }
}

/// The whole log as terraform printed it, for a download, part by part.
async fn log_text(State(app): Shared, user: User, name: Name) -> Answer<Response> {
    let (namespace, name) = checked(name)?;
    let api: Api<Run> = Api::namespaced(user.client.clone(), &namespace);
    let permit = app.stream(&user.decider.name)?;
    let run = api.get(&name).await?;
    let pieces = Storage::new(user.client.clone()).logs().pieces(&run, 0).await?;
    let log = Body::from_stream(pieces.inspect(move |_| {
        let _held = &permit;
    }));
    // The characters of a checked name need no quotes inside the quotes.
    let file: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).collect();
    let attachment = HeaderValue::from_str(&format!("attachment; filename=\"{file}.log\""));
    let attachment = attachment.map_err(|_| PageError::nothing_here())?;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, attachment)], log).into_response())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EventsQuery {
    from: String,
}

async fn events(
    app: Arc<App>,
    user: User,
    name: Name,
    query: EventsQuery,
    headers: &HeaderMap,
    form: Events,
) -> Answer<Response> {
    let (namespace, name) = checked(name)?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(Place::parse);
    let from = last.or_else(|| Place::parse(&query.from)).unwrap_or_default();
    let permit = app.stream(&user.decider.name)?;
    Ok(live::stream(user, namespace, name, from, form, permit, app.stop.clone()).into_response())
}

async fn events_html(
    State(app): Shared,
    user: User,
    name: Name,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    events(app, user, name, query, &headers, Events::Html).await
}

async fn events_json(
    State(app): Shared,
    user: User,
    name: Name,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    events(app, user, name, query, &headers, Events::Json).await
}

async fn plan_page(user: User, name: Name) -> Answer<Html<String>> {
    let (namespace, name) = checked(name)?;
    let seen = plan::observe(&user, &namespace, &name).await?;
    let frame = html::layout::Frame::of(&user, &format!("Plan of {name}"), "runs", &namespace);
    apart(move || page(html::plan::page(&frame, &plan::view(&seen, Timestamp::now())))).await
}

async fn plan_json(user: User, name: Name) -> Answer<Response> {
    let (namespace, name) = checked(name)?;
    let seen = plan::observe(&user, &namespace, &name).await?;
    json_of(move || plan::view(&seen, Timestamp::now())).await
}

#[derive(Deserialize)]
struct DecisionForm {
    #[serde(default)]
    csrf: String,
    decision: Decision,
    digest: String,
    #[serde(default)]
    comment: Option<String>,
}

async fn decide_form(user: User, name: Name, Form(form): Form<DecisionForm>) -> Answer<Redirect> {
    user.check_origin(Some(&form.csrf))?;
    let (namespace, name) = checked(name)?;
    let DecisionForm { csrf: _, decision, digest, comment } = form;
    act::decide(&user, &namespace, &name, DecisionRequest { decision, digest, comment }).await?;
    Ok(Redirect::to(&format!("/runs/{namespace}/{name}")))
}

async fn decide_json(
    user: User,
    name: Name,
    Json(request): Json<DecisionRequest>,
) -> Answer<Json<act::DecisionResult>> {
    user.check_origin(None)?;
    let (namespace, name) = checked(name)?;
    Ok(Json(act::decide(&user, &namespace, &name, request).await?))
}

/// A form with nothing but the token of the session.
#[derive(Deserialize)]
pub struct CancelForm {
    #[serde(default)]
    pub csrf: String,
}

async fn cancel_form(user: User, name: Name, Form(form): Form<CancelForm>) -> Answer<Redirect> {
    user.check_origin(Some(&form.csrf))?;
    let (namespace, name) = checked(name)?;
    act::cancel(&user, &namespace, &name, false).await?;
    Ok(Redirect::to(&format!("/runs/{namespace}/{name}")))
}

async fn cancel_json(user: User, name: Name) -> Answer<StatusCode> {
    user.check_origin(None)?;
    let (namespace, name) = checked(name)?;
    act::cancel(&user, &namespace, &name, false).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn stack_view(user: &User, name: Name) -> Answer<objects::ObjectView> {
    let (namespace, name) = checked(name)?;
    objects::stack(user, &namespace, &name).await
}

async fn workspace_view(user: &User, name: Name) -> Answer<objects::ObjectView> {
    let (namespace, name) = checked(name)?;
    objects::workspace(user, &namespace, &name).await
}

async fn atom_view(user: &User, name: Name) -> Answer<objects::ObjectView> {
    let (namespace, name) = checked(name)?;
    objects::atom(user, &namespace, &name).await
}

async fn graph_page(user: User, Query(query): Query<HomeQuery>) -> Answer<Html<String>> {
    let frame = html::layout::Frame::of(&user, "Dependencies", "stacks", &query.namespace);
    match graph::observe(&user, &query.namespace).await {
        Err(PageError::Forbidden(why)) => Ok(page(html::layout::choose_namespace(&frame, &why))),
        stacks => {
            let stacks = stacks?;
            apart(move || page(html::graph::page(&frame, &graph::view(&query.namespace, stacks)))).await
        }
    }
}

async fn graph_json(user: User, Query(query): Query<HomeQuery>) -> Answer<Response> {
    let stacks = graph::observe(&user, &query.namespace).await?;
    json_of(move || graph::view(&query.namespace, stacks)).await
}

fn object_page(user: &User, tab: &str, view: &objects::ObjectView) -> Html<String> {
    page(html::objects::page(&html::layout::Frame::of(user, &view.name, tab, &view.namespace), tab, view))
}

async fn stack_page(user: User, name: Name) -> Answer<Html<String>> {
    Ok(object_page(&user, "stacks", &stack_view(&user, name).await?))
}

async fn stack_json(user: User, name: Name) -> Answer<Json<objects::ObjectView>> {
    Ok(Json(stack_view(&user, name).await?))
}

async fn workspace_page(user: User, name: Name) -> Answer<Html<String>> {
    Ok(object_page(&user, "workspaces", &workspace_view(&user, name).await?))
}

async fn workspace_json(user: User, name: Name) -> Answer<Json<objects::ObjectView>> {
    Ok(Json(workspace_view(&user, name).await?))
}

async fn atom_page(user: User, name: Name) -> Answer<Html<String>> {
    Ok(object_page(&user, "atoms", &atom_view(&user, name).await?))
}

async fn atom_json(user: User, name: Name) -> Answer<Json<objects::ObjectView>> {
    Ok(Json(atom_view(&user, name).await?))
}

async fn asset(Path((_, name)): Name) -> Answer<Response> {
    assets::file(&name).ok_or_else(PageError::nothing_here)
}
