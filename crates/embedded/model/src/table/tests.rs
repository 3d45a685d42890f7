#![allow(clippy::unwrap_used, reason = "tests")]

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::jsonpath::JsonPath;
use super::*;

fn now() -> Timestamp {
    "2024-01-01T01:00:00Z".parse().unwrap()
}

#[test]
fn ages_are_as_kubectl_prints_them() {
    let (minute, hour, day) = (60, 3600, 86400);
    let rows = [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (10 * minute + 5, "10m"),
        (179 * minute, "179m"),
        (3 * hour, "3h"),
        (3 * hour + 5 * minute, "3h5m"),
        (8 * hour + 5 * minute, "8h"),
        (47 * hour, "47h"),
        (2 * day, "2d"),
        (2 * day + hour, "2d1h"),
        (8 * day + hour, "8d"),
        (729 * day, "729d"),
        (730 * day, "2y"),
        (731 * day, "2y1d"),
        (8 * 365 * day + day, "8y"),
    ];
    for (seconds, expect) in rows {
        assert_eq!(age::human(seconds), expect, "{seconds}");
    }
    assert_eq!(age::since(None, now()), "<unknown>");
    assert_eq!(age::since(Some("2024-01-01T00:59:00.5Z"), now()), "59s");
}

#[test]
fn paths_lead_where_they_should() {
    let object = json!({
        "a": {"b": [{"c": 1}, {"c": 2}, {"c": 3}], "x.y": "dotted", "x-y": "dashed"},
        "conditions": [{"type": "A", "n": 1}, {"type": "Ready", "status": "True", "n": 2}],
        "flag": true
    });
    let rows = [
        (".a.b[0].c", json!([1])),
        ("$.a.b[1].c", json!([2])),
        (".a.b[-1].c", json!([3])),
        (".a.b[*].c", json!([1, 2, 3])),
        (".a.b[0:2].c", json!([1, 2])),
        (".a.b[1:].c", json!([2, 3])),
        (".a.b[::2].c", json!([1, 3])),
        (".a.b[0,2].c", json!([1, 3])),
        (".a.x\\.y", json!(["dotted"])),
        (".a['x\\.y']", json!(["dotted"])),
        (".a['x-y']", json!(["dashed"])),
        (".a.none", json!([])),
        (".none.more", json!([])),
        ("..c", json!([1, 2, 3])),
        (".conditions[?(@.type==\"Ready\")].status", json!(["True"])),
        (".conditions[?(@.type=='Ready')].status", json!(["True"])),
        (".conditions[?(@.type!=\"Ready\")].type", json!(["A"])),
        (".conditions[?(@.status)].type", json!(["Ready"])),
        (".conditions[?(@.n>1)].type", json!(["Ready"])),
        (".conditions[?(@.n<=1)].type", json!(["A"])),
        (".conditions[?(@.type==\")\")].type", json!([])),
        (".flag", json!([true])),
        ("", json!([object])),
    ];
    for (path, expect) in rows {
        let found: Vec<_> =
            JsonPath::parse(path).unwrap().find(&object).unwrap().into_iter().map(|value| value.into_owned()).collect();
        assert_eq!(Value::Array(found), expect, "{path}");
    }
    for nowhere in [".a.b[7]", ".a[0]", ".flag[?(@.x)]"] {
        assert_eq!(JsonPath::parse(nowhere).unwrap().find(&object), None, "{nowhere}");
    }
    for wrong in [".a[", ".a[x]", ".a[?(@.b", ".a[?(@.b==1)", "..", "....a", "'a", "#", ".a[?(@.b=<1)]"]
        .iter()
        .filter(|path| **path != "..")
    {
        assert!(JsonPath::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn custom_columns_are_filled_as_kubernetes_does() {
    let column = |name: &str, ty: &str, path: &str| json!({"name": name, "type": ty, "jsonPath": path});
    let columns = Columns::custom(&[
        column("Replicas", "integer", ".spec.replicas"),
        column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
        column("Odd", "string", ".spec.labels.a\\.b"),
        column("Null", "string", ".spec.nothing"),
        column("Obj", "string", ".spec.labels"),
        column("Third", "string", ".spec.list[2]"),
        column("Last", "string", ".spec.list[-1]"),
        column("All", "string", ".spec.list[*]"),
        column("Num", "number", ".spec.ratio"),
        column("Flag", "boolean", ".spec.flag"),
        column("When", "date", ".spec.when"),
        column("BadWhen", "date", ".spec.name"),
        column("IntOfText", "integer", ".spec.name"),
        column("TextOfFloat", "string", ".spec.ratio"),
        column("Key", "string", ".spec.labels['k']"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]);
    // Both rows are what kube-apiserver 1.34 answered.
    let full = json!({
        "metadata": {"name": "t1", "creationTimestamp": "2024-01-01T01:00:00Z"},
        "spec": {
            "replicas": 3, "name": "nm", "flag": true, "ratio": 2.5, "when": "2018-01-01T01:00:00Z", "nothing": null,
            "labels": {"a.b": "dotted", "k": "kv"}, "list": ["x", "y", "z"]
        },
        "status": {"conditions": [{"type": "Other", "status": "Nope"}, {"type": "Ready", "status": "True"}]}
    });
    let expect = json!([
        "t1",
        3,
        "True",
        "dotted",
        "<no value>",
        "{\"a.b\":\"dotted\",\"k\":\"kv\"}",
        "z",
        "z",
        "x",
        2.5,
        true,
        "6y1d",
        "<invalid>",
        null,
        "2.5",
        "kv",
        "0s"
    ]);
    assert_eq!(Value::Array(columns.cells(&full, now())), expect);
    let sparse = json!({
        "metadata": {"name": "t2", "creationTimestamp": "2024-01-01T01:00:00Z"},
        "spec": {"ratio": 3, "list": ["only"], "when": ""}
    });
    let expect = json!([
        "t2",
        null,
        null,
        null,
        null,
        null,
        null,
        "only",
        "only",
        3,
        null,
        "<unknown>",
        null,
        null,
        "3",
        null,
        "0s"
    ]);
    assert_eq!(Value::Array(columns.cells(&sparse, now())), expect);
    let definition = columns.definitions()[1].to_value();
    assert_eq!(definition["description"], "Custom resource definition column (in JSONPath format): .spec.replicas");
}

#[test]
fn custom_resources_without_columns_have_an_age() {
    let columns = Columns::custom(&[]);
    let names: Vec<_> = columns.definitions().iter().map(|column| column.name.as_ref()).collect();
    assert_eq!(names, ["Name", "Age"]);
    let object = json!({"metadata": {"name": "x", "creationTimestamp": "2024-01-01T00:00:00Z"}});
    assert_eq!(columns.cells(&object, now()), [json!("x"), json!("60m")]);
}

#[test]
fn tables_hold_what_is_asked_for() {
    let columns = Columns::built_in("v1", "ConfigMap");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "resourceVersion": "7"}, "data": {"a": "1"}});
    let all = table(&columns, [&object], IncludeObject::parse("").unwrap(), now(), &json!({"resourceVersion": "9"}));
    assert_eq!(all["metadata"], json!({"resourceVersion": "9"}));
    assert_eq!(all["columnDefinitions"][0]["format"], "name");
    let metadata = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "x", "resourceVersion": "7"}});
    assert_eq!(all["rows"], json!([{"cells": ["x", 1, "<unknown>"], "object": metadata}]));
    let later = single(&columns, &object, IncludeObject::parse("None").unwrap(), now(), false);
    assert_eq!(later["columnDefinitions"], Value::Null);
    assert_eq!((&later["metadata"]["resourceVersion"], &later["rows"][0]["object"]), (&json!("7"), &Value::Null));
    assert_eq!(single(&columns, &object, IncludeObject::Object, now(), true)["rows"][0]["object"], object);
    assert!(IncludeObject::parse("All").is_err());
}

