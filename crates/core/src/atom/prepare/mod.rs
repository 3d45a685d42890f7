//! The preparation of an update: the objects of the version, the checks on them, and the journal.
//!
//! *Guarantees.* An object that exists and is not the Atom's own is refused, unless the template adopts it. Nothing is written before every object is accepted by a dry run, apart from those whose kind or namespace
//! comes with the same version.

mod checks;
mod record;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use knoll_api::{
    atom::ObjectKey,
    names::{is_path_segment, reason},
};
use serde_json::{Value, json};

use super::{
    owner::Owner,
    template::{self, InputValues, sentence},
    waves::Wave,
};
use crate::{readiness, status::Cause};

pub use checks::{DryRunVerdict, check_existing, combine, judge, judge_as_new, judge_in_own_namespace, probe};
pub use record::{Preparation, left_over};

/// The most objects of an Atom: its status lists each of them.
const MAX_OBJECTS: usize = 4000;

/// An object of the version, as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedObject {
    pub key: ObjectKey,
    pub object: Value,
    /// The name of the CustomResourceDefinition of its kind, when the version has that as well.
    pub defined_by: Option<String>,
    /// Whether the version has its namespace as well.
    pub has_new_namespace: bool,
}

/// Whether the objects of a kind are in namespaces, by `apiVersion` and kind, as the cluster says. A kind that the cluster
/// does not have is not in it.
pub type Scopes = BTreeMap<(String, String), Scope>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// The objects of a template with the values of the inputs.
///
/// # Errors
/// When the template is not valid, or has too many objects.
pub fn render(text: &str, inputs: &InputValues) -> Result<Vec<Value>, Cause> {
    let objects = template::render(text, inputs).map_err(|error| invalid(sentence(&error.to_string())))?;
    match objects.len() {
        0..=MAX_OBJECTS => Ok(objects),
        many => Err(invalid(format!("The template has {many} objects. An Atom has at most {MAX_OBJECTS}."))),
    }
}

/// The objects of a version: each in its namespace and marked as the Atom's.
///
/// # Errors
/// When the Atom must not write one of them, or one of them is not valid.
pub fn plan(owner: &Owner, rendered: Vec<Value>, scopes: &Scopes) -> Result<Vec<PlannedObject>, Cause> {
    let definitions: Vec<Definition> = rendered.iter().filter_map(Definition::read).collect();
    let keys = rendered.iter().map(template::key);
    let namespaces: BTreeSet<String> =
        keys.filter(|key| Wave::of(key) == Wave::Namespaces).map(|key| key.name).collect();
    let mut planned = Vec::new();
    let mut seen = BTreeSet::new();
    for mut object in rendered {
        let mut key = template::key(&object);
        check_names(&key)?;
        readiness::check(&object).map_err(|error| invalid(format!("`{key}`: {error}.")))?;
        let definition = definitions.iter().find(|definition| definition.defines(&key));
        let known = scopes.get(&(key.api_version.clone(), key.kind.clone())).copied();
        let Some(scope) = known.or_else(|| definition.map(|definition| definition.scope)) else {
            // Groups of Kubernetes itself have no dot, and no CustomResourceDefinitions.
            let way_on = match key.api_version.split_once('/').is_some_and(|(group, _)| group.contains('.')) {
                true => "Add its CustomResourceDefinition to the template, or install it first.",
                false => "`kubectl api-resources` lists those that it has.",
            };
            return Err(invalid(format!(
                "`{key}`: the cluster has no kind `{}` in `{}`. {way_on}",
                key.kind, key.api_version
            )));
        };
        place(&mut key, &mut object, scope, &owner.id.namespace);
        if !seen.insert(identity(&key)) {
            return Err(invalid(format!("The template has `{key}` twice. Keep one of them.")));
        }
        move_string_data(&key, &mut object);
        owner.mark(&mut object);
        let has_new_namespace = key.namespace.as_ref().is_some_and(|namespace| namespaces.contains(namespace));
        let defined_by = definition.map(|definition| definition.name.clone());
        planned.push(PlannedObject { key, object, defined_by, has_new_namespace });
    }
    Ok(planned)
}

fn invalid(message: impl Into<String>) -> Cause {
    Cause::new(reason::TEMPLATE_INVALID, message)
}

/// Refuses an object whose names would not stay one segment of an API path each.
fn check_names(key: &ObjectKey) -> Result<(), Cause> {
    let fields = [("metadata.name", Some(&key.name)), ("metadata.namespace", key.namespace.as_ref())];
    for (field, name) in fields.into_iter().filter_map(|(field, name)| Some((field, name?))) {
        if !is_path_segment(name) {
            return Err(invalid(format!("`{}`: {field} {name:?} cannot be the name of an object.", key.kind)));
        }
    }
    Ok(())
}

/// Puts an object into its namespace: the one that it names, or the Atom's own.
fn place(key: &mut ObjectKey, object: &mut Value, scope: Scope, home: &str) {
    key.namespace = match scope {
        Scope::Namespaced => Some(key.namespace.take().unwrap_or_else(|| home.to_owned())),
        Scope::Cluster => None,
    };
    match &key.namespace {
        Some(namespace) => object["metadata"]["namespace"] = namespace.clone().into(),
        None => drop(object["metadata"].as_object_mut().and_then(|metadata| metadata.remove("namespace"))),
    }
}

/// The identity of an object, whatever the version of its API.
type Identity = (String, String, Option<String>, String);

fn identity(key: &ObjectKey) -> Identity {
    let group = key.api_version.split_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), key.kind.clone(), key.namespace.clone(), key.name.clone())
}

/// Moves `stringData` of a Secret to `data`, where the API server stores it. A manager that applies `stringData` owns a
/// field that the stored object does not have, so a rollback could not restore it.
fn move_string_data(key: &ObjectKey, object: &mut Value) {
    if (key.api_version.as_str(), key.kind.as_str()) != ("v1", "Secret") {
        return;
    }
    let Some(Value::Object(texts)) = object.as_object_mut().and_then(|object| object.remove("stringData")) else {
        return;
    };
    if !object["data"].is_object() {
        object["data"] = json!({});
    }
    for (name, text) in texts {
        let bytes = text.as_str().map(|text| ByteString(text.as_bytes().to_vec()));
        // The API server refuses a value that is not a string.
        object["data"][name] = bytes.and_then(|bytes| serde_json::to_value(bytes).ok()).unwrap_or(text);
    }
}

/// A kind that the template defines.
struct Definition {
    name: String,
    group: String,
    kind: String,
    versions: Vec<String>,
    scope: Scope,
}

impl Definition {
    fn read(object: &Value) -> Option<Self> {
        if Wave::of(&template::key(object)) != Wave::Definitions {
            return None;
        }
        let spec = object.get("spec")?;
        let versions = spec.get("versions")?.as_array()?.iter();
        let is_cluster = spec.get("scope").and_then(Value::as_str) == Some("Cluster");
        Some(Self {
            name: template::key(object).name,
            group: spec.get("group")?.as_str()?.to_owned(),
            kind: spec.pointer("/names/kind")?.as_str()?.to_owned(),
            versions: versions.filter_map(|version| Some(version.get("name")?.as_str()?.to_owned())).collect(),
            scope: if is_cluster { Scope::Cluster } else { Scope::Namespaced },
        })
    }

    fn defines(&self, key: &ObjectKey) -> bool {
        let Some((group, version)) = key.api_version.split_once('/') else { return false };
        group == self.group && key.kind == self.kind && self.versions.iter().any(|known| known == version)
    }
}

#[cfg(test)]
mod tests;
