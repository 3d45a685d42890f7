//! The addresses of the page and of its API, and the layers that every answer passes.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Form, Path, Query, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use knoll_api::approval::Decision;
use knoll_api::names::{is_dns_label, is_path_segment};
use knoll_api::run::Run;
use knoll_storage::{LogRange, Storage};
use kube::Api;
use maud::Markup;
use serde::Deserialize;
use serde_json::json;

use crate::act::{self, DecisionRequest};
use crate::app::App;
use crate::clients::BearerToken;
use crate::error::{Failure, PageError};
use crate::html;
use crate::live::{self, Form as Events, Place};
use crate::logs::{self, LogView};
use crate::server::Hosts;
use crate::user::User;
use crate::view::lists::{ListKind, ListQuery};
use crate::view::{graph, home, lists, objects, plan, run};
use crate::{assets, openapi};

/// The largest body: a comment, a token.
const BODY: usize = 64 * 1024;

/// Everything may come from this page only, and nothing inline.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                              form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

type Answer<T> = Result<T, PageError>;
type Shared = State<Arc<App>>;
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
        .route("/sign-in", get(sign_in_page).post(sign_in_form))
        .route("/sign-in/{code}", get(sign_in_code))
        .route("/sign-out", post(sign_out))
        .route("/api/sign-in-codes", post(new_code))
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

