//! Finds the backend that a module declares. Managed state replaces it.

use std::path::Path;
use std::str::FromStr;

use hcl_edit::structure::Body;
use knoll_api::run::Operation;
use knoll_api::wire::Job;
use serde_json::Value;

use crate::declared::{is_configuration, texts};

/// The first `backend` or `cloud` block of the module in `folder`, as a user writes it: `backend "s3"` or `cloud`.
#[must_use]
pub fn declared(folder: &Path) -> Option<String> {
    let mut files = texts(folder, is_configuration);
    files.sort();
    files.iter().find_map(|(name, text)| if name.ends_with(".json") { of_json(text) } else { of_hcl(text) })
}

/// Whether the job would plan with an empty managed state, although the infrastructure may exist in another one. A
/// destroy does nothing then, and the Stack of a run that was refused is deleted by one.
pub(crate) fn starts_empty(job: &Job, has_state: bool) -> bool {
    let plans = match job.operation {
        Operation::Plan | Operation::Apply | Operation::Refresh => true,
        Operation::Command => job.command.as_deref() == Some("import"),
        Operation::Destroy => false,
    };
    plans && job.managed_state && !has_state
}

/// What the module in `folder` declares, if a state that Knoll does not store would be lost with its pod: nothing, or a
/// file whose path is not absolute. A file on a volume of the pod has an absolute path.
#[must_use]
pub fn kept_in_pod(folder: &Path) -> Option<&'static str> {
    match declared(folder).as_deref() {
        None => Some("no backend"),
        Some(LOCAL) if !has_absolute_path(folder) => Some("`backend \"local\"` without an absolute `path`"),
        Some(_) => None,
    }
}

/// Whether the job writes a state.
pub(crate) fn writes(job: &Job) -> bool {
    match job.operation {
        Operation::Apply | Operation::Refresh => true,
        Operation::Command => job.command.as_deref() == Some("import"),
        Operation::Plan | Operation::Destroy => false,
    }
}

/// Terraform's backend for a file.
pub const LOCAL: &str = "backend \"local\"";

fn has_absolute_path(folder: &Path) -> bool {
    texts(folder, is_configuration).iter().any(|(name, text)| {
        let path = if name.ends_with(".json") { local_path_of_json(text) } else { local_path_of_hcl(text) };
        path.is_some_and(|path| Path::new(&path).is_absolute())
    })
}

fn local_path_of_hcl(text: &str) -> Option<String> {
    let body = Body::from_str(text).ok()?;
    let mut blocks = body.get_blocks("terraform").flat_map(|block| block.body.get_blocks("backend"));
    blocks.find_map(|block| block.body.get_attribute("path")?.value.as_str().map(str::to_owned))
}

fn local_path_of_json(text: &str) -> Option<String> {
    let value: Value = serde_json::from_str(text).ok()?;
    items(value.get("terraform")?).into_iter().find_map(|settings| {
        let backends = items(settings.get("backend")?);
        backends.into_iter().find_map(|backend| Some(backend.get("local")?.get("path")?.as_str()?.to_owned()))
    })
}

fn of_hcl(text: &str) -> Option<String> {
    let Ok(body) = Body::from_str(text) else { return of_lines(text) };
    body.get_blocks("terraform").flat_map(|block| block.body.blocks()).find_map(|block| match block.ident.as_str() {
        "backend" => Some(named(block.labels.first().map_or("", |label| label.as_str()))),
        "cloud" => Some("cloud".to_owned()),
        _ => None,
    })
}

/// Terraform may be able to parse a file that this parser cannot.
fn of_lines(text: &str) -> Option<String> {
    text.lines().map(str::trim_start).find_map(|line| match line.strip_prefix("backend ") {
        Some(rest) => Some(named(rest.trim_start().strip_prefix('"')?.split('"').next()?)),
        None => {
            line.strip_prefix("cloud").filter(|rest| rest.trim_start().starts_with('{')).map(|_| "cloud".to_owned())
        }
    })
}

fn of_json(text: &str) -> Option<String> {
    let value: Value = serde_json::from_str(text).ok()?;
    items(value.get("terraform")?).into_iter().find_map(|settings| {
        let backend = settings.get("backend").and_then(|backends| items(backends).into_iter().find_map(first_key));
        backend.map(|name| named(&name)).or_else(|| settings.get("cloud").map(|_| "cloud".to_owned()))
    })
}

fn first_key(value: &Value) -> Option<String> {
    value.as_object()?.keys().next().cloned()
}

/// JSON configuration writes one block as an object, and several as an array of them.
fn items(value: &Value) -> Vec<&Value> {
    value.as_array().map_or_else(|| vec![value], |list| list.iter().collect())
}

fn named(backend: &str) -> String {
    format!("backend \"{backend}\"")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn an_external_state_without_a_backend_was_lost_with_its_pod() {
        let rows = [
            ("main.tf", "output \"x\" { value = 1 }\n", Some("no backend")),
            (
                "main.tf",
                "terraform {\n  backend \"local\" {}\n}\n",
                Some("`backend \"local\"` without an absolute `path`"),
            ),
            (
                "main.tf",
                "terraform {\n  backend \"local\" {\n    path = \"x.tfstate\"\n  }\n}\n",
                Some("`backend \"local\"` without an absolute `path`"),
            ),
            ("main.tf", "terraform {\n  backend \"local\" {\n    path = \"/mnt/x.tfstate\"\n  }\n}\n", None),
            ("main.tf.json", r#"{"terraform": {"backend": {"local": {"path": "/mnt/x"}}}}"#, None),
            (
                "main.tf.json",
                r#"{"terraform": {"backend": {"local": {}}}}"#,
                Some("`backend \"local\"` without an absolute `path`"),
            ),
            ("main.tf", "terraform {\n  backend \"s3\" {}\n}\n", None),
            ("main.tf", "terraform {\n  cloud {\n  }\n}\n", None),
        ];
        for (name, text, expect) in rows {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(name), text).unwrap();
            assert_eq!(kept_in_pod(folder.path()), expect, "{name}: {text}");
        }
    }

    #[test]
    fn blocks_are_found_in_every_form() {
        let rows = [
            ("main.tf", "terraform {\n  backend \"s3\" {\n    bucket = \"b\"\n  }\n}\n", Some("backend \"s3\"")),
            ("x.tofu", "terraform {\n  cloud {\n    organization = \"o\"\n  }\n}\n", Some("cloud")),
            ("main.tf.json", r#"{"terraform": {"backend": {"gcs": {}}}}"#, Some("backend \"gcs\"")),
            ("main.tf.json", r#"{"terraform": [{}, {"cloud": {}}]}"#, Some("cloud")),
            ("main.tf", "terraform {\n  backend \"s3\" {\n", Some("backend \"s3\"")),
            ("main.tf", "terraform {\n  required_version = \">= 1\"\n}\n# backend \"s3\" {}\n", None),
            ("main.tf", "resource \"x\" \"backend\" {\n  cloud {\n  }\n}\n", None),
            ("notes.md", "terraform {\n  backend \"s3\" {\n  }\n}\n", None),
        ];
        for (name, text, expect) in rows {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(name), text).unwrap();
            assert_eq!(declared(folder.path()).as_deref(), expect, "{name}: {text}");
        }
    }
}
