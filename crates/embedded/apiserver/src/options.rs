//! The options of a request, checked before anything else of it is looked at.

use crate::query::Query;
use crate::status::{ApiError, Result};
use knoll_kube_model::schema::FieldError;

/// The longest name of a field manager.
const LONGEST_MANAGER: usize = 128;

/// Which options a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `POST`
    Create,
    /// `PUT`
    Update,
    /// `PATCH` by an apply
    Apply,
    /// `PATCH` of another form
    Patch,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Apply | Self::Patch => "PatchOptions",
        }
    }
}

/// The answer to options that are not valid.
pub fn invalid(kind: &str, errors: &[FieldError]) -> ApiError {
    ApiError::invalid("meta.k8s.io", kind, "", errors)
}

/// Checks `dryRun`, `fieldManager`, `fieldValidation` and `force`.
pub fn check(kind: Kind, query: &Query) -> Result<()> {
    let mut errors = Vec::new();
    let manager = query.get("fieldManager");
    let forced = !query.get("force").is_empty();
    if kind == Kind::Apply && manager.is_empty() {
        errors.push(FieldError::required("fieldManager", "is required for apply patch"));
    }
    if kind == Kind::Patch && forced {
        errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    if manager.len() > LONGEST_MANAGER {
        errors.push(FieldError::too_long("fieldManager", LONGEST_MANAGER as u64));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(FieldError::invalid("fieldManager", manager, why));
    }
    errors.extend(dry_run(query.all("dryRun")));
    let validation = query.get("fieldValidation");
    if !matches!(validation, "" | "Ignore" | "Strict" | "Warn") {
        errors.push(FieldError::not_supported("fieldValidation", validation, &["", "Ignore", "Strict", "Warn"]));
    }
    if errors.is_empty() { Ok(()) } else { Err(invalid(kind.name(), &errors)) }
}

/// What is wrong with `dryRun`.
pub fn dry_run(values: &[String]) -> Option<FieldError> {
    let wrong = values.iter().any(|v| v != "All");
    wrong.then(|| FieldError::not_supported("dryRun", serde_json::json!(values), &["All"]))
}

/// Checks the options of a list or of a watch.
pub fn check_list(query: &Query, watch: bool) -> Result<()> {
    let mut errors = Vec::new();
    let matching = query.get("resourceVersionMatch");
    let version = query.get("resourceVersion");
    let match_error = |why: &str| FieldError::forbidden("resourceVersionMatch", why);
    let initial = query.get("sendInitialEvents");
    if !initial.is_empty() {
        if !watch {
            return Err(invalid(
                "ListOptions",
                &[FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")],
            ));
        }
        if matching != "NotOlderThan" {
            errors.push(match_error("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if !matching.is_empty() && matching != "NotOlderThan" {
            errors.push(FieldError::not_supported("resourceVersionMatch", matching, &["NotOlderThan"]));
        }
    } else if !matching.is_empty() && watch {
        errors.push(match_error("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
        if matching != "NotOlderThan" {
            errors.push(FieldError::not_supported("resourceVersionMatch", matching, &["NotOlderThan"]));
        }
    } else if !matching.is_empty() {
        if version.is_empty() {
            errors.push(match_error("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if !query.get("continue").is_empty() {
            errors.push(match_error("resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported("resourceVersionMatch", matching, &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && version == "0" {
            errors.push(match_error("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(invalid("ListOptions", &errors)) }
}
