//! What the plan rules of Policies mean for a Run: whether its plan is judged, and what follows from the verdict.
//!
//! *Guarantees.* A plan that rules hold for is not applied without a verdict on exactly that plan, by exactly the rules of
//! the moment in which it is approved. The rules themselves are evaluated elsewhere: a verdict is a fact here.

use std::collections::BTreeMap;

use knoll_api::{
    names::reason,
    policy::{PlanRules, RuleAction},
    run::{Operation, Run, RunPhase, RunSpec, RunStatus},
    verdict::{IsolatedPlan, PlanVerdict, RuleResult},
};
use sha2::{Digest as _, Sha256};

use super::{Demands, Effective, LISTED, Matched, Violation, of_policy};
use crate::{status::Cause, steps};

/// The plan rules of one Policy, as far as decisions need them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlanDemand {
    /// Stands for the content of the rules.
    digest: String,
    /// The number of rules and packs.
    count: usize,
    /// Whether a rule may do more than warn.
    binds: bool,
    /// The groups that may override a denial.
    overrides: Vec<String>,
    /// How the plan is described in a pod of its own, if the Policy demands it.
    isolated: Option<IsolatedPlan>,
}

impl PlanDemand {
    pub fn of(rules: &PlanRules) -> Self {
        // A digest of rules that have none is one that no verdict names.
        let text = serde_json::to_vec(rules).unwrap_or_default();
        Self {
            digest: knoll_api::Digest::of(&text).into(),
            count: rules.rules.len() + rules.packs.len(),
            binds: !rules.packs.is_empty() || rules.rules.iter().any(|rule| rule.action > RuleAction::Warn),
            overrides: rules.overrides.iter().flat_map(|overrides| overrides.groups.clone()).collect(),
            isolated: rules.isolated.then(|| IsolatedPlan { image: rules.image.clone(), mirror: rules.mirror.clone() }),
        }
    }

    /// What holds, for the status of a Workspace.
    pub fn shown(&self) -> String {
        let Self { count, overrides, isolated, .. } = self;
        let plural = if *count == 1 { "" } else { "s" };
        let by = if overrides.is_empty() { String::new() } else { format!("; override by {}", overrides.join(", ")) };
        let isolated = if isolated.is_some() { "; isolated" } else { "" };
        format!("{count} rule{plural}{isolated}{by}")
    }
}

/// The groups that may override the denials of Policies, by the name of the Policy.
pub type Overriders = BTreeMap<String, Vec<String>>;

impl Effective {
    /// The names of the Policies with rules on plans, in their order.
    pub fn judges(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter(|rule| rule.plan.is_some()).map(|rule| rule.policy.as_str())
    }

    /// The first Policy with a rule that may do more than warn.
    fn binding(&self) -> Option<&str> {
        let binds = |rule: &&Matched| rule.plan.as_ref().is_some_and(|plan| plan.binds);
        self.rules.iter().find(binds).map(|rule| rule.policy.as_str())
    }

    /// How the plan is described in a pod of its own, if a Policy demands it. What one Policy leaves open, another decides.
    ///
    /// # Errors
    /// When two Policies name different images or mirrors.
    pub fn isolated(&self) -> Result<Option<IsolatedPlan>, Violation> {
        let demands = self.rules.iter().filter_map(|rule| Some((&rule.policy, rule.plan.as_ref()?.isolated.as_ref()?)));
        let mut merged: Option<IsolatedPlan> = None;
        let mut first: BTreeMap<&str, &String> = BTreeMap::new();
        for (policy, demand) in demands {
            let all = merged.get_or_insert_with(IsolatedPlan::default);
            for (field, value, known) in
                [("image", &demand.image, &mut all.image), ("mirror", &demand.mirror, &mut all.mirror)]
            {
                let Some(value) = value else { continue };
                if known.get_or_insert_with(|| value.clone()) == value {
                    first.entry(field).or_insert(policy);
                    continue;
                }
                let other = first.get(field).map(|name| name.as_str()).unwrap_or_default();
                return Err(Violation {
                    from: of_policy(policy),
                    field: format!("spec.plan.{field}"),
                    message: format!(
                        "{} names another one, and a plan is described once. Name the same in both.",
                        of_policy(other)
                    ),
                });
            }
        }
        Ok(merged)
    }

