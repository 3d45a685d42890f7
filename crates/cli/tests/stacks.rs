//! Stacks with real terraform on an embedded cluster, used through the CLI.
#![allow(clippy::unwrap_used, reason = "tests")]

mod knoll;

use knoll::Home;
use knoll_api::Stack;
use serde_json::{Value, json};

fn apply(home: &Home, object: &Value) {
    home.kubectl(&["apply", "-f", "-"], Some(object));
}

fn stack(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": name}, "spec": spec})
}

fn get(home: &Home, name: &str) -> Value {
    serde_json::from_str(&home.kubectl(&["get", "stack", name, "-o", "json"], None)).unwrap()
}

/// Waits until a Stack satisfies the condition.
#[track_caller]
fn until(home: &Home, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    home.until::<Stack>(&format!("the stack `{name}` is {what}"), || get(home, name), |stack| is_so(&stack["status"]))
}

#[track_caller]
fn settled(home: &Home, name: &str, runs: u64) -> Value {
    until(home, name, &format!("ready after {runs} runs"), |status| {
        status["phase"] == "Ready" && status["settled"].as_u64() >= Some(runs)
    })
}

fn decoded(home: &Home, secret: &str, key: &str) -> String {
    let template = format!("go-template={{{{index .data \"{key}\" | base64decode}}}}");
    home.kubectl(&["get", "secret", secret, "-o", &template], None)
}

const MODULE: &str = "variable \"size\" { type = number }\nvariable \"word\" {\n  type = string\n  sensitive = true\n}\nresource \"terraform_data\" \"a\" {\n  count = var.size\n  input = var.word\n}\noutput \"size\" { value = length(terraform_data.a) }\noutput \"word\" {\n  value = var.word\n  sensitive = true\n}\n";

#[test]
fn a_stack_follows_its_inputs_and_leaves_the_log_of_its_destroy() {
    let home = Home::with_workspace();
    let secret = |word: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vars"}, "stringData": {"word": word, "size.tfvars": "size = 2\n"}});
    let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "module"}, "data": {"main.tf": text}});
    apply(&home, &secret("hunter2"));
    apply(&home, &map(MODULE));
    let spec = json!({
        "source": {"configMap": {"name": "module"}},
        "variablesFrom": [{"secretRef": {"name": "vars"}}],
        "outputs": {"secretName": "out"},
    });
    apply(&home, &stack("demo", spec));
    let first = settled(&home, "demo", 1);
    assert_eq!(first["status"]["outputs"], json!({"size": 2}));
    assert_eq!(decoded(&home, "out", "outputs.json"), r#"{"size":2,"word":"hunter2"}"#);
    assert_eq!(decoded(&home, "out", "word"), "hunter2");

    apply(&home, &secret("better"));
    settled(&home, "demo", 2);
    assert_eq!(decoded(&home, "out", "word"), "better");
    apply(&home, &map(&MODULE.replace("count = var.size", "count = var.size + 1")));
    let third = settled(&home, "demo", 3);
    assert_eq!(third["status"]["outputs"], json!({"size": 3}));
    let everything = home.kubectl(&["get", "stacks,runs,workspaces,events", "-o", "json"], None);
    assert!(!everything.contains("hunter2") && !everything.contains("better"), "a secret value is in an object");

    let shown = home.ok(&["stack", "show", "demo"]);
    assert!(shown.contains("Phase:        Ready") && shown.contains("size = 3"), "{shown}");
    assert!(home.ok(&["stack", "list"]).contains("demo"));
    let said = String::from_utf8(home.call(&["stack", "plan", "demo"]).stderr).unwrap();
    assert!(said.starts_with("knoll: run `demo-plan-"), "{said}");
    home.ok(&["stack", "suspend", "demo"]);
    apply(&home, &secret("suspended"));
    until(&home, "demo", "suspended", |status| status["phase"] == "Suspended" && status["pendingRevision"].is_string());
    home.ok(&["stack", "resume", "demo"]);
    settled(&home, "demo", 4);
    home.ok(&["stack", "apply", "demo"]);
    settled(&home, "demo", 5);
    assert!(home.fails(&["stack", "show", "nothing"]).contains("knoll stack list"));

    // All of its inputs are deleted, and it is destroyed nevertheless.
    home.kubectl(&["delete", "configmap/module", "secret/vars"], None);
    home.kubectl(&["delete", "stack", "demo", "--timeout=60s"], None);
    let left = home.kubectl(&["get", "runs,workspaces,secrets", "-l", "knoll.dev/stack=demo", "-o", "name"], None);
    let states = home.kubectl(&["get", "secrets", "-l", "knoll.dev/workspace=demo", "-o", "name"], None);
    assert_eq!((left.as_str(), states.as_str()), ("run.knoll.dev/demo-6-destroy\n", ""));
    assert!(home.ok(&["logs", "demo-6-destroy"]).contains(" destroyed."), "the log outlives the Stack");
}

