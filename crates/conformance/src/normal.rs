//! Makes responses comparable: server-specific values are replaced by names, and equal values by equal names.
//!
//! UIDs, versions, generated names and tokens are numbered in the order in which a scenario first sees them. An object
//! that keeps its version on one server and gets a new one on the other is therefore a difference. Current times become
//! `<time>` with the same number of digits; times written by a scenario are kept.

use std::collections::HashMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use regex::{Captures, Regex};
use serde_json::Value;

fn pattern(text: &'static str) -> Regex {
    // The patterns are constants, which the tests below compile.
    Regex::new(text).unwrap_or_else(|e| unreachable!("{e}"))
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"));
static TOKEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b\d+\b"));
static PEM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?s)-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----\n?"));
/// An object quoted in a message, in the field order of a Go struct.
static PATCHED: LazyLock<Regex> = LazyLock::new(|| pattern(r#"(?s)Invalid value: "(\{\\?".*\}|map\[.*\])": "#));
static QUOTED: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)Invalid value: ([\[{].*[\]}]): "));
/// A diff of Go structs.
static DIFF: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)\n@@ -\d+,\d+ \+\d+,\d+ @@\n.*"));
/// The generated name of the token volume that admission adds to every pod.
static ACCESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"kube-api-access-[a-z0-9]{5}\b"));
/// What stands before the bound of a schema in a message.
const BOUNDS: [&str; 5] = ["than or equal to ", "at least ", "at most ", "more than ", "longer than "];
/// The age of an object in a Table. One server may pass a second boundary that the other does not.
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d+s$"));
/// A group that another scenario defines, and that may appear or disappear.
static GROUP_OF_OTHERS: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[^.]+\.[^.]+\.conformance\.knoll\.dev$"));

/// The names that replace the values of one server in one scenario.
#[derive(Clone, Debug, Default)]
pub struct Names {
    uids: HashMap<String, String>,
    versions: HashMap<String, String>,
    generated: HashMap<String, String>,
    /// The prefixes of generated names.
    bases: Vec<Regex>,
    /// Server-specific texts, such as its issuer, and their replacements.
    own: Vec<(String, String)>,
}

impl Names {
    /// Replaces this text everywhere.
    pub fn own(&mut self, text: &str, name: &str) {
        self.own.push((text.to_owned(), name.to_owned()));
    }

    /// Declares a prefix of generated names, which end with five random characters.
    pub fn base(&mut self, base: &str) {
        let cut: String = base.chars().take(58).collect();
        if let Ok(form) = Regex::new(&format!("{}[bcdfghjklmnpqrstvwxz2456789]{{5}}\\b", regex::escape(&cut))) {
            self.bases.push(form);
        }
    }

    /// The comparable form of a value.
    pub fn normalize(&mut self, value: &Value) -> Value {
        self.learn(value);
        let mut out = value.clone();
        if let Some(body) = out.get_mut("body") {
            sort_causes(body);
        }
        self.value(&mut out, "", false);
        out
    }

