//! Whether an object of Kubernetes is ready, from what the object itself says.
//!
//! The rules are those of kstatus: a status that is about an older generation says nothing, each built-in kind has its
//! own signs, and any other object has its conditions. A Job is ready when it is complete. On an object,
//! `knoll.dev/conditions` and `knoll.dev/ready-when` take the place of these rules.

mod asked;
mod builtin;
mod pods;

use serde_json::Value;

pub use asked::{Error, check};
pub use pods::{Trouble, trouble};

/// How an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is as it should be.
    Ready,
    /// Not yet; why.
    Waiting(String),
    /// It never will be, by itself; why.
    Failed(String),
}

impl Health {
    fn waiting(why: impl Into<String>) -> Self {
        Self::Waiting(why.into())
    }
}

/// How an object is.
#[must_use]
pub fn health(object: &Value) -> Health {
    if object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return Health::waiting("It is being deleted.");
    }
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed < generation
    {
        return Health::waiting(format!("Its controller has seen generation {observed} and not yet {generation}."));
    }
    if let Some(health) = asked::health(object) {
        return health;
    }
    builtin::health(object).unwrap_or_else(|| by_conditions(object))
}

/// Any object with conditions.
fn by_conditions(object: &Value) -> Health {
    if let Some(stalled) = condition(object, "Stalled").filter(|stalled| stalled.holds) {
        return Health::Failed(stalled.tell());
    }
    if let Some(working) = condition(object, "Reconciling").filter(|working| working.holds) {
        return Health::waiting(working.tell());
    }
    match condition(object, "Ready") {
        Some(ready) if !ready.holds => Health::waiting(ready.tell()),
        Some(_) => Health::Ready,
        // A controller of Knoll's says something before it says that all is well.
        None if group(object) == knoll_api::names::GROUP => Health::waiting("Its controller has not looked at it yet."),
        None => Health::Ready,
    }
}

/// A condition of an object.
struct Said<'a> {
    type_: &'a str,
    status: &'a str,
    holds: bool,
    reason: &'a str,
    message: &'a str,
}

impl Said<'_> {
    fn tell(&self) -> String {
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

fn condition<'a>(object: &'a Value, type_: &str) -> Option<Said<'a>> {
    let all = object.pointer("/status/conditions")?.as_array()?;
    let found = all.iter().find(|condition| condition["type"] == type_)?;
    let text = |field: &str| found.get(field).and_then(Value::as_str).unwrap_or_default();
    let status = text("status");
    Some(Said {
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
