#![allow(clippy::unwrap_used, reason = "tests")]

//! Expressions and rules, with what Kubernetes makes of them.

use serde_json::{Value, json};

use super::Expression;
use crate::schema::Schema;

fn of_spec(spec: Value) -> Schema {
    Schema::from_json(&json!({"type": "object", "properties": {"spec": spec}})).unwrap_or_else(|e| panic!("{e:#?}"))
}

#[track_caller]
fn check(schema: &Schema, new: Value, old: Option<Value>, expected: &[&str]) {
    let old = old.map(|old| json!({"spec": old}));
    let errors: Vec<String> =
        schema.validate(&json!({"spec": new}), old.as_ref()).iter().map(ToString::to_string).collect();
    assert_eq!(errors, expected, "for {new}");
}

#[track_caller]
fn refused(spec: Value) -> String {
    let errors = Schema::from_json_at("s", &json!({"type": "object", "properties": {"spec": spec}})).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    errors[0].to_string()
}

fn rule(rule: &str) -> Value {
    json!([{"rule": rule}])
}

#[test]
fn expressions_have_the_values_of_cel() {
    let vars = json!({"a": 1, "s": "héllo", "l": [3, 1, 2], "o": {"x": {"y": [1, {"z": "w"}]}}, "d": 1.5, "n": null});
    let variables: Vec<(&str, &Value)> = vars.as_object().unwrap().iter().map(|(k, v)| (k.as_str(), v)).collect();
    for (source, expected) in [
        ("1 + 2 * 3 - 4 / 2 % 3", json!(5)),
        ("a == 1 && a == 1.0 && dyn(1u) == 1", json!(true)),
        ("a < 1.5 && d > a", json!(true)),
        ("'a' + 'b' == 'ab' ? 'yes' : 'no'", json!("yes")),
        ("size(s)", json!(5)),
        ("s.size() == 5 && size(l) == 3 && size(o) == 1", json!(true)),
        ("o.x.y[1].z", json!("w")),
        ("has(o.x) && !has(o.q)", json!(true)),
        ("'x' in o && !('q' in o) && 3 in l", json!(true)),
        ("l.all(i, i > 0) && l.exists(i, i == 2) && l.exists_one(i, i > 2)", json!(true)),
        ("l.map(i, i * 2)", json!([6, 2, 4])),
        ("l.map(i, i > 1, i * 2)", json!([6, 4])),
        ("l.filter(i, i > 1)", json!([3, 2])),
        ("o.map(k, k)", json!(["x"])),
        ("[1, 2] + [3] == [1, 2, 3]", json!(true)),
        ("{'a': 1}.a + {'a': 1}['a']", json!(2)),
        ("n == null && type(a) == int && type(s) == string && type(l) == list", json!(true)),
        ("true || 1 / 0 == 1", json!(true)),
        ("1 / 0 == 1 || true", json!(true)),
        ("!(1 / 0 == 1 && false)", json!(true)),
        ("[1, 0].exists(i, 1 / i == 1)", json!(true)),
        ("int('5') + int(2.9) + int(1u)", json!(8)),
        ("string(5) + string(1.5) + string(true)", json!("51.5true")),
        ("double('1.5') == 1.5 && uint(3) == 3u && bool('true')", json!(true)),
        ("bytes('ab') == b'ab' && size(b'ab') == 2", json!(true)),
        ("s.matches('^h.*o$') && s.startsWith('h') && s.endsWith('o') && s.contains('él')", json!(true)),
        ("s.upperAscii() + 'AB'.lowerAscii()", json!("HéLLOab")),
        ("s.substring(1, 3) + s.charAt(0) + ' x '.trim()", json!("élhx")),
        ("s.indexOf('l')", json!(2)),
        ("s.lastIndexOf('l')", json!(3)),
        ("'a,b,c'.split(',')", json!(["a", "b", "c"])),
        ("'a,b,c'.split(',', 2)", json!(["a", "b,c"])),
        ("['a', 'b'].join('-')", json!("a-b")),
        ("'aXbX'.replace('X', '-', 1)", json!("a-bX")),
        ("'abc123'.find('[0-9]+')", json!("123")),
        ("'1 22 3'.findAll('[0-9]+', 2)", json!(["1", "22"])),
        ("'%s has %d of %.2f'.format([s, 3, 1.0])", json!("héllo has 3 of 1.00")),
        ("'%s'.format([[1, 'a']])", json!("[1, \"a\"]")),
        ("[1, 2].isSorted() && !l.isSorted()", json!(true)),
        ("l.sum() + l.min() + l.max() + l.indexOf(2)", json!(12)),
        ("[].sum()", json!(0)),
        ("sets.contains(l, [1]) && sets.equivalent([1, 1], [1]) && !sets.intersects(l, [9])", json!(true)),
        ("duration('1h') > duration('59m') && duration('90s').getMinutes() == 1", json!(true)),
        ("timestamp('2024-01-02T03:04:05Z').getFullYear()", json!(2024)),
        ("timestamp('2024-01-01T00:00:00Z') + duration('24h') == timestamp('2024-01-02T00:00:00Z')", json!(true)),
        ("timestamp('2024-01-01T00:00:00Z').getHours('+02:00')", json!(2)),
        ("quantity('1Gi').isGreaterThan(quantity('1G')) && isQuantity('1m') && !isQuantity('x')", json!(true)),
        ("quantity('500m').add(quantity('500m')).asInteger()", json!(1)),
        ("isURL('https://a.b:80/c?d=e') && !isURL('a b')", json!(true)),
        ("url('https://a.b:80/c?d=e').getHostname() + url('https://a.b:80/c?d=e').getPort()", json!("a.b80")),
        ("url('https://a/?d=e').getQuery()['d'][0]", json!("e")),
        ("isIP('10.0.0.1') && !isIP('10.0.0') && ip('::1').family() == 6", json!(true)),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3') && isCIDR('::/0')", json!(true)),
        ("o.?x.?y.hasValue() && !o.?q.hasValue()", json!(true)),
        ("o.?q.orValue('none')", json!("none")),
        ("optional.of(1).value() + optional.none().orValue(2)", json!(3)),
        ("o[?'x'].hasValue() && l[?9].orValue(7) == 7", json!(true)),
        ("optional.of(2).optMap(v, v * 2).value()", json!(4)),
        ("[?o.?q, 1]", json!([1])),
        ("-a", json!(-1)),
        ("l.all(i, v, i < v) && l.exists(i, v, i == 2 && v == 2) && o.existsOne(k, v, k == 'x')", json!(false)),
        ("l.transformList(i, v, i > 0, v * 10)", json!([10, 20])),
        ("{'a': 1}.transformMap(k, v, v + 1)", json!({"a": 2})),
        ("dyn(1) == 1", json!(true)),
    ] {
        let compiled = Expression::compile(source).unwrap_or_else(|e| panic!("{source}: {e}"));
        assert_eq!(compiled.evaluate(&variables), Ok(expected), "{source}");
    }
}

