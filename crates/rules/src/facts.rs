//! What rules read of a plan: its JSON, its changes, and the resources of the prior state. Pure.

use serde_json::{Map, Value, json};

/// The actions of terraform and tofu. A list that has another one counts as a destruction.
const KNOWN_ACTIONS: [&str; 7] = ["no-op", "create", "read", "update", "delete", "forget", "open"];

/// The beginning of the versions of the plan's JSON that this version of Knoll reads.
const FORMAT: &str = "1.";

/// Checks that a text is the JSON of a plan.
///
/// # Errors
/// With a sentence, when it is not.
pub fn check(plan: &Value) -> Result<(), String> {
    let version = plan["format_version"].as_str().unwrap_or_default();
    if !version.starts_with(FORMAT) {
        return Err(format!(
            "the plan's JSON has the format `{version}`, and this version of Knoll reads {FORMAT}x. Use another version of terraform, or upgrade Knoll"
        ));
    }
    let is_list = |name: &str| plan.get(name).is_none_or(|value| value.is_array() || value.is_null());
    match ["resource_changes", "action_invocations"].into_iter().find(|name| !is_list(name)) {
        Some(name) => Err(format!("`{name}` of the plan's JSON is no list. Run it again")),
        None => Ok(()),
    }
}

/// The resource changes, each with the same fields.
pub fn changes(plan: &Value) -> Value {
    plan["resource_changes"].as_array().into_iter().flatten().map(change).collect()
}

fn change(resource: &Value) -> Value {
    let of = |name: &str| resource.get(name).cloned().unwrap_or_default();
    let change = &resource["change"];
    let text = |name: &str| resource[name].as_str().unwrap_or_default();
    json!({
        "address": text("address"),
        "previousAddress": text("previous_address"),
        "module": text("module_address"),
        "mode": text("mode"),
        "type": text("type"),
        "name": text("name"),
        "index": of("index"),
        "provider": text("provider_name"),
        "deposed": text("deposed"),
        "actions": actions(&change["actions"]),
        "reason": text("action_reason"),
        "importing": change.get("importing").is_some_and(|importing| !importing.is_null()),
        "before": change["before"].clone(),
        "after": change["after"].clone(),
        "afterUnknown": change["after_unknown"].clone(),
    })
}

/// The actions, with `delete` where one is not known.
fn actions(actions: &Value) -> Value {
    let Some(list) = actions.as_array() else { return json!(["delete"]) };
    let mut list = list.clone();
    let is_known = |action: &Value| action.as_str().is_some_and(|action| KNOWN_ACTIONS.contains(&action));
    if !list.iter().all(is_known) && !list.contains(&json!("delete")) {
        list.push(json!("delete"));
    }
    list.into()
}

/// The resources of the prior state, of all modules.
pub fn prior(plan: &Value) -> Value {
    let mut found = Vec::new();
    modules(&plan["prior_state"]["values"]["root_module"], &mut found);
    found.into()
}

fn modules(module: &Value, found: &mut Vec<Value>) {
    let address = module["address"].as_str().unwrap_or_default();
    for resource in module["resources"].as_array().into_iter().flatten() {
        let mut entry = Map::new();
        entry.insert("module".to_owned(), address.into());
        for (to, from) in [("address", "address"), ("mode", "mode"), ("type", "type"), ("name", "name")] {
            entry.insert(to.to_owned(), resource[from].as_str().unwrap_or_default().into());
        }
        entry.insert("provider".to_owned(), resource["provider_name"].as_str().unwrap_or_default().into());
        entry.insert("values".to_owned(), resource["values"].clone());
        found.push(entry.into());
    }
    module["child_modules"].as_array().into_iter().flatten().for_each(|child| modules(child, found));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_that_is_not_known_counts_as_a_destruction() {
        let rows = [
            (json!(["create"]), json!(["create"])),
            (json!(["delete", "create"]), json!(["delete", "create"])),
            (json!(["rename"]), json!(["rename", "delete"])),
            (json!(["update", 7]), json!(["update", 7, "delete"])),
            (json!(null), json!(["delete"])),
        ];
        for (given, expect) in rows {
            let plan = json!({"resource_changes": [{"address": "a.b", "change": {"actions": given}}]});
            assert_eq!(changes(&plan)[0]["actions"], expect);
        }
    }

    #[test]
    fn the_resources_of_all_modules_were_there_before() {
        let resource = |name: &str| json!({"address": name, "type": "t", "name": "n", "values": {"x": 1}});
        let root = json!({"resources": [resource("t.n")], "child_modules": [
            {"address": "module.m", "resources": [resource("module.m.t.n")]}]});
        let found = prior(&json!({"prior_state": {"values": {"root_module": root}}}));
        assert_eq!(found[1]["address"], "module.m.t.n");
        assert_eq!((found[1]["module"].as_str(), found[1]["values"]["x"].as_i64()), (Some("module.m"), Some(1)));
        assert_eq!(prior(&json!({})), json!([]));
    }

    #[test]
    fn only_a_plan_is_judged() {
        assert!(check(&json!({"format_version": "1.2"})).is_ok());
        for other in
            [json!({}), json!({"format_version": "2.0"}), json!({"format_version": "1.2", "resource_changes": {}})]
        {
            assert!(check(&other).is_err(), "{other}");
        }
    }
}
