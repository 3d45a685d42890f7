//! What each kind asks of its objects beyond its schema: defaults, checks, and what may not change.

mod crd;
mod data;
mod event;
mod pod;
mod pod_checks;
mod policy;
mod roles;

pub use crd::{custom_resources, established};
pub use event::{to_core, to_events};
pub use pod::{name_account, use_account};

use serde_json::{Value, json};

use crate::kinds::{Resource, Rules};
use crate::object;
use knoll_kube_model::schema::FieldError;

/// Fills in what the kind fills in on a new object. It has a name and a namespace by now.
pub fn prepare_create(resource: &Resource, object: &mut Value, node: Option<&str>) {
    match resource.rules {
        Rules::Namespace => {
            name_label(object);
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            object["status"] = json!({"phase": "Active"});
        }
        Rules::Pod => pod::admit(object, node),
        Rules::Custom if resource.status => {
            drop_field(object, "status");
        }
        _ => {}
    }
}

/// The status of an object that is valid and new, where it is not a part of what is checked.
pub fn initial_status(resource: &Resource, object: &mut Value) {
    if resource.rules == Rules::Crd {
        crd::initial_status(object);
    }
}

/// Fills in the defaults of the kind, wherever an object of it is read.
pub fn defaults(resource: &Resource, object: &mut Value) {
    match resource.rules {
        Rules::Secret => data::secret_defaults(object),
        Rules::Pod => pod::defaults(object),
        Rules::Crd => crd::defaults(object),
        Rules::Namespace if !object::meta(object, "name").is_empty() => name_label(object),
        Rules::Role => roles::defaults(resource, object),
        Rules::Policy => policy::defaults(resource, object),
        _ => {}
    }
}

fn name_label(namespace: &mut Value) {
    let name = object::meta(namespace, "name").to_owned();
    namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
}

/// Fills in what an object that is updated must have.
pub fn prepare_update(resource: &Resource, object: &mut Value) {
    if resource.rules == Rules::Namespace {
        name_label(object);
    }
}

/// Everything that is wrong with the object by the rules of its kind.
pub fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match resource.rules {
        Rules::ConfigMap | Rules::Secret => data::validate(resource.rules, object, old),
        Rules::Pod => pod_checks::validate(object, old),
        Rules::Crd => crd::validate(object, old),
        Rules::Lease => lease(object),
        Rules::Event => event::validate(resource, object, old),
        Rules::Role => roles::validate(resource, object, old),
        Rules::Policy => policy::validate(resource, object),
        _ => Vec::new(),
    }
}

fn lease(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &object["spec"];
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|s| *s <= 0) {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
    if let Some(count) = spec["leaseTransitions"].as_i64().filter(|s| *s < 0) {
        errors.push(FieldError::invalid("spec.leaseTransitions", count, "must be greater than or equal to 0"));
    }
    errors
}

/// Removes a field of the object.
pub fn drop_field(object: &mut Value, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(field);
    }
}
