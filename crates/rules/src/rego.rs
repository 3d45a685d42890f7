//! Packs of rules in Rego, as Conftest reads them.
//!
//! A pack's sets `deny`, `violation`, `require_approval` and `warn` count, also with a suffix (`deny_tags`), of any package
//! or of those that the Policy names. Errors of builtin functions leave an expression without a value, as OPA does it.

use std::collections::BTreeSet;

use knoll_api::policy::RuleAction;
use regorus::{Engine, Value};

use crate::request::{Finding, Pack};

/// The most results of one set that are reported one by one.
const MOST: usize = 200;

/// The sets and what their elements mean.
const SETS: [(&str, RuleAction); 4] = [
    ("deny", RuleAction::Deny),
    ("violation", RuleAction::Deny),
    ("require_approval", RuleAction::RequireApproval),
    ("warn", RuleAction::Warn),
];

/// The objections of a pack. `input` is the plan's JSON.
pub fn apply(pack: &Pack, input: &str) -> Vec<Finding> {
    evaluate(pack, input).unwrap_or_else(|why| vec![Finding::failure(&pack.name, why)])
}

/// A plan without changes: what is wrong with a pack itself is wrong with this plan, too.
const NO_CHANGES: &str = r#"{"format_version": "1.2", "resource_changes": []}"#;

/// Why the pack cannot be read, if it cannot.
pub fn unreadable(pack: &Pack) -> Option<Finding> {
    evaluate(pack, NO_CHANGES).err().map(|why| Finding::failure(&pack.name, why))
}

fn evaluate(pack: &Pack, input: &str) -> Result<Vec<Finding>, String> {
    let mut engine = read(pack)?;
    let input = Value::from_json_str(input).map_err(|_| "the plan's JSON cannot be read as input".to_owned())?;
    engine.set_input(input);
    engine.set_strict_builtin_errors(false);
    let packages: BTreeSet<String> = engine.get_packages().map_err(|error| first(&error))?.into_iter().collect();
    let wanted: Vec<String> = match pack.packages.as_slice() {
        [] => packages.into_iter().collect(),
        named => {
            let named: Vec<String> = named.iter().map(|name| format!("data.{name}")).collect();
            if let Some(missing) = named.iter().find(|name| !packages.contains(*name)) {
                let missing = missing.trim_start_matches("data.");
                return Err(format!("it has no package `{missing}`; correct `packages` of the pack"));
            }
            named
        }
    };
    let sets = sets(pack.files.values());
    if sets.is_empty() {
        return Err("it has no set deny, violation, require_approval or warn, so it judges nothing".to_owned());
    }
    let mut found = Vec::new();
    for package in &wanted {
        for (set, action) in &sets {
            let rule = format!("{}/{}.{set}", pack.name, package.trim_start_matches("data."));
            let results = engine.eval_query(format!("{package}.{set}"), false).map_err(|error| first(&error))?;
            let values =
                results.result.iter().flat_map(|result| &result.expressions).map(|expression| &expression.value);
            for value in values {
                found.extend(elements(value).map(|element| finding(&rule, *action, element)));
            }
            let more = found.len().saturating_sub(MOST);
            if more > 0 {
                found.truncate(MOST);
                let message = format!("It has {more} more results.");
                found.push(Finding { rule, action: *action, message, ..Finding::default() });
            }
        }
    }
    Ok(found)
}

/// The engine with the pack, as Rego v1 or else as v0.
fn read(pack: &Pack) -> Result<Engine, String> {
    let mut reasons = Vec::new();
    for is_v0 in [false, true] {
        let mut engine = Engine::new();
        engine.set_rego_v0(is_v0);
        let mut files = pack.files.iter();
        match files.try_for_each(|(name, text)| engine.add_policy(name.clone(), text.clone()).map(drop)) {
            Ok(()) => return Ok(engine),
            Err(error) => reasons.push(format!("as Rego v{}: {}", u8::from(!is_v0), first(&error))),
        }
    }
    Err(format!("it cannot be read {}", reasons.join("; ")))
}

/// The sets that the texts name, wherever they do: a name that is no set of a package has no value.
fn sets<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<(String, RuleAction)> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let names: BTreeSet<&str> = texts.flat_map(|text| text.split(|c: char| !is_name(c))).collect();
    let action = |name: &str| {
        let of = SETS
            .iter()
            .find(|(set, _)| name.strip_prefix(set).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')));
        of.map(|(_, action)| *action)
    };
    names.into_iter().filter_map(|name| Some((name.to_owned(), action(name)?))).collect()
}

/// The elements of a set or an array; a single value stands for itself, `false` and no value for none.
fn elements(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Set(set) => Box::new(set.iter()),
        Value::Array(items) => Box::new(items.iter()),
        // A partial object: its keys are the messages.
        Value::Object(fields) if !fields.contains_key(&Value::from("msg")) => Box::new(fields.keys()),
        Value::Undefined | Value::Null | Value::Bool(false) => Box::new(std::iter::empty()),
        value => Box::new(std::iter::once(value)),
    }
}

