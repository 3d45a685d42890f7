//! Bodies as kubectl 1.32 and Go's typed clients put them on the wire, and the objects that they mean.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::protobuf::decode;

#[track_caller]
fn check(hex: &str, expect: Value) {
    assert_eq!(decode(&unhex(hex)).unwrap(), expect);
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// `kubectl create configmap a --from-literal=x=y`
#[test]
fn config_map() {
    check(
        "6b3873000a0f0a0276311209436f6e6669674d6170121b0a110a016112001a0022002a0032003800\
        420012060a01781201791a002200",
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "y"},
        }),
    );
}

/// `kubectl create secret generic s --from-literal=password=hunter2`
#[test]
fn secret() {
    check(
        "6b3873000a0c0a0276311206536563726574122a0a110a017312001a0022002a0032003800420012\
        130a0870617373776f7264120768756e746572321a001a002200",
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="},
        }),
    );
}

/// `kubectl create secret docker-registry r --docker-username=u --docker-password=p --docker-server=example.org`
#[test]
fn secret_for_a_registry() {
    check(
        "6b3873000a0c0a02763112065365637265741291010a110a017212001a0022002a00320038004200\
        125c0a112e646f636b6572636f6e6669676a736f6e12477b226175746873223a7b226578616d706c\
        652e6f7267223a7b22757365726e616d65223a2275222c2270617373776f7264223a2270222c2261\
        757468223a2264547077227d7d7d1a1e6b756265726e657465732e696f2f646f636b6572636f6e66\
        69676a736f6e1a002200",
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "r"}, "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": STANDARD.encode(
                r#"{"auths":{"example.org":{"username":"u","password":"p","auth":"dTpw"}}}"#,
            )},
        }),
    );
}

/// `kubectl create namespace n`
#[test]
fn namespace() {
    check(
        "6b3873000a0f0a02763112094e616d65737061636512190a110a016e12001a0022002a0032003800\
        420012001a020a001a002200",
        json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"},
        }),
    );
}

/// `kubectl create serviceaccount sa`
#[test]
fn service_account() {
    check(
        "6b3873000a140a027631120e536572766963654163636f756e7412140a120a02736112001a002200\
        2a003200380042001a002200",
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"},
        }),
    );
}

/// `kubectl create token sa --duration=10m --audience=knoll`
#[test]
fn token_request() {
    check(
        "6b3873000a280a1861757468656e7469636174696f6e2e6b38732e696f2f7631120c546f6b656e52\
        65717565737412240a100a0012001a0022002a00320038004200120a0a056b6e6f6c6c20d8041a04\
        0a0012001a002200",
        json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["knoll"], "expirationSeconds": 600},
            "status": {"token": ""},
        }),
    );
}

/// `kubectl create clusterrole cr --verb=get --non-resource-url=/healthz`
#[test]
fn cluster_role() {
    check(
        "6b3873000a2b0a1c726261632e617574686f72697a6174696f6e2e6b38732e696f2f7631120b436c\
        7573746572526f6c6512250a120a02637212001a0022002a00320038004200120f0a036765742a08\
        2f6865616c74687a1a002200",
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "cr"},
            "rules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
        }),
    );
}

/// `kubectl create rolebinding rb --role=r --serviceaccount=default:sa`
#[test]
fn role_binding() {
    check(
        "6b3873000a2b0a1c726261632e617574686f72697a6174696f6e2e6b38732e696f2f7631120b526f\
        6c6542696e64696e67125b0a120a02726212001a0022002a00320038004200121f0a0e5365727669\
        63654163636f756e7412001a027361220764656661756c741a240a19726261632e617574686f7269\
        7a6174696f6e2e6b38732e696f1204526f6c651a01721a002200",
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "rb"},
            "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        }),
    );
}

/// `kubectl create clusterrolebinding crb --clusterrole=view --user=u`
#[test]
fn cluster_role_binding() {
    check(
        "6b3873000a320a1c726261632e617574686f72697a6174696f6e2e6b38732e696f2f76311212436c\
        7573746572526f6c6542696e64696e67126d0a130a0363726212001a0022002a0032003800420012\
        260a04557365721219726261632e617574686f72697a6174696f6e2e6b38732e696f1a017522001a\
        2e0a19726261632e617574686f72697a6174696f6e2e6b38732e696f120b436c7573746572526f6c\
        651a04766965771a002200",
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "crb"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        }),
    );
}

/// `kubectl auth can-i get pods`
#[test]
fn can_i_for_a_resource() {
    check(
        "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c66537562\
        6a656374416363657373526576696577123c0a100a0012001a0022002a00320038004200121e0a1c\
        0a0764656661756c7412036765741a0022002a04706f647332003a001a08080012001a0020001a00\
        2200",
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}},
            "status": {"allowed": false},
        }),
    );
}

