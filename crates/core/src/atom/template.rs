//! The template of a version: YAML documents with `${input.NAME}` in the place of values.
//!
//! Values are inserted into the parsed documents, never into their text, so a value cannot add YAML of its own. A string
//! that consists of `${input.NAME}` alone becomes the value with its type; inside a longer string the value is written
//! out. `$${input.NAME}` escapes it. Any other `${...}` stays, because scripts use it.

use std::collections::{BTreeMap, BTreeSet};

use knoll_api::atom::{InputType, ObjectKey};
use serde_json::{Map, Value};

use super::hidden::HiddenValues;

/// The beginning of a reference to an input.
const OPEN: &str = "${input.";

/// The fields of an object that the status of an Atom shows, by their JSON pointers.
const SHOWN: [(&str, &str); 7] = [
    ("apiVersion", "/apiVersion"),
    ("kind", "/kind"),
    ("metadata.name", "/metadata/name"),
    ("metadata.namespace", "/metadata/namespace"),
    ("metadata.annotations", "/metadata/annotations"),
    ("the annotation knoll.dev/ready-when", "/metadata/annotations/knoll.dev~1ready-when"),
    ("the annotation knoll.dev/conditions", "/metadata/annotations/knoll.dev~1conditions"),
];

/// Why a template or an input is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the template is not valid YAML: {0}")]
    Yaml(String),
    #[error("the template has no objects; write at least one")]
    Empty,
    #[error(
        "document {number} of the template has no `{field}`; every object needs apiVersion, kind and metadata.name"
    )]
    Field {
        /// The number of the document, from 1.
        number: usize,
        field: &'static str,
    },
    #[error("the template has `{0}` twice; keep one of them")]
    Twice(String),
    #[error("`{object}` uses `${{input.{name}}}`, but the Atom has no input `{name}`; add it to spec.inputs{known}")]
    Input {
        object: String,
        name: String,
        /// The inputs that exist, as a part of the message.
        known: String,
    },
    #[error(
        "`{object}` uses the secret input `{name}` in {field}, which the Atom's status shows; use it in other fields only"
    )]
    Shown { object: String, name: String, field: &'static str },
    #[error("the input `{name}` is not a valid {type_}; correct its value, or spec.inputs[].type")]
    Type {
        name: String,
        /// `number`, `boolean` or `JSON`.
        type_: &'static str,
    },
}

/// The values of inputs by name, and which of them come from Secrets.
#[derive(Clone, Default)]
pub struct InputValues {
    values: BTreeMap<String, Value>,
    secret: BTreeSet<String>,
}

impl InputValues {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub fn insert(&mut self, name: String, value: Value, is_secret: bool) {
        if is_secret {
            self.secret.insert(name.clone());
        }
        self.values.insert(name, value);
    }

    #[must_use]
    pub fn values(&self) -> &BTreeMap<String, Value> {
        &self.values
    }

    /// The values that come from Secrets.
    #[must_use]
    pub fn hidden(&self) -> HiddenValues {
        let mut hidden = HiddenValues::default();
        self.secret.iter().filter_map(|name| self.values.get(name)).for_each(|value| hidden.hide(value));
        hidden
    }
}

/// Converts the value of an input to its type.
///
/// # Errors
/// When it is not of that type. The message does not contain the value.
pub fn typed(name: &str, value: Value, type_: Option<InputType>) -> Result<Value, Error> {
    let wrong = |type_| Error::Type { name: name.to_owned(), type_ };
    let (text, Some(type_)) = (value.as_str().map(str::trim), type_) else {
        return Ok(value);
    };
    match (type_, text) {
        (InputType::String, Some(_)) => Ok(value),
        (InputType::String, None) => Ok(Value::String(value.to_string())),
        (InputType::Number, Some(text)) => {
            serde_json::from_str(text).ok().filter(Value::is_number).ok_or_else(|| wrong("number"))
        }
        (InputType::Boolean, Some(text)) => text.parse().map(Value::Bool).map_err(|_| wrong("boolean")),
        (InputType::Json, Some(text)) => serde_json::from_str(text).map_err(|_| wrong("JSON")),
        (InputType::Number, None) => Some(value).filter(Value::is_number).ok_or_else(|| wrong("number")),
        (InputType::Boolean, None) => Some(value).filter(Value::is_boolean).ok_or_else(|| wrong("boolean")),
        (InputType::Json, None) => Ok(value),
    }
}