    /// Stands for all rules on plans that hold. `None` without any.
    #[must_use]
    pub fn rules_digest(&self) -> Option<String> {
        let mut hash = Sha256::new();
        let mut any = false;
        for rule in &self.rules {
            let Some(plan) = &rule.plan else { continue };
            any = true;
            for text in [&rule.policy, &plan.digest] {
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text.as_bytes());
            }
        }
        any.then(|| knoll_api::Digest::from_hash(hash.finalize().into()).into())
    }

    /// Who may override the denials in the verdict on a Run. A Policy that is gone, or that has no `override` any more,
    /// has no groups, so its denial stays.
    #[must_use]
    pub fn overriders(&self, run: &Run) -> Overriders {
        let verdict = run.status.as_ref().and_then(|status| status.plan_verdict.as_ref());
        let denied = verdict.map(|verdict| verdict.denied_by.as_slice()).unwrap_or_default();
        let groups = |name: &String| {
            let rule = self.rules.iter().find(|rule| rule.policy == *name);
            rule.and_then(|rule| rule.plan.as_ref()).map(|plan| plan.overrides.clone()).unwrap_or_default()
        };
        denied.iter().map(|name| (name.clone(), groups(name))).collect()
    }
}

/// Whether the plan of a Run is judged. A command has no plan.
pub(super) fn is_judged(spec: &RunSpec, policy: &Effective) -> bool {
    spec.operation != Operation::Command && policy.judges().next().is_some()
}

/// Why a command that may change something needs an Approval: it could do without a plan what the rules would deny.
pub(super) fn command_reason(policy: &Effective) -> Option<String> {
    let from = of_policy(policy.binding()?);
    Some(format!(
        "{from} has rules on plans (spec.plan), and the command may change something without a plan, so it needs an Approval before it starts."
    ))
}

/// A hook runs any command with the rights of the run, so it could apply what the rules deny.
pub(super) fn hook_could_apply(policy: &Effective) -> Option<Violation> {
    let message = "the Policy has rules on plans, and a hook of the Run could apply what they deny. Leave the hooks out, or put them into the Stack of the Workspace.";
    let from = of_policy(policy.binding()?);
    Some(Violation { from, field: "spec.plan".to_owned(), message: message.to_owned() })
}

/// Why the verdict on a plan demands a review of it, in sentences.
pub(super) fn review_reason(run: &Run) -> Option<String> {
    let verdict = run.status.as_ref()?.plan_verdict.as_ref()?;
    if verdict.action < Some(RuleAction::RequireApproval) {
        return None;
    }
    let demanding = verdict.results.iter().filter(|result| result.action >= RuleAction::RequireApproval);
    let mut sentences = sentences(demanding);
    if verdict.is_denied() {
        sentences.push_str(
            " It goes on only with an Approval that has policy: override (knoll approve --override) by who may.",
        );
    }
    Some(sentences)
}

/// A plan that waits for a decision, and that the rules of this moment have not judged.
pub(super) fn not_judged(run: &Run, policy: &Effective) -> Option<Violation> {
    let status = run.status.as_ref().filter(|status| status.phase == RunPhase::Review && status.plan.is_some())?;
    let (now, policies) = (policy.rules_digest()?, policy.judges().map(of_policy).collect::<Vec<_>>().join(", "));
    let judged_by = status.plan_verdict.as_ref().and_then(|verdict| verdict.rules.as_deref());
    if judged_by == Some(now.as_str()) {
        return not_isolated(run, policy);
    }
    let message = match judged_by {
        Some(_) => "the rules have changed since they judged the plan. Start a new run.",
        None => "the rules have not judged the plan, as they are newer than it. Start a new run.",
    };
    Some(Violation { from: policies, field: "spec.plan".to_owned(), message: message.to_owned() })
}

