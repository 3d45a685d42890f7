//! Rules in CEL.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use knoll_api::policy::PlanRule;
use knoll_kube_model::{Budget, ConditionError, Expression};
use serde_json::Value;

use crate::facts;
use crate::request::{Finding, RuleSet};

/// The steps of one rule: each of 10,000 changes can be looked at with some thousand steps. The limit of time comes first
/// where steps are slow.
const STEPS: u64 = 50_000_000;

/// The variables of rules; a message has `found` besides.
const VARIABLES: [&str; 6] = ["plan", "changes", "prior", "workspace", "run", "found"];

/// A rule whose expressions are compiled. The compiler needs a large stack for a moment, so this comes before the plan is
/// in memory.
pub struct Compiled<'a> {
    rule: &'a PlanRule,
    find: Result<Expression, String>,
    message: Option<Result<Expression, String>>,
}

impl<'a> Compiled<'a> {
    pub fn of(rule: &'a PlanRule) -> Self {
        let (without, _) = VARIABLES.split_at(VARIABLES.len() - 1);
        let message = rule.message_expression.as_ref();
        Self {
            rule,
            find: Expression::compile_with(&rule.find, without),
            message: message.map(|text| Expression::compile_with(text, &VARIABLES)),
        }
    }

    /// The expressions that cannot be read.
    pub fn unreadable(&self) -> impl Iterator<Item = Finding> {
        let parts = [("find", Some(&self.find)), ("messageExpression", self.message.as_ref())];
        let errors = parts.into_iter().filter_map(|(field, part)| Some((field, part?.as_ref().err()?)));
        errors.map(|(field, why)| Finding::failure(&self.rule.name, format!("`{field}`: {why}")))
    }

    pub fn name(&self) -> &str {
        &self.rule.name
    }
}

/// The values of the variables.
pub struct Variables<'a> {
    plan: &'a Value,
    changes: Value,
    prior: Value,
    set: &'a RuleSet,
}

impl<'a> Variables<'a> {
    /// Makes those that a rule names.
    pub fn new(plan: &'a Value, set: &'a RuleSet) -> Self {
        let named = |name: &str| {
            let texts = |rule: &PlanRule| {
                rule.find.contains(name) || rule.message_expression.iter().any(|text| text.contains(name))
            };
            set.rules.iter().any(texts)
        };
        let changes = if named("changes") { facts::changes(plan) } else { Value::Null };
        let prior = if named("prior") { facts::prior(plan) } else { Value::Null };
        Self { plan, changes, prior, set }
    }

    fn values<'b>(&'b self, found: &'b Value) -> [(&'static str, &'b Value); 6] {
        let [plan, changes, prior, workspace, run, addresses] = VARIABLES;
        [
            (plan, self.plan),
            (changes, &self.changes),
            (prior, &self.prior),
            (workspace, &self.set.workspace),
            (run, &self.set.run),
            (addresses, found),
        ]
    }

    /// The objection of a rule, if it has one.
    pub fn apply(&self, Compiled { rule, find, message }: &Compiled<'_>) -> Option<Finding> {
        let found = find.as_ref().map_err(Clone::clone).and_then(|find| self.value(find, &Value::Null));
        let found = match found {
            Ok(found) => found,
            Err(why) => return Some(Finding::failure(&rule.name, format!("`find`: {why}"))),
        };
        let addresses = match addresses(&found) {
            Ok(Some(addresses)) => addresses,
            Ok(None) => return None,
            Err(why) => return Some(Finding::failure(&rule.name, format!("`find`: {why}"))),
        };
        // A rule whose message cannot be read still objects.
        let own = message.as_ref().and_then(|message| message.as_ref().ok()).and_then(|message| {
            let found = addresses.iter().map(String::as_str).collect();
            self.value(message, &found).ok()?.as_str().map(str::to_owned)
        });
        let message = own.filter(|text| !text.trim().is_empty()).unwrap_or_else(|| rule.message.clone());
        Some(Finding { rule: rule.name.clone(), action: rule.action, message, addresses, omitted: 0, failed: false })
    }

    fn value(&self, expression: &Expression, found: &Value) -> Result<Value, String> {
        let mut budget = Budget::new(STEPS, Arc::new(AtomicBool::new(false)));
        let value = expression.value_within(&self.values(found), &mut budget);
        value.map_err(|error| match error {
            ConditionError::TooExpensive => "it does too much work; make it look at less".to_owned(),
            ConditionError::NotABool => "it has a value of another type".to_owned(),
            ConditionError::NoValue(why) => {
                format!("it has no value: {why}; ask with has() before you read what may be missing")
            }
        })
    }
}

