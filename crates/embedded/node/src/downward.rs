//! What a pod may know about itself: `fieldRef` and `resourceFieldRef`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use knoll_kube_model::Quantity as Amount;

/// The address of every pod, and of the node: containers are processes of this machine.
pub const ADDRESS: &str = "127.0.0.1";

/// The value of a field of the pod, or a sentence that says which fields there are.
pub fn field(pod: &Pod, path: &str) -> Result<String, String> {
    let spec = pod.spec.as_ref();
    let text = |value: Option<&String>| Ok(value.cloned().unwrap_or_default());
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => pod.metadata.labels.as_ref(),
            "metadata.annotations" => pod.metadata.annotations.as_ref(),
            _ => return Err(unknown(path)),
        };
        return text(map.and_then(|map| map.get(key)));
    }
    match path {
        "metadata.name" => text(pod.metadata.name.as_ref()),
        "metadata.namespace" => text(pod.metadata.namespace.as_ref()),
        "metadata.uid" => text(pod.metadata.uid.as_ref()),
        "metadata.labels" => Ok(lines(pod.metadata.labels.as_ref())),
        "metadata.annotations" => Ok(lines(pod.metadata.annotations.as_ref())),
        "spec.nodeName" => text(spec.and_then(|spec| spec.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.podIP" | "status.podIPs" | "status.hostIP" | "status.hostIPs" => Ok(ADDRESS.to_owned()),
        _ => Err(unknown(path)),
    }
}

fn unknown(path: &str) -> String {
    format!(
        "the field `{path}` cannot be referred to; those that can are metadata.name, .namespace, .uid, .labels['KEY'] and .annotations['KEY'], spec.nodeName, spec.serviceAccountName, status.podIP and status.hostIP"
    )
}

/// A map as the downward API writes it to a file.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

/// The value of a container's resource, in units of the divisor, rounded up.
pub fn resource(container: &Container, selector: &ResourceFieldSelector) -> Result<String, String> {
    let (list, name) = selector.resource.split_once('.').unwrap_or(("", &selector.resource));
    let resources = container.resources.as_ref();
    let asked = match list {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => {
            return Err(format!("the resource `{}` must start with `limits.` or `requests.`", selector.resource));
        }
    };
    let divisor = match &selector.divisor {
        Some(divisor) => quantity(divisor)?,
        None => Amount::whole(1),
    };
    let value = match asked.and_then(|map| map.get(name)) {
        Some(value) => quantity(value)?,
        // What is not limited is limited by the machine.
        None if list == "limits" && name == "cpu" => {
            Amount::whole(std::thread::available_parallelism().map_or(1, |n| n.get() as i64))
        }
        None => Amount::whole(0),
    };
    Ok(value.divide(divisor).to_string())
}

fn quantity(quantity: &Quantity) -> Result<Amount, String> {
    Amount::parse(&quantity.0).ok_or_else(|| format!("`{}` is not a quantity", quantity.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn fields_have_their_values() {
        let pod: Pod = from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "1", "b/c": "x\"y"}, "annotations": {"k": "v"}},
            "spec": {"nodeName": "knoll", "serviceAccountName": "sa", "containers": []},
        }))
        .unwrap();
        for (path, expect) in [
            ("metadata.name", "p"),
            ("metadata.namespace", "n"),
            ("metadata.uid", "u"),
            ("metadata.labels['b/c']", "x\"y"),
            ("metadata.labels['no']", ""),
            ("metadata.annotations['k']", "v"),
            ("metadata.labels", "a=\"1\"\nb/c=\"x\\\"y\""),
            ("spec.nodeName", "knoll"),
            ("spec.serviceAccountName", "sa"),
            ("status.podIP", "127.0.0.1"),
        ] {
            assert_eq!(field(&pod, path).as_deref(), Ok(expect), "{path}");
        }
        assert!(field(&pod, "spec.hostname").unwrap_err().contains("`spec.hostname`"));
        assert!(field(&pod, "spec['x']").is_err());
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let container: Container = from_value(json!({
            "name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "0.25", "memory": "100M"}},
        }))
        .unwrap();
        for (name, divisor, expect) in [
            ("limits.cpu", None, "2"),
            ("limits.cpu", Some("1m"), "1500"),
            ("limits.memory", Some("1Mi"), "1024"),
            ("requests.cpu", Some("1m"), "250"),
            ("requests.cpu", Some("0"), "1"),
            ("requests.memory", None, "100000000"),
            ("requests.ephemeral-storage", None, "0"),
        ] {
            let selector = ResourceFieldSelector {
                resource: name.into(),
                divisor: divisor.map(|divisor| Quantity(divisor.into())),
                container_name: None,
            };
            assert_eq!(resource(&container, &selector).as_deref(), Ok(expect), "{name} {divisor:?}");
        }
    }
}
