//! What the Policies of a cluster demand of the runs in one Workspace.
//!
//! *Guarantees.* The result does not depend on the order of the Policies. Another Policy never allows more. A Policy that
//! cannot be read blocks every Workspace that it might match, and the message names it.

mod address;
mod check;
mod defaults;
mod demands;
mod image;
mod limits;
pub mod plan;
mod pods;
mod selector;
pub mod status;
mod windows;

use std::{collections::BTreeMap, fmt};

use knoll_api::{
    policy::{
        AllowRules, AllowedHooks, DefaultSettings, LimitRules, Policy, PolicySetting, ReviewFloor, ReviewRules,
        WindowRules,
    },
    run::Run,
    stack::{Stack, StackApproval},
    workspace::Workspace,
};
use kube::ResourceExt;

use crate::stack;
use plan::{Overriders, PlanDemand};

pub use defaults::{AtomAccount, Supplied, atom_account};
pub use demands::{Demands, demands};
pub use windows::{Closed, change};

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// The number of values that a message lists.
const LISTED: usize = 8;

/// The demands that hold for one Workspace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effective {
    /// The Policies that match, in the order of their names.
    rules: Vec<Matched>,
    /// The Policies that might match and cannot be read, in the order of their names.
    unreadable: Vec<Unreadable>,
}

#[derive(Clone, Debug, PartialEq)]
struct Matched {
    policy: String,
    review: ReviewRules,
    allow: AllowRules,
    limits: LimitRules,
    windows: WindowRules,
    plan: Option<PlanDemand>,
    defaults: Option<DefaultSettings>,
    /// What the operator found that cannot be read.
    fault: Option<String>,
}

/// A Policy that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unreadable {
    pub policy: String,
    /// The field, as far as it is known.
    pub field: String,
    pub why: String,
}

/// A demand that is not met.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The object that demands it, such as ``Policy `production` ``.
    pub from: String,
    /// The field of that object.
    pub field: String,
    /// What is not allowed, and what is.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not allow it ({}): {}", self.from, self.field, self.message)
    }
}

/// All violations in one message, each a sentence.
#[must_use]
pub fn message(violations: &[Violation]) -> String {
    let mut lines: Vec<String> = violations.iter().take(LISTED).map(ToString::to_string).collect();
    if violations.len() > LISTED {
        lines.push(format!("And {} more.", violations.len() - LISTED));
    }
    lines.join(" ")
}

/// Who has to approve a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reviewers {
    /// The number of different users, at least 1.
    pub approvers: u32,
    /// Each has to be met: the name of a Policy, and the groups of which an approver has to be in one.
    pub groups: Vec<(String, Vec<String>)>,
    /// The Policies by which the requester of a run may not approve it.
    pub four_eyes: Vec<String>,
    /// The Policies that deny the plan, and the groups that may override each.
    pub overriders: Overriders,
}

impl Reviewers {
    /// The number of different approvers that a run needs whose requester is known or not.
    #[must_use]
    pub fn needed(&self, requester: Option<&str>) -> u32 {
        let unknown = !self.four_eyes.is_empty() && requester.is_none();
        self.approvers.max(1).saturating_add(u32::from(unknown))
    }
}

/// The labels by which Policies select a Workspace: its own, and those of the Stack that owns it or is about to create it.
#[must_use]
pub fn labels(workspace: Option<&Workspace>, stack: Option<&Stack>) -> Labels {
    let mut labels = workspace.map(|workspace| workspace.labels().clone()).unwrap_or_default();
    let owner = stack.filter(|stack| workspace.is_none_or(|workspace| stack::is_owned(workspace, stack)));
    labels.extend(owner.map(|stack| stack.labels().clone()).unwrap_or_default());
    labels
}

/// Whether a Policy selects a namespace with these labels, or cannot be read.
#[must_use]
pub fn might_hold_in(policy: &Policy, namespace: &Labels) -> bool {
    selector::matches(policy.spec.namespace_selector.as_ref(), namespace).unwrap_or(true)
}