/// `knoll apply -w NAME` from an unrelated directory destroyed what the Stack of that name had made.
#[test]
fn a_directory_changed_the_infrastructure_of_a_stack() {
    let home = Home::with_workspace();
    let text = "resource \"terraform_data\" \"other\" {}\n";
    apply(&home, &stack("base", json!({"source": {"inline": {"main.tf": text}}})));
    settled(&home, "base", 1);
    let before = home.runs().len();
    for verb in ["apply", "destroy"] {
        let error = home.fails(&[verb, "-auto-approve", "-w", "base"]);
        for says in ["belongs to Stack `base`", "knoll stack apply base", "--override-stack"] {
            assert!(error.contains(says), "{error}");
        }
    }
    assert_eq!(home.runs().len(), before, "nothing was started");
    home.ok(&["apply", "-auto-approve", "-w", "base", "--override-stack"]);
    until(&home, "base", "drifted", |status| status["conditions"].to_string().contains("changed the state"));
}

/// The message of a Stack advised to delete the Workspace of its name. The Stack took over the state that was left, and
/// destroyed the resources in it; deleting the Stack instead destroyed them too.
#[test]
fn a_stack_destroyed_what_a_workspace_of_its_name_had_made() {
    let home = Home::with_workspace();
    home.ok(&["apply", "-auto-approve"]);
    let made = home.ok(&["state", "list"]);
    let spec = json!({"source": {"inline": {"main.tf": "output \"x\" { value = 1 }\n"}}});
    let says = |what: &'static str| move |status: &Value| status["conditions"].to_string().contains(what);
    apply(&home, &stack("net", spec.clone()));
    until(&home, "net", "refused", says("A Workspace `net` exists that no Stack has created"));
    home.kubectl(&["delete", "stack", "net", "--timeout=60s"], None);
    assert_eq!(home.ok(&["state", "list"]), made, "the deletion of a Stack that was refused");
    home.kubectl(&["delete", "workspace", "net", "--timeout=60s"], None);
    apply(&home, &stack("net", spec));
    until(&home, "net", "refused", says("The state of an earlier Workspace `net` exists"));
    home.kubectl(&["delete", "stack", "net", "--timeout=60s"], None);
    home.ok(&["workspace", "new", "net"]);
    assert_eq!(home.ok(&["state", "list"]), made, "the state that a deleted Workspace has left");
}

/// A variable without a value was told of in terraform's words, with flags that nobody can pass to a Stack.
#[test]
fn a_stack_without_a_value_says_where_to_set_it() {
    let home = Home::with_workspace();
    let text = "variable \"size\" { type = number }\noutput \"size\" { value = var.size }\n";
    apply(&home, &stack("demo", json!({"source": {"inline": {"main.tf": text}}})));
    let held = until(&home, "demo", "held", |status| status["phase"] == "Held");
    let conditions = held["status"]["conditions"].to_string();
    assert!(conditions.contains("size") && conditions.contains("spec.variables of the Stack"), "{conditions}");
    assert!(!conditions.contains("-var"), "{conditions}");
}

#[test]
fn outputs_of_one_stack_are_variables_of_another() {
    let home = Home::with_workspace();
    let base = |vpc: &str| {
        let text = format!(
            "output \"vpc\" {{\n  value = \"{vpc}\"\n  sensitive = true\n}}\nresource \"terraform_data\" \"a\" {{}}\n"
        );
        stack("base", json!({"source": {"inline": {"main.tf": text}}}))
    };
    let text = "variable \"id\" {}\nresource \"terraform_data\" \"a\" { input = var.id }\noutput \"id\" { value = nonsensitive(var.id) }\n";
    let web = json!({
        "source": {"inline": {"main.tf": text}},
        "variablesFrom": [{"stackRef": {"name": "base", "outputs": {"id": "vpc"}}}],
    });
    apply(&home, &stack("web", web));
    until(&home, "web", "waiting", |status| status["phase"] == "Waiting");
    apply(&home, &base("vpc-1"));
    assert_eq!(settled(&home, "web", 1)["status"]["outputs"], json!({"id": "vpc-1"}));
    apply(&home, &base("vpc-2"));
    assert_eq!(settled(&home, "web", 2)["status"]["outputs"], json!({"id": "vpc-2"}));
    assert_eq!(home.ok(&["stack", "graph"]), "base (Ready)\n  web (Ready)\n");
    home.kubectl(&["delete", "stack", "base", "web", "--timeout=60s"], None);
}

#[test]
fn a_broken_revision_is_rolled_back_and_its_reason_kept() {
    let home = Home::with_workspace();
    let text = "variable \"size\" {}\nresource \"terraform_data\" \"a\" {\n  input = var.size\n  lifecycle {\n    postcondition {\n      condition = self.output < 5\n      error_message = \"too much of it\"\n    }\n  }\n}\noutput \"size\" { value = terraform_data.a.output }\n";
    let of = |size: u32| {
        stack(
            "net2",
            json!({"source": {"inline": {"main.tf": text}}, "variables": {"size": size}, "onFailure": "Rollback"}),
        )
    };
    apply(&home, &of(1));
    settled(&home, "net2", 1);
    apply(&home, &of(7));
    let back = until(&home, "net2", "reverted", |status| status["phase"] == "Reverted");
    let message = back["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Stalled").unwrap();
    assert!(message["message"].as_str().unwrap().contains("net2-2-"), "{message}");
    apply(&home, &of(2));
    let ready = until(&home, "net2", "ready", |status| status["phase"] == "Ready");
    assert_eq!(ready["status"]["outputs"], json!({"size": 2}));
    home.kubectl(&["delete", "stack", "net2", "--timeout=60s"], None);
}
