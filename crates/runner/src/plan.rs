//! Summarizes a plan as counts and addresses.
//!
//! The summary contains only addresses, actions and attribute names. Values, some of which are sensitive, are compared
//! and never stored.

use knoll_api::run::{ChangeAction, PlanSummary, ResourceChange};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
struct Description {
    #[serde(default)]
    resource_changes: Vec<Resource>,
    /// Of terraform 1.14 and later.
    #[serde(default)]
    action_invocations: Vec<Invocation>,
}

#[derive(Deserialize)]
struct Resource {
    address: String,
    previous_address: Option<String>,
    change: Change,
}

#[derive(Deserialize)]
struct Invocation {
    address: String,
}

#[derive(Deserialize)]
struct Change {
    #[serde(default)]
    actions: Vec<String>,
    importing: Option<IgnoredAny>,
    before: Option<Map<String, Value>>,
    after: Option<Map<String, Value>>,
    after_unknown: Option<Value>,
}

/// `sha256:` and the hash of `bytes`.
pub fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let mut text = String::with_capacity(7 + 64);
    text.push_str("sha256:");
    for byte in hash {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
    }
    text
}

/// Counts the changes in `description`, the output of `terraform show -json` for a plan.
///
/// # Errors
/// If it is not such an output.
pub fn summarize(description: Value, digest: String, changes: bool) -> Result<PlanSummary, serde_json::Error> {
    let description: Description = serde_json::from_value(description)?;
    let mut summary = PlanSummary { digest: Some(digest), changes, ..PlanSummary::default() };
    for resource in description.resource_changes {
        let Some(action) = action(&resource) else {
            continue;
        };
        match action {
            ChangeAction::Create => summary.add += 1,
            ChangeAction::Update => summary.change += 1,
            // What is not known could destroy.
            ChangeAction::Delete | ChangeAction::Unknown => summary.destroy += 1,
            ChangeAction::Replace => {
                summary.add += 1;
                summary.destroy += 1;
            }
            ChangeAction::Import | ChangeAction::Move | ChangeAction::Read | ChangeAction::Invoke => {}
            ChangeAction::Forget => summary.forget += 1,
        }
        summary.import += u32::from(resource.change.importing.is_some());
        summary.moved += u32::from(resource.previous_address.is_some());
        if summary.resources.len() < PlanSummary::MAX_RESOURCES {
            summary.resources.push(ResourceChange {
                attributes: if action == ChangeAction::Update || action == ChangeAction::Replace {
                    attributes(&resource.change)
                } else {
                    Vec::new()
                },
                address: resource.address,
                action,
            });
        } else {
            summary.omitted += 1;
        }
    }
    for Invocation { address } in description.action_invocations {
        summary.invoke += 1;
        if summary.resources.len() < PlanSummary::MAX_RESOURCES {
            summary.resources.push(ResourceChange {
                address,
                action: ChangeAction::Invoke,
                ..ResourceChange::default()
            });
        } else {
            summary.omitted += 1;
        }
    }
    Ok(summary)
}

/// The names of the attributes that would change.
fn attributes(change: &Change) -> Vec<String> {
    let (Some(before), Some(after)) = (&change.before, &change.after) else { return Vec::new() };
    let unknown = |name: &str| {
        // An unknown value is `true`, or contains `true`.
        let of = change.after_unknown.as_ref().and_then(|unknown| unknown.get(name));
        of.is_some_and(|of| of.to_string().contains("true"))
    };
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let differs = |name: &&String| {
        let value = |of: &Map<String, Value>| of.get(*name).cloned().unwrap_or_default();
        unknown(name) || value(before) != value(after)
    };
    let mut found: Vec<String> = names.filter(differs).cloned().collect();
    found.sort();
    found.truncate(ResourceChange::MAX_ATTRIBUTES);
    found
}

