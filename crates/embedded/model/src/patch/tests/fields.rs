use proptest::prelude::*;
use serde_json::{Value, json};

use super::schemas::widget;
use super::values::any_json;
use crate::patch::element::{Element, compare};
use crate::patch::fields::{FieldPath, Set};
use crate::patch::typed::field_set;

fn element() -> impl Strategy<Value = Element> {
    let scalar = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        "[a-c<>&\" ]{0,3}".prop_map(Value::from)
    ];
    prop_oneof![
        "[a-c.:/~]{1,3}".prop_map(Element::Field),
        prop::collection::btree_map("[a-c]", scalar.clone(), 1..3)
            .prop_map(|keys| Element::key(keys.into_iter().collect())),
        scalar.prop_map(Element::Value),
        any::<i64>().prop_map(Element::Index),
    ]
}

fn set() -> impl Strategy<Value = Set> {
    let path = prop::collection::vec(element(), 1..4).prop_map(FieldPath);
    prop::collection::vec(path, 0..6).prop_map(|paths| Set::of(&paths))
}

#[test]
fn elements_are_spelled_as_in_kubernetes() {
    let rows = [
        (Element::field("spec"), "f:spec", ".spec"),
        (
            Element::key(vec![("protocol".into(), json!("TCP")), ("port".into(), json!(80))]),
            "k:{\"port\":80,\"protocol\":\"TCP\"}",
            "[port=80,protocol=\"TCP\"]",
        ),
        (Element::Value(json!("a<b")), "v:\"a\\u003cb\"", "[=\"a<b\"]"),
        (Element::Index(3), "i:3", "[3]"),
    ];
    for (element, spelled, printed) in rows {
        assert_eq!(element.serialize(), spelled);
        assert_eq!(element.to_string(), printed);
        assert_eq!(Element::parse(spelled).unwrap(), element);
    }
    for wrong in ["f", "fname", "k:[]", "k:{", "v:", "i:x", "z:q"] {
        assert!(Element::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn fields_of_an_object_are_its_values_and_items() {
    let object = json!({
        "apiVersion": "v1",
        "metadata": {"name": "x", "labels": {"a": "1"}, "finalizers": ["f"]},
        "spec": {
            "replicas": 1, "labels": {"a": "1"}, "atom": {"a": "1"}, "list": ["x"], "set": ["x"], "nothing": null,
            "ports": [{"port": 1}, {"port": 2}, {"port": 2}], "nested": {"deep": {}}, "maps": {"m": {"p": "1"}},
            "free": {"a": {"b": [1]}}
        }
    });
    let expect = json!({
        "f:apiVersion": {},
        "f:metadata": {"f:name": {}, "f:labels": {"f:a": {}}, "f:finalizers": {"v:\"f\"": {}}},
        "f:spec": {
            "f:replicas": {}, "f:labels": {"f:a": {}}, "f:atom": {}, "f:list": {}, "f:set": {"v:\"x\"": {}}, "f:nothing": {},
            "f:ports": {
                "k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}},
                "k:{\"port\":2,\"protocol\":\"TCP\"}": {}
            },
            "f:nested": {"f:deep": {}}, "f:maps": {"f:m": {".": {}, "f:p": {}}},
            "f:free": {"f:a": {".": {}, "f:b": {}}}
        }
    });
    assert_eq!(field_set::of(&object, &widget()).to_fields(), expect);
}

#[test]
fn unknown_elements_are_skipped_and_wrong_ones_refused() {
    let set = Set::from_fields(&json!({"f:a": {}, "x:future": {"f:b": {}}})).unwrap();
    assert_eq!(set, Set::named(&["a"]));
    assert!(Set::from_fields(&json!({"a": {}})).is_err());
    assert!(Set::from_fields(&json!({"f:a": 1})).is_err());
    assert!(Set::from_fields(&json!([])).is_err());
}

#[test]
fn recursive_difference_takes_what_is_below() {
    let all = Set::of(
        &[&["a"][..], &["a", "b"], &["a", "b", "c"], &["d"]]
            .map(|names| FieldPath(names.iter().map(|name| Element::field(*name)).collect())),
    );
    assert_eq!(all.recursive_difference(&Set::named(&["a", "b"])).to_fields(), json!({"f:a": {}, "f:d": {}}));
    assert_eq!(all.difference(&Set::named(&["a", "b"])).len(), 3);
}

proptest! {
    #[test]
    fn written_sets_are_read_back(set in set()) {
        prop_assert_eq!(Set::from_fields(&set.to_fields()).unwrap(), set.clone());
        prop_assert_eq!(Set::of(&set.paths()), set.clone());
        prop_assert_eq!(set.paths().len(), set.len());
        prop_assert!(set.paths().iter().all(|path| set.has(path)));
    }

    #[test]
    fn sets_obey_the_laws_of_sets(a in set(), b in set(), c in set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.union(&a), a.clone());
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&b), a.difference(&a.difference(&b)));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert!(a.difference(&a).is_empty());
        prop_assert!(a.is_subset(&a.union(&b)) && a.intersection(&b).is_subset(&b));
        prop_assert!(a.recursive_difference(&b).is_subset(&a.difference(&b)));
        prop_assert_eq!(a.is_subset(&b), a.difference(&b).is_empty());
    }

    #[test]
    fn values_have_one_order(a in any_json(), b in any_json(), c in any_json()) {
        prop_assert!(compare(&a, &a).is_eq());
        prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
        if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
            prop_assert!(compare(&a, &c).is_le());
        }
    }

    #[test]
    fn no_json_breaks_the_reader(json in any_json()) {
        let _ = Set::from_fields(&json);
        let _ = field_set::of(&json, &widget());
    }
}
