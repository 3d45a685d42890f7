//! Schemas of the built-in kinds, made from what `k8s-openapi` knows about them and from a table of facts.
//!
//! Nothing is made before it is asked for, and everything is made once.

mod facts;
mod go_types;
mod go_values;
mod resolve;

use std::sync::{Arc, OnceLock};

use k8s_openapi::api::{
    admissionregistration::v1 as admission, authentication::v1 as authentication, authorization::v1 as authorization,
    coordination::v1 as coordination, core::v1 as core, events::v1 as events, rbac::v1 as rbac,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::Schema;

pub use go_types::base64_error;
pub use go_values::always;

/// The JSON schemas of a kind and of every type that it uses, by name, with `$ref`s among them.
#[derive(Clone, Debug)]
pub struct Components {
    /// The name of the kind's own schema, such as `io.k8s.api.core.v1.Pod`.
    pub name: String,
    /// The schemas, fit for `components.schemas` of an `OpenAPI` v3 document.
    pub schemas: Map<String, Value>,
}

/// The schema of a built-in kind. The core group is the empty string.
pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Arc<Schema>> {
    let entry = entry(group, version, kind)?;
    Some(entry.schema.get_or_init(|| Arc::new(resolve::schema(&(entry.types)()))).clone())
}

/// What Go's decoder says of a built-in object in which something has the wrong type.
pub fn type_error(group: &str, version: &str, kind: &str, object: &Value) -> Option<String> {
    let entry = entry(group, version, kind)?;
    go_types::mismatch(entry.plain.get_or_init(|| undescribed((entry.types)())), object)
}

/// The same for the metadata of any object.
pub fn metadata_error(metadata: &Value) -> Option<String> {
    static PLAIN: OnceLock<Components> = OnceLock::new();
    let make = || undescribed(components::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>());
    go_types::mismatch(PLAIN.get_or_init(make), metadata)
}

/// Descriptions are most of what schemas hold, and types need none.
fn undescribed(mut components: Components) -> Components {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                if map.get("description").is_some_and(Value::is_string) {
                    map.remove("description");
                }
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    components.schemas.values_mut().for_each(strip);
    components
}

/// The JSON schemas of a built-in kind.
pub fn builtin_json(group: &str, version: &str, kind: &str) -> Option<Components> {
    let entry = entry(group, version, kind)?;
    let mut components = (entry.types)();
    resolve::annotate(&mut components.schemas);
    if let Some(Value::Object(schema)) = components.schemas.get_mut(&components.name) {
        let gvk = json!([{"group": group, "version": version, "kind": kind}]);
        schema.insert("x-kubernetes-group-version-kind".to_owned(), gvk);
    }
    Some(components)
}

/// The schema of the metadata of every object.
pub fn object_meta() -> Arc<Schema> {
    static SCHEMA: OnceLock<Arc<Schema>> = OnceLock::new();
    let make = || {
        let types = components::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>();
        Arc::new(resolve::schema(&types))
    };
    SCHEMA.get_or_init(make).clone()
}

/// The group, version and kind of everything that is built in.
pub fn kinds() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    KINDS.iter().map(|e| (e.group, e.version, e.kind))
}

fn entry(group: &str, version: &str, kind: &str) -> Option<&'static Entry> {
    KINDS.iter().find(|e| e.kind == kind && e.group == group && e.version == version)
}

struct Entry {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    types: fn() -> Components,
    schema: OnceLock<Arc<Schema>>,
    plain: OnceLock<Components>,
}

fn components<T: JsonSchema>() -> Components {
    let settings = SchemaSettings::draft07().with(|s| s.definitions_path = "/components/schemas".into());
    let mut generator = SchemaGenerator::new(settings);
    generator.subschema_for::<T>();
    Components { name: T::schema_name().into_owned(), schemas: generator.take_definitions(false) }
}

macro_rules! kinds {
    ($($group:literal $version:literal $module:ident { $($kind:ident)+ })+) => {
        [$($(Entry {
            group: $group,
            version: $version,
            kind: stringify!($kind),
            types: components::<$module::$kind>,
            schema: OnceLock::new(),
            plain: OnceLock::new(),
        },)+)+]
    };
}

static KINDS: [Entry; 23] = kinds! {
    "" "v1" core {
        Namespace ConfigMap Secret ServiceAccount Pod Event Node
    }
    "events.k8s.io" "v1" events { Event }
    "coordination.k8s.io" "v1" coordination { Lease }
    "apiextensions.k8s.io" "v1" apiextensions { CustomResourceDefinition }
    "rbac.authorization.k8s.io" "v1" rbac { Role RoleBinding ClusterRole ClusterRoleBinding }
    "admissionregistration.k8s.io" "v1" admission {
        ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
    }
    "authentication.k8s.io" "v1" authentication { TokenReview TokenRequest SelfSubjectReview }
    "authorization.k8s.io" "v1" authorization {
        SubjectAccessReview SelfSubjectAccessReview LocalSubjectAccessReview SelfSubjectRulesReview
    }
};

#[cfg(test)]
mod tests;
