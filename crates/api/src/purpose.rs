//! Why a Stack started a Run.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The purpose of a Run of a Stack, as the Stack's status has it. The label
/// [`PURPOSE`](crate::names::label::PURPOSE) shows it to people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = crate::values::describe)]
pub enum Purpose {
    /// To apply a new revision.
    #[default]
    Apply,
    /// To check for drift.
    Drift,
    /// To correct drift.
    Correct,
    /// To apply the last good revision again.
    Rollback,
    /// To destroy everything before the Stack is deleted.
    Destroy,
}

impl Purpose {
    pub const ALL: [Self; 5] = [Self::Apply, Self::Drift, Self::Correct, Self::Rollback, Self::Destroy];

    /// The value of the label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Drift => "drift",
            Self::Correct => "correct",
            Self::Rollback => "rollback",
            Self::Destroy => "destroy",
        }
    }

    /// The purpose that a label's value names.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.as_str() == value)
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_purpose_is_read_back_from_its_label() {
        for purpose in Purpose::ALL {
            assert_eq!(Purpose::parse(purpose.as_str()), Some(purpose));
            assert_eq!(serde_json::to_value(purpose).ok(), Some(purpose.as_str().into()));
        }
        assert_eq!(Purpose::parse("Apply"), None);
    }
}