fn finding(rule: &str, action: RuleAction, element: &Value) -> Finding {
    let field = |name: &str| element.as_object().ok().and_then(|fields| fields.get(&Value::from(name)));
    let text = |value: &Value| value.as_string().ok().map(|text| text.to_string());
    let message = match element {
        Value::String(text) => text.to_string(),
        Value::Bool(true) => "The rule objects to the plan and has no message.".to_owned(),
        _ => {
            let named = ["msg", "message"].into_iter().find_map(|name| text(field(name)?));
            named.unwrap_or_else(|| element.to_string())
        }
    };
    let mut addresses: Vec<String> =
        ["address", "resource"].into_iter().filter_map(|name| text(field(name)?)).collect();
    addresses.truncate(1);
    if let Some(Value::Array(items)) = field("addresses") {
        addresses.extend(items.iter().filter_map(text));
    }
    Finding { rule: rule.to_owned(), action, message, addresses, omitted: 0, failed: false }
}

/// The message of an error on one line.
fn first(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('|')).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const INPUT: &str = r#"{"resource_changes": [
        {"address": "aws_s3_bucket.a", "type": "aws_s3_bucket", "change": {"actions": ["create"], "after": {"tags": {"team": "x"}}}},
        {"address": "aws_s3_bucket.b", "type": "aws_s3_bucket", "change": {"actions": ["create"], "after": {"size": "big"}}}]}"#;

    #[track_caller]
    fn check(text: &str, expect: &[(&str, RuleAction, &str, &[&str])]) {
        let pack = Pack { name: "p".into(), files: BTreeMap::from([("p.rego".into(), text.into())]), packages: vec![] };
        let found = apply(&pack, INPUT);
        let rows: Vec<_> = found
            .iter()
            .map(|found| (found.rule.as_str(), found.action, found.message.as_str(), found.addresses.clone()))
            .collect();
        let expect: Vec<_> = expect
            .iter()
            .map(|(rule, action, message, at)| {
                (*rule, *action, *message, at.iter().map(|at| (*at).to_owned()).collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(rows, expect, "{found:?}");
        assert!(found.iter().all(|found| !found.failed));
    }

    #[test]
    fn a_pack_of_rego_v1_has_the_sets_of_conftest() {
        let text = r#"package main
deny contains msg if {
  some change in input.resource_changes
  not change.change.after.tags.team
  msg := sprintf("%s has no tag team", [change.address])
}
warn_size contains {"msg": "big", "address": change.address} if {
  some change in input.resource_changes
  change.change.after.size == "big"
}
require_approval contains "two buckets" if count(input.resource_changes) == 2
"#;
        check(
            text,
            &[
                ("p/main.deny", RuleAction::Deny, "aws_s3_bucket.b has no tag team", &[]),
                ("p/main.require_approval", RuleAction::RequireApproval, "two buckets", &[]),
                ("p/main.warn_size", RuleAction::Warn, "big", &["aws_s3_bucket.b"]),
            ],
        );
    }

    #[test]
    fn a_pack_of_rego_v0_is_read_too() {
        let text = r#"package terraform.tags
violation[{"msg": msg, "resource": change.address}] {
  change := input.resource_changes[_]
  not change.change.after.tags
  msg := "no tags"
}
deny[msg] { input.nothing == 1; msg := "never" }
deny[msg] { to_number(input.resource_changes[1].change.after.size) > 1; msg := "no number" }
"#;
        check(text, &[("p/terraform.tags.violation", RuleAction::Deny, "no tags", &["aws_s3_bucket.b"])]);
    }

    #[test]
    fn files_of_a_pack_use_each_other() {
        let files = [
            (
                "lib/tags.rego",
                "package lib.tags\nkinds := {\"aws_s3_bucket\"}\nhas_team(change) if change.change.after.tags.team",
            ),
            (
                "main.rego",
                "package main\nimport data.lib.tags\ndeny contains change.address if {\n some change in input.resource_changes\n change.type in tags.kinds\n not data.lib.tags.has_team(change)\n}",
            ),
        ];
        let files = files.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        let found = apply(&Pack { name: "p".into(), files, packages: vec![] }, INPUT);
        let rows: Vec<_> = found.iter().map(|found| (found.rule.as_str(), found.message.as_str())).collect();
        assert_eq!(rows, [("p/main.deny", "aws_s3_bucket.b")], "{found:?}");
    }

    #[test]
    fn a_pack_that_cannot_be_evaluated_fails() {
        let why = |text: &str, packages: &[&str]| {
            let packages = packages.iter().map(|name| (*name).to_owned()).collect();
            let found = apply(
                &Pack { name: "p".into(), files: BTreeMap::from([("p.rego".into(), text.into())]), packages },
                INPUT,
            );
            assert!(found.len() == 1 && found[0].failed && found[0].rule == "p", "{found:?}");
            found[0].message.clone()
        };
        assert!(why("package main\ndeny contains", &[]).contains("it cannot be read as Rego v1"));
        assert!(why("package main\nallow := true", &[]).contains("it judges nothing"));
        assert!(why("package main\ndeny := true", &["other"]).contains("it has no package `other`"));
        assert!(!why("package main\nimport rego.v1\ndeny contains http.send({}) if true", &[]).is_empty());
    }
}
