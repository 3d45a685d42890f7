//! Values to try everything with.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Any JSON at all, with names that mean something to patches among its keys.
pub fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
        Just(json!("delete")),
        Just(json!("replace")),
        Just(json!("2024-01-01T00:00:00Z")),
    ];
    let key = prop_oneof![
        "[a-c]{0,2}",
        prop::sample::select(vec![
            "apiVersion",
            "kind",
            "metadata",
            "spec",
            "status",
            "managedFields",
            "labels",
            "finalizers",
            "ports",
            "port",
            "set",
            "maps",
            "nested",
            "free",
            "any",
            "$patch",
            "$retainKeys",
            "$setElementOrder/ports",
            "$deleteFromPrimitiveList/set",
            "op",
            "path",
            "value",
            "f:a",
            "k:{\"a\":1}",
            "v:1",
            "i:0",
            ".",
            "x",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(key.clone(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// JSON without `null`, which a merge patch cannot say.
pub fn json_without_null() -> impl Strategy<Value = Value> {
    any_json().prop_map(|value| drop_null(&value))
}

fn drop_null(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: Map<_, _> = fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), drop_null(value)))
                .collect();
            Value::Object(fields)
        }
        Value::Array(items) => Value::Array(items.iter().map(drop_null).collect()),
        Value::Null => json!("none"),
        other => other.clone(),
    }
}

/// The `spec` of a widget. Its associative lists are not empty, since nobody can own an empty one.
pub fn spec() -> impl Strategy<Value = Value> {
    let text = || prop::sample::select(vec!["a", "b"]).prop_map(Value::from);
    let map = move || {
        prop::collection::hash_map("[ab]", text(), 0..3).prop_map(|map| Value::Object(map.into_iter().collect()))
    };
    let set = prop::sample::subsequence(vec!["a", "b", "c"], 1..=3).prop_shuffle().prop_map(|set| json!(set));
    let port = || (prop::option::of(text()), prop::option::of(prop::sample::select(vec!["TCP", "UDP"])));
    let ports = prop::collection::btree_map(1..4, port(), 1..4).prop_map(|ports| {
        let ports = ports.into_iter().map(|(port, (name, protocol))| {
            let mut item = json!({"port": port});
            name.into_iter().for_each(|name| item["name"] = name);
            protocol.into_iter().for_each(|protocol| item["protocol"] = json!(protocol));
            item
        });
        Value::Array(ports.collect())
    });
    let nested = (prop::option::of(text()), prop::option::of(map())).prop_map(|(x, deep)| {
        let mut nested = json!({});
        x.into_iter().for_each(|x| nested["x"] = x);
        deep.into_iter().for_each(|deep| nested["deep"] = json!({"z": deep.to_string()}));
        nested
    });
    let list = prop::collection::vec(text(), 0..3).prop_map(Value::from);
    let fields = (
        prop::option::of((1..3).prop_map(Value::from)),
        prop::option::of(map()),
        prop::option::of(set),
        prop::option::of(ports),
        prop::option::of(nested),
        prop::option::of(map()),
        prop::option::of(list),
        prop::option::of(map()),
    );
    fields.prop_map(|(replicas, labels, set, ports, nested, atom, list, free)| {
        let named = [
            ("replicas", replicas),
            ("labels", labels),
            ("set", set),
            ("ports", ports),
            ("nested", nested),
            ("atom", atom),
            ("list", list),
            ("free", free),
        ];
        Value::Object(named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    })
}