#[track_caller]
fn check_pod(status: Value, spec: Value, expect: [&str; 3]) {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec, "status": status});
    if pod["status"].as_object_mut().unwrap().remove("deleted").is_some() {
        pod["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    }
    let cells = Columns::built_in("v1", "Pod").cells(&pod, now());
    assert_eq!([&cells[1], &cells[2], &cells[3]].map(|cell| cell.as_str().unwrap()), expect, "{pod}");
}

#[test]
fn pods_show_how_they_are() {
    let one = || json!({"containers": [{"name": "a"}]});
    let init = || json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}]});
    let waiting = |reason: &str| json!({"state": {"waiting": {"reason": reason}}});
    let running = || json!({"ready": true, "state": {"running": {}}});
    let done = |reason: &str, exit: i64| json!({"state": {"terminated": {"reason": reason, "exitCode": exit}}});
    check_pod(json!({"phase": "Pending"}), one(), ["0/1", "Pending", "0"]);
    check_pod(json!({"phase": "Failed", "reason": "Evicted"}), one(), ["0/1", "Evicted", "0"]);
    check_pod(
        json!({"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
        one(),
        ["0/1", "SchedulingGated", "0"],
    );
    check_pod(
        json!({"phase": "Pending", "containerStatuses": [waiting("ContainerCreating")]}),
        one(),
        ["0/1", "ContainerCreating", "0"],
    );
    check_pod(json!({"phase": "Running", "containerStatuses": [running()]}), one(), ["1/1", "Running", "0"]);
    check_pod(
        json!({"phase": "Succeeded", "containerStatuses": [done("Completed", 0)]}),
        one(),
        ["0/1", "Completed", "0"],
    );
    check_pod(json!({"phase": "Failed", "containerStatuses": [done("", 3)]}), one(), ["0/1", "ExitCode:3", "0"]);
    check_pod(
        json!({"containerStatuses": [{"state": {"terminated": {"signal": 9, "exitCode": 137}}}]}),
        one(),
        ["0/1", "Signal:9", "0"],
    );
    let crashed = json!({
        "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"finishedAt": "2024-01-01T00:58:00Z"}}
    });
    check_pod(
        json!({"phase": "Running", "containerStatuses": [crashed]}),
        one(),
        ["0/1", "CrashLoopBackOff", "4 (2m ago)"],
    );
    check_pod(
        json!({"phase": "Running", "deleted": true, "containerStatuses": [running()]}),
        one(),
        ["1/1", "Terminating", "0"],
    );
    check_pod(json!({"phase": "Running", "deleted": true, "reason": "NodeLost"}), one(), ["0/1", "Unknown", "0"]);
    check_pod(
        json!({"phase": "Pending", "initContainerStatuses": [waiting("PodInitializing")]}),
        init(),
        ["0/1", "Init:0/2", "0"],
    );
    check_pod(
        json!({"phase": "Pending", "initContainerStatuses": [done("Completed", 0), waiting("ImagePullBackOff")]}),
        init(),
        ["0/1", "Init:ImagePullBackOff", "0"],
    );
    check_pod(
        json!({"phase": "Pending", "initContainerStatuses": [done("Error", 1)]}),
        init(),
        ["0/1", "Init:Error", "0"],
    );
    check_pod(
        json!({"phase": "Pending", "initContainerStatuses": [done("", 2)]}),
        init(),
        ["0/1", "Init:ExitCode:2", "0"],
    );
    let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let mixed = json!([done("Completed", 0), running()]);
    check_pod(json!({"phase": "Running", "containerStatuses": mixed}), two.clone(), ["1/2", "NotReady", "0"]);
    check_pod(
        json!({"phase": "Running", "containerStatuses": mixed, "conditions": [{"type": "Ready", "status": "True"}]}),
        two,
        ["1/2", "Running", "0"],
    );
    let sidecar = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]});
    let started = json!({"name": "s", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}});
    check_pod(
        json!({"phase": "Running", "initContainerStatuses": [started], "containerStatuses": [running()]}),
        sidecar,
        ["2/2", "Running", "1"],
    );
}

