//! What holds for the metadata of every object: names, labels, owners, finalizers.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::schema::error::FieldError;
use crate::server::kinds::{Resource, Rules};
use crate::server::object;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const KEY_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The most that all annotations of an object may hold together.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

fn pattern(text: &'static str) -> Regex {
    // The patterns are constants that the tests below run.
    Regex::new(text).unwrap_or_else(|e| unreachable!("{e}"))
}

static SUBDOMAIN_FORM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"));
static LABEL_FORM: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));
static KEY_FORM: LazyLock<Regex> = LazyLock::new(|| pattern(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"));
static VALUE_FORM: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"));

/// The metadata's shape. A wrong type is told before anything else is looked at.
pub fn shape(object: &Value) -> Result<(), String> {
    let metadata = match &object["metadata"] {
        Value::Null => return Ok(()),
        Value::Object(metadata) => metadata,
        _ => return Err("metadata must be an object".to_owned()),
    };
    for key in ["name", "generateName", "namespace", "uid", "resourceVersion", "selfLink"] {
        if metadata.get(key).is_some_and(|v| !v.is_string() && !v.is_null()) {
            return Err(format!("metadata.{key} must be a string"));
        }
    }
    for key in ["labels", "annotations"] {
        match metadata.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                if let Some((name, _)) = map.iter().find(|(_, v)| !v.is_string()) {
                    return Err(format!("metadata.{key}.{name} must be a string"));
                }
            }
            Some(_) => return Err(format!("metadata.{key} must be an object of strings")),
        }
    }
    for key in ["finalizers", "ownerReferences", "managedFields"] {
        match metadata.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) => {
                let fits = |v: &Value| if key == "finalizers" { v.is_string() } else { v.is_object() };
                if !items.iter().all(fits) {
                    return Err(format!("metadata.{key} has an item of the wrong type"));
                }
            }
            Some(_) => return Err(format!("metadata.{key} must be a list")),
        }
    }
    Ok(())
}

/// Removes what an absent field equals: nulls and empty maps and lists of the metadata.
pub fn tidy(object: &mut Value) {
    object::metadata_mut(object).retain(|_, value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}

/// A name for an object whose client gave only the beginning of one.
pub fn generate_name(base: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut name: String = base.chars().take(58).collect();
    for _ in 0..5 {
        let at = rand::random_range(0..LETTERS.len());
        name.push(char::from(LETTERS[at]));
    }
    name
}

/// Everything that is wrong with the metadata.
pub fn validate(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = object::meta(object, "name");
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if let Some(why) = bad_name(resource, name) {
        errors.push(FieldError::invalid("metadata.name", name, why));
    }
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        if let Some(why) = bad_key(key) {
            errors.push(FieldError::invalid("metadata.labels", key.as_str(), why));
        }
        let value = value.as_str().unwrap_or_default();
        if value.len() > 63 {
            errors.push(FieldError::invalid("metadata.labels", value, "must be no more than 63 bytes"));
        }
        if !VALUE_FORM.is_match(value) {
            errors.push(FieldError::invalid("metadata.labels", value, LABEL_VALUE));
        }
    }
    let mut size = 0;
    for (key, value) in object["metadata"]["annotations"].as_object().into_iter().flatten() {
        if let Some(why) = bad_key(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", key.as_str(), why));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_LIMIT as u64));
    }
    for finalizer in object::finalizers(object) {
        if let Some(why) = bad_key(finalizer) {
            errors.push(FieldError::invalid("metadata.finalizers", finalizer, why));
        }
    }
    errors.extend(owners(object));
    errors
}

fn owners(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controllers = Vec::new();
    for (at, owner) in object["metadata"]["ownerReferences"].as_array().into_iter().flatten().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if owner[key].as_str().unwrap_or_default().is_empty() {
                let field = format!("metadata.ownerReferences[{at}].{key}");
                errors.push(FieldError::required(field, format!("{key} must not be empty")));
            }
        }
        if owner["controller"] == Value::Bool(true) {
            controllers.push(owner["name"].as_str().unwrap_or_default());
        }
    }
    if let [first, second, ..] = controllers.as_slice() {
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            object["metadata"]["ownerReferences"].clone(),
            why,
        ));
    }
    errors
}

/// What changes of the metadata an update may not make.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object::deleting(old) {
        let before = object::finalizers(old);
        let added: Vec<&str> = object::finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|f| format!("{f:?}")).collect();
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}", list.join(", ")),
            ));
        }
    }
    errors
}

fn bad_name(resource: &Resource, name: &str) -> Option<String> {
    if resource.group == "rbac.authorization.k8s.io" {
        return match name {
            "." | ".." => Some(format!("may not be '{name}'")),
            _ if name.contains(['/', '%']) => Some("may not contain '/' or '%'".to_owned()),
            _ => None,
        };
    }
    if resource.rules == Rules::Namespace {
        return bad_label(name);
    }
    if name.len() > 253 {
        return Some("must be no more than 253 bytes".to_owned());
    }
    (!SUBDOMAIN_FORM.is_match(name)).then(|| SUBDOMAIN.to_owned())
}

/// What is wrong with a DNS label.
pub fn bad_label(name: &str) -> Option<String> {
    if name.len() > 63 {
        return Some("must be no more than 63 bytes".to_owned());
    }
    (!LABEL_FORM.is_match(name)).then(|| LABEL.to_owned())
}

/// What is wrong with a DNS subdomain.
pub fn bad_subdomain(name: &str) -> Option<String> {
    if name.len() > 253 {
        return Some("must be no more than 253 bytes".to_owned());
    }
    (!SUBDOMAIN_FORM.is_match(name)).then(|| SUBDOMAIN.to_owned())
}

/// What is wrong with a qualified name, as labels, annotations and finalizers have.
fn bad_key(key: &str) -> Option<String> {
    let name = match key.split_once('/') {
        Some(("", _)) => return Some("prefix part must be non-empty".to_owned()),
        Some((_, rest)) if rest.contains('/') => {
            return Some("a valid label key must consist of alphanumeric characters, '-', '_' or '.', with an optional DNS subdomain prefix and '/'".to_owned());
        }
        Some((prefix, name)) => {
            if let Some(why) = bad_subdomain(prefix) {
                return Some(format!("prefix part {why}"));
            }
            name
        }
        None => key,
    };
    match name {
        "" => Some("name part must be non-empty".to_owned()),
        _ if name.len() > 63 => Some("name part must be no more than 63 bytes".to_owned()),
        _ if !KEY_FORM.is_match(name) => Some(KEY_NAME.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys() {
        for (key, good) in [
            ("a", true),
            ("a/b", true),
            ("x.y/B_c", true),
            ("", false),
            ("/a", false),
            ("a/", false),
            ("a b", false),
            ("A/b", false),
        ] {
            assert_eq!(bad_key(key).is_none(), good, "{key}");
        }
        for (name, good) in [("a", true), ("a.b", true), ("a-", false), ("A", false), ("", false), ("a..b", false)] {
            assert_eq!(bad_subdomain(name).is_none(), good, "{name}");
        }
        assert!(VALUE_FORM.is_match("") && VALUE_FORM.is_match("A_b.c-1") && !VALUE_FORM.is_match("-a"));
    }

    #[test]
    fn generated_names_keep_their_base_and_fit() {
        let name = generate_name("run-");
        assert!(name.starts_with("run-") && name.len() == 9 && bad_subdomain(&name).is_none());
        assert_eq!(generate_name(&"x".repeat(80)).len(), 63);
    }
}
