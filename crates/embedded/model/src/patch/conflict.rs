//! Fields that an apply would change although others own them.

use serde_json::{Value, json};

use super::fields::FieldPath;

/// One field that another manager owns with another value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The manager that owns the field.
    pub manager: String,
    /// Whether it owns the field by an apply rather than by another kind of write.
    pub applied: bool,
    /// The version of the API in which it wrote.
    pub api_version: String,
    /// The subresource through which it wrote.
    pub subresource: Option<String>,
    pub path: FieldPath,
}

impl Conflict {
    /// How the manager is named: `"kubectl" with subresource "status" using apps/v1`.
    pub fn owner(&self) -> String {
        let mut owner = format!("{:?}", self.manager);
        if let Some(subresource) = &self.subresource {
            owner.push_str(&format!(" with subresource {subresource:?}"));
        }
        if !self.applied {
            owner.push_str(&format!(" using {}", self.api_version));
        }
        owner
    }
}

/// The message of the `Status` that tells of these conflicts.
pub fn message(conflicts: &[Conflict]) -> String {
    if let [conflict] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", conflict.owner(), conflict.path);
    }
    let mut sorted: Vec<_> = conflicts.iter().collect();
    sorted.sort_by_key(|conflict| (&conflict.manager, !conflict.applied, &conflict.api_version, &conflict.subresource));
    let mut lines: Vec<String> = Vec::new();
    let mut last = None;
    for conflict in sorted {
        let owner = conflict.owner();
        if last.as_ref() != Some(&owner) {
            lines.push(format!("conflicts with {owner}:"));
            last = Some(owner);
        }
        lines.push(format!("- {}", conflict.path));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// `details.causes` of the `Status` that tells of these conflicts.
pub fn causes(conflicts: &[Conflict]) -> Vec<Value> {
    conflicts
        .iter()
        .map(|conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", conflict.owner()),
                "field": conflict.path.to_string(),
            })
        })
        .collect()
}
