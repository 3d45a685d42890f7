//! The readiness of an object of Kubernetes, by its own status.
//!
//! The rules are those of kstatus: the status of an older generation does not count, each built-in kind has rules of its
//! own, and any other object is judged by its conditions. A Job is ready when it is complete. The annotations
//! `knoll.dev/conditions` and `knoll.dev/ready-when` on an object replace these rules.
//!
//! *Guarantee.* The work of an expression is bounded, by its own limit and by the [`Budget`] of all objects of an Atom.

mod annotations;
mod builtin;
mod pods;

use serde_json::Value;

pub use annotations::{ReadinessError, check, has_expression};
pub use knoll_kube_model::Budget;
pub use pods::{PodProblem, pod_problem};

/// The health of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// Not ready yet, and why.
    Waiting(String),
    /// Failed, and why. It does not become ready by itself.
    Failed(String),
}

impl Health {
    fn waiting(why: impl Into<String>) -> Self {
        Self::Waiting(why.into())
    }
}

/// The health of an object. Its expression takes from `budget`; one that takes more than is left is a failure.
#[must_use]
pub fn health(object: &Value, budget: &mut Budget) -> Health {
    if object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return Health::waiting("It is being deleted.");
    }
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed < generation
    {
        return Health::waiting(format!("Its controller has observed generation {observed}, not {generation} yet."));
    }
    if let Some(health) = annotations::health(object, budget) {
        return health;
    }
    builtin::health(object).unwrap_or_else(|| by_conditions(object))
}

/// The health of an object of any other kind.
fn by_conditions(object: &Value) -> Health {
    if let Some(stalled) = condition(object, "Stalled").filter(|stalled| stalled.holds) {
        return Health::Failed(stalled.describe());
    }
    if let Some(working) = condition(object, "Reconciling").filter(|working| working.holds) {
        return Health::waiting(working.describe());
    }
    match condition(object, "Ready") {
        Some(ready) if !ready.holds => Health::waiting(ready.describe()),
        Some(_) => Health::Ready,
        // A controller of Knoll sets the condition when it first reconciles an object.
        None if group(object) == knoll_api::names::GROUP => {
            Health::waiting("Its controller has not reconciled it yet.")
        }
        None => Health::Ready,
    }
}

/// A condition of an object.
struct ObjectCondition<'a> {
    type_: &'a str,
    status: &'a str,
    holds: bool,
    reason: &'a str,
    message: &'a str,
}

impl ObjectCondition<'_> {
    fn describe(&self) -> String {
        let mut text = format!("{} is {}", self.type_, self.status);
        if !self.reason.is_empty() {
            text.push_str(&format!(" ({})", self.reason));
        }
        match self.message {
            "" => text.push('.'),
            message => text.push_str(&format!(": {message}")),
        }
        text
    }
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<ObjectCondition<'a>> {
    let all = object.pointer("/status/conditions")?.as_array()?;
    let found = all.iter().find(|condition| condition["type"] == type_)?;
    let text = |field: &str| found.get(field).and_then(Value::as_str).unwrap_or_default();
    let status = text("status");
    Some(ObjectCondition {
        type_: text("type"),
        status,
        holds: status == "True",
        reason: text("reason"),
        message: text("message"),
    })
}

fn group(object: &Value) -> &str {
    let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests;
