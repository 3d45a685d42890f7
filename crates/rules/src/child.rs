//! The process that evaluates the rules of one Policy. It limits itself before it reads anything.
//!
//! Its input is a line of JSON with the rules, and the plan's JSON. Its output is a line of JSON for each [`Report`].

use std::io::{Read, Write};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::Value;

use crate::cel::{Compiled, Variables};
use crate::mask::Mask;
use crate::request::{Finding, Report, RuleSet};
use crate::{facts, files, process, rego};

/// The stack of the evaluation: expressions and documents nest to a limit that fits into it.
const STACK: usize = 64 << 20;
/// The longest message of a result. The text of a rule is shorter.
const LONGEST_MESSAGE: usize = 1024;
/// The longest address of a result.
const LONGEST_ADDRESS: usize = 512;
/// The most addresses of a result.
const MOST_ADDRESSES: usize = knoll_api::verdict::RuleResult::MAX_ADDRESSES;

/// Evaluates the rules on the standard input.
#[must_use]
pub fn main() -> ExitCode {
    let seconds = process::CPU_TIME.as_secs();
    let limits = [
        (Resource::Data, process::MEMORY),
        (Resource::Cpu, seconds),
        // A memory dump would have the values of the plan.
        (Resource::Core, 0),
        (Resource::Fsize, 0),
    ];
    for (resource, limit) in limits {
        if setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) }).is_err() {
            return ExitCode::FAILURE;
        }
    }
    let work = std::thread::Builder::new().name("rules".to_owned()).stack_size(STACK).spawn(|| {
        let mut input = Vec::new();
        std::io::stdin().lock().read_to_end(&mut input).map_err(|_| ())?;
        run(&input, &mut std::io::stdout().lock()).map_err(|_| ())
    });
    match work.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(()))) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Evaluates rules and writes the reports.
fn run(input: &[u8], out: &mut impl Write) -> std::io::Result<()> {
    let mut report = |report: Report| {
        let mut line = serde_json::to_vec(&report)?;
        line.push(b'\n');
        out.write_all(&line)?;
        out.flush()
    };
    let whole = |why: String| Report::Found(Finding::failure("", why));
    let (rules, plan) = input.split_at(input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len()));
    let Ok(mut set) = serde_json::from_slice::<RuleSet>(rules) else { return Ok(()) };
    for failed in files::take_cel(&mut set) {
        report(Report::Found(bounded(failed, &Mask::of(&Value::Null))))?;
    }
    let mut compiled = Vec::with_capacity(set.rules.len());
    for rule in &set.rules {
        report(Report::Begun(rule.name.clone()))?;
        compiled.push(Compiled::of(rule));
    }
    if set.is_check {
        return check(&set, &compiled, report);
    }
    let plan = plan.trim_ascii();
    // The parser's own message could have a value in it.
    let Ok(description) = serde_json::from_slice::<Value>(plan) else {
        report(whole("the plan's JSON cannot be read. Run it again".to_owned()))?;
        return report(Report::Done);
    };
    if let Err(why) = facts::check(&description) {
        report(whole(why))?;
        return report(Report::Done);
    }
    let mask = Mask::of(&description);
    let variables = Variables::new(&description, &set);
    for rule in &compiled {
        report(Report::Begun(rule.name().to_owned()))?;
        if let Some(found) = variables.apply(rule) {
            report(Report::Found(bounded(found, &mask)))?;
        }
    }
    drop(variables);
    drop(description);
    let text = std::str::from_utf8(plan).unwrap_or_default();
    for pack in &set.packs {
        report(Report::Begun(pack.name.clone()))?;
        for found in rego::apply(pack, text) {
            report(Report::Found(bounded(found, &mask)))?;
        }
    }
    report(Report::Done)
}

