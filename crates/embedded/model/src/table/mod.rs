//! Tables: what `kubectl get` prints, made by the server (`meta.k8s.io/v1` `Table`).

mod age;
mod builtin;
mod cluster;
mod column;
mod custom;
mod jsonpath;
mod pod;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use column::Column;

/// The columns of a kind.
#[derive(Clone, Debug)]
pub struct Columns {
    definitions: Vec<Column>,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    BuiltIn(fn(&Value, Timestamp) -> Vec<Value>),
    Custom(Vec<custom::PrinterColumn>),
}

/// What a row holds of its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    #[default]
    Metadata,
    Object,
    None,
}

impl IncludeObject {
    /// Reads the `includeObject` parameter.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            )),
        }
    }
}

impl Columns {
    /// The columns of a built-in kind; kinds without columns of their own have the name and the time of creation.
    pub fn built_in(api_version: &str, kind: &str) -> Self {
        let (definitions, cells) = builtin::columns(api_version, kind);
        Self { definitions, source: Source::BuiltIn(cells) }
    }

    /// The columns of a custom resource with these `additionalPrinterColumns`.
    pub fn custom(printer_columns: &[Value]) -> Self {
        let (mut definitions, columns) = custom::columns(printer_columns);
        definitions.insert(0, Column::name());
        Self { definitions, source: Source::Custom(columns) }
    }

    /// What the columns are called.
    pub fn definitions(&self) -> &[Column] {
        &self.definitions
    }

    /// What an object has in the columns.
    pub(crate) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.source {
            Source::BuiltIn(cells) => cells(object, now),
            Source::Custom(columns) => {
                let name = Value::from(text(object, "/metadata/name"));
                std::iter::once(name).chain(columns.iter().map(|column| column.cell(object, now))).collect()
            }
        }
    }

    fn row(&self, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let shown = match include {
            IncludeObject::Metadata => partial_object_metadata(object),
            IncludeObject::Object => object.clone(),
            IncludeObject::None => Value::Null,
        };
        let mut row = json!({"cells": self.cells(object, now), "object": shown});
        if let Some(conditions) = pod::row_conditions(object) {
            row["conditions"] = conditions;
        }
        row
    }
}

/// The table of a list. `list_meta` is the `metadata` of the list.
pub fn table<'v>(
    columns: &Columns,
    objects: impl IntoIterator<Item = &'v Value>,
    include: IncludeObject,
    now: Timestamp,
    list_meta: &Value,
) -> Value {
    let rows: Vec<_> = objects.into_iter().map(|object| columns.row(object, include, now)).collect();
    let mut table = assemble(Some(columns), rows, list_meta.clone());
    // Kinds without columns of their own have no rows where others have an empty list of them.
    if columns.definitions.get(1).is_some_and(|c| c.name == "Created At") && table["rows"] == json!([]) {
        table["rows"] = Value::Null;
    }
    table
}

/// The table of one object: the answer to a get, or an event of a watch. Only the first event of a watch has headers.
pub fn single(columns: &Columns, object: &Value, include: IncludeObject, now: Timestamp, headers: bool) -> Value {
    let mut metadata = Map::new();
    if let Some(version) = object.pointer("/metadata/resourceVersion") {
        metadata.insert("resourceVersion".to_owned(), version.clone());
    }
    assemble(headers.then_some(columns), vec![columns.row(object, include, now)], Value::Object(metadata))
}

fn assemble(columns: Option<&Columns>, rows: Vec<Value>, metadata: Value) -> Value {
    let definitions = columns.map(|columns| columns.definitions.iter().map(Column::to_value).collect::<Vec<_>>());
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

/// The metadata of an object, as an object of its own.
pub fn partial_object_metadata(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn count(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

fn list<'v>(object: &'v Value, pointer: &str) -> &'v [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

fn age(object: &Value, now: Timestamp) -> Value {
    Value::from(age::since(object.pointer("/metadata/creationTimestamp").and_then(Value::as_str), now))
}

/// The status of a condition.
fn condition<'v>(object: &'v Value, ty: &str) -> Option<&'v str> {
    let found = list(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == ty);
    found.map(|condition| text(condition, "/status"))
}

#[cfg(test)]
mod tests;
