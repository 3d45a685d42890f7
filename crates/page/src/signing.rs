//! The addresses at which users sign in and out.

use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::{HeaderMap, StatusCode, header};
use knoll_serve::Connection;
use serde::Deserialize;
use serde_json::json;

use crate::app::App;
use crate::clients::{BearerToken, ShownBy};
use crate::error::PageError;
use crate::html;
use crate::routes::{Answer, CancelForm, Shared, page};
use crate::user::User;

pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/sign-in", get(sign_in_page).post(sign_in_form))
        .route("/sign-in/{code}", get(sign_in_code).post(switch_user))
        .route("/sign-out", post(sign_out))
        .route("/api/sign-in-codes", post(new_code))
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
async fn sign_in_form(
    State(app): Shared,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
    Form(form): Form<SignInForm>,
) -> Answer<Response> {
    let refused = |why: &str| {
        let page = page(html::layout::sign_in(&form.next, Some(why)));
        Ok((StatusCode::FORBIDDEN, page).into_response())
    };
    let Some(token) = BearerToken::new(&form.token) else {
        return refused("That is no token: it is one word of letters, digits and marks.");
    };
    match app.clients.of(&token, ShownBy::Stranger(connection.address())).await {
        Ok(_) => begin(&app, &token, &headers, html::own_path(&form.next)),
        Err(PageError::SignIn) => refused("The cluster does not accept this token. It may have expired."),
        Err(error) => Err(error),
    }
}

/// Signs in with a link. A browser in which somebody else is signed in asks first: a link can come from anybody, and what
/// the user does afterwards would be done in the name of its maker.
async fn sign_in_code(State(app): Shared, Path(code): Path<String>, headers: HeaderMap) -> Answer<Response> {
    let Some(token) = app.codes.peek(&code) else { return used() };
    if let Some(session) = app.sessions.read(&headers)
        && session.token != token
        && let Ok((_, current)) = app.clients.of(&session.token, ShownBy::Session).await
    {
        let next = app.clients.of(&token, ShownBy::Session).await.map(|(_, user)| user.name);
        let next = next.unwrap_or_else(|_| "the user of the link".to_owned());
        if next != current.name {
            let asks = html::layout::switch_user(&current.name, &next, &code, &session.csrf);
            return Ok(page(asks).into_response());
        }
    }
    exchange(&app, &code, &headers)
}

/// The user of a browser who is signed in as somebody else goes on as the user of the link.
async fn switch_user(
    State(app): Shared,
    user: User,
    Path(code): Path<String>,
    headers: HeaderMap,
    Form(form): Form<CancelForm>,
) -> Answer<Response> {
    user.check_origin(Some(&form.csrf))?;
    exchange(&app, &code, &headers)
}

fn exchange(app: &App, code: &str, headers: &HeaderMap) -> Answer<Response> {
    app.codes.exchange(code).map_or_else(used, |token| begin(app, &token, headers, "/"))
}

fn used() -> Answer<Response> {
    let why = "This link was used already, or has expired. `knoll ui` makes another one.";
    Ok((StatusCode::FORBIDDEN, page(html::layout::sign_in("", Some(why)))).into_response())
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
    let code = app.codes.issue(&user.decider.name, user.token.clone());
    let code =
        code.ok_or_else(|| PageError::Busy("Too many links wait to be used. Try again in some minutes.".to_owned()))?;
    Ok(Json(json!({"path": format!("/sign-in/{code}")})))
}
