#![allow(clippy::unwrap_used, reason = "tests")]

//! Tables of schemas and values, with what Kubernetes says to them.

use serde_json::{Value, json};

use super::Schema;

/// The schema of a whole object whose `spec` is `spec`.
fn of_spec(spec: Value) -> Schema {
    parsed(json!({"type": "object", "properties": {"spec": spec}}))
}

#[track_caller]
fn parsed(json: Value) -> Schema {
    Schema::from_json(&json).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn texts(errors: &[super::FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(spec: Value, rows: &[(Value, &[&str])]) {
    let schema = of_spec(spec);
    for (value, expected) in rows {
        let errors = texts(&schema.validate(&json!({"spec": value}), None));
        assert_eq!(errors, *expected, "for {value}");
    }
}

#[track_caller]
fn refused(spec: Value, expected: &[&str]) {
    let errors = Schema::from_json_at("s", &json!({"type": "object", "properties": {"spec": spec}})).unwrap_err();
    assert_eq!(texts(&errors), expected);
}

#[test]
fn values_are_checked_against_types() {
    check(
        json!({"type": "object", "properties": {
            "i": {"type": "integer"}, "n": {"type": "number"}, "s": {"type": "string"}, "b": {"type": "boolean"},
            "a": {"type": "array", "items": {"type": "string"}}, "o": {"type": "object"},
            "x": {"x-kubernetes-int-or-string": true}, "t": {"type": "string", "format": "date-time"},
        }}),
        &[
            (
                json!({"i": 1, "n": 1.5, "s": "", "b": true, "a": [], "o": {}, "x": "1", "t": "2024-01-01T00:00:00Z"}),
                &[],
            ),
            (json!({"i": 1.0, "n": 1, "x": 1}), &[]),
            (
                json!({"i": 1.5}),
                &[r#"spec.i: Invalid value: "number": spec.i in body must be of type integer: "number""#],
            ),
            (
                json!({"i": "1"}),
                &[r#"spec.i: Invalid value: "string": spec.i in body must be of type integer: "string""#],
            ),
            (
                json!({"s": 1}),
                &[r#"spec.s: Invalid value: "integer": spec.s in body must be of type string: "integer""#],
            ),
            (json!({"b": null}), &[r#"spec.b: Invalid value: "null": spec.b in body must be of type boolean: "null""#]),
            (json!({"a": {}}), &[r#"spec.a: Invalid value: "object": spec.a in body must be of type array: "object""#]),
            (
                json!({"a": ["x", 1]}),
                &[r#"spec.a[1]: Invalid value: "integer": spec.a[1] in body must be of type string: "integer""#],
            ),
            (json!({"o": []}), &[r#"spec.o: Invalid value: "array": spec.o in body must be of type object: "array""#]),
            (
                json!({"x": true}),
                &[r#"spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#],
            ),
            (
                json!({"t": "now"}),
                &[r#"spec.t: Invalid value: "now": spec.t in body must be of type date-time: "now""#],
            ),
            (
                json!({"t": 1}),
                &[r#"spec.t: Invalid value: "int64": spec.t in body must be of type date-time: "int64""#],
            ),
        ],
    );
}

#[test]
fn values_are_checked_against_bounds() {
    check(
        json!({"type": "object", "required": ["r"], "maxProperties": 3, "properties": {
            "r": {"type": "string"}, "s": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a-z]+$"},
            "i": {"type": "integer", "minimum": 1, "maximum": 10, "exclusiveMaximum": true, "multipleOf": 2},
            "a": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
            "e": {"type": "string", "enum": ["terraform", "tofu"]},
            "m": {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}},
        }}),
        &[
            (json!({"r": ""}), &[]),
            (json!({}), &["spec.r: Required value"]),
            (json!({"r": "", "s": "abcd"}), &["spec.s: Too long: may not be more than 3 bytes"]),
            (
                json!({"r": "", "s": "a"}),
                &[r#"spec.s: Invalid value: "a": spec.s in body should be at least 2 chars long"#],
            ),
            (json!({"r": "", "s": "éé"}), &[r#"spec.s: Invalid value: "éé": spec.s in body should match '^[a-z]+$'"#]),
            (
                json!({"r": "", "i": 0}),
                &["spec.i: Invalid value: 0: spec.i in body should be greater than or equal to 1"],
            ),
            (json!({"r": "", "i": 10}), &["spec.i: Invalid value: 10: spec.i in body should be less than 10"]),
            (json!({"r": "", "i": 3}), &["spec.i: Invalid value: 3: spec.i in body should be a multiple of 2"]),
            (json!({"r": "", "a": []}), &["spec.a: Invalid value: 0: spec.a in body should have at least 1 items"]),
            (json!({"r": "", "a": ["", "", ""]}), &["spec.a: Too many: 3: must have at most 2 items"]),
            (json!({"r": "", "e": "x"}), &[r#"spec.e: Unsupported value: "x": supported values: "terraform", "tofu""#]),
            (
                json!({"r": "", "m": {}}),
                &["spec.m: Invalid value: 0: spec.m in body should have at least 1 properties"],
            ),
            (
                json!({"r": "", "m": {"k": 1}}),
                &[r#"spec.m.k: Invalid value: "integer": spec.m.k in body must be of type string: "integer""#],
            ),
            (json!({"r": "", "s": "ab", "i": 2, "e": "tofu"}), &["spec: Too many: 4: must have at most 3 items"]),
        ],
    );
}

#[test]
fn combinations_are_checked() {
    check(
        json!({"type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "integer"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "not": {"required": ["c"]},
        }),
        &[
            (json!({"a": ""}), &[]),
            (
                json!({}),
                &[
                    r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid"#,
                    "spec.a: Required value",
                ],
            ),
            (
                json!({"a": "", "b": ""}),
                &[
                    r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
                ],
            ),
            (json!({"a": "", "c": 1}), &[r#"<nil>: Invalid value: "": "spec" must not validate the schema (not)"#]),
        ],
    );
    check(
        json!({"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 0}], "allOf": [{"multipleOf": 2}]}),
        &[
            (json!(12), &[]),
            (
                json!(5),
                &[
                    r#"<nil>: Invalid value: "": "spec" must validate at least one schema (anyOf)"#,
                    "spec: Invalid value: 5: spec in body should be greater than or equal to 10",
                    "spec: Invalid value: 5: spec in body should be a multiple of 2",
                    r#"<nil>: Invalid value: "": "spec" must validate all the schemas (allOf). None validated"#,
                ],
            ),
        ],
    );
}

#[test]
fn lists_that_are_sets_or_maps_have_no_duplicates() {
    check(
        json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"], "items": {
                "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "p": {"type": "integer", "default": 1}}}},
        }}),
        &[
            (json!({"set": ["a", "b"], "map": [{"k": "a"}, {"k": "b"}]}), &[]),
            (json!({"set": ["a", "b", "a", "a"]}), &[r#"spec.set[2]: Duplicate value: "a""#]),
            (
                json!({"map": [{"k": "a", "p": 1}, {"k": "a", "p": 1}]}),
                &[r#"spec.map[1]: Duplicate value: {"k":"a","p":1}"#],
            ),
        ],
    );
}

#[test]
fn an_update_keeps_what_was_wrong_before() {
    let schema = of_spec(json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1}, "b": {"type": "string"},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}}},
    }}));
    let old = json!({"spec": {"a": "long", "b": "", "l": [{"k": "x", "v": "long"}]}});
    let new = json!({"spec": {"a": "long", "b": "changed", "l": [{"k": "y"}, {"k": "x", "v": "long"}]}});
    assert_eq!(schema.validate(&new, Some(&old)), []);
    let worse = json!({"spec": {"a": "longer", "l": [{"k": "x", "v": "longer"}]}});
    assert_eq!(
        texts(&schema.validate(&worse, Some(&old))),
        [
            "spec.a: Too long: may not be more than 1 bytes".replace("bytes", "byte"),
            "spec.l[0].v: Too long: may not be more than 1 byte".to_owned()
        ]
    );
}

#[test]
fn unknown_fields_are_pruned() {
    let schema = parsed(json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "known": {"type": "string"},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "inner": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "object": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
        }},
    }}));
    let mut object = json!({
        "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "strange": 1, "labels": {"a": "b"}}, "top": 1,
        "spec": {
            "known": "", "foo": 1,
            "open": {"x": {"y": 1}, "inner": {"a": "", "b": 1}},
            "any": {"deep": [{"x": 1}]},
            "list": [{"a": ""}, {"a": "", "b": {"c": 1}}],
            "map": {"k": {"a": "", "b": 1}},
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"x": 1}, "spec": {"z": 1}, "other": 1},
        },
    });
    let unknown = schema.prune(&mut object);
    assert_eq!(
        unknown,
        [
            "metadata.strange",
            "spec.foo",
            "spec.list[1].b",
            "spec.map.k.b",
            "spec.object.metadata.x",
            "spec.object.other",
            "spec.object.spec.z",
            "spec.open.inner.b",
            "top"
        ]
    );
    assert_eq!(
        object,
        json!({
            "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "labels": {"a": "b"}},
            "spec": {
                "known": "",
                "open": {"x": {"y": 1}, "inner": {"a": ""}},
                "any": {"deep": [{"x": 1}]},
                "list": [{"a": ""}, {"a": ""}],
                "map": {"k": {"a": ""}},
                "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}},
            },
        })
    );
    assert_eq!(schema.prune(&mut object), Vec::<String>::new());
    assert_eq!(schema.validate(&object, None), []);
    object["spec"]["object"] = json!({"kind": ""});
    assert_eq!(
        texts(&schema.validate(&object, None)),
        ["spec.object.apiVersion: Required value", "spec.object.kind: Required value"]
    );
}

#[test]
fn absent_fields_get_their_defaults() {
    let schema = of_spec(json!({"type": "object", "default": {}, "properties": {
        "a": {"type": "string", "default": "x"},
        "n": {"type": "string", "nullable": true, "default": "x"},
        "plain": {"type": "string"},
        "inner": {"type": "object", "properties": {"b": {"type": "integer", "default": 1}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "boolean", "default": true}}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"d": {"type": "string", "default": "d"}}}},
    }}));
    for (before, after) in [
        (json!({}), json!({"spec": {"a": "x", "n": "x"}})),
        (json!({"spec": {"a": "y", "n": null}}), json!({"spec": {"a": "y", "n": null}})),
        (json!({"spec": {"a": null, "plain": null}}), json!({"spec": {"a": "x", "n": "x"}})),
        (
            json!({"spec": {"a": "", "n": "", "inner": {}, "list": [{}, {"c": false}], "map": {"k": {}}}}),
            json!({"spec": {"a": "", "n": "", "inner": {"b": 1}, "list": [{"c": true}, {"c": false}], "map": {"k": {"d": "d"}}}}),
        ),
    ] {
        let mut value = before.clone();
        schema.apply_defaults(&mut value);
        assert_eq!(value, after, "{before}");
        let again = value.clone();
        schema.apply_defaults(&mut value);
        assert_eq!(value, again);
    }
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    refused(json!({}), &["s.properties[spec].type: Required value: must not be empty for specified object fields"]);
    refused(json!({"type": "array"}), &["s.properties[spec].items: Required value: must be specified"]);
    refused(
        json!({"type": "array", "items": {}}),
        &["s.properties[spec].items.type: Required value: must not be empty for specified array items"],
    );
    refused(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        &[
            "s.properties[spec].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ],
    );
    refused(
        json!({"type": "integer", "default": "x"}),
        &[r#"s.properties[spec].default: Invalid value: "string":  in body must be of type integer: "string""#],
    );
    refused(
        json!({"type": "object", "default": {"x": 1}}),
        &[r#"s.properties[spec].default: Invalid value: {"x":1}: must not have unknown fields"#],
    );
    refused(
        json!({"type": "text"}),
        &[
            r#"s.properties[spec].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string""#,
        ],
    );
    refused(
        json!({"type": "object", "oneOf": [{"properties": {"b": {"type": "string"}}}]}),
        &["s.properties[spec].oneOf[0].properties[b].type: Forbidden: must be empty to be structural"],
    );
    refused(
        json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
        &[
            "s.properties[spec].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ],
    );
    refused(
        json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
        &[
            "s.properties[spec].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ],
    );
    refused(
        json!({"type": "string", "pattern": "("}),
        &[
            "s.properties[spec].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
        ],
    );
    let incomplete = json!({"type": "object", "oneOf": [{"properties": {"b": {"minimum": 1}}}]});
    assert_eq!(
        texts(&Schema::from_json_at("s", &incomplete).unwrap_err()),
        ["s.properties[b]: Required value: because it is defined in s.oneOf[0].properties[b]"]
    );
    let root = Schema::from_json_at("s", &json!({"type": "string"})).unwrap_err();
    assert_eq!(texts(&root), [r#"s.type: Invalid value: "string": must be object at the root"#]);
    let spelled = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
    check(spelled, &[(json!(1), &[]), (json!("1"), &[])]);
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    /// Any JSON, of a few levels, with names that the schemas below use.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-c]{0,3}".prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("spec|metadata|kind|[a-d]", inner, 0..5)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    /// A structural schema of a few levels.
    fn any_schema() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({"type": "string", "maxLength": 2})),
            Just(json!({"type": "string", "default": "a", "enum": ["a", "b"]})),
            Just(json!({"type": "integer", "minimum": 0, "default": 3})),
            Just(json!({"type": "number", "nullable": true})),
            Just(json!({"type": "boolean", "default": false})),
            Just(json!({"type": "string", "format": "date-time"})),
            Just(json!({"x-kubernetes-int-or-string": true})),
            Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
            Just(json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != 'x' && self.size() < 9"}]})),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                inner.clone().prop_map(|s| json!({"type": "array", "maxItems": 3, "items": s})),
                inner.clone().prop_map(|s| json!({"type": "object", "additionalProperties": s})),
                (prop::collection::btree_map("[a-d]", inner, 0..4), any::<bool>()).prop_map(|(fields, open)| {
                    let mut schema = json!({"type": "object", "properties": fields, "anyOf": [{"minProperties": 0}]});
                    if open {
                        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
                    }
                    schema
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn any_value_meets_any_schema(json in any_schema(), value in any_json(), old in any_json()) {
            let schema = of_spec(json);
            let mut object = json!({"spec": value});
            schema.prune(&mut object);
            let pruned = object.clone();
            prop_assert_eq!(schema.prune(&mut object), Vec::<String>::new());
            prop_assert_eq!(&object, &pruned);

            schema.apply_defaults(&mut object);
            let defaulted = object.clone();
            schema.apply_defaults(&mut object);
            prop_assert_eq!(&object, &defaulted);
            // Defaults are known fields themselves.
            prop_assert_eq!(schema.prune(&mut object), Vec::<String>::new());

            let errors = schema.validate(&object, None);
            schema.validate(&object, Some(&json!({"spec": old})));
            // What a rule cannot be evaluated on stays an error; everything else that did not change passes.
            if errors.is_empty() {
                prop_assert_eq!(schema.validate(&object, Some(&object)), vec![]);
            }
            if schema.validate(&pruned, None).is_empty() {
                prop_assert_eq!(errors, vec![]);
            }
        }

        #[test]
        fn any_json_is_a_schema_or_refused(json in any_json(), schema in any_schema()) {
            _ = Schema::from_json(&json);
            _ = Schema::from_json(&json!({"type": "object", "properties": json.clone()}));
            _ = Schema::from_json(&json!({"type": "object", "properties": {"a": {"type": "object", "default": json, "properties": {"b": schema}}}}));
        }

        #[test]
        fn any_text_is_a_pattern_or_refused(source in ".{0,12}", text in ".{0,12}") {
            if let Ok(pattern) = crate::schema::pattern::Pattern::compile(&source) {
                pattern.is_match(&text);
            }
        }
    }

    #[test]
    fn deep_objects_do_not_exhaust_the_stack() {
        let nested = |depth: usize, inner: Value| {
            (0..depth).fold(inner, |v, i| if i % 2 == 0 { json!([v]) } else { json!({"a": v}) })
        };
        let value = nested(126, json!(1));
        for schema in [
            of_spec(json!({"x-kubernetes-preserve-unknown-fields": true})),
            of_spec((0..29).fold(
                json!({"type": "string"}),
                |s, _| json!({"type": "object", "properties": {"a": s}, "anyOf": [{"minProperties": 0}]}),
            )),
        ] {
            let mut object = json!({"spec": value.clone()});
            schema.prune(&mut object);
            schema.apply_defaults(&mut object);
            _ = schema.validate(&object, Some(&object.clone()));
        }
    }
}

/// A Run as the operator writes it, for the time that its checks take.
#[test]
fn checks_are_fast() {
    let step = json!({"type": "object", "required": ["name", "state"], "properties": {
        "name": {"type": "string", "maxLength": 63, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"},
        "state": {"type": "string", "enum": ["Pending", "Running", "Succeeded", "Failed"]},
        "attempts": {"type": "integer", "minimum": 0}, "startedAt": {"type": "string", "format": "date-time"},
        "finishedAt": {"type": "string", "format": "date-time"}, "exitCode": {"type": "integer"}, "message": {"type": "string"},
    }});
    let schema = parsed(json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["workspace"], "properties": {
            "workspace": {"type": "string", "maxLength": 253}, "operation": {"type": "string", "enum": ["plan", "apply", "destroy"]},
            "approval": {"type": "string", "default": "Auto"}, "args": {"type": "array", "items": {"type": "string"}},
            "variables": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {
            "phase": {"type": "string"},
            "steps": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": step},
        }},
    }}));
    let steps: Vec<Value> = ["setup", "init", "plan", "review", "apply", "outputs"]
        .iter()
        .map(|n| json!({"name": n, "state": "Succeeded", "attempts": 1, "startedAt": "2024-01-01T00:00:00Z", "exitCode": 0}))
        .collect();
    let object = json!({
        "apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "metadata": {"name": "net"},
        "spec": {"workspace": "net", "operation": "apply", "args": ["-lock=false"], "variables": {"zones": ["a", "b"]}},
        "status": {"phase": "Running", "steps": steps},
    });
    let rounds: u32 = 200;
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        let mut copy = object.clone();
        schema.prune(&mut copy);
        schema.apply_defaults(&mut copy);
        assert!(schema.validate(&copy, Some(&object)).is_empty());
    }
    // The goal is 50 us in an optimized build; the test only guards against something being off by orders.
    let each = start.elapsed() / rounds;
    assert!(each.as_millis() < 20, "{each:?}");
}
