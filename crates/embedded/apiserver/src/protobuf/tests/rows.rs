//! Every row of every table, held against the API types that the rest of the crate uses.

use k8s_openapi::api;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Encoder, body, empty};
use crate::protobuf::decode;
use crate::protobuf::message::{Field, Shape, Table, Type};
use crate::protobuf::tables::{self, KINDS};

/// A message with every field of its table set to something that is not zero.
fn full(table: Table) -> Encoder {
    full_below(table, &[])
}

/// The same below the tables of `path`. A message that contains itself is empty where it occurs again.
fn full_below(table: Table, path: &[Table]) -> Encoder {
    if path.iter().any(|above| std::ptr::eq(*above, table)) {
        return empty();
    }
    let path = &[path, &[table]].concat();
    table.iter().fold(empty(), |encoder, Field { number, shape, .. }| match shape {
        Shape::Omit(ty) | Shape::Keep(ty) => one(encoder, *number, ty, path),
        Shape::List(ty) => one(one(encoder, *number, ty, path), *number, ty, path),
        Shape::Map(ty) => encoder.message(*number, one(empty().bytes(1, "key"), 2, ty, path)),
        Shape::Inline(table) => encoder.message(*number, full_below(table, path)),
    })
}

fn one(encoder: Encoder, number: u32, ty: &Type, path: &[Table]) -> Encoder {
    match ty {
        Type::String => encoder.bytes(number, "text"),
        Type::Bytes => encoder.bytes(number, [0xff, 0x00]),
        Type::Int => encoder.int(number, 7),
        Type::Bool => encoder.int(number, 1),
        Type::Double => encoder.double(number, 0.5),
        Type::Message(table) | Type::Union(table, _) => encoder.message(number, full_below(table, path)),
        Type::Strings => encoder.message(number, empty().bytes(1, "a").bytes(1, "b")),
        Type::Time => encoder.message(number, empty().int(1, 1_700_000_000).int(2, 5_000)),
        Type::MicroTime => encoder.message(number, empty().int(1, 1_700_000_000).int(2, 5_000)),
        Type::Quantity => encoder.message(number, empty().bytes(1, "1500m")),
        Type::IntOrString => encoder.message(number, empty().int(1, 1).int(2, 0).bytes(3, "50%")),
        Type::Json => encoder.message(number, empty().bytes(1, r#"{"f:data":{}}"#)),
    }
}

/// A field that the API type does not know would be lost on the way through it, one of another type would not parse.
#[track_caller]
fn survives<K: Serialize + DeserializeOwned>(api_version: &str, kind: &str) {
    let decoded = decode(&body(api_version, kind, full(tables::of(api_version, kind).unwrap()))).unwrap();
    let typed: K = serde_json::from_value(decoded.clone()).unwrap_or_else(|error| panic!("{kind}: {error}"));
    assert_eq!(decoded, serde_json::to_value(typed).unwrap(), "{kind}");
}

#[test]
fn every_row_is_a_field_of_its_api_type() {
    use api::{authentication as authn, authorization as authz, coordination, core, events, rbac};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
    for (api_version, kind, _) in KINDS {
        match (*api_version, *kind) {
            ("v1", "ConfigMap") => survives::<core::v1::ConfigMap>(api_version, kind),
            ("v1", "Event") => survives::<core::v1::Event>(api_version, kind),
            ("v1", "Namespace") => survives::<core::v1::Namespace>(api_version, kind),
            ("v1", "Node") => survives::<core::v1::Node>(api_version, kind),
            ("v1", "Pod") => survives::<core::v1::Pod>(api_version, kind),
            ("v1", "Secret") => survives::<core::v1::Secret>(api_version, kind),
            ("v1", "ServiceAccount") => survives::<core::v1::ServiceAccount>(api_version, kind),
            (_, "CustomResourceDefinition") => {
                survives::<apiextensions::v1::CustomResourceDefinition>(api_version, kind);
            }
            (_, "SelfSubjectReview") => survives::<authn::v1::SelfSubjectReview>(api_version, kind),
            (_, "TokenRequest") => survives::<authn::v1::TokenRequest>(api_version, kind),
            (_, "TokenReview") => survives::<authn::v1::TokenReview>(api_version, kind),
            (_, "LocalSubjectAccessReview") => survives::<authz::v1::LocalSubjectAccessReview>(api_version, kind),
            (_, "SelfSubjectAccessReview") => survives::<authz::v1::SelfSubjectAccessReview>(api_version, kind),
            (_, "SelfSubjectRulesReview") => survives::<authz::v1::SelfSubjectRulesReview>(api_version, kind),
            (_, "SubjectAccessReview") => survives::<authz::v1::SubjectAccessReview>(api_version, kind),
            (_, "Lease") => survives::<coordination::v1::Lease>(api_version, kind),
            (_, "Event") => survives::<events::v1::Event>(api_version, kind),
            (_, "ClusterRole") => survives::<rbac::v1::ClusterRole>(api_version, kind),
            (_, "ClusterRoleBinding") => survives::<rbac::v1::ClusterRoleBinding>(api_version, kind),
            (_, "Role") => survives::<rbac::v1::Role>(api_version, kind),
            (_, "RoleBinding") => survives::<rbac::v1::RoleBinding>(api_version, kind),
            _ => panic!("`{kind}` of `{api_version}` has no row in this test"),
        }
    }
    survives::<k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions>("v1", "DeleteOptions");
}

/// Two rows with one number would hide the second; two with one name would fight over it.
#[test]
fn numbers_and_names_are_unique() {
    fn walk(table: Table, path: &[Table]) {
        if path.iter().any(|above| std::ptr::eq(*above, table)) {
            return;
        }
        let path = &[path, &[table]].concat();
        for (at, field) in table.iter().enumerate() {
            for other in &table[at + 1..] {
                assert!(field.number < other.number, "{} and {} are out of order", field.name, other.name);
                assert!(field.name.is_empty() || field.name != other.name, "{} stands twice", field.name);
            }
            match &field.shape {
                Shape::Omit(ty) | Shape::Keep(ty) | Shape::List(ty) | Shape::Map(ty) => {
                    if let Type::Message(table) | Type::Union(table, _) = ty {
                        walk(table, path);
                    }
                }
                Shape::Inline(table) => walk(table, path),
            }
        }
    }
    KINDS.iter().for_each(|(_, _, table)| walk(table, &[]));
}

#[track_caller]
fn check(object: Encoder, expect: Value) {
    let mut got = decode(&body("v1", "Pod", object)).unwrap();
    got.as_object_mut().unwrap().retain(|name, _| name != "apiVersion" && name != "kind");
    assert_eq!(got, expect);
}

#[test]
fn messages_merge_and_the_last_value_counts() {
    let object = empty()
        .message(1, empty().bytes(1, "first").bytes(3, "default"))
        .message(1, empty().bytes(1, "last").message(11, empty().bytes(1, "a")))
        .message(1, empty().message(11, empty().bytes(2, "no key").bytes(1, "")));
    check(object, json!({"metadata": {"name": "last", "namespace": "default", "labels": {"a": "", "": "no key"}}}));
}

#[test]
fn a_zero_after_a_value_clears_it() {
    check(empty().message(1, empty().bytes(1, "name").bytes(1, "")), json!({}));
}

#[test]
fn numbers_come_packed_or_not() {
    // `spec.securityContext.supplementalGroups`
    let groups = |context: Encoder| empty().message(2, empty().message(14, context));
    let expect = json!({"spec": {"securityContext": {"supplementalGroups": [1, 300, -1]}}});
    check(groups(empty().int(4, 1).int(4, 300).int(4, -1)), expect.clone());
    let packed = empty().varint(1).varint(300).varint(u64::MAX);
    check(groups(empty().message(4, packed)), expect);
}

#[test]
fn times_are_written_in_utc() {
    let created = |time: Encoder| empty().message(1, empty().message(8, time));
    let expect = |text: &str| json!({"metadata": {"creationTimestamp": text}});
    check(created(empty()), json!({}));
    check(created(empty().int(1, -62_135_596_800)), json!({}));
    check(created(empty().int(1, 0)), expect("1970-01-01T00:00:00Z"));
    check(created(empty().int(1, -1).int(2, 999)), expect("1969-12-31T23:59:59Z"));
    check(created(empty().int(1, -62_167_219_200)), expect("0000-01-01T00:00:00Z"));
}

#[test]
fn unknown_fields_of_every_wire_type_are_skipped() {
    let mut object = empty().int(1000, 1).bytes(1001, "x").varint(1002 << 3 | 1);
    object.0.extend([0; 8]);
    object = object.varint(1003 << 3 | 5);
    object.0.extend([0; 4]);
    object = object
        .varint(1004 << 3 | 3)
        .int(1, 1)
        .varint(7 << 3 | 3)
        .bytes(2, "x")
        .varint(7 << 3 | 4)
        .varint(1004 << 3 | 4);
    check(object.message(1, empty().bytes(1, "a")), json!({"metadata": {"name": "a"}}));
}