/// The addresses of what was found; `None` when nothing was.
fn addresses(found: &Value) -> Result<Option<Vec<String>>, String> {
    match found {
        Value::Bool(holds) => Ok(holds.then(Vec::new)),
        Value::Array(items) if items.is_empty() => Ok(None),
        Value::Array(items) => {
            let address = |item: &Value| item.as_str().or_else(|| item.get("address")?.as_str()).map(str::to_owned);
            let all: Option<Vec<String>> = items.iter().map(address).collect();
            let all = all.ok_or("write an expression for a list of changes or of addresses, or for a bool")?;
            Ok(Some(all))
        }
        _ => Err("write an expression for a list of changes or of addresses, or for a bool".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use knoll_api::policy::RuleAction;
    use serde_json::json;

    use super::*;

    fn plan() -> Value {
        let change = |address: &str, kind: &str, actions: Value, after: Value| json!({"address": address, "type": kind, "mode": "managed", "change": {"actions": actions, "after": after, "before": null}});
        json!({"format_version": "1.2", "resource_changes": [
            change("aws_db_instance.main", "aws_db_instance", json!(["delete"]), json!(null)),
            change("aws_s3_bucket.logs", "aws_s3_bucket", json!(["create"]), json!({"tags": {"team": "a"}})),
            change("aws_s3_bucket.data", "aws_s3_bucket", json!(["shrink"]), json!({"tags": null})),
        ]})
    }

    /// `Ok` with the addresses of the objection, or `Err` with the beginning of the reason.
    #[track_caller]
    fn check(find: &str, expect: Result<Option<&[&str]>, &str>) {
        let rule = PlanRule { name: "r".into(), find: find.into(), message: "No.".into(), ..PlanRule::default() };
        let set = RuleSet {
            rules: vec![rule.clone()],
            workspace: json!({"name": "w", "namespace": "n", "labels": {"env": "prod"}}),
            run: json!({"name": "r", "operation": "apply", "requestedBy": "ann", "labels": {}}),
            ..RuleSet::default()
        };
        let plan = plan();
        let found = Variables::new(&plan, &set).apply(&Compiled::of(&rule));
        match (expect, found) {
            (Ok(None), None) => {}
            (Ok(Some(addresses)), Some(found)) => {
                assert!(!found.failed, "{find}: {found:?}");
                assert_eq!(found.addresses, addresses, "{find}");
                assert_eq!((found.action, found.message.as_str()), (RuleAction::Deny, "No."));
            }
            (Err(why), Some(found)) => assert!(found.failed && found.message.contains(why), "{find}: {found:?}"),
            (expect, found) => panic!("{find}: expected {expect:?}, found {found:?}"),
        }
    }

    #[test]
    fn rules_find_changes_addresses_or_a_fact() {
        check(
            "changes.filter(c, c.type == 'aws_db_instance' && 'delete' in c.actions)",
            Ok(Some(&["aws_db_instance.main"])),
        );
        check(
            "changes.filter(c, 'delete' in c.actions).map(c, c.address)",
            Ok(Some(&["aws_db_instance.main", "aws_s3_bucket.data"])),
        );
        check("changes.filter(c, c.type == 'none')", Ok(None));
        check("plan.resource_changes.size() > 2", Ok(Some(&[])));
        check("plan.resource_changes.size() > 3", Ok(None));
        check("workspace.labels.env == 'prod' && run.requestedBy == 'ann' && run.operation == 'apply'", Ok(Some(&[])));
        check("prior.exists(r, r.type == 'aws_db_instance')", Ok(None));
    }

    #[test]
    fn a_rule_without_a_result_fails() {
        check("changes.filter(", Err("Syntax error"));
        check("nothing", Err("undeclared reference"));
        check("changes.filter(c, c.after.tags.team == '')", Err("it has no value"));
        check("'text'", Err("write an expression for a list"));
        check("[1, 2]", Err("write an expression for a list"));
        let opened: String = (0..9).map(|level| format!("[0,1,2,3,4,5,6,7,8,9].all(v{level},")).collect();
        check(&format!("{opened}true{}", ")".repeat(9)), Err("too much work"));
    }

    #[test]
    fn a_message_can_name_what_was_found() {
        let message = |text: &str| {
            let rule = PlanRule {
                name: "r".into(),
                find: "changes.filter(c, 'delete' in c.actions)".into(),
                message: "plain".into(),
                message_expression: Some(text.into()),
                action: RuleAction::Warn,
            };
            let set = RuleSet { rules: vec![rule.clone()], ..RuleSet::default() };
            let plan = plan();
            Variables::new(&plan, &set).apply(&Compiled::of(&rule)).map(|found| found.message).unwrap_or_default()
        };
        assert_eq!(
            message("string(found.size()) + ' of ' + string(changes.size()) + ': ' + found[0]"),
            "2 of 3: aws_db_instance.main"
        );
        assert_eq!(message("found[7]"), "plain");
        assert_eq!(message("'  '"), "plain");
    }
}
