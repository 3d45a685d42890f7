#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn labels(text: &str) -> BTreeMap<String, String> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn label_selectors_match_as_in_kubernetes() {
    let rows = [
        ("", "a=b", true),
        ("a=b", "a=b", true),
        ("a==b", "a=b", true),
        ("a=b", "a=c", false),
        ("a=b", "", false),
        ("a!=b", "a=c", true),
        ("a!=b", "", true),
        ("a!=b", "a=b", false),
        ("a in (b,c)", "a=c", true),
        ("a in (b,c)", "a=d", false),
        ("a in (b,c)", "", false),
        ("a notin (b, c)", "", true),
        ("a notin (b, c)", "a=c", false),
        ("a", "a=", true),
        ("a", "b=", false),
        ("!a", "b=", true),
        ("!a", "a=x", false),
        ("a>1", "a=2", true),
        ("a>1", "a=1", false),
        ("a<1", "a=0", true),
        ("a<1", "a=x", false),
        ("a=", "a=", true),
        ("a in ()", "a=", true),
        ("a in (,b)", "a=", true),
        ("a in (b,)", "a=", true),
        ("a in (b,,c)", "a=", true),
        ("in in (in)", "in=in", true),
        ("notin notin (notin)", "notin=x", true),
        (" a = b , c ", "a=b,c=", true),
        ("example.com/a=b", "example.com/a=b", true),
        ("a=b,c!=d,e in (x,y),!f,g,h notin (z)", "a=b,e=y,g=1", true),
    ];
    for (selector, against, expect) in rows {
        assert_eq!(
            LabelSelector::parse(selector).unwrap().matches(&labels(against)),
            expect,
            "{selector} on {against}"
        );
    }
}

#[test]
fn unreadable_label_selectors_are_explained_as_in_kubernetes() {
    let name = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let rows = [
        ("a=b,", "found '', expected: identifier after ','".to_owned()),
        ("(", "found '(', expected: !, identifier, or 'end of string'".to_owned()),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
        ("a in b", "unable to parse requirement: found 'b' expected: '('".to_owned()),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
        ("a=b c", "found 'c', expected: ',' or 'end of string'".to_owned()),
        ("!", "unable to parse requirement: found '', expected: identifier".to_owned()),
        ("a>b", "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer".to_owned()),
        ("-a", format!("unable to parse requirement: <nil>: Invalid value: \"-a\": {name}")),
        ("/a", "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty".to_owned()),
    ];
    for (selector, expect) in rows {
        assert_eq!(LabelSelector::parse(selector).unwrap_err().to_string(), expect, "{selector}");
    }
}

#[test]
fn field_selectors_match_fields_of_objects() {
    let object = json!({"metadata": {"name": "x"}, "spec": {"unschedulable": true, "odd": "a,b=c"}, "status": {"phase": "Running"}});
    let rows = [
        ("", true),
        ("metadata.name=x", true),
        ("metadata.name==x", true),
        ("metadata.name!=x", false),
        ("metadata.name=x,status.phase!=Running", false),
        ("status.reason=", true),
        ("spec.unschedulable=true", true),
        (r"spec.odd=a\,b\=c", true),
        (",metadata.name=x,", true),
    ];
    for (selector, expect) in rows {
        assert_eq!(FieldSelector::parse(selector).unwrap().selects(&object), expect, "{selector}");
    }
    assert_eq!(FieldSelector::parse("metadata.name=x,a!=b").unwrap().exact("metadata.name"), Some("x"));
}

#[test]
fn unreadable_field_selectors_are_explained_as_in_kubernetes() {
    let rows = [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("b=c,a!b", "invalid selector: 'b=c,a!b'; can't understand 'a!b'"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
    ];
    for (selector, expect) in rows {
        assert_eq!(FieldSelector::parse(selector).unwrap_err().to_string(), expect, "{selector}");
    }
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let key = "([a-z]{1,3}\\.[a-z]{1,3}/)?[a-zA-Z][a-z0-9]{0,4}";
    let operator = prop::sample::select(vec![
        Operator::Equals,
        Operator::DoubleEquals,
        Operator::NotEquals,
        Operator::In,
        Operator::NotIn,
        Operator::Exists,
        Operator::DoesNotExist,
        Operator::GreaterThan,
        Operator::LessThan,
    ]);
    (key, operator, prop::collection::vec("([a-z0-9]{0,4}|in|notin)", 1..4), any::<i64>()).prop_map(
        |(key, operator, values, number)| {
            let values = match operator {
                Operator::In | Operator::NotIn => values,
                Operator::Exists | Operator::DoesNotExist => Vec::new(),
                Operator::GreaterThan | Operator::LessThan => {
                    vec![number.unsigned_abs().min(i64::MAX as u64).to_string()]
                }
                _ => values[..1].to_vec(),
            };
            Requirement::new(&key, operator, values).unwrap()
        },
    )
}

proptest! {
    #[test]
    fn printed_label_selectors_are_read_back(requirements in prop::collection::vec(requirement(), 0..5)) {
        let mut selector = LabelSelector { requirements };
        selector.requirements.sort_by(|a, b| a.key.cmp(&b.key));
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn in_is_any_of_the_equals(values in prop::collection::vec("[a-c]{0,2}", 1..4), value in prop::option::of("[a-c]{0,2}")) {
        let labels: BTreeMap<_, _> = value.into_iter().map(|value| ("k".to_owned(), value)).collect();
        let any = values.iter().any(|value| LabelSelector::parse(&format!("k={value}")).unwrap().matches(&labels));
        let listed = values.join(",");
        prop_assert_eq!(LabelSelector::parse(&format!("k in ({listed})")).unwrap().matches(&labels), any);
        prop_assert_eq!(LabelSelector::parse(&format!("k notin ({listed})")).unwrap().matches(&labels), !any);
    }

    #[test]
    fn printed_field_selectors_are_read_back(terms in prop::collection::vec(("[a-z.]{1,5}", any::<bool>(), "\\PC{0,6}"), 0..4)) {
        let mut requirements: Vec<_> =
            terms.into_iter().map(|(field, equals, value)| FieldRequirement { field, equals, value }).collect();
        let selector = FieldSelector::parse(&requirements.iter().map(|one| {
            let sign = if one.equals { "=" } else { "!=" };
            let value = one.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            format!("{}{sign}{value}", one.field)
        }).collect::<Vec<_>>().join(",")).unwrap();
        prop_assert_eq!(&FieldSelector::parse(&selector.to_string()).unwrap(), &selector);
        requirements.sort_by(|a, b| (&a.field, a.equals, &a.value).cmp(&(&b.field, b.equals, &b.value)));
        let mut read = selector.requirements().to_vec();
        read.sort_by(|a, b| (&a.field, a.equals, &a.value).cmp(&(&b.field, b.equals, &b.value)));
        prop_assert_eq!(read, requirements);
    }

    #[test]
    fn no_text_breaks_the_parsers(text in "\\PC{0,30}|[a-c=!<>(),\\\\ ]{0,20}") {
        let _ = LabelSelector::parse(&text);
        let _ = FieldSelector::parse(&text);
    }
}
