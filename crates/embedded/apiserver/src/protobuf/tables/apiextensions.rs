//! Definitions of custom resources, with their schemas.

use serde_json::{Map, Value};

use super::meta::OBJECT_META;
use crate::protobuf::message::Type::{Bool, Bytes, Double, Int, Json, Message, String, Time, Union};
use crate::protobuf::message::{Table, keep, list, map, omit};

pub(super) static CUSTOM_RESOURCE_DEFINITION: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    keep(2, "spec", Message(&CUSTOM_RESOURCE_DEFINITION_SPEC)),
    omit(3, "status", Message(&CUSTOM_RESOURCE_DEFINITION_STATUS)),
];

pub(super) static CUSTOM_RESOURCE_DEFINITION_SPEC: Table = &[
    keep(1, "group", String),
    keep(3, "names", Message(&CUSTOM_RESOURCE_DEFINITION_NAMES)),
    keep(4, "scope", String),
    list(7, "versions", Message(&CUSTOM_RESOURCE_DEFINITION_VERSION)),
    keep(9, "conversion", Message(&CUSTOM_RESOURCE_CONVERSION)),
    omit(10, "preserveUnknownFields", Bool),
];

pub(super) static CUSTOM_RESOURCE_DEFINITION_STATUS: Table = &[
    list(1, "conditions", Message(&CUSTOM_RESOURCE_DEFINITION_CONDITION)),
    keep(2, "acceptedNames", Message(&CUSTOM_RESOURCE_DEFINITION_NAMES)),
    list(3, "storedVersions", String),
];

pub(super) static CUSTOM_RESOURCE_DEFINITION_CONDITION: Table = &[
    keep(1, "type", String),
    keep(2, "status", String),
    omit(3, "lastTransitionTime", Time),
    omit(4, "reason", String),
    omit(5, "message", String),
];

pub(super) static CUSTOM_RESOURCE_DEFINITION_NAMES: Table = &[
    keep(1, "plural", String),
    omit(2, "singular", String),
    list(3, "shortNames", String),
    keep(4, "kind", String),
    omit(5, "listKind", String),
    list(6, "categories", String),
];

pub(super) static CUSTOM_RESOURCE_DEFINITION_VERSION: Table = &[
    keep(1, "name", String),
    keep(2, "served", Bool),
    keep(3, "storage", Bool),
    keep(4, "schema", Message(&CUSTOM_RESOURCE_VALIDATION)),
    keep(5, "subresources", Message(&CUSTOM_RESOURCE_SUBRESOURCES)),
    list(6, "additionalPrinterColumns", Message(&CUSTOM_RESOURCE_COLUMN_DEFINITION)),
    omit(7, "deprecated", Bool),
    keep(8, "deprecationWarning", String),
    list(9, "selectableFields", Message(&SELECTABLE_FIELD)),
];

pub(super) static SELECTABLE_FIELD: Table = &[keep(1, "jsonPath", String)];

pub(super) static CUSTOM_RESOURCE_COLUMN_DEFINITION: Table = &[
    keep(1, "name", String),
    keep(2, "type", String),
    omit(3, "format", String),
    omit(4, "description", String),
    omit(5, "priority", Int),
    keep(6, "jsonPath", String),
];

pub(super) static CUSTOM_RESOURCE_SUBRESOURCES: Table = &[
    keep(1, "status", Message(&CUSTOM_RESOURCE_SUBRESOURCE_STATUS)),
    keep(2, "scale", Message(&CUSTOM_RESOURCE_SUBRESOURCE_SCALE)),
];

pub(super) static CUSTOM_RESOURCE_SUBRESOURCE_STATUS: Table = &[];

pub(super) static CUSTOM_RESOURCE_SUBRESOURCE_SCALE: Table =
    &[keep(1, "specReplicasPath", String), keep(2, "statusReplicasPath", String), keep(3, "labelSelectorPath", String)];

pub(super) static CUSTOM_RESOURCE_CONVERSION: Table =
    &[keep(1, "strategy", String), keep(2, "webhook", Message(&WEBHOOK_CONVERSION))];

pub(super) static WEBHOOK_CONVERSION: Table =
    &[keep(2, "clientConfig", Message(&WEBHOOK_CLIENT_CONFIG)), list(3, "conversionReviewVersions", String)];

pub(super) static WEBHOOK_CLIENT_CONFIG: Table =
    &[keep(1, "service", Message(&SERVICE_REFERENCE)), omit(2, "caBundle", Bytes), keep(3, "url", String)];

