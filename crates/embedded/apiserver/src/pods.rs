//! `pods/log`, `pods/attach`, `pods/exec`: the node's streams, handed through.

use axum::body::Body;
use axum::extract::{FromRequestParts, Request, WebSocketUpgrade};
use axum::response::Response;
use http::{Method, StatusCode, header};
use k8s_openapi::api::core::v1::Pod;

use crate::runtime::{LogOptions, PodRuntime, RuntimeError, StreamOptions};
use crate::status::{ApiError, Result};
use crate::websocket;
use crate::{Call, Server};
use knoll_kube_model::schema::FieldError;

/// A request to a pod's subresource.
pub async fn subresource(server: &Server, call: Call, name: &str, request: Request) -> Result<Response> {
    let method = request.method().clone();
    match name {
        "log" if method == Method::GET => log(server, &call).await,
        "attach" | "exec" if method == Method::GET || method == Method::POST => {
            stream(server, &call, name == "exec", request).await
        }
        "log" | "attach" | "exec" => Err(ApiError::method_not_allowed()),
        _ => Err(ApiError::no_such_resource()),
    }
}

fn runtime_error(error: RuntimeError) -> ApiError {
    match error {
        RuntimeError::NotRunning(message) => ApiError::bad_request(message),
        RuntimeError::Failed(message) => ApiError::internal(message),
    }
}

/// The pod, the container that is meant, and the node that runs it.
fn find<'a>(server: &'a Server, call: &Call) -> Result<(Pod, String, Option<&'a dyn PodRuntime>)> {
    let name = call.name()?;
    let found = server.read(&call.resource, call.target.namespace.as_deref(), name)?;
    let found = found.ok_or_else(|| ApiError::not_found(call.resource.subject(name)))?;
    let pod: Pod = serde_json::from_value(found).map_err(ApiError::internal)?;
    let spec = pod.spec.clone().unwrap_or_default();
    let init: Vec<String> = spec.init_containers.unwrap_or_default().into_iter().map(|c| c.name).collect();
    let main: Vec<String> = spec.containers.into_iter().map(|c| c.name).collect();
    let asked = call.query.get("container");
    // The annotation that names a default container is for clients: a server wants to be told.
    let container = match (asked, main.as_slice()) {
        ("", [only]) => only.clone(),
        ("", _) => {
            let all: Vec<&str> = init.iter().chain(&main).map(String::as_str).collect();
            return Err(ApiError::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                all.join(" ")
            )));
        }
        (asked, _) if main.iter().chain(&init).any(|c| c == asked) => asked.to_owned(),
        (asked, _) => {
            return Err(ApiError::bad_request(format!("container {asked} is not valid for pod {name}")));
        }
    };
    Ok((pod, container, server.runtime().map(AsRef::as_ref)))
}

async fn log(server: &Server, call: &Call) -> Result<Response> {
    let query = &call.query;
    check_log_options(call)?;
    let (pod, container, runtime) = find(server, call)?;
    let placed = pod.spec.as_ref().is_some_and(|s| s.node_name.as_deref().is_some_and(|n| !n.is_empty()));
    let Some(runtime) = runtime.filter(|_| placed) else {
        // A pod that nobody runs has said nothing.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    };
    let since = match (query.number("sinceSeconds")?, query.get("sinceTime")) {
        (Some(seconds), _) => {
            let back = jiff::SignedDuration::from_secs(seconds);
            server.now().checked_sub(back).ok()
        }
        (None, "") => None,
        (None, text) => Some(
            text.parse().map_err(|_| ApiError::bad_request(format!("sinceTime: `{text}` is not an RFC 3339 time")))?,
        ),
    };
    let options = LogOptions {
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        tail_lines: query.number("tailLines")?.and_then(|n| u64::try_from(n).ok()),
        since,
        timestamps: query.flag("timestamps"),
        limit_bytes: query.number("limitBytes")?.and_then(|n| u64::try_from(n).ok()),
    };
    let stream = runtime.logs(&pod, &container, options).await.map_err(runtime_error)?;
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// Refuses numbers that make no sense.
fn check_log_options(call: &Call) -> Result<()> {
    let mut errors = Vec::new();
    for (key, least) in [("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)] {
        if let Some(number) = call.query.number(key)?.filter(|n| *n < least) {
            let why = if least == 0 { "must be greater than or equal to 0" } else { "must be greater than 0" };
            errors.push(FieldError::invalid(key, number, why));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("", "PodLogOptions", call.name()?, &errors)) }
}

async fn stream(server: &Server, call: &Call, exec: bool, request: Request) -> Result<Response> {
    let (pod, container, runtime) = find(server, call)?;
    let runtime = runtime.ok_or_else(|| ApiError::bad_request("this cluster has no node that runs pods"))?;
    let query = &call.query;
    let tty = query.flag("tty");
    let options = StreamOptions {
        stdin: query.flag("stdin"),
        stdout: query.flag("stdout"),
        // A terminal has one stream for both.
        stderr: query.flag("stderr") && !tty,
        tty,
    };
    if !options.stdin && !options.stdout && !options.stderr {
        return Err(ApiError::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    let command = query.all("command").to_vec();
    if exec && command.is_empty() {
        return Err(ApiError::bad_request("you must specify at least 1 command for the container"));
    }
    let (mut parts, _) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await.map_err(|_| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "BadRequest",
            "the stream must be a WebSocket with the subprotocol v5.channel.k8s.io or v4.channel.k8s.io",
        )
    })?;
    let streams = if exec {
        runtime.exec(&pod, &container, command, options).await
    } else {
        runtime.attach(&pod, &container, options).await
    }
    .map_err(runtime_error)?;
    Ok(websocket::upgrade(upgrade, streams))
}
