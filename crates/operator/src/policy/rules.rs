//! Checks of the rules that Policies have on plans: whether they compile, and whether their packs are there.
//!
//! *Guarantees.* No reconcile waits for a check: it goes on beside it, and asks for a reconcile when it ends. A Policy has
//! one check at a time of its current generation. Rules are compiled in a process of their own, within its limits.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use knoll_api::{
    Policy,
    policy::{PlanRule, PlanRules, RulePack},
};
use knoll_core::{
    identity::Subject,
    policy::status::{CheckedRules, FieldFault, has_rules},
};
use knoll_rules::{Evaluator, Pack, RuleSet, text_of};
use knoll_storage::{Packs, message_of};

use crate::context::Context;

/// The checks, by the UID of the Policy.
pub struct RuleChecks {
    evaluator: Evaluator,
    packs: Packs,
    known: Mutex<HashMap<String, RuleCheck>>,
}

#[derive(Default)]
struct RuleCheck {
    /// The number of checks that were begun: only the last one counts.
    number: u64,
    /// The name of the Policy.
    policy: String,
    generation: Option<i64>,
    /// The namespaces and names of the ConfigMaps that have its packs.
    config_maps: Vec<(String, String)>,
    is_underway: bool,
    result: Option<Arc<CheckedRules>>,
}

impl RuleChecks {
    pub fn new(evaluator: &Evaluator, packs: Packs) -> Self {
        // Plans are judged meanwhile, also those of a Policy whose rules never end.
        Self { evaluator: evaluator.apart(), packs, known: Mutex::default() }
    }

    /// What the rules of a Policy came to; `None` while that is not known. Begins a check if one is due.
    pub fn look(&self, context: &Arc<Context>, policy: &Subject<Policy>) -> Option<Arc<CheckedRules>> {
        let now = context.now();
        let Some(rules) = policy.spec.plan.as_ref().filter(|_| has_rules(&policy.spec)) else {
            self.forget(policy.uid());
            return Some(Arc::new(CheckedRules { at: now, ..CheckedRules::default() }));
        };
        let mut known = self.lock();
        let check = known.entry(policy.uid().to_owned()).or_default();
        if check.generation != policy.metadata.generation {
            let maps = rules.packs.iter().filter_map(|pack| pack.config_map.as_ref());
            *check = RuleCheck {
                number: check.number,
                policy: policy.name().to_owned(),
                generation: policy.metadata.generation,
                config_maps: maps.map(|at| (at.namespace.clone(), at.name.clone())).collect(),
                ..RuleCheck::default()
            };
        }
        let is_over = |result: &Arc<CheckedRules>| result.due(rules).is_some_and(|due| due <= now);
        if !check.is_underway && check.result.as_ref().is_none_or(is_over) {
            check.is_underway = true;
            check.number += 1;
            let (context, policy, rules, number) = (context.clone(), policy.clone(), rules.clone(), check.number);
            tokio::spawn(async move {
                let checks = &context.rule_checks;
                let result = checks.check(&context, policy.name(), &rules).await;
                checks.finish(policy.uid(), number, result);
                context.ask.policy(policy.name());
            });
        }
        check.result.clone()
    }

    /// Forgets a Policy that is gone or has no rules.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// A ConfigMap may have another pack now: the next look at each Policy that names it begins a check. Returns their names.
    pub fn outdated(&self, namespace: &str, name: &str) -> Vec<String> {
        let mut known = self.lock();
        let named = |check: &&mut RuleCheck| check.config_maps.iter().any(|at| at.0 == namespace && at.1 == name);
        let outdate = |check: &mut RuleCheck| {
            check.generation = None;
            check.policy.clone()
        };
        known.values_mut().filter(named).map(outdate).collect()
    }

    fn finish(&self, uid: &str, number: u64, result: CheckedRules) {
        let mut known = self.lock();
        if let Some(check) = known.get_mut(uid).filter(|check| check.number == number && check.is_underway) {
            check.is_underway = false;
            check.result = Some(Arc::new(result));
        }
    }

    async fn check(&self, context: &Context, policy: &str, rules: &PlanRules) -> CheckedRules {
        let mut found = CheckedRules { at: context.now(), ..CheckedRules::default() };
        let mut set = RuleSet { is_check: true, ..RuleSet::default() };
        // Rules go by their fields, which the findings then name.
        let named = rules.rules.iter().enumerate();
        set.rules
            .extend(named.map(|(index, rule)| PlanRule { name: format!("spec.plan.rules[{index}]"), ..rule.clone() }));
        for (index, pack) in rules.packs.iter().enumerate() {
            let field = format!("spec.plan.packs[{index}]");
            match self.pack(pack).await {
                Ok(read) => set.packs.push(Pack { name: field, ..read }),
                Err(why) => found.missing.push(FieldFault { field, why }),
            }
        }
        let place = self.evaluator.place("", policy).await;
        for finding in self.evaluator.findings(&place, &set, Bytes::new()).await {
            if finding.rule.is_empty() {
                // The evaluation itself failed.
                found.missing.push(FieldFault { field: "spec.plan".to_owned(), why: finding.message });
            } else {
                found.faults.push(FieldFault { field: finding.rule, why: finding.message });
            }
        }
        found
    }

    async fn pack(&self, pack: &RulePack) -> Result<Pack, String> {
        if let Some(files) = self.packs.texts(pack).await.map_err(|error| error.to_string())? {
            return Ok(Pack::of_files(pack, files.as_ref().clone()));
        }
        let content = self.packs.config_map(pack).await.map_err(|error| message_of(&error))?;
        let text = text_of(pack, content.as_deref()).map_err(|error| error.to_string())?;
        Ok(Pack::of(pack, text))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RuleCheck>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
