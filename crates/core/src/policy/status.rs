//! The status of a Policy: whether each of its fields can be read. Pure.
//!
//! *Guarantee.* The conditions name each field of which [`super::effective`] or the evaluation of rules would say that it
//! cannot be read.

use std::{convert::Infallible, time::Duration};

use jiff::Timestamp;
use knoll_api::{
    names::{condition, reason},
    pod::PodSettings,
    policy::{PlanRules, Policy, PolicySpec, PolicyStatus, RulePack},
};

use super::{LISTED, Labels, check, clip, pods::HostAccess, selector, windows};
use crate::{
    conditions::{self, ConditionWriter, Truth},
    machine::Decision,
};

/// How long a pack that is missing is not looked for again.
const RETRY: Duration = Duration::from_secs(30);
/// How long a pack that was found outside of the Policy is not looked for again. It may be deleted meanwhile.
const AGAIN: Duration = Duration::from_secs(600);

/// A field of a Policy that cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFault {
    pub field: String,
    pub why: String,
}

/// What became of the check of a Policy's rules on plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedRules {
    pub at: Timestamp,
    /// The rules and packs that cannot be read until somebody corrects them.
    pub faults: Vec<FieldFault>,
    /// The packs that cannot be had now, or rules that could not be checked.
    pub missing: Vec<FieldFault>,
}

impl CheckedRules {
    /// When the rules have to be checked again, although the Policy is the same.
    #[must_use]
    pub fn due(&self, rules: &PlanRules) -> Option<Timestamp> {
        let wait = if !self.missing.is_empty() {
            RETRY
        } else if rules.packs.iter().any(is_elsewhere) {
            AGAIN
        } else {
            return None;
        };
        self.at.checked_add(wait).ok()
    }
}

fn is_elsewhere(pack: &RulePack) -> bool {
    pack.inline.is_none()
}

/// Whether a Policy has rules on plans that have to be compiled.
#[must_use]
pub fn has_rules(spec: &PolicySpec) -> bool {
    spec.plan.as_ref().is_some_and(|plan| !plan.rules.is_empty() || !plan.packs.is_empty())
}

/// Decides the status of a Policy. `rules` is what its rules on plans came to; `None` while they are being checked.
#[must_use]
pub fn decide(policy: &Policy, rules: Option<&CheckedRules>, now: Timestamp) -> Decision<PolicyStatus, Infallible> {
    let known = policy.status.clone().unwrap_or_default();
    let generation = policy.metadata.generation;
    let Some(rules) = rules else {
        let is_current = known.observed_generation == generation && !known.conditions.is_empty();
        return Decision::status(if is_current { known } else { progressing(known, generation, now) });
    };
    let blocking = unreadable(&policy.spec);
    let is_ready = blocking.is_empty() && rules.faults.is_empty() && rules.missing.is_empty();
    let has_to_be_corrected = !blocking.is_empty() || !rules.faults.is_empty();
    let why = match (is_ready, has_to_be_corrected) {
        (true, _) => reason::VALID,
        (false, true) => reason::INVALID_SPEC,
        (false, false) => reason::PACK_UNAVAILABLE,
    };
    let message = message(&blocking, rules);
    let mut next = known;
    next.observed_generation = generation;
    ConditionWriter::new(&mut next.conditions, generation, now)
        .set(condition::READY, is_ready, why, message.clone())
        .set(condition::STALLED, has_to_be_corrected, why, message);
    let due = policy.spec.plan.as_ref().and_then(|plan| rules.due(plan));
    // A check that is due goes on by now, and asks for the next decision when it ends.
    Decision::status(next).at(due.filter(|due| *due > now))
}

fn progressing(mut status: PolicyStatus, generation: Option<i64>, now: Timestamp) -> PolicyStatus {
    let message = "The rules on plans are being checked.";
    status.observed_generation = generation;
    ConditionWriter::new(&mut status.conditions, generation, now)
        .set(condition::READY, Truth::Unknown, reason::PROGRESSING, message)
        .set(condition::STALLED, false, reason::PROGRESSING, message);
    status
}