/// The demands of the Policies on a Workspace with these labels, in a namespace with those.
///
/// `undecodable` are the names of Policies of which nothing is known but the name.
#[must_use]
pub fn effective<'a>(
    policies: impl IntoIterator<Item = &'a Policy>,
    undecodable: impl IntoIterator<Item = &'a str>,
    namespace: &Labels,
    workspace: &Labels,
) -> Effective {
    let mut effective = Effective::default();
    for name in undecodable {
        effective.unreadable.push(Unreadable {
            policy: name.to_owned(),
            field: "spec".to_owned(),
            why: "it does not have the form that this version of Knoll reads".to_owned(),
        });
    }
    for policy in policies {
        let name = policy.name_any();
        let spec = &policy.spec;
        let selectors = [
            ("namespaceSelector", &spec.namespace_selector, namespace),
            ("workspaceSelector", &spec.workspace_selector, workspace),
        ];
        let mut faults = Vec::new();
        let mut matches = true;
        for (field, selector, labels) in selectors {
            match selector::matches(selector.as_ref(), labels) {
                Ok(selected) => matches &= selected,
                Err(why) => faults.push((format!("spec.{field}"), why)),
            }
        }
        if !matches {
            continue;
        }
        let allow = spec.allow.clone().unwrap_or_default();
        faults.extend(check::unreadable(&allow));
        let windows = spec.windows.clone().unwrap_or_default();
        faults.extend(windows::unreadable(&windows));
        let unreadable = |(field, why)| Unreadable { policy: name.clone(), field, why };
        effective.unreadable.extend(faults.into_iter().map(unreadable));
        effective.rules.push(Matched {
            review: spec.review.clone().unwrap_or_default(),
            allow,
            limits: spec.limits.clone().unwrap_or_default(),
            windows,
            plan: spec.plan.as_ref().map(PlanDemand::of),
            defaults: spec.defaults.clone(),
            fault: status::fault(policy.status.as_ref()).map(str::to_owned),
            policy: name.clone(),
        });
    }
    effective.rules.sort_by(|a, b| a.policy.cmp(&b.policy));
    effective.unreadable.sort();
    effective.unreadable.dedup();
    effective
}

impl Effective {
    /// The floor of the Policies, and the Policy that it comes from.
    #[must_use]
    pub fn floor(&self) -> (ReviewFloor, Option<&str>) {
        // Of several Policies with the same floor the first is named.
        let strictest = self.rules.iter().rev().max_by_key(|rule| rule.review.floor);
        match strictest {
            Some(rule) if rule.review.floor > ReviewFloor::Auto => (rule.review.floor, Some(&rule.policy)),
            _ => (ReviewFloor::Auto, None),
        }
    }

    /// Who has to approve a run.
    #[must_use]
    pub fn reviewers(&self) -> Reviewers {
        let groups = self.rules.iter().filter(|rule| !rule.review.groups.is_empty());
        let four_eyes = self.rules.iter().filter(|rule| rule.review.four_eyes);
        Reviewers {
            approvers: self.rules.iter().filter_map(|rule| rule.review.approvers).max().unwrap_or(1).max(1),
            groups: groups.map(|rule| (rule.policy.clone(), rule.review.groups.clone())).collect(),
            four_eyes: four_eyes.map(|rule| rule.policy.clone()).collect(),
            overriders: Overriders::new(),
        }
    }

    /// Who has to approve this run: its plan may be denied by rules.
    #[must_use]
    pub fn reviewers_of(&self, run: &Run) -> Reviewers {
        Reviewers { overriders: self.overriders(run), ..self.reviewers() }
    }

    /// The Policies that cannot be read and might match: nothing is allowed while there is one.
    #[must_use]
    pub fn blocking(&self) -> Vec<Violation> {
        let violation = |unreadable: &Unreadable| Violation {
            from: of_policy(&unreadable.policy),
            field: unreadable.field.clone(),
            message: format!(
                "the Policy cannot be read, so nothing that it might match is allowed until it is corrected: {}.",
                unreadable.why
            ),
        };
        self.unreadable.iter().map(violation).collect()
    }

