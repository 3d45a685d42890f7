//! Conditions in the Kubernetes form, so that `kubectl wait`, Argo CD and Flux understand them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    True,
    /// It does not hold.
    False,
    /// It cannot be told yet.
    Unknown,
}

impl Truth {
    /// The word Kubernetes uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

/// Writes the conditions of one object, each with the same generation and time.
#[derive(Debug)]
pub struct ConditionWriter<'a> {
    conditions: &'a mut Vec<Condition>,
    generation: Option<i64>,
    now: Timestamp,
}

impl<'a> ConditionWriter<'a> {
    /// Writes to `conditions` on behalf of an object of this generation.
    pub fn new(conditions: &'a mut Vec<Condition>, generation: Option<i64>, now: Timestamp) -> Self {
        Self { conditions, generation, now }
    }

    /// Sets one condition. Its transition time moves only when what it says changes, and its place in the list
    /// never does, so an unchanged status stays equal to itself.
    pub fn set(&mut self, type_: &str, truth: impl Into<Truth>, reason: &str, message: impl Into<String>) -> &mut Self {
        let status = truth.into().as_str();
        let known = self.conditions.iter_mut().find(|condition| condition.type_ == type_);
        if let Some(condition) = known {
            if condition.status != status {
                condition.last_transition_time = Time(self.now);
                condition.status = status.to_owned();
            }
            condition.reason = reason.to_owned();
            condition.message = message.into();
            condition.observed_generation = self.generation;
        } else {
            self.conditions.push(Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message: message.into(),
                observed_generation: self.generation,
                last_transition_time: Time(self.now),
            });
        }
        self
    }
}

/// The condition of this type.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of this type is there and holds.
#[must_use]
pub fn holds(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == Truth::True.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let at = |second| Timestamp::from_second(second).unwrap_or_default();
        let mut conditions = Vec::new();
        ConditionWriter::new(&mut conditions, Some(1), at(1)).set("Ready", false, "Starting", "a");
        ConditionWriter::new(&mut conditions, Some(2), at(2)).set("Ready", false, "Running", "b");
        assert_eq!(conditions[0].last_transition_time, Time(at(1)));
        assert_eq!((conditions[0].reason.as_str(), conditions[0].observed_generation), ("Running", Some(2)));

        ConditionWriter::new(&mut conditions, Some(2), at(3)).set("Ready", true, "Succeeded", "c");
        assert_eq!(conditions[0].last_transition_time, Time(at(3)));
        assert!(holds(&conditions, "Ready"));
        assert_eq!(conditions.len(), 1);
    }
}
