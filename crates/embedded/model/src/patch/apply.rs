//! Server-side apply, and the owners of fields after any other write.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::conflict::{self, Conflict};
use super::entries::{self, Operation, Owner, Owners};
use super::fields::Set;
use super::owners::{self, Refused, Rules};
use super::typed::check;
use super::{element::same, last_applied, zero};
use crate::schema::Schema;

/// Who writes, how, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The field manager; the empty name is that of an unknown one.
    pub manager: &'a str,
    /// The version of the API in which the request is made.
    pub api_version: &'a str,
    /// The subresource that is written, such as `status`.
    pub subresource: Option<&'a str>,
    /// Fields, as dotted paths, that this endpoint ignores: `status` for the object itself, `spec` for its status.
    pub reset: &'a [&'a str],
    pub now: Timestamp,
}

impl Writer<'_> {
    fn owner(&self, manager: &str, operation: Operation) -> Owner {
        Owner {
            manager: if manager.is_empty() { "unknown" } else { manager }.to_owned(),
            operation,
            api_version: (operation == Operation::Update).then(|| self.api_version.to_owned()),
            subresource: self.subresource.filter(|name| !name.is_empty()).map(str::to_owned),
        }
    }

    fn rules<'s>(&self, schema: &'s Schema) -> Rules<'s> {
        let mut reset = Set::default();
        self.reset.iter().for_each(|path| reset.absorb(Set::named(&path.split('.').collect::<Vec<_>>())));
        Rules { schema, reset }
    }
}

/// Why an apply is refused.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Others own fields that the configuration would change (409).
    #[error("{}", conflict::message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration is not one that can be applied (400).
    #[error("{0}")]
    Invalid(String),
    /// The configuration does not fit the schema (500, as Kubernetes has it).
    #[error("{0}")]
    Untyped(String),
}

impl ApplyError {
    /// The HTTP status with which Kubernetes answers.
    pub fn code(&self) -> u16 {
        match self {
            Self::Conflicts(_) => 409,
            Self::Invalid(_) => 400,
            Self::Untyped(_) => 500,
        }
    }
}

/// Applies a configuration to a live object, or creates the object if there is none.
///
/// The result has the merged `metadata.managedFields`, and is equal to `live` if there is nothing to write. Defaults are filled
/// in afterwards: nobody owns them.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    schema: &Schema,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    precheck(live, applied, schema, writer, text(applied, "/kind"))?;
    let empty;
    let live_or_empty = match live {
        Some(live) => live,
        None => {
            empty = blank(applied);
            &empty
        }
    };
    let rules = writer.rules(schema);
    let mut owners = entries::decode(live_or_empty)
        .map_err(|error| ApplyError::Untyped(format!("failed to decode managed fields: {error}")))?;
    if let (true, Some(live)) = (owners.is_empty(), live) {
        track_before_first_apply(live, &rules, writer, &mut owners);
    }
    let before = owners.clone();
    let owner = writer.owner(writer.manager, Operation::Apply);
    let mut outcome = owners::apply(live_or_empty, applied, &rules, &mut owners, &owner, writer.api_version, force);
    if let (Err(Refused::Conflicts(conflicts)), last_applied::MANAGER) = (&outcome, writer.manager)
        && let Some(allowed) = last_applied::allowed(live_or_empty, schema, writer.api_version)
    {
        // What kubectl applied by itself before is its own, although it was written as an update.
        let left: Vec<_> = conflicts.iter().filter(|conflict| !allowed.has(&conflict.path)).cloned().collect();
        owners = before;
        outcome = if left.is_empty() {
            owners::apply(live_or_empty, applied, &rules, &mut owners, &owner, writer.api_version, true)
        } else {
            Err(Refused::Conflicts(left))
        };
    }
    let merged = outcome.map_err(|refused| match refused {
        Refused::Conflicts(conflicts) => ApplyError::Conflicts(conflicts),
        Refused::Unmergeable(problems) => ApplyError::Untyped(format!("failed to merge config: {problems}")),
    })?;
    let mut object = match merged {
        Some(merged) => {
            if let Some(owned) = owners.get_mut(&owner) {
                owned.time = Some(entries::time_text(writer.now));
            }
            merged
        }
        None => live_or_empty.clone(),
    };
    entries::encode(&mut object, &owners);
    if writer.manager == last_applied::MANAGER {
        last_applied::refresh(&mut object, applied);
    }
    Ok(keep_times(live, object))
}