/// `kubectl auth can-i get /healthz`
#[test]
fn can_i_for_a_path() {
    check(
        "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c66537562\
        6a656374416363657373526576696577122f0a100a0012001a0022002a003200380042001211120f\
        0a082f6865616c74687a12036765741a08080012001a0020001a002200",
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}},
            "status": {"allowed": false},
        }),
    );
}

/// `kubectl auth can-i --list`
#[test]
fn can_i_list() {
    check(
        "6b3873000a310a17617574686f72697a6174696f6e2e6b38732e696f2f7631121653656c66537562\
        6a65637452756c657352657669657712230a100a0012001a0022002a0032003800420012090a0764\
        656661756c741a04180022001a002200",
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": "default"},
            "status": {"incomplete": false},
        }),
    );
}

/// `kubectl auth whoami`
#[test]
fn whoami() {
    check(
        "6b3873000a2d0a1861757468656e7469636174696f6e2e6b38732e696f2f7631121153656c665375\
        626a656374526576696577121a0a100a0012001a0022002a0032003800420012060a040a0012001a\
        002200",
        json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
        }),
    );
}

/// A CustomResourceDefinition as client-go 0.34 writes it, with every field of a schema that a client can set.
#[test]
fn custom_resource_definition() {
    let hex: String = include_str!("widgets.hex").split_whitespace().collect();
    check(&hex, serde_json::from_str(include_str!("widgets.json")).unwrap());
}

/// A pod as Go's typed client writes it: zeros behind pointers stay, other zeros go.
#[test]
fn pod_of_a_typed_client() {
    check(
        "6b3873000a090a0276311203506f6412c7020a400a00120472756e2d1a0764656661756c7422002a\
        003200380042005a0a0a03617070120372756e6a170a09436f6e6669674d61701a016f2201752a02\
        7631300012ed010a0c0a04776f726b120412020a000a210a05746f6b656e1218d201150a1322110a\
        056b6e6f6c6c10d8041a05746f6b656e1293010a046d61696e120762757379626f781a0273681a02\
        2d631a002a003a090a05454d50545912003a130a034b455912001a0a22080a030a017312016b420f\
        0a0d0a0363707512060a043530306d4a130a04776f726b10011a052f776f726b2200320052200a14\
        12120a00120a080110001a04687474701a002200100018002005280030006a007200800100880100\
        900100a201001a054e657665722000320042004a0052005800600068008201008a01009a0100a801\
        00c201001a130a001a0022002a0032004a005a0072008801001a002200",
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "generateName": "run-", "namespace": "default", "labels": {"app": "run"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "controller": false},
                ],
            },
            "spec": {
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
                "volumes": [
                    {"name": "work", "emptyDir": {}},
                    {"name": "token", "projected": {"sources": [
                        {"serviceAccountToken": {"audience": "knoll", "expirationSeconds": 600, "path": "token"}},
                    ]}},
                ],
                "containers": [{
                    "name": "main", "image": "busybox", "command": ["sh", "-c", ""],
                    "env": [
                        {"name": "EMPTY"},
                        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    ],
                    "resources": {"limits": {"cpu": "500m"}},
                    "volumeMounts": [{"name": "work", "readOnly": true, "mountPath": "/work"}],
                    "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 5},
                }],
            },
        }),
    );
}

/// An event as Go's recorder writes it.
#[test]
fn event_of_a_recorder() {
    check(
        "6b3873000a0b0a02763112054576656e7412670a180a016512001a0764656661756c7422002a0032\
        003800420012120a03506f6412001a017022002a0032003a001a075374617274656422016d2a050a\
        01631200320808bf949abe0610003a0808bf949abe06100040014a064e6f726d616c520062007200\
        7a001a002200",
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "p"},
            "reason": "Started", "message": "m", "type": "Normal", "count": 1,
            "source": {"component": "c"},
            "firstTimestamp": "2025-03-04T05:06:07Z", "lastTimestamp": "2025-03-04T05:06:07Z",
            "reportingComponent": "", "reportingInstance": "",
        }),
    );
}

/// A lease as Go's leader election writes it.
#[test]
fn lease_of_an_election() {
    check(
        "6b3873000a1f0a16636f6f7264696e6174696f6e2e6b38732e696f2f763112054c6561736512270a\
        110a016c12001a0022002a0032003800420012120a00100f220a08bf949abe0610a8b70528001a00\
        2200",
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {
                "holderIdentity": "", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                "renewTime": "2025-03-04T05:06:07.000089Z",
            },
        }),
    );
}

/// The options of a delete carry the version of what they delete.
#[test]
fn options_of_a_delete() {
    check(
        "6b3873000a180a07617070732f7631120d44656c6574654f7074696f6e7312130800120312013722\
        0a4261636b67726f756e641a002200",
        json!({
            "apiVersion": "apps/v1", "kind": "DeleteOptions",
            "gracePeriodSeconds": 0, "preconditions": {"resourceVersion": "7"}, "propagationPolicy": "Background",
        }),
    );
}
