//! The cases in `cases/*.yaml` cover every CEL rule. What an API server answers to them is tested where
//! there is one: on the embedded cluster and on a real one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use knoll_api::{Approval, Atom, AtomVersion, Policy, Run, Stack, Workspace, crds};
use serde::Deserialize;
use serde_json::Value;

/// One case: an object, or an object and its update, and what the API server says to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    object: Option<Value>,
    create: Option<Value>,
    update: Option<Value>,
    #[serde(default)]
    accepts: bool,
    rejects: Option<String>,
}

impl Case {
    /// What the API server is asked to accept, and in an update what it had accepted before.
    fn objects(&self) -> (Vec<&Value>, &Value) {
        match (&self.object, &self.create, &self.update) {
            (Some(object), None, None) => (vec![], object),
            (None, Some(create), Some(update)) => (vec![create], update),
            _ => panic!("`{}` has either `object` or `create` and `update`", self.name),
        }
    }
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| -> Vec<Case> {
        serde_saphyr::from_str(&fs::read_to_string(path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    paths.iter().flat_map(read).collect()
}

/// The schemas by kind, as JSON.
fn schemas() -> BTreeMap<String, Value> {
    crds()
        .into_iter()
        .map(|crd| {
            let crd = serde_json::to_value(crd).unwrap();
            let kind = crd["spec"]["names"]["kind"].as_str().unwrap().to_owned();
            (kind, crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone())
        })
        .collect()
}

fn rules(schema: &Value) -> impl Iterator<Item = String> {
    let rules = schema["x-kubernetes-validations"].as_array().cloned().unwrap_or_default();
    rules.into_iter().map(|rule| rule["message"].as_str().unwrap_or_else(|| panic!("{rule} has no message")).to_owned())
}

/// The messages of every rule in a schema.
fn all_rules(schema: &Value, found: &mut BTreeSet<String>) {
    found.extend(rules(schema));
    let properties = schema["properties"].as_object().into_iter().flat_map(|properties| properties.values());
    let inner = ["items", "additionalProperties"].into_iter().filter_map(|name| schema.get(name));
    properties.chain(inner).for_each(|schema| all_rules(schema, found));
}

/// The messages of the rules that an object's values meet, and the paths that the schema does not know.
fn met(schema: &Value, value: &Value, path: &str, found: &mut BTreeSet<String>, unknown: &mut Vec<String>) {
    found.extend(rules(schema));
    if schema["x-kubernetes-preserve-unknown-fields"] == true && schema.get("properties").is_none() {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                let property = schema["properties"].get(name).or(schema.get("additionalProperties"));
                match property {
                    Some(property) => met(property, value, &path, found, unknown),
                    None if schema.get("x-kubernetes-preserve-unknown-fields").is_some() => {}
                    None => unknown.push(path),
                }
            }
        }
        Value::Array(items) => {
            let none = Value::Null;
            let schema = schema.get("items").unwrap_or(&none);
            items.iter().for_each(|item| met(schema, item, path, found, unknown));
        }
        _ => {}
    }
}

/// The rules that an object meets; panics when it has a field that the schema does not know.
fn rules_met(schemas: &BTreeMap<String, Value>, object: &Value) -> BTreeSet<String> {
    let schema = &schemas[object["kind"].as_str().unwrap()];
    let (mut found, mut unknown) = (BTreeSet::from_iter(rules(schema)), Vec::new());
    for part in ["spec", "status"] {
        if let Some(value) = object.get(part) {
            met(&schema["properties"][part], value, part, &mut found, &mut unknown);
        }
    }
    assert!(unknown.is_empty(), "the schema does not know {unknown:?}");
    found
}

/// Reads an object as the controllers do and writes it again.
fn through_rust(object: &Value) -> Result<Value, serde_json::Error> {
    fn pass<T: serde::Serialize + serde::de::DeserializeOwned>(object: &Value) -> Result<Value, serde_json::Error> {
        serde_json::to_value(T::deserialize(object)?)
    }
    match object["kind"].as_str().unwrap() {
        "Workspace" => pass::<Workspace>(object),
        "Run" => pass::<Run>(object),
        "Stack" => pass::<Stack>(object),
        "Approval" => pass::<Approval>(object),
        "Atom" => pass::<Atom>(object),
        "AtomVersion" => pass::<AtomVersion>(object),
        "Policy" => pass::<Policy>(object),
        kind => panic!("no kind {kind}"),
    }
}

#[test]
fn every_case_is_a_whole_manifest_with_one_answer() {
    let schemas = schemas();
    for case in cases() {
        assert_ne!(case.accepts, case.rejects.is_some(), "`{}` has either `accepts: true` or `rejects`", case.name);
        let (before, object) = case.objects();
        for object in before.into_iter().chain([object]) {
            assert_eq!(object["apiVersion"], "knoll.dev/v1alpha1", "{}", case.name);
            assert!(schemas.contains_key(object["kind"].as_str().unwrap()), "{}", case.name);
            assert!(object["metadata"]["name"].is_string(), "{}", case.name);
            assert!(object["spec"].is_object(), "{}", case.name);
        }
    }
}

#[test]
fn every_rule_has_a_case_that_it_rejects() {
    let mut missing = BTreeSet::new();
    schemas().values().for_each(|schema| all_rules(schema, &mut missing));
    assert!(missing.len() > 30, "the rules were found");
    for case in cases() {
        if let Some(sentence) = case.rejects {
            missing.remove(&sentence);
        }
    }
    assert!(missing.is_empty(), "add cases to crates/api/cases that are rejected with {missing:#?}");
}

#[test]
fn every_rule_has_a_case_that_it_accepts() {
    let schemas = schemas();
    let mut missing = BTreeSet::new();
    schemas.values().for_each(|schema| all_rules(schema, &mut missing));
    for case in cases().iter().filter(|case| case.accepts) {
        for message in rules_met(&schemas, case.objects().1) {
            missing.remove(&message);
        }
    }
    assert!(missing.is_empty(), "add cases to crates/api/cases that are accepted and meet {missing:#?}");
}

#[test]
fn what_is_accepted_survives_a_round_trip_through_the_types() {
    let schemas = schemas();
    for case in cases().iter().filter(|case| case.accepts) {
        let object = case.objects().1;
        let once = through_rust(object).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        rules_met(&schemas, &once);
        assert_eq!(through_rust(&once).unwrap(), once, "{}", case.name);
        assert_kept(object, &once, &case.name);
    }
}

/// Everything that was written is still there; defaults may have been added, `false` left out.
#[track_caller]
fn assert_kept(written: &Value, read: &Value, name: &str) {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (field, value) in written {
                match read.get(field) {
                    Some(read) => assert_kept(value, read, name),
                    None => assert_eq!(*value, Value::Bool(false), "{name}: {field} is lost"),
                }
            }
        }
        (Value::Array(written), Value::Array(read)) => {
            assert_eq!(written.len(), read.len(), "{name}");
            written.iter().zip(read).for_each(|(written, read)| assert_kept(written, read, name));
        }
        _ => assert_eq!(written, read, "{name}"),
    }
}