#[test]
fn failures_have_the_texts_of_cel() {
    for (source, expected) in [
        ("{'a': 1}.b", "no such key: b"),
        ("[1][5]", "index out of bounds: 5"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("dyn('a') + dyn(1)", "no such overload"),
        ("dyn(1).size()", "no such overload"),
        ("dyn('a').b", "no such overload"),
        ("x", "no such attribute(s): x"),
        ("[].min()", "min called on empty list"),
        ("optional.none().value()", "optional.none() dereference"),
    ] {
        assert_eq!(Expression::compile(source).unwrap().evaluate(&[]), Err(expected.to_owned()), "{source}");
    }
}

#[test]
fn hostile_expressions_are_refused_or_stopped() {
    for source in [
        "(".repeat(2_500),
        "[".repeat(2_500),
        "!".repeat(2_500) + "true",
        "-".repeat(2_500) + "1",
        "a".to_owned() + &".b".repeat(2_000),
        "1".to_owned() + &"+1".repeat(2_000),
        "a".to_owned() + &"[0]".repeat(1_250),
        "a?".repeat(1_250),
        "a?b:".repeat(1_000) + "c",
        "x".repeat(1 << 20),
        "\"".to_owned(),
        "Foo{a: 1}".to_owned(),
        "a..b".to_owned(),
        "\u{0}".to_owned(),
        "{".to_owned(),
        String::new(),
    ] {
        let shown: String = source.chars().take(20).collect();
        match Expression::compile(&source) {
            Err(text) => assert!(text.starts_with("ERROR: <input>:"), "{shown}: {text}"),
            // Long chains of `!` are one flat operator for the parser.
            Ok(expression) => _ = expression.evaluate(&[]),
        }
    }
    let list = json!((0..200).collect::<Vec<_>>());
    let slow = Expression::compile("l.all(a, l.all(b, l.all(c, l.all(d, a + b + c + d >= 0))))").unwrap();
    assert_eq!(slow.evaluate(&[("l", &list)]), Err("operation cancelled: actual cost limit exceeded".to_owned()));
    let deep = (0..120).fold(json!(1), |inner, _| json!({"a": inner}));
    assert_eq!(Expression::compile("x == x").unwrap().holds(&[("x", &deep)]), Ok(true));
}

#[test]
fn rules_see_their_part_of_an_object() {
    let schema = of_spec(json!({
        "type": "object",
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"},
            "name": {"type": "string", "x-kubernetes-validations": rule("self.startsWith('a')")},
            "ratio": {"type": "number"},
            "namespace": {"type": "string"}, "a-b": {"type": "string"},
            "either": {"x-kubernetes-int-or-string": true},
            "wait": {"type": "string", "format": "duration"},
            "when": {"type": "string", "format": "date-time"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min must not exceed max"},
            {"rule": "!has(self.__namespace__) || self.__namespace__ != 'bad'", "messageExpression": "'not ' + self.__namespace__",
             "fieldPath": ".namespace", "reason": "FieldValueForbidden"},
            {"rule": "!has(self.a__dash__b) || self.a__dash__b == 'x'"},
            {"rule": "!has(self.ratio) || self.ratio / 2.0 < 1.0"},
            {"rule": "!has(self.either) || (type(self.either) == int ? self.either > 0 : self.either == 'auto')"},
            {"rule": "!has(self.wait) || self.wait <= duration('1h')"},
            {"rule": "!has(self.when) || self.when > timestamp('2000-01-01T00:00:00Z')"},
            {"rule": "!has(self.labels) || self.labels.all(k, self.labels[k] != '')"},
        ],
    }));
    check(&schema, json!({}), None, &[]);
    check(
        &schema,
        json!({"min": 1, "max": 2, "name": "a", "ratio": 1, "either": "auto", "wait": "5m", "when": "2024-01-01T00:00:00Z", "labels": {"a": "b"}}),
        None,
        &[],
    );
    check(&schema, json!({"min": 2, "max": 1}), None, &[r#"spec: Invalid value: "object": min must not exceed max"#]);
    check(
        &schema,
        json!({"name": "b"}),
        None,
        &[r#"spec.name: Invalid value: "string": failed rule: self.startsWith('a')"#],
    );
    check(&schema, json!({"namespace": "bad"}), None, &["spec.namespace: Forbidden: not bad"]);
    check(
        &schema,
        json!({"a-b": "y"}),
        None,
        &[r#"spec: Invalid value: "object": failed rule: !has(self.a__dash__b) || self.a__dash__b == 'x'"#],
    );
    check(
        &schema,
        json!({"ratio": 3}),
        None,
        &[r#"spec: Invalid value: "object": failed rule: !has(self.ratio) || self.ratio / 2.0 < 1.0"#],
    );
    check(
        &schema,
        json!({"wait": "2h"}),
        None,
        &[r#"spec: Invalid value: "object": failed rule: !has(self.wait) || self.wait <= duration('1h')"#],
    );
    check(
        &schema,
        json!({"min": "x"}),
        None,
        &[
            r#"spec.min: Invalid value: "string": spec.min in body must be of type integer: "string""#,
            r#"<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"#,
        ],
    );
}

#[test]
fn rules_that_cannot_be_evaluated_say_so() {
    let schema = of_spec(json!({"type": "object", "properties": {
        "a": {"type": "integer"}, "x": {"x-kubernetes-int-or-string": true}, "l": {"type": "array", "items": {"type": "integer"}},
    }, "x-kubernetes-validations": [
        {"rule": "self.a == 1"},
        {"rule": "!has(self.x) || self.x > 1", "message": "must be more"},
    ]}));
    check(&schema, json!({}), None, &[r#"spec: Invalid value: "object": no such key: a evaluating rule: self.a == 1"#]);
    check(
        &schema,
        json!({"a": 1, "x": "s"}),
        None,
        &[
            r#"spec: Invalid value: "object": 'no such overload': call arguments did not match a supported operator, function or macro signature for rule: must be more"#,
        ],
    );
    let slow = of_spec(json!({"type": "array", "items": {"type": "integer"},
        "x-kubernetes-validations": rule("self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))")}));
    check(
        &slow,
        json!(vec![1; 200]),
        None,
        &[
            r#"spec: Invalid value: "array": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))"#,
        ],
    );
}

#[test]
fn transition_rules_compare_with_what_was() {
    let schema = of_spec(json!({
        "type": "object",
        "properties": {
            "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
            "once": {"type": "string", "x-kubernetes-validations": [
                {"rule": "!oldSelf.hasValue() || oldSelf.value() == self", "optionalOldSelf": true, "message": "set once"}]},
            "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
                "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "n": {"type": "integer"}},
                "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n", "message": "may only grow"}]}},
            "free": {"type": "string"},
        },
        "x-kubernetes-validations": [{"rule": "has(self.fixed) == has(oldSelf.fixed)", "message": "cannot appear"}],
    }));
    check(&schema, json!({"fixed": "a", "once": "x"}), None, &[]);
    check(&schema, json!({"fixed": "a", "free": "b"}), Some(json!({"fixed": "a"})), &[]);
    check(
        &schema,
        json!({"fixed": "b"}),
        Some(json!({"fixed": "a"})),
        &[r#"spec.fixed: Invalid value: "string": is immutable"#],
    );
    check(&schema, json!({"fixed": "b"}), Some(json!({})), &[r#"spec: Invalid value: "object": cannot appear"#]);
    check(
        &schema,
        json!({"once": "y"}),
        Some(json!({"once": "x"})),
        &[r#"spec.once: Invalid value: "string": set once"#],
    );
    check(
        &schema,
        json!({"items": [{"k": "new", "n": 0}, {"k": "a", "n": 1}]}),
        Some(json!({"items": [{"k": "a", "n": 2}]})),
        &[r#"spec.items[1]: Invalid value: "object": may only grow"#],
    );
}

#[test]
fn an_update_passes_rules_on_what_it_does_not_touch() {
    let schema = of_spec(json!({"type": "object", "properties": {
        "a": {"type": "string", "x-kubernetes-validations": rule("self == 'good'")}, "b": {"type": "string"},
    }}));
    check(&schema, json!({"a": "bad", "b": "new"}), Some(json!({"a": "bad"})), &[]);
    check(
        &schema,
        json!({"a": "worse"}),
        Some(json!({"a": "bad"})),
        &[r#"spec.a: Invalid value: "string": failed rule: self == 'good'"#],
    );
}

#[test]
fn metadata_of_whole_objects_is_visible() {
    let json = json!({"type": "object", "x-kubernetes-validations": [
        {"rule": "self.metadata.name.size() < 5", "message": "name is too long"}, {"rule": "self.kind == 'K'"}]});
    let schema = Schema::from_json(&json).unwrap();
    let object = |name: &str| json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": name, "labels": {}}});
    assert_eq!(schema.validate(&object("ok"), None), []);
    assert_eq!(
        schema.validate(&object("too-long"), None)[0].to_string(),
        r#"<nil>: Invalid value: "object": name is too long"#
    );
    let labels = json!({"type": "object", "x-kubernetes-validations": rule("self.metadata.labels.size() > 0")});
    assert!(Schema::from_json(&labels).unwrap_err()[0].detail.contains("undefined field 'labels'"));
}

#[test]
fn rules_that_do_not_compile_are_refused() {
    let with = |source: &str| {
        refused(json!({"type": "object", "properties": {
            "i": {"type": "integer"}, "s": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}},
            "open": {"x-kubernetes-preserve-unknown-fields": true},
        }, "x-kubernetes-validations": rule(source)}))
    };
    for (source, part) in [
        ("self.i >", "Syntax error"),
        ("self.nope == 1", "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope == 1\n | ....^"),
        ("self.open == 1", "undefined field 'open'"),
        ("nope == 1", "undeclared reference to 'nope' (in container '')"),
        ("self.i == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.i + self.s == 1", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("self.s.size(1) == 1", "ERROR: <input>:1:12: found no matching overload for 'size' applied to 'string.(int)'"),
        ("self.s.nope()", "undeclared reference to 'nope' (in container '')"),
        ("self.i", "cel expression must evaluate to a bool"),
        (
            "self.i.all(x, x)",
            "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("self.l.all(x, x)", "ERROR: <input>:1:15: expected type 'bool' but found 'string'"),
        ("self.s in ['a', 1]", "expected type 'string' but found 'int'"),
        ("math.greatest(1, 2) == 2", "undeclared reference to 'math' (in container '')"),
        (
            "self.i == 1 ? true : 'a'",
            "ERROR: <input>:1:13: found no matching overload for '_?_:_' applied to '(bool, bool, string)'",
        ),
        ("self.s.matches('(')", "invalid matches argument"),
        ("self.i.x == 1", "type 'int' does not support field selection"),
    ] {
        let text = with(source);
        assert!(text.starts_with("s.properties[spec].x-kubernetes-validations[0].rule: Invalid value: "), "{text}");
        assert!(text.contains(part), "{source}: {text}");
    }
    let uncorrelated = refused(
        json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": rule("self == oldSelf")}}),
    );
    assert_eq!(
        uncorrelated,
        r#"s.properties[spec].items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[spec]"#
    );
    let empty = refused(json!({"type": "string", "x-kubernetes-validations": [{"rule": " "}]}));
    assert_eq!(empty, "s.properties[spec].x-kubernetes-validations[0].rule: Required value: rule is not specified");
    let optional =
        refused(json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": true}]}));
    assert_eq!(
        optional,
        "s.properties[spec].x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
    );
    let default = refused(json!({"type": "integer", "default": 1, "x-kubernetes-validations": rule("self > 1")}));
    assert_eq!(default, r#"s.properties[spec].default: Invalid value: "integer": failed rule: self > 1"#);
}

#[test]
fn a_hostile_expression_ends_within_its_budget() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    let hold = |source: &str, steps: u64, stop: bool| {
        let expression = crate::Expression::compile_with(source, &["self"]).unwrap();
        let object = json!({"l": (0..1000).collect::<Vec<i32>>(), "s": "x".repeat(100_000)});
        let mut budget = crate::Budget::new(steps, Arc::new(AtomicBool::new(stop)));
        expression.holds_within(&[("self", &object)], &mut budget)
    };
    let digits = "[0,1,2,3,4,5,6,7,8,9]";
    let nested = |inner: &str| {
        let opened: String = (0..9).map(|level| format!("{digits}.all(v{level},")).collect();
        format!("{opened}{inner}{}", ")".repeat(9))
    };
    let doubled = |what: &str, end: &str| format!("[{what}]{}{end}", ".map(x, x + x)".repeat(30));
    let shared = format!("[[0]]{}.all(x, x == x)", ".map(x, [x, x])".repeat(30));
    let rows = [
        nested("true"),
        nested("self == self"),
        nested("self.s.size() > 0"),
        nested("self.s in self.l"),
        doubled("self.s", ".all(x, true)"),
        doubled("self.l", ".all(x, true)"),
        shared,
    ];
    for source in rows {
        assert!(source.len() < 700);
        let error = hold(&source, u64::MAX, false);
        assert_eq!(error, Err(crate::ConditionError::TooExpensive), "{source}");
    }
    assert_eq!(hold("self.l.all(x, x >= 0)", u64::MAX, false), Ok(true));
    assert_eq!(hold("self.l.all(x, x >= 0)", 100, false), Err(crate::ConditionError::TooExpensive), "the others' work");
    assert_eq!(hold("true", u64::MAX, true), Err(crate::ConditionError::TooExpensive), "it was stopped");
}
