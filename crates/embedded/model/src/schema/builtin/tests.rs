#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Instant;

use serde_json::json;

use super::*;
use crate::schema::{ListType, MapType};

fn at<'a>(schema: &'a Schema, path: &str) -> &'a Schema {
    path.split('.').fold(schema, |schema, step| match step {
        "[]" => schema.items.as_deref().unwrap(),
        name => schema.field(name).unwrap_or_else(|| panic!("{name} of {path}")),
    })
}

#[test]
fn every_kind_has_a_schema() {
    for (group, version, kind) in kinds() {
        let schema = builtin(group, version, kind).unwrap();
        assert!(schema.properties.contains_key("metadata"), "{kind}");
        let json = builtin_json(group, version, kind).unwrap();
        assert!(json.schemas.contains_key(&json.name), "{kind}");
        for reference in serde_json::to_string(&json.schemas).unwrap().split("\"$ref\":\"#/components/schemas/").skip(1)
        {
            let name = reference.split('"').next().unwrap();
            assert!(json.schemas.contains_key(name), "{kind} refers to {name}");
        }
    }
    assert!(builtin("", "v1", "Nothing").is_none());
}

#[test]
fn lists_and_maps_merge_as_on_a_cluster() {
    let pod = builtin("", "v1", "Pod").unwrap();
    let map = |keys: &[&str]| ListType::Map(keys.iter().map(|k| (*k).to_owned()).collect());
    for (path, list, key) in [
        ("spec.containers", map(&["name"]), Some("name")),
        ("spec.containers.[].ports", map(&["containerPort", "protocol"]), Some("containerPort")),
        ("spec.containers.[].env", map(&["name"]), Some("name")),
        ("spec.initContainers.[].volumeMounts", map(&["mountPath"]), Some("mountPath")),
        ("spec.volumes", map(&["name"]), Some("name")),
        ("spec.tolerations", ListType::Atomic, None),
        ("metadata.finalizers", ListType::Set, None),
        ("metadata.ownerReferences", map(&["uid"]), Some("uid")),
        ("status.podIPs", map(&["ip"]), Some("ip")),
        ("status.hostIPs", ListType::Atomic, Some("ip")),
        ("status.containerStatuses", ListType::Atomic, None),
        ("status.conditions", map(&["type"]), Some("type")),
    ] {
        let field = at(&pod, path);
        assert_eq!(field.list_type, list, "{path}");
        assert_eq!(field.strategy.merge_key.as_deref(), key, "{path}");
    }
    assert!(at(&pod, "spec.volumes").strategy.retain_keys);
    assert!(at(&pod, "metadata.finalizers").strategy.merge);
    for (path, ty) in [
        ("spec.nodeSelector", MapType::Atomic),
        ("spec.containers.[].env.[].valueFrom.secretKeyRef", MapType::Atomic),
        ("spec.containers.[].resources.limits", MapType::Granular),
        ("spec.imagePullSecrets.[]", MapType::Atomic),
        ("metadata.labels", MapType::Granular),
    ] {
        assert_eq!(at(&pod, path).map_type, ty, "{path}");
    }
    let protocol = at(&pod, "spec.containers.[].ports.[].protocol");
    assert_eq!(protocol.default, Some(json!("TCP")));
    assert_eq!(at(&pod, "metadata.finalizers").description.as_deref().map(str::is_empty), Some(false));
}

#[test]
fn objects_are_pruned_and_checked() {
    let pod = builtin("", "v1", "Pod").unwrap();
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "creationTimestamp": null},
        "spec": {
            "containers": [{
                "name": "a", "image": "b", "bad": 1,
                "resources": {"limits": {"cpu": 0.5, "memory": "1Gi"}},
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": "http"}},
            }],
        },
        "status": {"containerStatuses": [{"name": "a"}]},
    });
    assert_eq!(pod.prune(&mut object), ["spec.containers[0].bad"]);
    pod.apply_defaults(&mut object);
    assert_eq!(object["spec"]["containers"][0]["ports"][0]["protocol"], "TCP");
    assert_eq!(object["metadata"], json!({"name": "a"}));
    assert_eq!(pod.validate(&object, None), []);

    object["spec"]["containers"][0]["image"] = json!(5);
    object["spec"]["containers"][0].as_object_mut().unwrap().remove("name");
    let errors: Vec<String> = pod.validate(&object, None).iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            r#"spec.containers[0].image: Invalid value: "integer": spec.containers[0].image in body must be of type string: "integer""#,
        ]
    );
}

#[test]
fn definitions_hold_any_schema() {
    let crd = builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    let mut object = json!({"spec": {
        "group": "g", "scope": "Namespaced", "names": {"kind": "K", "plural": "ks"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "default": {"a": [1]}, "additionalProperties": true,
                "x-kubernetes-preserve-unknown-fields": true}},
        }}}],
    }});
    let before = object.clone();
    assert_eq!(crd.prune(&mut object), Vec::<String>::new());
    assert_eq!(object, before);
    assert_eq!(crd.validate(&object, None), []);
}

#[test]
fn a_schema_is_made_once() {
    let first = builtin("", "v1", "Pod").unwrap();
    let start = Instant::now();
    assert!(Arc::ptr_eq(&first, &builtin("", "v1", "Pod").unwrap()));
    assert!(start.elapsed().as_millis() < 50);
}