/// Checks the name by which the page is called, renders failures, and adds the headers of all answers.
async fn dress(State(app): Shared, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let is_asset = request.uri().path().starts_with("/assets/");
    let address = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let refused = check_host(&app, request.headers());
    let is_form = request.method() == http::Method::POST;
    let mut response = match refused {
        Some(error) => error.into_response(),
        None => next.run(request).await,
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

fn page(markup: Markup) -> Html<String> {
    Html(markup.into_string())
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

async fn home_view(user: &User, query: &HomeQuery) -> Answer<home::HomeView> {
    Ok(home::view(&home::observe(user, &query.namespace).await?, Timestamp::now()))
}

async fn home_page(user: User, Query(query): Query<HomeQuery>) -> Answer<Html<String>> {
    let frame = html::layout::Frame::of(&user, "Home", "home", &query.namespace);
    match home_view(&user, &query).await {
        // A user without rights on the whole cluster names a namespace.
        Err(PageError::Forbidden(why)) => Ok(page(html::layout::choose_namespace(&frame, &why))),
        view => Ok(page(html::home::page(&frame, &view?))),
    }
}

async fn home_json(user: User, Query(query): Query<HomeQuery>) -> Answer<Json<home::HomeView>> {
    Ok(Json(home_view(&user, &query).await?))
}

async fn list_view(kind: ListKind, user: &User, query: ListQuery) -> Answer<lists::ListView> {
    let (rows, truncated) = lists::observe(user, kind, &query.namespace).await?;
    Ok(lists::view(kind, query, rows, truncated))
}

async fn list_page(kind: ListKind, user: User, Query(query): Query<ListQuery>) -> Answer<Html<String>> {
    let frame = html::layout::Frame::of(&user, kind.title(), kind.path(), &query.namespace);
    match list_view(kind, &user, query).await {
        Err(PageError::Forbidden(why)) => Ok(page(html::layout::choose_namespace(&frame, &why))),
        view => Ok(page(html::lists::page(&frame, &view?))),
    }
}

async fn list_json(kind: ListKind, user: User, Query(query): Query<ListQuery>) -> Answer<Json<lists::ListView>> {
    Ok(Json(list_view(kind, &user, query).await?))
}

/// The view of a Run and of its log. A log that the user may not read is an empty one with a reason.
async fn run_view(user: &User, name: Name) -> Answer<(run::RunView, LogView, Option<String>)> {
    let (namespace, name) = checked(name)?;
    let seen = run::observe(user, &namespace, &name).await?;
    let log = Storage::new(user.client.clone()).logs().read(&seen.run, LogRange::WHOLE).await;
    let view = run::view(&seen, Timestamp::now());
    match log {
        Ok(log) => Ok((view.clone(), logs::view(&seen.run, &log, view.finished), None)),
        Err(error) => Ok((view, LogView::default(), Some(PageError::from(error).to_string()))),
    }
}

async fn run_page(user: User, name: Name) -> Answer<Html<String>> {
    let (view, log, problem) = run_view(&user, name).await?;
    let frame = html::layout::Frame::of(&user, &view.name, "runs", &view.namespace);
    Ok(page(html::run::page(&frame, &view, &log, problem.as_deref())))
}

async fn run_json(user: User, name: Name) -> Answer<Json<run::RunView>> {
    let (namespace, name) = checked(name)?;
    Ok(Json(run::view(&run::observe(&user, &namespace, &name).await?, Timestamp::now())))
}

async fn log_json(user: User, name: Name) -> Answer<Json<LogView>> {
    let (_, log, problem) = run_view(&user, name).await?;
    problem.map_or(Ok(Json(log)), |why| Err(PageError::Forbidden(why)))
}

/// The whole log as terraform printed it, for a download.
async fn log_text(user: User, name: Name) -> Answer<Response> {
    let (namespace, name) = checked(name)?;
    let api: Api<Run> = Api::namespaced(user.client.clone(), &namespace);
    let run = api.get(&name).await?;
    let log = Storage::new(user.client.clone()).logs().read(&run, LogRange::WHOLE).await?;
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
    let permit = live::permit(&app.streams)?;
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

async fn plan_view(user: &User, name: Name) -> Answer<plan::PlanView> {
    let (namespace, name) = checked(name)?;
    Ok(plan::view(&plan::observe(user, &namespace, &name).await?, Timestamp::now()))
}

async fn plan_page(user: User, name: Name) -> Answer<Html<String>> {
    let view = plan_view(&user, name).await?;
    let frame = html::layout::Frame::of(&user, &format!("Plan of {}", view.run.name), "runs", &view.run.namespace);
    Ok(page(html::plan::page(&frame, &view)))
}

async fn plan_json(user: User, name: Name) -> Answer<Json<plan::PlanView>> {
    Ok(Json(plan_view(&user, name).await?))
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

#[derive(Deserialize)]
struct CancelForm {
    #[serde(default)]
    csrf: String,
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

async fn graph_view(user: &User, query: &HomeQuery) -> Answer<graph::GraphView> {
    Ok(graph::view(&query.namespace, &graph::observe(user, &query.namespace).await?))
}

async fn graph_page(user: User, Query(query): Query<HomeQuery>) -> Answer<Html<String>> {
    let frame = html::layout::Frame::of(&user, "Dependencies", "stacks", &query.namespace);
    match graph_view(&user, &query).await {
        Err(PageError::Forbidden(why)) => Ok(page(html::layout::choose_namespace(&frame, &why))),
        view => Ok(page(html::graph::page(&frame, &view?))),
    }
}

async fn graph_json(user: User, Query(query): Query<HomeQuery>) -> Answer<Json<graph::GraphView>> {
    Ok(Json(graph_view(&user, &query).await?))
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct SignInQuery {
    next: String,
}

async fn sign_in_page(Query(query): Query<SignInQuery>) -> Html<String> {
    page(html::layout::sign_in(&query.next, None))
}

#[derive(Deserialize)]
struct SignInForm {
    token: String,
    #[serde(default)]
    next: String,
}

/// Signs in with a token that the API server takes. A foreign site that signs a victim in as somebody else is kept out
/// by the check of the origin, which browsers send with every form.
async fn sign_in_form(State(app): Shared, headers: HeaderMap, Form(form): Form<SignInForm>) -> Answer<Response> {
    let refused = |why: &str| {
        let page = page(html::layout::sign_in(&form.next, Some(why)));
        Ok((StatusCode::FORBIDDEN, page).into_response())
    };
    let Some(token) = BearerToken::new(&form.token) else {
        return refused("That is no token: it is one word of letters, digits and marks.");
    };
    match app.clients.of(&token).await {
        Ok(_) => begin(&app, &token, &headers, html::own_path(&form.next)),
        Err(PageError::SignIn) => refused("The cluster does not accept this token. It may have expired."),
        Err(error) => Err(error),
    }
}

async fn sign_in_code(State(app): Shared, Path(code): Path<String>, headers: HeaderMap) -> Answer<Response> {
    match app.codes.exchange(&code) {
        Some(token) => begin(&app, &token, &headers, "/"),
        None => {
            let why = "This link was used already, or has expired. `knoll ui` makes another one.";
            Ok((StatusCode::FORBIDDEN, page(html::layout::sign_in("", Some(why)))).into_response())
        }
    }
}

fn is_secure(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https")
}

fn begin(app: &App, token: &BearerToken, headers: &HeaderMap, next: &str) -> Answer<Response> {
    let cookie = app.sessions.begin(token, is_secure(headers));
    let cookie = cookie.ok_or_else(|| PageError::Busy("The system has no random numbers.".to_owned()))?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(next)).into_response())
}

async fn sign_out(
    State(app): Shared,
    user: User,
    headers: HeaderMap,
    Form(form): Form<CancelForm>,
) -> Answer<Response> {
    user.check_origin(Some(&form.csrf))?;
    let cookie = app.sessions.end(is_secure(&headers)).ok_or_else(PageError::nothing_here)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/sign-in")).into_response())
}

/// A code for a link that signs in once, as the user who asks with a token.
async fn new_code(State(app): Shared, user: User) -> Answer<Json<serde_json::Value>> {
    user.check_origin(None)?;
    let code = app.codes.issue(user.token.clone());
    let code =
        code.ok_or_else(|| PageError::Busy("Too many links wait to be used. Try again in some minutes.".to_owned()))?;
    Ok(Json(json!({"path": format!("/sign-in/{code}")})))
}

async fn asset(Path((_, name)): Name) -> Answer<Response> {
    assets::file(&name).ok_or_else(PageError::nothing_here)
}