/// A plan that is to be applied, and is not described in a pod of its own as the Policies of this moment demand it.
#[must_use]
pub fn not_isolated(run: &Run, policy: &Effective) -> Option<Violation> {
    let verdict = run.status.as_ref().and_then(|status| status.plan_verdict.as_ref());
    let demanded = match isolated(&run.spec, policy) {
        Ok(demanded) => demanded?,
        Err(conflict) => return Some(conflict),
    };
    if verdict.and_then(|verdict| verdict.isolated.as_ref()) == Some(&demanded) {
        return None;
    }
    let demands = policy.rules.iter().filter(|rule| rule.plan.as_ref().is_some_and(|plan| plan.isolated.is_some()));
    Some(Violation {
        from: demands.map(|rule| of_policy(&rule.policy)).collect::<Vec<_>>().join(", "),
        field: "spec.plan.isolated".to_owned(),
        message: "the run started before it demanded that a pod of its own describes the plan, with this image and mirror. Start a new run.".to_owned(),
    })
}

/// Whether a pod of its own describes the plan of the Run.
#[must_use]
pub fn is_isolated(status: &RunStatus) -> bool {
    let has_changes = status.plan.as_ref().is_some_and(|plan| plan.changes);
    has_changes && status.plan_verdict.as_ref().is_some_and(|verdict| verdict.isolated.is_some())
}

/// Why the plan of a pod that has done its work goes no further: a rule denies it for good, or no verdict is there.
///
/// `is_reviewed` says whether somebody could still override a denial.
#[must_use]
pub fn refusal(status: &RunStatus, is_reviewed: bool) -> Option<Cause> {
    let verdict = status.plan_verdict.as_ref()?;
    let Some(plan) = &status.plan else {
        return Some(missing("The runner has not described the plan"));
    };
    if !plan.changes {
        return None;
    }
    match &verdict.plan {
        None => Some(missing("The runner has not sent the plan's JSON")),
        judged if *judged != plan.digest => Some(missing("The plan is not the one that the rules have judged")),
        Some(_) if verdict.is_denied() && !(verdict.overridable && is_reviewed) => {
            let sentences = sentences(verdict.with(RuleAction::Deny));
            Some(Cause::new(reason::POLICY_VIOLATION, sentences))
        }
        Some(_) => None,
    }
}

fn missing(what: &str) -> Cause {
    let message =
        format!("{what}, so the rules of Policies (spec.plan) have no say and nothing is applied; run it again.");
    Cause::new(reason::PLAN_NOT_JUDGED, message)
}

fn sentences<'a>(results: impl Iterator<Item = &'a RuleResult>) -> String {
    let all: Vec<String> = results.map(RuleResult::sentence).collect();
    let more = all.len().saturating_sub(LISTED);
    let mut shown: Vec<String> = all.into_iter().take(LISTED).collect();
    if more > 0 {
        shown.push(format!("And {more} more."));
    }
    shown.join(" ")
}

/// A Run that is about to start, and whose plan is judged, has a verdict that is still open.
#[must_use]
pub fn open_verdict(demands: &Demands) -> Option<PlanVerdict> {
    let Demands { is_judged, isolated, .. } = demands;
    is_judged.then(|| PlanVerdict { isolated: isolated.clone(), ..PlanVerdict::default() })
}

/// How the plan of a Run is described in a pod of its own. One that is not applied needs none: nothing follows from it.
pub(super) fn isolated(spec: &RunSpec, policy: &Effective) -> Result<Option<IsolatedPlan>, Violation> {
    if steps::plans_and_applies(spec) { policy.isolated() } else { Ok(None) }
}

#[cfg(test)]
mod tests;
