//! The addresses of the resources in a state. Pure.

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    module: Option<String>,
    mode: String,
    #[serde(rename = "type")]
    type_: String,
    name: String,
    #[serde(default)]
    instances: Vec<Instance>,
}

#[derive(Deserialize)]
struct Instance {
    /// A number for `count`, a text for `for_each`.
    #[serde(default)]
    index_key: Value,
}

/// The addresses of all instances, in the order of the state. A state that cannot be read has none.
pub fn of(state: &[u8]) -> Vec<String> {
    let State { resources } = serde_json::from_slice(state).unwrap_or(State { resources: Vec::new() });
    let mut addresses: Vec<String> = resources.iter().flat_map(instances).collect();
    // An instance that is being replaced has deposed objects beside its current one.
    addresses.dedup();
    addresses
}

fn instances(resource: &Resource) -> impl Iterator<Item = String> {
    let Resource { module, mode, type_, name, instances } = resource;
    let module = module.as_ref().map(|module| format!("{module}.")).unwrap_or_default();
    let data = if mode == "data" { "data." } else { "" };
    let address = format!("{module}{data}{type_}.{name}");
    instances.iter().map(move |Instance { index_key }| match index_key {
        Value::Null => address.clone(),
        key => format!("{address}[{key}]"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_instance_has_its_address() {
        let resource = |module: Option<&str>, mode: &str, keys: &[Value]| {
            let instances: Vec<Value> = keys.iter().map(|key| json!({"index_key": key, "attributes": {}})).collect();
            json!({"module": module, "mode": mode, "type": "aws_vpc", "name": "a", "instances": instances})
        };
        let state = json!({"version": 4, "resources": [
            resource(None, "managed", &[Value::Null, Value::Null]),
            resource(Some("module.net[0]"), "managed", &[json!(0), json!("a \"b\"")]),
            resource(None, "data", &[Value::Null]),
        ]});
        let expect =
            ["aws_vpc.a", "module.net[0].aws_vpc.a[0]", "module.net[0].aws_vpc.a[\"a \\\"b\\\"\"]", "data.aws_vpc.a"];
        assert_eq!(of(state.to_string().as_bytes()), expect);
        assert!(of(b"damaged").is_empty() && of(b"{}").is_empty());
    }
}