    /// Finds generated names first, because they may occur before the field that declares them.
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                if let (Some(base), Some(name)) =
                    (map.get("generateName").and_then(Value::as_str), map.get("name").and_then(Value::as_str))
                    && name.starts_with(base)
                    && name.len() > base.len()
                {
                    let next = format!("{base}<generated-{}>", self.generated.len() + 1);
                    self.generated.entry(name.to_owned()).or_insert(next);
                }
                map.values().for_each(|v| self.learn(v));
            }
            Value::Array(items) => items.iter().for_each(|v| self.learn(v)),
            _ => {}
        }
    }

    fn value(&mut self, value: &mut Value, key: &str, in_list: bool) {
        if let Value::Array(rules) = value
            && matches!(key, "resourceRules" | "nonResourceRules")
        {
            // Roles are evaluated in no particular order.
            rules.sort_by_key(Value::to_string);
        }
        if let Value::Array(groups) = value
            && key == "groups"
        {
            groups.retain(|group| !group["name"].as_str().is_some_and(|name| GROUP_OF_OTHERS.is_match(name)));
        }
        match value {
            Value::Object(map) => {
                // The version of a list belongs to the server, and other clients advance it.
                let is_list = map.get("items").is_some_and(Value::is_array)
                    || map.get("kind").and_then(Value::as_str) == Some("Table")
                    || map.get("kind").and_then(Value::as_str).is_some_and(|k| k.ends_with("List"));
                let bookmark = map.get("type").and_then(Value::as_str) == Some("BOOKMARK");
                for (key, mut inner) in std::mem::take(map) {
                    self.value(&mut inner, &key, in_list || (is_list && key == "metadata"));
                    if bookmark && let Some(version) = inner.pointer_mut("/metadata/resourceVersion") {
                        *version = "<version>".into();
                    }
                    map.insert(self.text(&key), inner);
                }
            }
            Value::Array(items) => {
                items.iter_mut().for_each(|v| self.value(v, key, false));
                if key == "managedFields" {
                    // They are ordered by time, and one server may pass a second boundary that the other does not.
                    items.sort_by_key(Value::to_string);
                }
            }
            Value::String(text) => {
                let new = match key {
                    "resourceVersion" if in_list => "<version>".to_owned(),
                    "resourceVersion" => self.version(text),
                    "continue" if !text.is_empty() => "<continue>".to_owned(),
                    // The address by which clients of another network reach the server.
                    "serverAddress" => "<address>".to_owned(),
                    "cells" if AGE.is_match(text) => "<age>".to_owned(),
                    _ => self.text(text),
                };
                *text = new;
            }
            _ => {}
        }
    }

    fn version(&mut self, text: &str) -> String {
        if text.parse::<u64>().is_err() || text == "0" || text == "1" {
            return text.to_owned();
        }
        let next = format!("<version-{}>", self.versions.len() + 1);
        self.versions.entry(text.to_owned()).or_insert(next).clone()
    }

    fn text(&mut self, text: &str) -> String {
        let uids = &mut self.uids;
        // UIDs come first, because a part of one may look like a generated name.
        let mut out = UID
            .replace_all(text, |found: &Captures<'_>| {
                let next = format!("<uid-{}>", uids.len() + 1);
                uids.entry(found[0].to_owned()).or_insert(next).clone()
            })
            .into_owned();
        for (own, name) in &self.own {
            out = out.replace(own, name);
        }
        for (name, named) in &self.generated {
            out = out.replace(name, named);
        }
        for base in &self.bases {
            out = base.replace_all(&out, "<generated>").into_owned();
        }
        out = PATCHED.replace_all(&out, "Invalid value: \"<object>\": ").into_owned();
        out = QUOTED
            .replace_all(&out, |found: &Captures<'_>| {
                // Go structs are printed in the order of their fields.
                let sorted = serde_json::from_str::<Value>(&found[1]).map(|v| v.to_string());
                format!("Invalid value: {}: ", sorted.unwrap_or_else(|_| found[1].to_owned()))
            })
            .into_owned();
        out = DIFF.replace_all(&out, "").into_owned();
        out = TIME.replace_all(&out, |found: &Captures<'_>| time(found)).into_owned();
        out = TOKEN.replace_all(&out, "<token>").into_owned();
        out = PEM.replace_all(&out, "<certificate>").into_owned();
        out = ACCESS.replace_all(&out, "kube-api-access-<generated>").into_owned();
        let versions = &self.versions;
        NUMBER
            .replace_all(&out, |found: &Captures<'_>| {
                // Neither the code of a warning nor a bound of a schema is a version.
                let is_other = found.get(0).is_some_and(|number| {
                    let before = &out[..number.start()];
                    out[number.end()..].starts_with(" - \"") || BOUNDS.iter().any(|bound| before.ends_with(bound))
                });
                versions.get(&found[0]).filter(|_| !is_other).cloned().unwrap_or_else(|| found[0].to_owned())
            })
            .into_owned()
    }
}

/// Sorts causes. A real server checks the fields of an object in no particular order, and reports errors in that order.
fn sort_causes(status: &mut Value) {
    let Some(causes) = status.pointer("/details/causes").unwrap_or(&Value::Null).as_array().filter(|c| c.len() > 1)
    else {
        return;
    };
    let mut causes = causes.clone();
    let text = |cause: &Value| {
        let part = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", part("field"), part("message"))
    };
    let told = |causes: &[Value]| format!("[{}]", causes.iter().map(text).collect::<Vec<_>>().join(", "));
    let mut once: Vec<Value> = Vec::new();
    causes.iter().for_each(|cause| {
        if !once.contains(cause) {
            once.push(cause.clone())
        }
    });
    let before = told(&once);
    causes.sort_by_key(text);
    // Some fields are checked more than once; the message mentions them once.
    causes.dedup();
    if let Some(message) = status["message"].as_str().and_then(|m| m.strip_suffix(before.as_str())) {
        status["message"] = format!("{message}{}", told(&causes)).into();
    }
    status["details"]["causes"] = causes.into();
}