    /// Everything that holds, for the status of the Workspace.
    #[must_use]
    pub fn settings(&self, workspace: &Workspace, stack: Option<&Stack>) -> Vec<PolicySetting> {
        let mut found = Vec::new();
        for unreadable in &self.unreadable {
            found.push(setting(
                &unreadable.field,
                format!("unreadable: {}", unreadable.why),
                "Policy",
                &unreadable.policy,
            ));
        }
        if let Some(stack) = stack.filter(|stack| stack.spec.approval != StackApproval::Auto) {
            let floor = ReviewFloor::from(stack.spec.approval);
            found.push(setting("review.floor", floor.as_str().to_owned(), "Stack", &stack.name_any()));
        }
        if !workspace.spec.privileged_commands.is_empty() {
            let commands = workspace.spec.privileged_commands.join(", ");
            found.push(setting("allow.privileged", commands, "Workspace", &workspace.name_any()));
        }
        for rule in &self.rules {
            found.extend(of_rule(rule));
            let is_listed = self.unreadable.iter().any(|unreadable| unreadable.policy == rule.policy);
            if let Some(fault) = rule.fault.as_ref().filter(|_| !is_listed) {
                found.push(setting("plan", format!("unreadable: {fault}"), "Policy", &rule.policy));
            }
        }
        found.sort();
        found
    }
}

fn of_policy(name: &str) -> String {
    format!("Policy `{name}`")
}

fn setting(field: &str, value: String, kind: &str, name: &str) -> PolicySetting {
    PolicySetting { setting: field.to_owned(), value: clip(value), from: format!("{kind}/{name}") }
}

/// The demands of one Policy, without those that demand nothing.
fn of_rule(rule: &Matched) -> Vec<PolicySetting> {
    // What a Policy supplies is no demand.
    let Matched { policy, review, allow, limits, windows, plan, defaults: _, fault: _ } = rule;
    let ReviewRules { floor, approvers, groups, four_eyes } = review;
    let AllowRules { sources, images, service_accounts, tools, pod, hooks, stack_override, privileged } = allow;
    let mut found = Vec::new();
    let mut note = |field: &str, value: String| found.push(setting(field, value, "Policy", policy));
    if *floor > ReviewFloor::Auto {
        note("review.floor", floor.as_str().to_owned());
    }
    if let Some(approvers) = approvers.filter(|approvers| *approvers > 1) {
        note("review.approvers", approvers.to_string());
    }
    if !groups.is_empty() {
        note("review.groups", groups.join(", "));
    }
    if *four_eyes {
        note("review.fourEyes", "true".to_owned());
    }
    if let Some(sources) = sources {
        if let Some(kinds) = &sources.kinds {
            note("allow.sources.kinds", list(kinds.iter().map(|kind| kind.as_str().to_owned())));
        }
        if let Some(hosts) = &sources.hosts {
            note("allow.sources.hosts", list(hosts.iter().flat_map(address::shown)));
        }
    }
    if let Some(images) = images {
        note("allow.images", list(images.iter().cloned()));
    }
    if let Some(accounts) = service_accounts {
        note("allow.serviceAccounts", list(accounts.iter().cloned()));
    }
    if let Some(tools) = tools {
        note("allow.tools", list(tools.iter().map(check::shown_tool)));
    }
    if let Some(pod) = pod {
        let parts = [(pod.host_path, "hostPath"), (pod.privileged, "privileged")];
        note("allow.pod", list(parts.iter().filter(|(allowed, _)| *allowed).map(|(_, name)| (*name).to_owned())));
    }
    if let Some(hooks) = hooks.filter(|hooks| *hooks > AllowedHooks::Any) {
        note("allow.hooks", hooks.as_str().to_owned());
    }
    if *stack_override == Some(false) {
        note("allow.stackOverride", "false".to_owned());
    }
    if let Some(privileged) = privileged {
        let operations = privileged.operations.iter().map(|operation| operation.as_str().to_owned());
        note("allow.privileged", list(operations.chain(privileged.commands.iter().cloned())));
    }
    limits::shown(limits, &mut note);
    windows::shown(windows, &mut note);
    if let Some(plan) = plan {
        note("plan", plan.shown());
    }
    found
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

/// A text that fits into a status, cut at a character.
fn clip(mut text: String) -> String {
    const MOST: usize = 1024;
    if text.len() > MOST {
        let end = (0..=MOST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// Values in backticks, at most [`LISTED`] of them.
fn quoted<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<&str> = items.into_iter().collect();
    let mut shown: Vec<String> =
        items.iter().take(LISTED).map(|item| format!("`{}`", clip((*item).to_owned()))).collect();
    if items.len() > LISTED {
        shown.push(format!("{} more", items.len() - LISTED));
    }
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }
}

#[cfg(test)]
mod tests;
