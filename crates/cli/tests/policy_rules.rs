//! `knoll policy test`: the rules of the examples, and what rules cost.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use knoll_api::Run;
use knoll_api::run::{Operation, RunSpec};
use knoll_core::policy;

/// Long enough for a busy machine; a process that evaluates rules has a limit of its own.
const RULES: usize = 200;
const CHANGES: usize = 5_000;

fn knoll(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_knoll"));
    command.args(words).current_dir(folder).env("HOME", folder).env_remove("KUBECONFIG").output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policy/rules")
}

#[test]
fn the_rules_of_the_examples_give_the_expected_verdicts() {
    let folder = tempfile::tempdir().unwrap();
    let cases = examples().join("tests");
    let output = knoll(folder.path(), &["policy", "test", cases.to_str().unwrap()]);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert_eq!(shown.lines().filter(|line| line.starts_with("ok ")).count(), 12, "{shown}");

    let (policy, plan) = (examples().join("databases.yaml"), cases.join("plans/database-replaced.json"));
    let words = ["policy", "test", "-f", policy.to_str().unwrap(), "--plan", plan.to_str().unwrap()];
    let output = knoll(folder.path(), &words);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(
        shown.contains("Deny") && shown.contains("no-destroy") && shown.contains("aws_db_instance.main"),
        "{shown}"
    );
}

/// Half past eleven on a Friday in Berlin is open, noon is not, and neither is Saturday; Monday at nine is open again.
#[test]
fn the_freeze_of_the_examples_begins_on_friday_at_noon() {
    let text = std::fs::read_to_string(examples().join("../windows.yaml")).unwrap();
    let found: knoll_api::Policy = serde_saphyr::from_str(&text).unwrap();
    let selected = BTreeMap::from([("env".to_owned(), "production".to_owned())]);
    let effective = policy::effective([&found], [], &selected, &BTreeMap::new());
    let run = Run::new("r", RunSpec { operation: Operation::Apply, ..RunSpec::default() });
    let closed = |time: &str| {
        let closed = effective.closed(&run, policy::change(&run, None).unwrap(), time.parse().unwrap());
        closed.map(|closed| closed.message).unwrap_or_default()
    };
    assert_eq!(closed("2026-11-20T10:30:00Z"), "");
    assert!(closed("2026-11-20T11:00:00Z").contains("on a Friday afternoon"), "{}", closed("2026-11-20T11:00:00Z"));
    assert!(closed("2026-11-21T11:00:00Z").contains("on a Friday afternoon"));
    assert_eq!(closed("2026-11-23T08:00:00Z"), "");
}

/// Each file of the examples is a Policy that Knoll reads, and whose packs and rules it can name.
#[test]
fn the_examples_are_policies() {
    let mut count = 0;
    for folder in [examples(), examples().join("..")] {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().extension().is_some_and(|ending| ending == "yaml") {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let found: Vec<knoll_api::Policy> = serde_saphyr::from_multiple(&text).unwrap();
                count += found.len();
            }
        }
    }
    assert!(count >= 9, "{count}");
}

#[test]
fn a_case_with_another_verdict_fails_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let policy = "apiVersion: knoll.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\nspec: {plan: {rules: [{name: r, action: Deny, find: 'changes', message: No.}]}}\n";
    std::fs::write(at("policy.yaml"), policy).unwrap();
    let plan =
        r#"{"format_version": "1.2", "resource_changes": [{"address": "a.b", "change": {"actions": ["create"]}}]}"#;
    std::fs::write(at("plan.json"), plan).unwrap();
    let cases = "- {name: first, policy: policy.yaml, plan: plan.json, expect: Pass}\n";
    std::fs::write(at("cases.yaml"), cases).unwrap();
    let output = knoll(folder.path(), &["policy", "test", "."]);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    for expect in ["FAILED", "first: Deny", "expected Pass", "Policy `p`, rule `r`, denies the plan: No. (`a.b`)"] {
        assert!(shown.contains(expect), "no `{expect}` in: {shown}");
    }
}

/// A plan of 5,000 changes with nested values, as terraform prints them.
fn large_plan() -> String {
    let mut plan = String::from(r#"{"format_version": "1.2", "resource_changes": ["#);
    for number in 0..CHANGES {
        let comma = if number == 0 { "" } else { "," };
        let tags = format!(r#"{{"team": "shop", "name": "bucket-{number}", "cost": "{}"}}"#, number % 17);
        let rules: Vec<String> = (0..6)
            .map(|rule| {
                format!(r#"{{"id": "rule-{rule}", "days": {rule}, "prefix": "logs/{number}/{rule}", "enabled": true}}"#)
            })
            .collect();
        let after = format!(
            r#"{{"bucket": "bucket-{number}", "acl": "private", "tags": {tags}, "lifecycle_rule": [{}]}}"#,
            rules.join(",")
        );
        let _ = write!(
            plan,
            r#"{comma}{{"address": "module.m[{}].aws_s3_bucket.b{number}", "mode": "managed", "type": "aws_s3_bucket", "name": "b{number}", "change": {{"actions": ["update"], "before": {after}, "after": {after}, "after_unknown": {{}}, "before_sensitive": {{}}, "after_sensitive": {{}}}}}}"#,
            number % 40
        );
    }
    plan + "]}"
}

/// Prints what 200 rules on 5,000 changes cost, in CEL and in Rego.
#[test]
fn two_hundred_rules_on_five_thousand_changes_are_within_the_limits() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let plan = large_plan();
    std::fs::write(at("plan.json"), &plan).unwrap();
    let head = "apiVersion: knoll.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\nspec:\n  plan:\n";
    let cel: String = (0..RULES)
        .map(|rule| {
            let find = format!("changes.filter(c, c.type == 'aws_s3_bucket' && 'update' in c.actions && c.after.tags.cost == '{rule}-')");
            format!("      - {{name: rule-{rule}, action: Deny, find: \"{find}\", message: No.}}\n")
        })
        .collect();
    std::fs::write(at("cel.yaml"), format!("{head}    rules:\n{cel}")).unwrap();
    let sets: String = (0..RULES)
        .map(|rule| {
            format!("          deny_{rule} contains change.address if {{\n            some change in input.resource_changes\n            change.change.after.tags.cost == \"{rule}-\"\n          }}\n")
        })
        .collect();
    let rego = format!("{head}    packs:\n      - name: pack\n        inline: |\n          package main\n{sets}");
    std::fs::write(at("rego.yaml"), rego).unwrap();
    for file in ["cel.yaml", "rego.yaml"] {
        let begin = Instant::now();
        let output = knoll(folder.path(), &["policy", "test", "-f", file, "--plan", "plan.json"]);
        let shown = text(&output);
        let took = begin.elapsed();
        println!("{file}: {RULES} rules on {CHANGES} changes ({} KiB of JSON): {took:.1?}", plan.len() >> 10);
        assert_eq!(output.status.code(), Some(0), "{file}: {shown}");
        assert!(shown.contains("no objection"), "{file}: {shown}");
    }
}