/// The fields because of which nothing is allowed that the Policy might match.
fn unreadable(spec: &PolicySpec) -> Vec<FieldFault> {
    let none = Labels::new();
    let selectors = [("namespaceSelector", &spec.namespace_selector), ("workspaceSelector", &spec.workspace_selector)];
    let selectors = selectors.into_iter().filter_map(|(field, selector)| {
        Some((format!("spec.{field}"), selector::matches(selector.as_ref(), &none).err()?))
    });
    let allow = spec.allow.iter().flat_map(check::unreadable);
    let windows = spec.windows.iter().flat_map(windows::unreadable);
    let pod = spec.defaults.iter().filter_map(|defaults| defaults.pod.as_ref());
    let affinity = |pod: &PodSettings| pod.affinity().err().map(|error| error.to_string());
    let pod = pod.flat_map(|pod| HostAccess::of(pod).unreadable.into_iter().chain(affinity(pod)));
    let pod = pod.map(|why| ("spec.defaults.pod".to_owned(), why));
    let all = selectors.chain(allow).chain(windows).chain(pod);
    all.map(|(field, why)| FieldFault { field, why }).collect()
}

fn message(blocking: &[FieldFault], rules: &CheckedRules) -> String {
    let all: Vec<&FieldFault> = blocking.iter().chain(&rules.faults).chain(&rules.missing).collect();
    if all.is_empty() {
        return "Every field can be read.".to_owned();
    }
    let shown = |fault: &&FieldFault| {
        let why = clip(fault.why.trim_end_matches('.').to_owned());
        format!("`{}`: {why}", fault.field)
    };
    let mut parts: Vec<String> = all.iter().take(LISTED).map(shown).collect();
    if all.len() > LISTED {
        parts.push(format!("and {} more", all.len() - LISTED));
    }
    let effect = if !blocking.is_empty() {
        "Until this is corrected, no run can start in the workspaces that the Policy might match."
    } else if !rules.faults.is_empty() {
        "Until this is corrected, no plan in the workspaces that the Policy matches is applied."
    } else {
        "Until then, no plan in the workspaces that the Policy matches is applied. It is tried again."
    };
    format!("{}. {effect}", parts.join("; "))
}

