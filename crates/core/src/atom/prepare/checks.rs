//! The checks on the objects of a version before the first write: against the objects that exist, and by dry runs.

use std::collections::HashMap;

use knoll_api::{
    atom::ObjectKey,
    names::{annotation, reason},
};
use serde_json::{Value, json};

use super::PlannedObject;
use crate::{
    atom::{
        ActionError,
        journal::WriteMode,
        owner::{Owner, is_being_deleted, may_replace, uid},
        template,
    },
    status::Cause,
};

/// How many refusals a message names.
const NAMED: usize = 5;

/// Words of the API server for a field that cannot be changed. A kind with other words is found by a second dry run.
const IMMUTABLE_WORDS: [&str; 4] = ["immutable", "may not change", "Forbidden: updates to", "cannot be changed"];

/// What follows from the dry run of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum DryRunVerdict {
    Write(WriteMode),
    /// The namespace does not exist yet. A dry run of the [`probe`] in the Atom's own namespace decides.
    TryInOwnNamespace,
    /// The object exists, and the refusal may be about an immutable field. A dry run of the [`probe`] as a new object
    /// decides.
    TryAsNew(Cause),
    Fail(ActionError),
}

/// Refuses objects that exist and are not the Atom's own, unless the template adopts them, and waits for objects that are being deleted. `now` has the objects that exist.
///
/// # Errors
/// When an object must not be written, or cannot be written yet.
pub fn check_existing(
    owner: &Owner,
    planned: &[PlannedObject],
    now: &HashMap<ObjectKey, Value>,
) -> Result<(), ActionError> {
    let existing = || planned.iter().filter_map(|planned| Some((&planned.object, now.get(&planned.key)?)));
    let refusals: Vec<String> =
        existing().filter_map(|(planned, object)| owner.refusal(planned, object)).take(NAMED).collect();
    if !refusals.is_empty() {
        let message = format!("{} Nothing was written.", refusals.join(" "));
        return Err(ActionError::refused(reason::OBJECT_CONFLICT, message));
    }
    match existing().map(|(_, object)| object).find(|object| is_being_deleted(object)) {
        Some(object) => Err(ActionError::Retry(format!("`{}` is still being deleted.", template::key(object)))),
        None => Ok(()),
    }
}

/// Judges the answer to the dry run of an object. `now` is the object that exists, and `definition_changes` says that the
/// definition of its kind changes with the same version.
#[must_use]
pub fn judge(
    planned: &PlannedObject,
    definition_changes: bool,
    now: Option<&Value>,
    answer: Result<Value, ActionError>,
) -> DryRunVerdict {
    let cause = match answer {
        Ok(result) if now.is_some_and(|now| is_unchanged(now, &result)) => {
            return DryRunVerdict::Write(WriteMode::Skip);
        }
        Ok(_) => return DryRunVerdict::Write(WriteMode::Apply),
        Err(ActionError::Refused(cause)) => cause,
        Err(retry) => return DryRunVerdict::Fail(retry),
    };
    match now {
        // The changed definition decides on the object.
        _ if definition_changes => DryRunVerdict::Write(WriteMode::CheckFirst),
        None if planned.has_new_namespace => DryRunVerdict::TryInOwnNamespace,
        Some(now) if cause.reason == reason::TEMPLATE_INVALID => {
            if IMMUTABLE_WORDS.iter().any(|word| cause.message.contains(word)) {
                replace(planned, now, &cause).map_or_else(DryRunVerdict::Fail, DryRunVerdict::Write)
            } else {
                DryRunVerdict::TryAsNew(cause)
            }
        }
        _ => DryRunVerdict::Fail(ActionError::Refused(cause)),
    }
}

/// Judges the answer to the dry run of a [`probe`] in the Atom's own namespace.
///
/// # Errors
/// When the API server refuses the object itself.
pub fn judge_in_own_namespace(
    planned: &PlannedObject,
    probe: &ObjectKey,
    answer: Result<Value, ActionError>,
) -> Result<WriteMode, ActionError> {
    match answer {
        // The rights in another namespace say nothing about those in this one.
        Err(ActionError::Refused(cause)) if cause.reason != reason::FORBIDDEN => {
            let message = cause.message.replace(&probe.to_string(), &planned.key.to_string());
            Err(ActionError::refused(cause.reason, message))
        }
        Err(retry @ ActionError::Retry(_)) => Err(retry),
        Err(ActionError::Refused(_)) | Ok(_) => Ok(WriteMode::CheckFirst),
    }
}

/// Judges the answer to the dry run of a [`probe`] as a new object. If that is accepted, an immutable field was in the way.
///
/// # Errors
/// When the object is not valid, or its field is immutable and it may not be replaced.
pub fn judge_as_new(
    planned: &PlannedObject,
    now: &Value,
    refusal: Cause,
    answer: &Result<Value, ActionError>,
) -> Result<WriteMode, ActionError> {
    if answer.is_ok() { replace(planned, now, &refusal) } else { Err(ActionError::Refused(refusal)) }
}

/// Replaces an object with an immutable field, if it says that it may be replaced.
fn replace(planned: &PlannedObject, now: &Value, refusal: &Cause) -> Result<WriteMode, ActionError> {
    if let (true, Some(uid)) = (may_replace(&planned.object), uid(now)) {
        return Ok(WriteMode::Replace(uid.to_owned()));
    }
    let message = format!(
        "{} The field is immutable. Set the annotation {}: \"true\" on the object to have it deleted and created again, or rename the object.",
        refusal.message,
        annotation::REPLACE
    );
    Err(ActionError::refused(reason::IMMUTABLE, message))
}

/// The object under a name that no object has, for a dry run that creates it.
#[must_use]
pub fn probe(planned: &PlannedObject, namespace: Option<&str>) -> (ObjectKey, Value) {
    let (mut key, mut object) = (planned.key.clone(), planned.object.clone());
    let base: String = key.name.chars().take(40).collect();
    key.name = format!("{}-knoll-check", base.trim_end_matches(['-', '.']));
    key.namespace = namespace.map(str::to_owned);
    object["metadata"]["name"] = key.name.clone().into();
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    (key, object)
}

/// Combines the results of all objects: a refusal counts more than an error that can be retried, and the first few
/// refusals are named together.
///
/// # Errors
/// When any object was not accepted.
pub fn combine(results: Vec<Result<WriteMode, ActionError>>) -> Result<Vec<WriteMode>, ActionError> {
    let (mut modes, mut refusals, mut retry) = (Vec::new(), Vec::new(), None);
    for result in results {
        match result {
            Ok(mode) => modes.push(mode),
            Err(ActionError::Refused(cause)) => refusals.push(cause),
            Err(error) => retry = Some(error),
        }
    }
    if let Some(first) = refusals.first() {
        let named: Vec<&str> = refusals.iter().take(NAMED).map(|cause| cause.message.as_str()).collect();
        let more = refusals.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" And {more} more.") } else { String::new() };
        let message = format!("{}{more} Nothing was written.", named.join(" "));
        return Err(ActionError::refused(first.reason.clone(), message));
    }
    match retry {
        Some(error) => Err(error),
        None => Ok(modes),
    }
}

/// Whether the result of a dry run differs from the object in nothing but the API server's own records.
fn is_unchanged(now: &Value, result: &Value) -> bool {
    let plain = |object: &Value| {
        let mut plain = object.clone();
        if let Some(metadata) = plain["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
            metadata.remove("generation");
            for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
                entry["time"] = json!(null);
            }
        }
        plain
    };
    plain(now) == plain(result)
}
