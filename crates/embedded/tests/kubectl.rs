//! Plain kubectl against the embedded API server, over TLS, as a user would call it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use cluster::TestCluster;

struct Kubectl<'a>(&'a TestCluster);

impl Kubectl<'_> {
    fn command(&self, words: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.0.kubeconfig()).arg("--cache-dir").arg(self.0.folder().join("kube-cache"));
        // It lives too short to clear its memory up.
        command.args(words.split_whitespace()).env("GOGC", "400");
        command
    }

    fn output(&self, words: &str, input: &str) -> Output {
        let mut child = self
            .command(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl must be on the PATH");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Runs kubectl, which must succeed, and gives what it printed.
    #[track_caller]
    fn ok(&self, words: &str, input: &str) -> String {
        let output = self.output(words, input);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {words}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs kubectl, which must fail, and gives what it complained of.
    #[track_caller]
    fn fails(&self, words: &str, input: &str) -> String {
        let output = self.output(words, input);
        assert!(!output.status.success(), "kubectl {words} must fail");
        String::from_utf8(output.stderr).unwrap()
    }
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {app: web}}\ndata: {x: '1', z: '2'}\n";
const MAP_WITHOUT_Z: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {app: web}}\ndata: {x: '1'}\n";

fn run(test: impl FnOnce(Kubectl<'_>)) {
    let cluster = TestCluster::start();
    test(Kubectl(&cluster));
}

#[test]
fn api_resources_lists_every_kind() {
    run(|k| {
        let listed = k.ok("api-resources", "");
        for kind in ["ConfigMap", "Pod", "Lease", "CustomResourceDefinition", "Namespace", "Secret", "TokenReview"] {
            assert!(listed.contains(kind), "{kind} in {listed}");
        }
        assert!(k.ok("get --raw /readyz", "").contains("ok"));
        assert!(k.ok("version -o json", "").contains("serverVersion"));
    });
}

#[test]
fn get_in_every_output_form() {
    run(|k| {
        k.ok("create -f -", MAP);
        assert!(k.ok("get cm a", "").contains("a      2      "), "{}", k.ok("get cm a", ""));
        assert!(k.ok("get cm a -o wide", "").contains("NAME"));
        assert!(k.ok("get cm a -o yaml", "").contains("x: \"1\""));
        assert!(k.ok("get cm a -o json", "").contains("\"x\": \"1\""));
        assert_eq!(k.ok("get cm a -o name", ""), "configmap/a\n");
        assert_eq!(k.ok("get cm -l app=web -o name", ""), "configmap/a\n");
        assert_eq!(k.ok("get cm -l app!=web,app -o name", ""), "");
        assert_eq!(k.ok("get cm --field-selector metadata.name=a -o name", ""), "configmap/a\n");
        assert!(k.ok("get cm -A", "").contains("kube-root-ca.crt"));
        assert!(k.fails("get cm nope", "").contains("configmaps \"nope\" not found"));
        assert!(k.fails("get gizmos", "").contains("the server doesn't have a resource type \"gizmos\""));
        assert!(k.ok("describe cm a", "").contains("Name:         a"));
    });
}

#[test]
fn create_apply_and_server_side_apply() {
    run(|k| {
        assert_eq!(k.ok("apply -f -", MAP), "configmap/a created\n");
        assert_eq!(k.ok("apply -f -", MAP), "configmap/a unchanged\n");
        assert_eq!(k.ok("apply -f -", MAP_WITHOUT_Z), "configmap/a configured\n");
        assert_eq!(k.ok("get cm a -o jsonpath={.data}", ""), "{\"x\":\"1\"}");
        assert!(k.fails("create -f -", MAP).contains("AlreadyExists"));
        let b = MAP.replace("name: a", "name: b");
        assert_eq!(k.ok("apply --server-side -f -", &b), "configmap/b serverside-applied\n");
        let without = MAP_WITHOUT_Z.replace("name: a", "name: b");
        k.ok("apply --server-side -f -", &without);
        assert_eq!(k.ok("get cm b -o jsonpath={.data}", ""), "{\"x\":\"1\"}");
        let other = without.replace("x: '1'", "x: '9'");
        let conflict = k.fails("apply --server-side --field-manager other -f -", &other);
        assert!(conflict.contains("conflict with \"kubectl\"") && conflict.contains(".data.x"), "{conflict}");
        k.ok("apply --server-side --field-manager other --force-conflicts -f -", &other);
        assert_eq!(k.ok("get cm b -o jsonpath={.data.x}", ""), "9");
    });
}

#[test]
fn imperative_creation_of_the_usual_kinds() {
    run(|k| {
        k.ok("create configmap lit --from-literal=k=v", "");
        assert_eq!(k.ok("get cm lit -o jsonpath={.data.k}", ""), "v");
        k.ok("create secret generic sec --from-literal=p=hunter2", "");
        assert_eq!(k.ok("get secret sec -o jsonpath={.data.p}", ""), "aHVudGVyMg==");
        k.ok("create namespace team", "");
        k.ok("create serviceaccount bot -n team", "");
        assert!(k.ok("get sa -n team -o name", "").contains("serviceaccount/default"));
        let token = k.ok("create token bot -n team --duration 1h", "");
        assert_eq!(token.trim().split('.').count(), 3);
        assert!(k.ok("auth whoami", "").contains("knoll-admin"));
        assert_eq!(k.ok("auth can-i create pods", ""), "yes\n");
        let denied = k.fails(&format!("get cm -n team --token {}", token.trim()), "");
        // The kubeconfig's own token wins over the flag only in old clients: either way it must not be an error of the server.
        assert!(denied.is_empty() || denied.contains("Forbidden"), "{denied}");
    });
}

#[test]
fn patches_labels_annotations_replace_and_edit() {
    run(|k| {
        k.ok("create -f -", MAP);
        k.ok(r#"patch cm a --type merge -p {"data":{"x":"2","z":null}}"#, "");
        assert_eq!(k.ok("get cm a -o jsonpath={.data}", ""), "{\"x\":\"2\"}");
        k.ok(r#"patch cm a --type json -p [{"op":"add","path":"/data/q","value":"3"}]"#, "");
        assert_eq!(k.ok("get cm a -o jsonpath={.data.q}", ""), "3");
        let bad = k.fails(r#"patch cm a --type json -p [{"op":"remove","path":"/data/nope"}]"#, "");
        assert!(bad.contains("nope") || bad.contains("invalid"), "{bad}");
        k.ok(r#"patch cm a --type strategic -p {"metadata":{"finalizers":["x/y"]}}"#, "");
        k.ok(r#"patch cm a --type strategic -p {"metadata":{"finalizers":["x/z"]}}"#, "");
        assert_eq!(k.ok("get cm a -o jsonpath={.metadata.finalizers}", ""), "[\"x/z\",\"x/y\"]");
        k.ok(r#"patch cm a --type merge -p {"metadata":{"finalizers":null}}"#, "");
        k.ok("label cm a tier=front", "");
        assert!(k.fails("label cm a tier=back", "").contains("already has a value"));
        k.ok("label cm a tier=back --overwrite", "");
        k.ok("label cm a tier-", "");
        assert_eq!(k.ok("get cm -l tier -o name", ""), "");
        k.ok("annotate cm a note=hello", "");
        assert_eq!(k.ok("get cm a -o jsonpath={.metadata.annotations.note}", ""), "hello");
        k.ok("replace -f -", &MAP.replace("'2'", "'7'"));
        assert_eq!(k.ok("get cm a -o jsonpath={.data.z}", ""), "7");
        let mut edit = k.command("edit cm a");
        edit.env("KUBE_EDITOR", "sed -i 's/z: \"7\"/z: \"8\"/'");
        assert!(edit.output().unwrap().status.success());
        assert_eq!(k.ok("get cm a -o jsonpath={.data.z}", ""), "8");
    });
}

#[test]
fn waits_for_conditions_and_deletion() {
    run(|k| {
        let crd = include_str!("data/widgets.yaml");
        k.ok("create -f -", crd);
        k.ok("wait --for=condition=established --timeout=20s crd/widgets.test.knoll.dev", "");
        k.ok("create -f -", "apiVersion: test.knoll.dev/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n");
        let wait =
            k.command("wait --for=condition=Ready --timeout=20s widget/w").stdout(Stdio::piped()).spawn().unwrap();
        k.ok(
            r#"patch widget w --subresource status --type merge -p {"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#,
            "",
        );
        assert!(wait.wait_with_output().unwrap().status.success());
        assert!(k.ok("get widgets", "").contains("SIZE"), "{}", k.ok("get widgets", ""));
        let wait = k.command("wait --for=delete --timeout=20s widget/w").stdout(Stdio::piped()).spawn().unwrap();
        k.ok("delete widget w", "");
        assert!(wait.wait_with_output().unwrap().status.success());
        k.ok("delete crd widgets.test.knoll.dev", "");
        let gone = k.fails("get widgets", "");
        assert!(
            gone.contains("doesn't have a resource type") || gone.contains("could not find the requested resource"),
            "{gone}"
        );
    });
}

#[test]
fn bad_custom_resources_are_refused_with_the_field() {
    run(|k| {
        k.ok("create -f -", include_str!("data/widgets.yaml"));
        k.ok("wait --for=condition=established --timeout=20s crd/widgets.test.knoll.dev", "");
        let widget =
            |spec: &str| format!("apiVersion: test.knoll.dev/v1\nkind: Widget\nmetadata: {{name: w}}\nspec: {spec}\n");
        for (spec, expected) in [
            ("{size: 0}", "spec.size"),
            ("{size: big}", "must be of type integer"),
            ("{size: 3, colour: red}", "unknown field \"spec.colour\""),
            ("{size: 13}", "thirteen brings bad luck: use 12 or 14"),
            ("{}", "spec.size: Required value"),
        ] {
            let error = k.fails("create -f -", &widget(spec));
            assert!(error.contains(expected), "{spec}: {error}");
        }
        k.ok("create -f -", &widget("{size: 3}"));
        assert_eq!(k.ok("get widget w -o jsonpath={.spec.shape}", ""), "round");
        let error = k.fails(r#"patch widget w --type merge -p {"spec":{"shape":"square"}}"#, "");
        assert!(error.contains("a widget keeps its shape"), "{error}");
    });
}

#[test]
fn a_list_is_applied_item_by_item() {
    run(|k| {
        let list = |data: &str| {
            format!(
                "apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, {data}}}\n\
                 - {{apiVersion: v1, kind: Secret, metadata: {{name: b}}}}\n"
            )
        };
        assert_eq!(k.ok("apply -f -", &list("data: {x: '1'}")), "configmap/a created\nsecret/b created\n");
        assert_eq!(k.ok("apply -f -", &list("data: {x: '2'}")), "configmap/a configured\nsecret/b unchanged\n");
        let error = k.fails("apply -f -", &list("date: {x: '1'}"));
        assert!(error.contains("unknown field \"date\""), "{error}");
        let deleted = k.ok("delete -f -", &list("data: {}"));
        // From 1.34 on, kubectl also names the namespace.
        let deleted = deleted.replace(" from default namespace", "");
        assert_eq!(deleted, "configmap \"a\" deleted\nsecret \"b\" deleted\n");
    });
}

#[test]
fn a_kind_that_is_not_there_is_named() {
    run(|k| {
        let foo = "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: x}\n";
        for command in ["apply -f -", "create -f -"] {
            assert_eq!(
                k.fails(command, foo),
                "error: resource mapping not found for name: \"x\" namespace: \"\" from \"STDIN\": no matches for kind \"Foo\" in \
                 version \"example.com/v1\"\nensure CRDs are installed first\n",
                "{command}"
            );
        }
    });
}

#[test]
fn get_watch_shows_changes_as_they_come() {
    run(|k| {
        k.ok("create -f -", MAP);
        let mut watch = k.command("get cm -w -o name").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        let mut next = |wanted: &str| lines.by_ref().map(|l| l.unwrap()).find(|l| l == wanted).unwrap();
        next("configmap/a");
        k.ok("create configmap late", "");
        next("configmap/late");
        k.ok("label cm late x=y", "");
        next("configmap/late");
        k.ok("delete cm late", "");
        next("configmap/late");
        watch.kill().unwrap();
        watch.wait().unwrap();
    });
}

#[test]
fn a_deleted_namespace_takes_everything_with_it() {
    run(|k| {
        k.ok("create namespace gone", "");
        k.ok("create configmap x -n gone", "");
        k.ok("delete namespace gone --timeout=20s", "");
        assert!(k.fails("get cm x -n gone", "").contains("not found"));
        assert!(k.fails("create configmap y -n gone", "").contains("namespaces \"gone\" not found"));
    });
}

#[test]
fn explain_and_diff_read_the_servers_schemas() {
    run(|k| {
        assert!(k.ok("explain pod.spec.containers.image", "").contains("image"));
        k.ok("apply -f -", MAP);
        let diff = k.output("diff -f -", MAP_WITHOUT_Z);
        assert_eq!(diff.status.code(), Some(1), "{}", String::from_utf8_lossy(&diff.stderr));
        assert!(String::from_utf8_lossy(&diff.stdout).contains("-  z: \"2\""));
    });
}

#[test]
fn an_admission_policy_has_the_last_word() {
    run(|k| {
        let policy = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: honest}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [configmaps]}]
  validations:
    - expression: "!has(object.data) || !('by' in object.data) || object.data.by == request.userInfo.username"
      message: by must be the one who asks
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: honest}
spec: {policyName: honest, validationActions: [Deny]}
"#;
        k.ok("apply -f -", policy);
        let map = |name: &str, by: &str| {
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{by: {by}}}\n")
        };
        k.ok("create -f -", &map("true", "knoll-admin").replace("name: true", "name: honest"));
        // A policy comes into force soon after it was written, on any cluster.
        let mut error = String::new();
        for attempt in 0..1000 {
            let output = k.output("create -f -", &map(&format!("liar{attempt}"), "somebody"));
            error = String::from_utf8(output.stderr).unwrap();
            if !output.status.success() {
                break;
            }
        }
        let expected =
            "ValidatingAdmissionPolicy 'honest' with binding 'honest' denied request: by must be the one who asks";
        assert!(error.contains(expected), "{error}");
    });
}