/// Whether the operator has found that a Policy of this status cannot be read, and what it said.
#[must_use]
pub fn fault(status: Option<&PolicyStatus>) -> Option<&str> {
    let ready = conditions::find(&status?.conditions, condition::READY)?;
    (ready.status == Truth::False.as_str()).then_some(ready.message.as_str())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};

    use knoll_api::{Workspace, WorkspaceSpec};

    use super::*;
    use crate::{machine::Next, policy::effective};

    fn policy(spec: Value) -> Policy {
        let policy = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Policy",
            "metadata": {"name": "p", "generation": 3}, "spec": spec});
        serde_json::from_value(policy).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The conditions Ready and Stalled, the reason and the message; and when the next decision is.
    fn decided(policy: &Policy, rules: Option<&CheckedRules>, now: i64) -> (String, PolicyStatus, Option<Timestamp>) {
        let Decision { next: Next::Status(status), requeue_at } = decide(policy, rules, at(now));
        let of = |type_: &str| conditions::find(&status.conditions, type_).unwrap().clone();
        let (ready, stalled) = (of(condition::READY), of(condition::STALLED));
        assert_eq!((&ready.message, ready.observed_generation), (&stalled.message, Some(3)));
        let text = format!("{} {} {}: {}", ready.status, stalled.status, ready.reason, ready.message);
        (text, status, requeue_at)
    }

    #[track_caller]
    fn check(spec: Value, rules: &CheckedRules, expect: &str) {
        let (text, ..) = decided(&policy(spec), Some(rules), 100);
        assert_eq!(text, expect);
    }

    fn fault_of(field: &str, why: &str) -> FieldFault {
        FieldFault { field: field.to_owned(), why: why.to_owned() }
    }

    #[test]
    fn each_field_that_cannot_be_read_is_named() {
        let fine = CheckedRules::default();
        check(json!({}), &fine, "True False Valid: Every field can be read.");
        check(
            json!({
                "namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "Is", "values": ["x"]}]},
                "allow": {"images": ["r.io/a", "r.io/*/x"]},
                "windows": {"open": [{"schedule": "0 25 * * *", "duration": "1h"}]},
            }),
            &CheckedRules { faults: vec![fault_of("spec.plan.rules[1]", "`find`: no.")], ..CheckedRules::default() },
            "False True InvalidSpec: `spec.namespaceSelector`: `Is` is not an operator; write In, NotIn, Exists or DoesNotExist; \
             `spec.allow.images[1]`: `*` is no part of a repository's name; \
             `spec.windows.open[0].schedule`: `25` is no hour: write numbers from 0 to 23, with `,`, `-`, `/` or `*`; \
             `spec.plan.rules[1]`: `find`: no. \
             Until this is corrected, no run can start in the workspaces that the Policy might match.",
        );
        check(
            json!({}),
            &CheckedRules { faults: vec![fault_of("spec.plan.packs[0]", "no")], ..CheckedRules::default() },
            "False True InvalidSpec: `spec.plan.packs[0]`: no. Until this is corrected, no plan in the workspaces that the Policy matches is applied.",
        );
        check(
            json!({}),
            &CheckedRules { missing: vec![fault_of("spec.plan.packs[0]", "gone")], ..CheckedRules::default() },
            "False False PackUnavailable: `spec.plan.packs[0]`: gone. Until then, no plan in the workspaces that the Policy matches is applied. It is tried again.",
        );
    }

    #[test]
    fn what_is_known_stays_while_the_rules_are_checked_and_an_equal_status_stays_equal() {
        let mut policy =
            policy(json!({"plan": {"rules": [{"name": "r", "action": "Deny", "find": "true", "message": "m"}]}}));
        let (text, first, _) = decided(&policy, None, 100);
        assert_eq!(text, "Unknown False Progressing: The rules on plans are being checked.");
        policy.status = Some(first);
        let checked = CheckedRules { at: at(101), ..CheckedRules::default() };
        let (text, ready, again) = decided(&policy, Some(&checked), 101);
        assert_eq!((text.as_str(), again), ("True False Valid: Every field can be read.", None));
        policy.status = Some(ready.clone());
        assert_eq!(decided(&policy, None, 200).1, ready, "a check of the same generation changes nothing");
        assert_eq!(decided(&policy, Some(&checked), 300).1, ready, "nothing is written again");
    }

    #[test]
    fn a_workspace_shows_the_rules_that_cannot_be_read() {
        let mut policy = policy(json!({"plan": {"packs": [{"name": "p", "inline": "package main"}]}}));
        let faults = vec![fault_of("spec.plan.packs[0]", "it has no set")];
        policy.status = Some(decided(&policy, Some(&CheckedRules { faults, ..CheckedRules::default() }), 1).1);
        let settings = || {
            let workspace = Workspace::new("w", WorkspaceSpec::default());
            let found = effective(&[policy.clone()], [], &Labels::new(), &Labels::new()).settings(&workspace, None);
            found.into_iter().map(|found| found.value).collect::<Vec<_>>()
        };
        let rows = settings();
        assert_eq!(rows[0], "1 rule");
        assert!(rows[1].starts_with("unreadable: `spec.plan.packs[0]`: it has no set. Until"), "{rows:?}");
        let mut readable = policy.clone();
        readable.status = Some(decided(&readable, Some(&CheckedRules::default()), 2).1);
        assert_eq!(fault(readable.status.as_ref()), None);
    }

    #[test]
    fn packs_from_elsewhere_are_checked_again() {
        let pack = |pack: Value| policy(json!({"plan": {"packs": [pack]}}));
        let outside = pack(json!({"name": "p", "git": {"url": "https://h/r", "commit": "0".repeat(40)}}));
        let inside = pack(json!({"name": "p", "inline": "package main"}));
        let found = CheckedRules { at: at(100), ..CheckedRules::default() };
        let missing = CheckedRules { missing: vec![fault_of("f", "w")], ..found.clone() };
        let next = |policy: &Policy, rules: &CheckedRules, now: i64| decided(policy, Some(rules), now).2;
        assert_eq!(next(&outside, &found, 100), Some(at(700)));
        assert_eq!(next(&outside, &missing, 100), Some(at(130)));
        assert_eq!(next(&inside, &found, 100), None);
        assert_eq!(next(&outside, &missing, 200), None, "a check that is due asks by itself");
    }
}