fn time(found: &Captures<'_>) -> String {
    let text = &found[0];
    let Ok(time) = text.parse::<Timestamp>() else { return text.to_owned() };
    let day = 24 * 3600;
    if (Timestamp::now().as_second() - time.as_second()).abs() > day {
        return text.to_owned();
    }
    match found.get(1) {
        Some(fraction) => format!("<time.{}>", fraction.len() - 1),
        None => "<time>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const A: &str = "6f2a7c1e-0000-4000-8000-00000000000a";
    const B: &str = "6f2a7c1e-0000-4000-8000-00000000000b";

    #[test]
    fn what_differs_is_named_consistently() {
        let mut names = Names::default();
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let first = names.normalize(&json!({"metadata": {
            "uid": A, "resourceVersion": "812", "creationTimestamp": now, "generateName": "x-", "name": "x-8kq2z",
        }}));
        assert_eq!(
            first,
            json!({"metadata": {
                "uid": "<uid-1>", "resourceVersion": "<version-1>", "creationTimestamp": "<time>", "generateName": "x-",
                "name": "x-<generated-1>",
            }})
        );
        let second = names.normalize(&json!({
            "message": format!("x-8kq2z has {A}, not {B}, at 812 of 7"), "lease": "2020-01-01T00:00:00.000000Z",
        }));
        assert_eq!(
            second,
            json!({
                "message": "x-<generated-1> has <uid-1>, not <uid-2>, at <version-1> of 7",
                "lease": "2020-01-01T00:00:00.000000Z",
            })
        );
    }

    #[test]
    fn a_part_of_a_uid_is_no_generated_name() {
        let mut names = Names::default();
        names.base("a7b");
        let uid = "a7bcd24f-0000-4000-8000-00000000000a";
        assert_eq!(
            names.normalize(&json!({"uid": uid, "name": "a7bcd24f"})),
            json!({"uid": "<uid-1>", "name": "<generated>"})
        );
    }

    #[test]
    fn the_version_of_a_list_is_not_that_of_an_object() {
        let mut names = Names::default();
        let list = names.normalize(&json!({
            "kind": "PodList", "metadata": {"resourceVersion": "99", "continue": "abc"}, "items": [{"metadata": {"resourceVersion": "7"}}],
        }));
        assert_eq!(list["metadata"], json!({"resourceVersion": "<version>", "continue": "<continue>"}));
        assert_eq!(list["items"][0]["metadata"]["resourceVersion"], "<version-1>");
    }

    #[test]
    fn neither_a_code_nor_a_bound_is_a_version() {
        let mut names = Names::default();
        names.normalize(&json!({"resourceVersion": "299"}));
        assert_eq!(names.normalize(&json!("299 - \"at 299\"")), "299 - \"at <version-1>\"");
        let bound = "x should be less than or equal to 299";
        assert_eq!(names.normalize(&json!(bound)), bound);
    }

    #[test]
    fn ages_addresses_and_groups_of_other_scenarios() {
        let mut names = Names::default();
        let table = names.normalize(&json!({"rows": [{"cells": ["a", "12s", 3]}]}));
        assert_eq!(table, json!({"rows": [{"cells": ["a", "<age>", 3]}]}));
        let groups = names.normalize(&json!({
            "groups": [{"name": "apps"}, {"name": "g1.run.conformance.knoll.dev"}, {"name": "run.conformance.knoll.dev"}],
            "serverAddress": "10.0.0.1:443",
        }));
        assert_eq!(
            groups,
            json!({"groups": [{"name": "apps"}, {"name": "run.conformance.knoll.dev"}], "serverAddress": "<address>"})
        );
    }

    #[test]
    fn causes_are_put_in_order() {
        let cause = |field: &str| json!({"field": field, "message": "bad"});
        let answer = |first: &str, second: &str| {
            json!({"body": {
                "message": format!("x is invalid: [{first}: bad, {second}: bad]"),
                "details": {"causes": [cause(first), cause(second)]},
            }})
        };
        let mut names = Names::default();
        assert_eq!(names.normalize(&answer("b", "a")), names.normalize(&answer("a", "b")));
    }

    #[test]
    fn tokens_certificates_and_own_texts() {
        let mut names = Names::default();
        names.own("https://a.example", "<issuer>");
        let text = names.normalize(&json!(["eyJhbGciOi.eyJhdWQi.sig_-x", "https://a.example/x"]));
        assert_eq!(text, json!(["<token>", "<issuer>/x"]));
        let pem = "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n";
        assert_eq!(names.normalize(&pem.into()), "<certificate>");
    }
}
