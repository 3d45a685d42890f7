//! The style sheet, the script and the icon, as files of this binary.

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ring::digest::{SHA256, digest};
use std::sync::LazyLock;

const CSS: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");
const ICON: &str = include_str!("assets/icon.svg");

/// A part of the paths of all files that changes with their content, so that browsers keep them for ever.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let hash = digest(&SHA256, [CSS, SCRIPT, ICON].concat().as_bytes());
    hash.as_ref().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
});

/// The path of a file.
pub fn path(name: &str) -> String {
    format!("/assets/{}/{name}", *VERSION)
}

/// The file of that name.
pub fn file(name: &str) -> Option<Response> {
    let (kind, content) = match name {
        "page.css" => ("text/css; charset=utf-8", CSS),
        "page.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "icon.svg" => ("image/svg+xml", ICON),
        _ => return None,
    };
    let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    Some((headers, content).into_response())
}