/// The objects of a template without the values of inputs. A list counts as its items.
///
/// # Errors
/// When a document is not an object of Kubernetes.
pub fn parse(text: &str) -> Result<Vec<Value>, Error> {
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| Error::Yaml(place(&error.to_string())))?;
    let mut objects = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        match document {
            Value::Null => {}
            Value::Object(mut list) if is_list(&list) => {
                if let Some(Value::Array(items)) = list.remove("items") {
                    objects.extend(items.into_iter().map(|item| (index + 1, item)));
                }
            }
            other => objects.push((index + 1, other)),
        }
    }
    if objects.is_empty() {
        return Err(Error::Empty);
    }
    for (number, object) in &objects {
        for (field, pointer) in [("apiVersion", "/apiVersion"), ("kind", "/kind"), ("metadata.name", "/metadata/name")]
        {
            let found = object.pointer(pointer).and_then(Value::as_str);
            if found.is_none_or(str::is_empty) {
                return Err(Error::Field { number: *number, field });
            }
        }
    }
    Ok(objects.into_iter().map(|(_, object)| object).collect())
}

/// The objects of a template with the values of inputs.
///
/// # Errors
/// When the template is not valid, or uses an input that does not exist.
pub fn render(text: &str, inputs: &InputValues) -> Result<Vec<Value>, Error> {
    let mut objects = parse(text)?;
    let mut seen = BTreeSet::new();
    for object in &mut objects {
        let name = key(object).to_string();
        for (field, pointer) in SHOWN {
            let text = object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            if let Some(input) = references(text).find(|input| inputs.secret.contains(*input)) {
                return Err(Error::Shown { object: name, name: input.to_owned(), field });
            }
        }
        fill(object, &inputs.values).map_err(|input| {
            let known: Vec<_> = inputs.values.keys().map(|known| format!("`{known}`")).collect();
            let known = if known.is_empty() { String::new() } else { format!(" (there are {})", known.join(", ")) };
            Error::Input { object: name, name: input, known }
        })?;
        // The API server drops the status from an apply.
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
        let key = key(object);
        let text = key.to_string();
        let group = key.api_version.split_once('/').map_or(String::new(), |(group, _)| group.to_owned());
        if !seen.insert((group, key.kind, key.namespace, key.name)) {
            return Err(Error::Twice(text));
        }
    }
    Ok(objects)
}

/// The digest of a template's text.
#[must_use]
pub fn digest(text: &str) -> String {
    crate::stack::digest(&text)
}

/// The message of an error as a sentence.
#[must_use]
pub fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