/// The change of a resource. None for unchanged resources and for reads.
fn action(resource: &Resource) -> Option<ChangeAction> {
    let actions: Vec<&str> = resource.change.actions.iter().map(String::as_str).collect();
    match actions[..] {
        ["create"] => Some(ChangeAction::Create),
        ["update"] => Some(ChangeAction::Update),
        ["delete"] => Some(ChangeAction::Delete),
        ["delete", "create"] | ["create", "delete"] => Some(ChangeAction::Replace),
        ["forget"] => Some(ChangeAction::Forget),
        // A forgotten object that is created again.
        ["create", "forget"] | ["forget", "create"] => Some(ChangeAction::Create),
        ["no-op"] if resource.change.importing.is_some() => Some(ChangeAction::Import),
        ["no-op"] if resource.previous_address.is_some() => Some(ChangeAction::Move),
        [] | ["no-op" | "read"] => None,
        _ => Some(ChangeAction::Unknown),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn change(address: &str, actions: &[&str]) -> serde_json::Value {
        json!({"address": address, "mode": "managed", "change": {
            "actions": actions, "before": null, "after": {"password": "hunter2"}, "after_sensitive": {"password": true}}})
    }

    fn summary(changes: Vec<serde_json::Value>) -> PlanSummary {
        let description = json!({"format_version": "1.2", "resource_changes": changes});
        summarize(description, "sha256:1".into(), true).unwrap()
    }

    #[test]
    fn each_action_is_counted_as_terraform_counts_it() {
        let rows: &[(&[&str], (u32, u32, u32), Option<ChangeAction>)] = &[
            (&["create"], (1, 0, 0), Some(ChangeAction::Create)),
            (&["update"], (0, 1, 0), Some(ChangeAction::Update)),
            (&["delete"], (0, 0, 1), Some(ChangeAction::Delete)),
            (&["delete", "create"], (1, 0, 1), Some(ChangeAction::Replace)),
            (&["create", "delete"], (1, 0, 1), Some(ChangeAction::Replace)),
            (&["forget"], (0, 0, 0), Some(ChangeAction::Forget)),
            (&["rename"], (0, 0, 1), Some(ChangeAction::Unknown)),
            (&["update", "rename"], (0, 0, 1), Some(ChangeAction::Unknown)),
            (&["no-op"], (0, 0, 0), None),
            (&["read"], (0, 0, 0), None),
        ];
        for (actions, counts, expect) in rows {
            let summary = summary(vec![change("a.b", actions)]);
            assert_eq!((summary.add, summary.change, summary.destroy), *counts, "{actions:?}");
            assert_eq!(summary.resources.first().map(|resource| resource.action), *expect, "{actions:?}");
        }
    }

    #[test]
    fn moved_and_imported_resources_are_named() {
        let mut moved = change("a.new", &["no-op"]);
        moved["previous_address"] = json!("a.old");
        let mut imported = change("a.b", &["no-op"]);
        imported["change"]["importing"] = json!({"id": "i-1"});
        let counted = summary(vec![moved, imported, change("a.c", &["forget"])]);
        let actions: Vec<_> = counted.resources.iter().map(|resource| resource.action).collect();
        assert_eq!(actions, [ChangeAction::Move, ChangeAction::Import, ChangeAction::Forget]);
        assert_eq!(counted.counts(), "0 to add, 0 to change, 0 to destroy, 1 to import, 1 to move, 1 to forget");
    }

    #[test]
    fn actions_that_a_plan_invokes_are_counted_and_named() {
        let invocation = json!({"address": "action.aws_lambda_invoke.a", "type": "aws_lambda_invoke", "name": "a"});
        let description = json!({"format_version": "1.2", "action_invocations": [invocation]});
        let counted = summarize(description, "sha256:1".into(), true).unwrap();
        assert_eq!((counted.invoke, counted.resources[0].action), (1, ChangeAction::Invoke));
    }

    #[test]
    fn attributes_that_differ_are_named() {
        let mut updated = change("a.b", &["update"]);
        updated["change"]["before"] = json!({"same": 1, "password": "old", "gone": [1], "id": "x", "tags": {"a": 1}});
        updated["change"]["after"] = json!({"same": 1, "password": "hunter2", "new": 2, "tags": {"a": 1}});
        updated["change"]["after_unknown"] = json!({"id": true, "tags": {}});
        let summary = summary(vec![updated, change("a.c", &["create"])]);
        assert_eq!(summary.resources[0].attributes, ["gone", "id", "new", "password"]);
        assert_eq!(summary.resources[1].attributes, Vec::<String>::new());
    }

    #[test]
    fn no_value_gets_into_the_summary() {
        let text = serde_json::to_string(&summary(vec![change("a.b", &["create"])])).unwrap();
        assert!(!text.contains("hunter2") && text.contains("a.b"), "{text}");
    }

    #[test]
    fn more_resources_than_a_status_holds_are_counted() {
        let many = (0..PlanSummary::MAX_RESOURCES + 5).map(|n| change(&format!("a.b[{n}]"), &["create"])).collect();
        let summary = summary(many);
        assert_eq!((summary.resources.len(), summary.omitted, summary.add), (PlanSummary::MAX_RESOURCES, 5, 105));
    }

    #[test]
    fn the_digest_is_that_of_sha256sum() {
        assert_eq!(digest(b"abc"), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