/// Reports the rules and packs that cannot be read. There is no plan.
fn check(
    set: &RuleSet,
    compiled: &[Compiled<'_>],
    mut report: impl FnMut(Report) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let without = Mask::of(&Value::Null);
    for finding in compiled.iter().flat_map(Compiled::unreadable) {
        report(Report::Found(bounded(finding, &without)))?;
    }
    for pack in &set.packs {
        report(Report::Begun(pack.name.clone()))?;
        if let Some(finding) = rego::unreadable(pack) {
            report(Report::Found(bounded(finding, &without)))?;
        }
    }
    report(Report::Done)
}

/// A finding without sensitive values, and within the limits of a status.
fn bounded(found: Finding, mask: &Mask) -> Finding {
    let Finding { rule, action, message, mut addresses, failed, .. } = found;
    let omitted = u32::try_from(addresses.len().saturating_sub(MOST_ADDRESSES)).unwrap_or(u32::MAX);
    addresses.truncate(MOST_ADDRESSES);
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    Finding {
        rule,
        action,
        message: clip(one_line(&mask.apply(&message)), LONGEST_MESSAGE),
        addresses: addresses.iter().map(|address| clip(one_line(&mask.apply(address)), LONGEST_ADDRESS)).collect(),
        omitted,
        failed,
    }
}

fn clip(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use knoll_api::policy::{PlanRule, RuleAction, RulePack};
    use serde_json::json;

    use super::*;
    use crate::request::Pack;

    fn reports(set: &RuleSet, plan: &str) -> Vec<Report> {
        let mut input = serde_json::to_vec(set).unwrap();
        input.push(b'\n');
        input.extend(plan.as_bytes());
        let mut out = Vec::new();
        run(&input, &mut out).unwrap();
        out.split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    #[test]
    fn each_rule_is_announced_and_no_message_has_a_sensitive_value() {
        let rule = PlanRule {
            name: "leak".into(),
            action: RuleAction::Warn,
            find: "changes".into(),
            message: "m".into(),
            message_expression: Some("'it is ' + changes[0].after.password".into()),
        };
        let text = "package main\ndeny contains msg if {\n msg := sprintf(\"%v\", [input.resource_changes[0].change.after])\n}";
        let named = RulePack { name: "pack".into(), ..RulePack::default() };
        let pack = Pack::of(&named, text.to_owned());
        let set = RuleSet { rules: vec![rule], packs: vec![pack], ..RuleSet::default() };
        let plan = json!({"format_version": "1.2", "resource_changes": [{"address": "a.b", "change": {
            "actions": ["create"], "after": {"password": "hunter2"}, "after_sensitive": {"password": true}}}]});
        let found = reports(&set, &plan.to_string());
        let text = serde_json::to_string(&found).unwrap();
        assert!(!text.contains("hunter2") && text.contains("it is (sensitive)"), "{text}");
        let begun: Vec<_> = found
            .iter()
            .filter_map(|report| if let Report::Begun(name) = report { Some(name.as_str()) } else { None })
            .collect();
        assert_eq!(begun, ["leak", "leak", "pack"]);
        assert_eq!((found.len(), found.last()), (6, Some(&Report::Done)));
    }

    #[test]
    fn a_check_needs_no_plan_and_finds_what_cannot_be_read() {
        let rule = |name: &str, find: &str, message: Option<&str>| PlanRule {
            name: name.into(),
            find: find.into(),
            message_expression: message.map(Into::into),
            ..PlanRule::default()
        };
        let pack =
            |name: &str, text: &str| Pack::of(&RulePack { name: name.into(), ..RulePack::default() }, text.to_owned());
        let set = RuleSet {
            rules: vec![
                rule("good", "changes.filter(c, 'delete' in c.actions)", Some("'n: ' + string(found.size())")),
                rule("broken", "changes.filter(c,", None),
                rule("unknown", "resources.size() > 0", None),
                rule("text", "true", Some("'a' +")),
            ],
            packs: vec![
                pack(
                    "fine",
                    "package main\ndeny contains \"no\" if input.resource_changes[_].change.actions[_] == \"delete\"",
                ),
                pack("brace", "package main\ndeny contains \"no\" if {"),
                pack("function", "package main\ndeny contains msg if { msg := nosuchfunction(input) }"),
                pack("empty", "package main\nallow := true"),
            ],
            is_check: true,
            ..RuleSet::default()
        };
        let all = reports(&set, "");
        assert_eq!(all.last(), Some(&Report::Done));
        let failed = all.into_iter().filter_map(|report| match report {
            Report::Found(finding) => Some((finding.rule, finding.failed)),
            _ => None,
        });
        let found: Vec<_> = failed.collect();
        let expect = ["broken", "unknown", "text", "brace", "function", "empty"];
        assert_eq!(found, expect.map(|name| (name.to_owned(), true)));
    }

    #[test]
    fn what_is_no_plan_fails_the_policy() {
        for plan in ["", "{", "{}", "[]", "{\"format_version\": \"9\"}"] {
            let found = reports(&RuleSet::default(), plan);
            assert!(
                matches!(found.as_slice(), [Report::Found(Finding { failed: true, .. }), Report::Done]),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_result_fits_into_a_status() {
        let rule =
            PlanRule {
                name: "all".into(), find: "plan.names".into(), message: "é".repeat(600), ..PlanRule::default()
            };
        let names: Vec<String> = (0..100).map(|n| format!("a.b{n}{}", "x".repeat(600))).collect();
        let plan = json!({"format_version": "1.0", "names": names});
        let found = reports(&RuleSet { rules: vec![rule], ..RuleSet::default() }, &plan.to_string());
        let Some(Report::Found(found)) = found.get(2) else { panic!("{found:?}") };
        assert_eq!((found.addresses.len(), found.omitted), (16, 84));
        assert!(found.message.len() <= 1030 && found.addresses[0].len() <= 520);
    }
}