#[test]
fn finished_pods_say_so_in_their_row() {
    let columns = Columns::built_in("v1", "Pod");
    let pod =
        |phase: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"phase": phase}});
    let row = |phase: &str| single(&columns, &pod(phase), IncludeObject::None, now(), false)["rows"][0].clone();
    assert_eq!(row("Failed")["conditions"][0]["reason"], "Failed");
    assert_eq!(row("Succeeded")["conditions"][0]["type"], "Completed");
    assert_eq!(row("Running").get("conditions"), None);
}

#[track_caller]
fn check(api_version: &str, kind: &str, object: Value, expect: Value) {
    let mut object = object;
    object["metadata"]["name"] = json!("x");
    object["metadata"]["creationTimestamp"] = json!("2024-01-01T00:59:00Z");
    let columns = Columns::built_in(api_version, kind);
    let cells = columns.cells(&object, now());
    assert_eq!(cells.len(), columns.definitions().len(), "{kind}");
    assert_eq!(Value::Array(cells), expect, "{kind}");
}

#[test]
fn built_in_kinds_have_their_columns() {
    check("v1", "Namespace", json!({"status": {"phase": "Active"}}), json!(["x", "Active", "60s"]));
    check("v1", "ConfigMap", json!({"data": {"a": ""}, "binaryData": {"b": ""}}), json!(["x", 2, "60s"]));
    check("v1", "Secret", json!({"type": "Opaque", "data": {"a": ""}}), json!(["x", "Opaque", 1, "60s"]));
    check("v1", "ServiceAccount", json!({"secrets": [{}]}), json!(["x", 1, "60s"]));
    check("coordination.k8s.io/v1", "Lease", json!({"spec": {"holderIdentity": "me"}}), json!(["x", "me", "60s"]));
    check("apiextensions.k8s.io/v1", "CustomResourceDefinition", json!({}), json!(["x", "2024-01-01T00:59:00Z"]));
    check("rbac.authorization.k8s.io/v1", "ClusterRole", json!({}), json!(["x", "2024-01-01T00:59:00Z"]));
    let subjects = json!([
        {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"}, {"kind": "Group", "name": "g"},
        {"kind": "ServiceAccount", "namespace": "n", "name": "s"}
    ]);
    check(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": subjects}),
        json!(["x", "Role/r", "60s", "u, v", "g", "n/s"]),
    );
    let node = json!({
        "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}],
            "nodeInfo": {"kubeletVersion": "v1", "osImage": "o"}
        }
    });
    check(
        "v1",
        "Node",
        node,
        json!([
            "x",
            "Ready,SchedulingDisabled",
            "edge,worker",
            "60s",
            "v1",
            "1.1.1.1",
            "<none>",
            "o",
            "<unknown>",
            "<unknown>"
        ]),
    );
    let event = json!({
        "type": "Normal", "reason": "R", "message": " m\n", "count": 2, "source": {"component": "c", "host": "h"},
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "f"},
        "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:59:00Z"
    });
    check("v1", "Event", event, json!(["60s", "Normal", "R", "pod/p", "f", "c, h", "m", "60m", 2, "x"]));
    let series = json!({
        "type": "Warning", "reason": "R", "note": "m", "reportingController": "c", "regarding": {"kind": "Pod"},
        "eventTime": "2024-01-01T00:00:00.000000Z", "series": {"count": 7, "lastObservedTime": "2024-01-01T00:59:30.000000Z"}
    });
    check("events.k8s.io/v1", "Event", series, json!(["30s", "Warning", "R", "pod", "", "c", "m", "60m", 7, "x"]));
}

fn any_json() -> impl Strategy<Value = Value> {
    let keys = [
        "metadata",
        "name",
        "spec",
        "status",
        "containers",
        "containerStatuses",
        "initContainerStatuses",
        "conditions",
        "type",
        "state",
        "terminated",
        "ports",
        "a",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(prop::sample::select(keys.to_vec()), inner, 0..5).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_breaks_tables(object in any_json(), path in "[.a-c\\[\\]0-9:*'\"?(@)=<> ,\\\\-]{0,16}") {
        for (api_version, kind) in [("v1", "Pod"), ("v1", "Node"), ("v1", "Event"), ("v1", "Other")] {
            let columns = Columns::built_in(api_version, kind);
            prop_assert_eq!(columns.cells(&object, now()).len(), columns.definitions().len());
        }
        if let Ok(path) = JsonPath::parse(&path) {
            let _ = path.find(&object);
        }
        let columns = Columns::custom(&[json!({"name": "n", "type": "string", "jsonPath": path}), object.clone()]);
        prop_assert_eq!(columns.cells(&object, now()).len(), columns.definitions().len());
        let _ = age::human(object.as_i64().unwrap_or_default());
    }
}
