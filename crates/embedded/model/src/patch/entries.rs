//! `metadata.managedFields`: who owns which fields.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::fields::Set;

/// What tells two owners apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub manager: String,
    pub operation: Operation,
    /// The version in which it wrote. An applier is the same whatever version it applies, so it has none here.
    pub api_version: Option<String>,
    /// The subresource through which it wrote.
    pub subresource: Option<String>,
}

/// How a manager wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What one owner owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub set: Set,
    /// The version of the API that the fields are of.
    pub api_version: String,
    /// When the owner last changed the object.
    pub time: Option<String>,
}

/// All owners of one object.
pub type Owners = BTreeMap<Owner, Owned>;

/// Reads `metadata.managedFields` of an object; none are no owners.
pub fn decode(object: &Value) -> Result<Owners, String> {
    let entries = match object.pointer("/metadata/managedFields") {
        None | Some(Value::Null) => return Ok(Owners::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err("metadata.managedFields must be a list".to_owned()),
    };
    entries.iter().enumerate().map(|(at, entry)| decode_entry(at, entry)).collect()
}

fn decode_entry(at: usize, entry: &Value) -> Result<(Owner, Owned), String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType").as_str() {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
        other => {
            return Err(format!("invalid fieldsType {other:?} in managed fields entry {at}"));
        }
    }
    let set = match entry.get("fieldsV1") {
        None => Set::default(),
        Some(fields) => Set::from_fields(fields).map_err(|error| format!("error decoding set: {error}"))?,
    };
    let owner = Owner {
        manager: text("manager"),
        operation,
        api_version: (operation == Operation::Update).then(|| api_version.clone()),
        subresource: Some(text("subresource")).filter(|name| !name.is_empty()),
    };
    Ok((owner, Owned { set, api_version, time: Some(text("time")).filter(|time| !time.is_empty()) }))
}

/// Writes `metadata.managedFields` of an object; no owners leave none.
pub fn encode(object: &mut Value, owners: &Owners) {
    let mut entries: Vec<_> = owners.iter().collect();
    entries.sort_by_key(|(owner, owned)| {
        (owner.operation, seconds(owned.time.as_deref()), &owner.manager, &owned.api_version, &owner.subresource)
    });
    let entries: Vec<_> = entries.into_iter().map(|(owner, owned)| entry(owner, owned)).collect();
    let Value::Object(fields) = object else {
        return;
    };
    if entries.is_empty() {
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        return;
    }
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

fn entry(owner: &Owner, owned: &Owned) -> Value {
    let mut entry = json!({
        "manager": owner.manager,
        "operation": owner.operation.name(),
        "apiVersion": owned.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned.set.to_fields(),
    });
    if let Value::Object(fields) = &mut entry {
        if let Some(time) = &owned.time {
            fields.insert("time".to_owned(), Value::from(time.as_str()));
        }
        if let Some(subresource) = &owner.subresource {
            fields.insert("subresource".to_owned(), Value::from(subresource.as_str()));
        }
    }
    entry
}

/// The second of a stored time; what cannot be read sorts first, as an absent time does.
pub fn seconds(time: Option<&str>) -> i64 {
    time.and_then(|time| time.parse::<Timestamp>().ok()).map_or(0, Timestamp::as_second)
}

/// A time as the API writes it, by the second.
pub fn time_text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Takes `metadata.managedFields` off an object.
pub fn strip(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}