/// The key of an object.
#[must_use]
pub fn key(object: &Value) -> ObjectKey {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    ObjectKey {
        api_version: text("/apiVersion").unwrap_or_default(),
        kind: text("/kind").unwrap_or_default(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name").unwrap_or_default(),
    }
}

fn is_list(object: &Map<String, Value>) -> bool {
    object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
        && object.get("items").is_some_and(Value::is_array)
        && !object.contains_key("metadata")
}

/// The inputs that a text refers to, escaped references included.
fn references(text: &str) -> impl Iterator<Item = &str> {
    text.split(OPEN).skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

/// The position and the reason of a syntax error, without the text around it: that may belong to a Secret.
fn place(error: &str) -> String {
    error.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Inserts the values. The error is the name of an input that does not exist.
fn fill(value: &mut Value, inputs: &BTreeMap<String, Value>) -> Result<(), String> {
    match value {
        Value::String(text) if text.contains(OPEN) => {
            *value = filled(text, inputs)?;
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill(item, inputs)),
        Value::Object(fields) => fields.values_mut().try_for_each(|field| fill(field, inputs)),
        _ => Ok(()),
    }
}

fn filled(text: &str, inputs: &BTreeMap<String, Value>) -> Result<Value, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(OPEN) {
        let (before, after) = (&rest[..at], &rest[at + OPEN.len()..]);
        let Some((name, tail)) = after.split_once('}').filter(|(name, _)| is_name(name)) else {
            out.push_str(&rest[..at + OPEN.len()]);
            rest = after;
            continue;
        };
        if let Some(escaped) = before.strip_suffix('$') {
            out.push_str(escaped);
            out.push_str(&format!("{OPEN}{name}}}"));
        } else {
            let value = inputs.get(name).ok_or_else(|| name.to_owned())?;
            if before.is_empty() && out.is_empty() && tail.is_empty() && rest.len() == text.len() {
                return Ok(value.clone());
            }
            out.push_str(before);
            out.push_str(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        rest = tail;
    }
    out.push_str(rest);
    Ok(Value::String(out))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn inputs() -> InputValues {
        let mut inputs = InputValues::new();
        inputs.insert("size".to_owned(), json!(3), false);
        inputs.insert("name".to_owned(), json!("web: {x: 1}\n---\nkind: Secret"), false);
        inputs.insert("zones".to_owned(), json!(["a", "b"]), false);
        inputs
    }

    #[test]
    fn a_secret_is_not_put_where_the_status_shows_it() {
        let mut inputs = inputs();
        inputs.insert("token".to_owned(), json!("hunter2"), true);
        let object = |metadata: &str, data: &str| {
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {metadata}\ndata: {{k: '{data}'}}\n")
        };
        let rows = [
            (object("{name: 'a-${input.token}'}", ""), "metadata.name"),
            (object("{name: a, namespace: '${input.token}'}", ""), "metadata.namespace"),
            (object("{name: a, annotations: '${input.token}'}", ""), "metadata.annotations"),
            (
                object("{name: a, annotations: {knoll.dev/ready-when: \"self.data.k == '${input.token}'\"}}", ""),
                "the annotation knoll.dev/ready-when",
            ),
            (
                object("{name: a, annotations: {knoll.dev/conditions: 'A=True/${input.token}'}}", ""),
                "the annotation knoll.dev/conditions",
            ),
        ];
        for (text, field) in rows {
            let error = render(&text, &inputs).unwrap_err().to_string();
            assert!(error.contains(&format!("uses the secret input `token` in {field},")), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let text = object("{name: a, labels: {x: '${input.token}', y: '${input.size}'}}", "${input.token}");
        assert_eq!(render(&text, &inputs).unwrap()[0]["data"]["k"], json!("hunter2"));
        assert!(!inputs.hidden().is_clean("hunter2") && inputs.hidden().is_clean("3"));
    }

    #[track_caller]
    fn check(text: &str, expect: Value) {
        assert_eq!(filled(text, inputs().values()).unwrap(), expect, "{text}");
    }

    #[test]
    fn a_value_keeps_its_type_alone_and_is_text_among_text() {
        check("${input.size}", json!(3));
        check("${input.zones}", json!(["a", "b"]));
        check("a${input.size}b${input.size}", json!("a3b3"));
        check("${input.size}${input.size}", json!("33"));
        check("zones: ${input.zones}", json!("zones: [\"a\",\"b\"]"));
        check("$${input.size}", json!("${input.size}"));
        check("$${input.size} ${input.size}", json!("${input.size} 3"));
        check("${HOME} ${input.} ${input.size", json!("${HOME} ${input.} ${input.size"));
    }

    #[test]
    fn a_value_never_becomes_yaml() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: '${input.name}'}\n";
        let objects = render(text, &inputs()).unwrap();
        assert_eq!(objects.len(), 1);
        assert_eq!(objects[0]["data"]["a"], inputs().values()["name"]);
    }

    #[test]
    fn every_document_is_an_object_once() {
        let map = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: c}}\n";
        let text = format!("---\n{}---\n# nothing\n---\n{}---\n{list}", map("a"), map("b"));
        let names: Vec<String> =
            render(&text, &inputs()).unwrap().iter().map(|object| key(object).to_string()).collect();
        assert_eq!(names, ["ConfigMap a", "ConfigMap b", "Secret c"]);
        let rows = [
            (String::new(), "the template has no objects; write at least one"),
            (format!("{}---\n{}", map("a"), map("a")), "the template has `ConfigMap a` twice; keep one of them"),
            (
                format!("{}---\nkind: A\n", map("a")),
                "document 2 of the template has no `apiVersion`; every object needs apiVersion, kind and metadata.name",
            ),
            (
                map("'${input.none}'"),
                "`ConfigMap ${input.none}` uses `${input.none}`, but the Atom has no input `none`; add it to spec.inputs (there are `name`, `size`, `zones`)",
            ),
        ];
        for (text, expect) in rows {
            assert_eq!(render(&text, &inputs()).unwrap_err().to_string(), expect, "{text}");
        }
        let said = render("token: {secret: s3cret", &inputs()).unwrap_err().to_string();
        assert!(said.starts_with("the template is not valid YAML: line 1") && !said.contains("s3cret"), "{said}");
        assert!(matches!(render("a: 1\na: 2", &inputs()), Err(Error::Yaml(_))));
    }

    #[test]
    fn a_text_is_read_as_what_it_is_said_to_be() {
        let read = |text: &str, type_| typed("n", json!(text), Some(type_)).map_err(|error| error.to_string());
        assert_eq!(read("3", InputType::Number), Ok(json!(3)));
        assert_eq!(read(" true\n", InputType::Boolean), Ok(json!(true)));
        assert_eq!(read("[1]", InputType::Json), Ok(json!([1])));
        assert_eq!(typed("n", json!(3), Some(InputType::String)), Ok(json!("3")));
        assert_eq!(
            read("secret", InputType::Number),
            Err("the input `n` is not a valid number; correct its value, or spec.inputs[].type".to_owned())
        );
    }

    proptest! {
        #[test]
        fn any_text_comes_out_as_one_value(text in ".{0,60}", value in ".{0,20}") {
            let inputs = BTreeMap::from([("v".to_owned(), Value::String(value.clone()))]);
            let out = filled(&format!("{text}${{input.v}}"), &inputs).unwrap();
            prop_assert!(out.is_string());
            if !text.ends_with('$') && !text.contains("${input.") {
                prop_assert_eq!(out, json!(format!("{text}{value}")));
            }
        }
    }
}
