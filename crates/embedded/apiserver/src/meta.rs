//! What holds for the metadata of every object: names, labels, owners, finalizers.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::kinds::{Resource, Rules};
use crate::object;
use knoll_kube_model::schema::FieldError;

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
    let invalid = |field: &str, value: &str, whys: Vec<String>| {
        let (field, value) = (field.to_owned(), value.to_owned());
        whys.into_iter().map(move |why| FieldError::invalid(field.clone(), value.as_str(), why))
    };
    let base = object::meta(object, "generateName");
    if !base.is_empty() {
        // The dash that most of these end with is followed by something.
        let masked = base.strip_suffix('-').filter(|b| !b.is_empty()).map_or(base.to_owned(), |b| format!("{b}a"));
        errors.extend(invalid("metadata.generateName", base, bad_name(resource, &masked)));
    }
    let name = object::meta(object, "name");
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        errors.extend(invalid("metadata.name", name, bad_name(resource, name)));
    }
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        errors.extend(invalid("metadata.labels", key, bad_key(key)));
        errors.extend(invalid("metadata.labels", value.as_str().unwrap_or_default(), bad_value(value)));
    }
    let mut size = 0;
    for (key, value) in object["metadata"]["annotations"].as_object().into_iter().flatten() {
        errors.extend(invalid("metadata.annotations", key, bad_key(&key.to_lowercase())));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_LIMIT as u64));
    }
    errors.extend(owners(object));
    errors.extend(finalizers(resource, object));
    errors
}

fn bad_value(value: &Value) -> Vec<String> {
    let value = value.as_str().unwrap_or_default();
    let mut whys = Vec::new();
    if value.len() > 63 {
        whys.push("must be no more than 63 characters".to_owned());
    }
    if !VALUE_FORM.is_match(value) {
        whys.push(LABEL_VALUE.to_owned());
    }
    whys
}

fn finalizers(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let all = object::finalizers(object);
    for name in &all {
        errors.extend(bad_key(name).into_iter().map(|why| FieldError::invalid("metadata.finalizers", *name, why)));
    }
    if all.contains(&"orphan") && all.contains(&"foregroundDeletion") {
        let list = object["metadata"]["finalizers"].clone();
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid("metadata.finalizers", list, why));
    }
    if matches!(resource.rules, Rules::Custom | Rules::Crd) {
        return errors;
    }
    let standard = ["orphan", "foregroundDeletion", "kubernetes"];
    for (at, name) in all.iter().enumerate().filter(|(_, name)| !name.contains('/') && !standard.contains(name)) {
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(FieldError::invalid(format!("metadata.finalizers[{at}]"), *name, why));
    }
    errors
}

fn owners(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controllers = Vec::new();
    for owner in object["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        let version = text("apiVersion");
        let (group, number) = match version.split('/').collect::<Vec<_>>().as_slice() {
            [number] => ("", *number),
            [group, number] => (*group, *number),
            _ => ("", ""),
        };
        if number.is_empty() {
            let field = "metadata.ownerReferences.apiVersion";
            errors.push(FieldError::invalid(field, version, "version must not be empty"));
        }
        for key in ["kind", "name", "uid"] {
            if text(key).is_empty() {
                errors.push(FieldError::invalid(format!("metadata.ownerReferences.{key}"), "", "must not be empty"));
            }
        }
        if (group, number, text("kind")) == ("", "v1", "Event") {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid("metadata.ownerReferences", owner.clone(), why));
        }
        if owner["controller"] == Value::Bool(true) {
            controllers.push(format!("{}/{}", text("kind"), text("name")));
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
    let uid = object::meta(new, "uid");
    if !uid.is_empty() && uid != object::meta(old, "uid") {
        errors.push(FieldError::invalid("metadata.uid", uid, "field is immutable"));
    }
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

fn bad_name(resource: &Resource, name: &str) -> Vec<String> {
    if resource.group == "rbac.authorization.k8s.io" {
        if matches!(name, "." | "..") {
            return vec![format!("may not be '{name}'")];
        }
        let holds = |c: char| name.contains(c).then(|| format!("may not contain '{c}'"));
        return ['/', '%'].into_iter().filter_map(holds).collect();
    }
    if resource.rules == Rules::Namespace {
        return bad_label(name).into_iter().collect();
    }
    bad_subdomain(name).into_iter().collect()
}

/// What is wrong with a DNS label.
pub fn bad_label(name: &str) -> Option<String> {
    if name.len() > 63 {
        return Some("must be no more than 63 characters".to_owned());
    }
    if LABEL_FORM.is_match(name) {
        return None;
    }
    Some(if SUBDOMAIN_FORM.is_match(name) { "must not contain dots" } else { LABEL }.to_owned())
}

/// What is wrong with a DNS subdomain.
pub fn bad_subdomain(name: &str) -> Option<String> {
    if name.len() > 253 {
        return Some("must be no more than 253 characters".to_owned());
    }
    (!SUBDOMAIN_FORM.is_match(name)).then(|| SUBDOMAIN.to_owned())
}

/// What is wrong with a qualified name, as labels, annotations and finalizers have.
fn bad_key(key: &str) -> Vec<String> {
    let mut whys = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                whys.push("prefix part must be non-empty".to_owned());
            } else {
                whys.extend(bad_subdomain(prefix).map(|why| format!("prefix part {why}")));
            }
            *name
        }
        _ => {
            let form = KEY_NAME.trim_start_matches("name part ");
            return vec![format!(
                "a qualified name {form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        whys.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        whys.push("name part must be no more than 63 characters".to_owned());
    }
    if !KEY_FORM.is_match(name) {
        whys.push(KEY_NAME.to_owned());
    }
    whys
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
            assert_eq!(bad_key(key).is_empty(), good, "{key}");
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