/// Sets `metadata.managedFields` of a new object after a create, an update or a patch, according to what it changed.
///
/// The new object has its defaults already: who writes an object owns them.
pub fn track_update(old: Option<&Value>, new: &mut Value, schema: &Schema, writer: &Writer<'_>) {
    let mut owners = owners_before(old, new, writer);
    entries::strip(new);
    // An object that was never tracked stays so until it is first applied.
    let tracked = old.is_none() || !owners.is_empty();
    if !tracked || !new.is_object() {
        return;
    }
    let before = match old {
        Some(old) => {
            let mut before = old.clone();
            entries::strip(&mut before);
            before
        }
        None => zero::object(text(new, "/apiVersion"), text(new, "/kind")),
    };
    let owner = writer.owner(writer.manager, Operation::Update);
    let time = entries::time_text(writer.now);
    owners::update(&before, new, &writer.rules(schema), &mut owners, owner, writer.api_version, &time);
    entries::encode(new, &owners);
    *new = keep_times(old, std::mem::take(new));
}

/// The owners that a plain write starts from: those that the writer sends, if it may and does, or those of the live object.
fn owners_before(old: Option<&Value>, new: &Value, writer: &Writer<'_>) -> Owners {
    let live = || old.and_then(|old| entries::decode(old).ok()).unwrap_or_default();
    if writer.subresource.is_some() {
        return live();
    }
    match new.pointer("/metadata/managedFields") {
        // An empty list, or one with one empty entry, asks to forget all owners.
        Some(Value::Array(sent)) if sent.is_empty() => Owners::new(),
        Some(Value::Array(sent)) if matches!(sent.as_slice(), [Value::Object(entry)] if entry.is_empty()) => {
            Owners::new()
        }
        _ => entries::decode(new).ok().filter(|owners| !owners.is_empty()).unwrap_or_else(live),
    }
}

/// Whether a configuration can be applied at all: it is of that kind, and fits the schema. Done before [`apply`].
pub fn precheck(
    live: Option<&Value>,
    applied: &Value,
    schema: &Schema,
    writer: &Writer<'_>,
    expected: &str,
) -> Result<(), ApplyError> {
    if !applied.is_object() {
        return Err(ApplyError::Invalid("error decoding YAML: the configuration must be an object".to_owned()));
    }
    let (api_version, kind) = (text(applied, "/apiVersion"), text(applied, "/kind"));
    let other_kind = live.is_some_and(|live| text(live, "/kind") != kind) || kind != expected;
    if api_version != writer.api_version || other_kind || kind.is_empty() {
        return Err(ApplyError::Invalid(format!("invalid object type: {}", kind_text(api_version, kind))));
    }
    if applied.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(|entries| !entries.is_empty()) {
        return Err(ApplyError::Invalid("metadata.managedFields must be nil".to_owned()));
    }
    check::object(applied, schema).map_err(|problems| {
        ApplyError::Untyped(format!(
            "failed to create typed patch object ({}/{}; {}): {problems}",
            text(applied, "/metadata/namespace"),
            text(applied, "/metadata/name"),
            kind_text(api_version, kind),
        ))
    })
}

/// `apps/v1, Kind=Deployment`; the core group has an empty name.
fn kind_text(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

/// Gives all fields of an object that nobody owns yet to one owner, so that an apply does not overwrite them unasked.
fn track_before_first_apply(live: &Value, rules: &Rules<'_>, writer: &Writer<'_>, owners: &mut Owners) {
    let owner = writer.owner("before-first-apply", Operation::Update);
    let zero = zero::object(text(live, "/apiVersion"), text(live, "/kind"));
    owners::update(&zero, live, rules, owners, owner, writer.api_version, &entries::time_text(writer.now));
}

fn blank(applied: &Value) -> Value {
    let mut blank = Map::new();
    for name in ["apiVersion", "kind"] {
        blank.extend(applied.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    Value::Object(blank)
}

/// The live object itself if the new one differs from it in nothing but the times of its owners.
fn keep_times(live: Option<&Value>, object: Value) -> Value {
    let Some(live) = live else { return object };
    let timeless = |object: &Value| {
        let mut object = object.clone();
        if let Some(Value::Array(entries)) = object.pointer_mut("/metadata/managedFields") {
            for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
                entry.remove("time");
            }
        }
        object
    };
    if same(&timeless(live), &timeless(&object)) { live.clone() } else { object }
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