pub(super) static SERVICE_REFERENCE: Table =
    &[keep(1, "namespace", String), keep(2, "name", String), keep(3, "path", String), keep(4, "port", Int)];

pub(super) static CUSTOM_RESOURCE_VALIDATION: Table = &[keep(1, "openAPIV3Schema", Message(&JSON_SCHEMA_PROPS))];

pub(super) static JSON_SCHEMA_PROPS: Table = &[
    omit(1, "id", String),
    omit(2, "$schema", String),
    keep(3, "$ref", String),
    omit(4, "description", String),
    omit(5, "type", String),
    omit(6, "format", String),
    omit(7, "title", String),
    keep(8, "default", Json),
    keep(9, "maximum", Double),
    omit(10, "exclusiveMaximum", Bool),
    keep(11, "minimum", Double),
    omit(12, "exclusiveMinimum", Bool),
    keep(13, "maxLength", Int),
    keep(14, "minLength", Int),
    omit(15, "pattern", String),
    keep(16, "maxItems", Int),
    keep(17, "minItems", Int),
    omit(18, "uniqueItems", Bool),
    keep(19, "multipleOf", Double),
    list(20, "enum", Json),
    keep(21, "maxProperties", Int),
    keep(22, "minProperties", Int),
    list(23, "required", String),
    keep(24, "items", Union(&SCHEMA_OR_LIST, schema_or_list)),
    list(25, "allOf", Message(&JSON_SCHEMA_PROPS)),
    list(26, "oneOf", Message(&JSON_SCHEMA_PROPS)),
    list(27, "anyOf", Message(&JSON_SCHEMA_PROPS)),
    keep(28, "not", Message(&JSON_SCHEMA_PROPS)),
    map(29, "properties", Message(&JSON_SCHEMA_PROPS)),
    keep(30, "additionalProperties", Union(&SCHEMA_OR_BOOL, schema_or_bool)),
    map(31, "patternProperties", Message(&JSON_SCHEMA_PROPS)),
    map(32, "dependencies", Union(&SCHEMA_OR_STRINGS, schema_or_list)),
    keep(33, "additionalItems", Union(&SCHEMA_OR_BOOL, schema_or_bool)),
    map(34, "definitions", Message(&JSON_SCHEMA_PROPS)),
    keep(35, "externalDocs", Message(&EXTERNAL_DOCUMENTATION)),
    keep(36, "example", Json),
    omit(37, "nullable", Bool),
    keep(38, "x-kubernetes-preserve-unknown-fields", Bool),
    omit(39, "x-kubernetes-embedded-resource", Bool),
    omit(40, "x-kubernetes-int-or-string", Bool),
    list(41, "x-kubernetes-list-map-keys", String),
    keep(42, "x-kubernetes-list-type", String),
    keep(43, "x-kubernetes-map-type", String),
    list(44, "x-kubernetes-validations", Message(&VALIDATION_RULE)),
];

pub(super) static VALIDATION_RULE: Table = &[
    keep(1, "rule", String),
    omit(2, "message", String),
    omit(3, "messageExpression", String),
    keep(4, "reason", String),
    omit(5, "fieldPath", String),
    keep(6, "optionalOldSelf", Bool),
];

pub(super) static EXTERNAL_DOCUMENTATION: Table = &[omit(1, "description", String), omit(2, "url", String)];

pub(super) static SCHEMA_OR_LIST: Table =
    &[keep(1, "schema", Message(&JSON_SCHEMA_PROPS)), list(2, "list", Message(&JSON_SCHEMA_PROPS))];

pub(super) static SCHEMA_OR_STRINGS: Table = &[keep(1, "schema", Message(&JSON_SCHEMA_PROPS)), list(2, "list", String)];

pub(super) static SCHEMA_OR_BOOL: Table = &[omit(1, "allows", Bool), keep(2, "schema", Message(&JSON_SCHEMA_PROPS))];

/// `items` and an entry of `dependencies`: the list where there is one, otherwise the schema.
fn schema_or_list(mut union: Map<std::string::String, Value>) -> Value {
    union.remove("list").or_else(|| union.remove("schema")).unwrap_or_default()
}

/// `additionalProperties`: the schema where there is one, otherwise whether anything is allowed.
fn schema_or_bool(mut union: Map<std::string::String, Value>) -> Value {
    union.remove("schema").unwrap_or_else(|| union.contains_key("allows").into())
}
