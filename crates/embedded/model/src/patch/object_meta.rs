//! The schema of `metadata`, which is the same for every kind, and is not part of a custom resource's own schema.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::schema::{ListType, MapType, Schema, Strategy, Type};

/// The schema of a plain text field, such as `apiVersion` and `kind`.
pub static TEXT: LazyLock<Schema> = LazyLock::new(|| scalar(Type::String));

/// The schema of `metadata`.
pub static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
    let texts = [
        "creationTimestamp",
        "deletionTimestamp",
        "generateName",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    ];
    let numbers = ["deletionGracePeriodSeconds", "generation"];
    let mut properties: BTreeMap<_, _> =
        texts.iter().map(|name| ((*name).to_owned(), Arc::new(scalar(Type::String)))).collect();
    properties.extend(numbers.iter().map(|name| ((*name).to_owned(), Arc::new(scalar(Type::Integer)))));
    for name in ["annotations", "labels"] {
        let map = Schema { ty: Type::Object, additional: Some(Arc::new(scalar(Type::String))), ..Schema::default() };
        properties.insert(name.to_owned(), Arc::new(map));
    }
    properties.insert("finalizers".to_owned(), Arc::new(finalizers()));
    properties.insert("ownerReferences".to_owned(), Arc::new(owner_references()));
    // Its items are never merged: the server alone writes it.
    let entries = Schema { ty: Type::Array, items: Some(Arc::new(Schema::default())), ..Schema::default() };
    properties.insert("managedFields".to_owned(), Arc::new(entries));
    Schema { ty: Type::Object, properties, ..Schema::default() }
});

fn scalar(ty: Type) -> Schema {
    Schema { ty, ..Schema::default() }
}

fn finalizers() -> Schema {
    Schema {
        ty: Type::Array,
        items: Some(Arc::new(scalar(Type::String))),
        list_type: ListType::Set,
        strategy: Strategy { merge: true, ..Strategy::default() },
        ..Schema::default()
    }
}

fn owner_references() -> Schema {
    let mut properties: BTreeMap<_, _> = ["apiVersion", "kind", "name", "uid"]
        .iter()
        .map(|name| ((*name).to_owned(), Arc::new(scalar(Type::String))))
        .collect();
    for name in ["blockOwnerDeletion", "controller"] {
        properties.insert(name.to_owned(), Arc::new(scalar(Type::Boolean)));
    }
    let reference = Schema { ty: Type::Object, properties, map_type: MapType::Atomic, ..Schema::default() };
    Schema {
        ty: Type::Array,
        items: Some(Arc::new(reference)),
        list_type: ListType::Map(vec!["uid".to_owned()]),
        strategy: Strategy { merge: true, merge_key: Some("uid".to_owned()), ..Strategy::default() },
        ..Schema::default()
    }
}
