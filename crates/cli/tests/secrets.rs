//! Secrets stay in Secrets: what a user's commands send, and what their runs print, shows no viewer a secret value.
#![allow(clippy::unwrap_used, reason = "tests")]

mod knoll;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use k8s_openapi::api::core::v1::ConfigMap;
use knoll::Home;
use serde_json::{Value, json};

/// The kubeconfig of a person with one role in the namespace of the home.
fn person(home: &Home, name: &str, role: &str) -> PathBuf {
    let namespace = home.namespace();
    home.kubectl(&["create", "serviceaccount", name], None);
    let account = format!("{namespace}:{name}");
    home.kubectl(&["create", "rolebinding", name, "--clusterrole", role, "--serviceaccount", &account], None);
    let token = home.kubectl(&["create", "token", name], None);
    let config = home.kubectl(&["config", "view", "--raw", "--minify", "-o", "json"], None);
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    config["contexts"][0]["context"]["namespace"] = namespace.into();
    let kubeconfig = home.folder.path().join(format!("{name}.kubeconfig"));
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    kubeconfig
}

/// `knoll` as that person, with this standard input.
fn call(home: &Home, kubeconfig: &Path, words: &[&str], input: &str) -> Output {
    let mut command = home.command(words);
    command.env("KUBECONFIG", kubeconfig).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that does not read its input closes it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[track_caller]
fn ok(home: &Home, kubeconfig: &Path, words: &[&str]) -> String {
    let output = call(home, kubeconfig, words, "");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "knoll {words:?}: {said}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

/// Everything that a person may read in the namespace, unpacked, with the logs of all containers.
fn everything(home: &Home, kubeconfig: &Path) -> String {
    let kubectl = |words: &[&str]| {
        let mut command = Command::new("kubectl");
        command.args(words).env_clear().envs(home.environment()).env("KUBECONFIG", kubeconfig);
        let output = command.output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    let mut all = String::new();
    let kinds = kubectl(&["api-resources", "--verbs=list", "--namespaced", "-o", "name"]).unwrap();
    let mut read = Vec::new();
    for kind in kinds.lines() {
        if let Some(text) = kubectl(&["get", kind, "-o", "json"]) {
            read.push(kind);
            all += &text;
        }
    }
    for kind in ["configmaps", "events", "pods", "runs.knoll.dev", "workspaces.knoll.dev"] {
        assert!(read.contains(&kind), "a viewer reads {kind}: {read:?}");
    }
    assert!(!read.contains(&"secrets"), "a viewer does not read Secrets");
    let maps: Value = serde_json::from_str(&kubectl(&["get", "configmaps", "-o", "json"]).unwrap()).unwrap();
    for map in maps["items"].as_array().unwrap() {
        let map: ConfigMap = serde_json::from_value(map.clone()).unwrap();
        for content in map.binary_data.unwrap_or_default().into_values() {
            all += &String::from_utf8_lossy(&zstd::decode_all(&content.0[..]).unwrap_or(content.0));
        }
    }
    let pods = kubectl(&["get", "pods", "-o", "name"]).unwrap();
    for pod in pods.lines() {
        all += &kubectl(&["logs", pod, "--all-containers"]).unwrap_or_default();
    }
    let runs = kubectl(&["get", "runs.knoll.dev", "-o", "jsonpath={.items[*].metadata.name}"]).unwrap();
    for run in runs.split_whitespace() {
        all += &ok(home, kubeconfig, &["run", "show", run]);
        all += &ok(home, kubeconfig, &["logs", run]);
    }
    all + &ok(home, kubeconfig, &["runs", "-o", "wide"])
}

const MODULE: &str = r#"
variable "open" {}
variable "from_file" { sensitive = true }
variable "from_auto" {
  type      = map(string)
  sensitive = true
}
variable "from_named" { sensitive = true }
variable "by_flag" { sensitive = true }
variable "from_secret" { sensitive = true }
resource "terraform_data" "a" {
  input = [var.open, var.from_file, var.from_auto, var.from_named, var.by_flag, var.from_secret]
  provisioner "local-exec" { command = "cat terraform.tfvars; echo ${nonsensitive(var.by_flag)}" }
}
output "open" { value = var.open }
output "closed" {
  value     = "closed-${var.from_file}"
  sensitive = true
}
"#;

/// Issue: `terraform.tfvars` and `-var` of the CLI were in a ConfigMap and in `Run.spec.args`, and the sensitive values of
/// a plan in the log of a hook that printed it. A viewer reads all of these.
#[test]
fn a_viewer_finds_no_secret() {
    let home = Home::with_workspace();
    home.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vars"},
        "stringData": {"from_secret": "hunter2-secret"}}));
    home.settings(&json!({"variables": [
        {"key": "from_secret", "valueFrom": {"secretKeyRef": {"name": "vars", "key": "from_secret"}}},
    ]}));
    let uma = person(&home, "uma", "knoll-user");
    let vic = person(&home, "vic", "knoll-viewer");
    home.write("main.tf", MODULE);
    home.write("terraform.tfvars", "open = \"harmless\"\nfrom_file = \"hunter2-file\"\n");
    home.write("x.auto.tfvars.json", r#"{"from_auto": {"a": "hunter2-auto"}}"#);
    home.write("../elsewhere/named.tfvars", "from_named = \"hunter2-named\"\n");
    let named = home.folder.path().join("elsewhere/named.tfvars").canonicalize().unwrap();
    let file = format!("-var-file={}", named.display());
    let flags = ["-var", "by_flag=hunter2-flag", file.as_str()];

    ok(&home, &uma, &[&["apply", "-auto-approve"][..], &flags].concat());
    let applied = home.newest_run();
    let name = applied["metadata"]["name"].as_str().unwrap();
    let args: Vec<&str> = applied["spec"]["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(args.contains(&"by_flag=...") && args.contains(&"-var-file=../elsewhere/named.tfvars"), "{args:?}");
    let secret = home.kubectl(&["get", "secret", &format!("knoll-input-{name}"), "-o", "json"], None);
    let secret: Value = serde_json::from_str(&secret).unwrap();
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], applied["metadata"]["uid"]);

    // The outputs are read without a run, whose log others could read.
    let runs = home.runs().len();
    assert_eq!(ok(&home, &uma, &["output", "-raw", "closed"]), "closed-hunter2-file");
    assert_eq!(ok(&home, &uma, &["output"]), "closed = <sensitive>\nopen = \"harmless\"\n");
    let outputs: Value = serde_json::from_str(&ok(&home, &uma, &["output", "-json"])).unwrap();
    assert_eq!(outputs["closed"]["value"], "closed-hunter2-file");
    assert_eq!(home.runs().len(), runs);
    let refused = call(&home, &vic, &["output", "-raw", "closed"], "");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("right to `get` `secrets`"), "{said}");

    // A hook prints the plan, an error quotes a value, a script is piped, a backend has a password.
    let hook = json!([{"name": "tells", "step": "post-plan", "script": "cat $KNOLL_PLAN_JSON; terraform state pull"}]);
    let bundle = applied["spec"]["source"].clone();
    let variables = json!([{"secretRef": {"name": "more"}}]);
    home.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "more"}, "stringData": {
        "more.tfvars": "open = \"harmless\"\nfrom_file = \"hunter2-more\"\nfrom_auto = {}\nfrom_named = \"hunter2-n\"\n",
        "by_flag": "hunter2-f"}}));
    home.create(&json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "metadata": {"name": "hooked"},
        "spec": {"workspace": "net", "operation": "plan", "source": bundle, "variablesFrom": variables, "hooks": hook}}));
    home.until_run("the hook has printed the plan", |run| run["status"]["phase"] == "Succeeded");
    let reviewed = "the plan is reviewed, and its text is stored";
    home.create(&json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "metadata": {"name": "reviewed"},
        "spec": {"workspace": "net", "operation": "apply", "approval": "Manual", "source": applied["spec"]["source"],
            "variablesFrom": [{"secretRef": {"name": "more"}}]}}));
    home.until_run(reviewed, |run| run["status"]["phase"] == "Review");
    assert!(ok(&home, &vic, &["run", "show", "reviewed"]).contains("# terraform_data.a will be updated in-place"));
    home.ok(&["discard", "reviewed", "--yes"]);
    let failing = "\nresource \"terraform_data\" \"f\" {\n  lifecycle {\n    precondition {\n      condition     = false\n      error_message = \"not ${nonsensitive(var.by_flag)}\"\n    }\n  }\n}\n";
    home.write("main.tf", &format!("{MODULE}{failing}"));
    assert!(!call(&home, &uma, &[&["plan"][..], &flags].concat(), "").status.success());
    let broken = "open = \"harmless\"\nfrom_file = \"hunter2-file\" \"x\"\n";
    home.write("terraform.tfvars", broken);
    assert!(!call(&home, &uma, &[&["plan"][..], &flags].concat(), "").status.success());
    home.write("terraform.tfvars", "open = \"harmless\"\nfrom_file = \"hunter2-file\"\n");
    home.write("main.tf", MODULE);
    let piped = call(&home, &uma, &["sh"], "TOKEN=hunter2-piped\necho piped ${#TOKEN}\n");
    assert!(String::from_utf8_lossy(&piped.stdout).contains("piped 13"), "{piped:?}");
    let console = call(&home, &uma, &[&["console"][..], &flags].concat(), "length(nonsensitive(var.by_flag))\n");
    assert!(String::from_utf8_lossy(&console.stdout).contains("12"), "{console:?}");
    call(&home, &uma, &["init", "-backend-config=password=hunter2-backend"], "");
    assert_eq!(home.newest_run()["spec"]["args"].as_array().unwrap().last().unwrap(), "-backend-config=password=...");

    let all = everything(&home, &vic);
    assert!(all.contains("harmless") && all.contains("(sensitive)") && all.contains("resource_changes"));
    for secret in ["hunter2", "aHVudGVyM", "h1bnRlcj", "odW50ZXIy"] {
        if let Some(at) = all.find(secret) {
            let around: String = all[..at].chars().rev().take(400).collect::<Vec<_>>().into_iter().rev().collect();
            panic!("a viewer reads `{secret}` behind {around}");
        }
    }

    // The Secret goes with its Run.
    home.kubectl(&["delete", "run.knoll.dev", name], None);
    home.kubectl(&["wait", "--for=delete", &format!("secret/knoll-input-{name}"), "--timeout=60s"], None);
}
