//! What Policies supply to Workspaces and Atoms that do not say it themselves.
#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::Atom;
use knoll_api::run::RunPhase;
use knoll_api::workspace::Workspace;
use knoll_e2e::manifests::{self, inline, workspace};
use knoll_e2e::{Namespace, World};
use serde_json::json;

/// A module with a provider of a registry that there is not, so that only a mirror has it.
const MODULE: &str = "terraform {\n  required_providers {\n    fake = { source = \"registry.example.com/knoll/fake\" }\n  }\n}\nvariable \"word\" {}\n";

/// What terraform and a hook see of the settings.
const LOOK: &str = "echo \"word=$TF_VAR_word proxy=$HTTPS_PROXY,$https_proxy none=$NO_PROXY token=${#TF_TOKEN_registry_example_com} own=$OWN git=$GIT_CONFIG_KEY_0 netrc=$(grep -c machine \"$NETRC\")\"; cat \"$TF_CLI_CONFIG_FILE\"; echo \"installed=$(ls .terraform/providers/registry.example.com/knoll/fake)\"";

/// A Policy that holds in one namespace, deleted afterwards.
struct PolicyOf<'a> {
    namespace: &'a Namespace,
    name: String,
}

impl<'a> PolicyOf<'a> {
    #[track_caller]
    fn apply(namespace: &'a Namespace, suffix: &str, fields: &serde_json::Value) -> Self {
        let name = format!("{}-{suffix}", namespace.name);
        let mut spec = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let manifest =
            json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": {"name": name}, "spec": spec});
        let _ = namespace.kubectl_with(&manifest.to_string(), &["apply", "-f", "-"]).ok();
        Self { namespace, name }
    }

    /// Waits until the Workspace shows a setting of the Policy.
    async fn known(&self, workspace: &str) {
        let from = format!("Policy/{}", self.name);
        let shown = |found: &Workspace| {
            let settings = found.status.iter().flat_map(|status| status.policy.iter().chain(&status.settings));
            settings.into_iter().any(|setting| setting.from == from)
        };
        self.namespace.until::<Workspace>(workspace, "showed the Policy", shown).await;
    }
}

impl Drop for PolicyOf<'_> {
    fn drop(&mut self) {
        let _ = self.namespace.kubectl(&["delete", "policy.knoll.dev", &self.name, "--ignore-not-found"]);
    }
}

/// A folder of a Run's container, which the node shares with others on the embedded cluster.
struct Mirror(String);

impl Mirror {
    fn of(namespace: &Namespace) -> Self {
        Self(format!("/tmp/{}-mirror", namespace.name))
    }

    /// A script that puts a provider into it. `init` installs a package without a look into it.
    fn fill(&self) -> String {
        let folder = format!(
            "{}/registry.example.com/knoll/fake/1.0.0/linux_$(uname -m | sed 's/x86_64/amd64/;s/aarch64/arm64/')",
            self.0
        );
        format!("mkdir -p \"{folder}\" && echo x > \"{folder}/terraform-provider-fake_v1.0.0\"")
    }

    fn settings(&self) -> String {
        format!("provider_installation {{\n  filesystem_mirror {{\n    path = \"{}\"\n  }}\n}}\n", self.0)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A Run that initialises the module with what is in the mirror, and then runs a script.
fn look(name: &str, workspace: &str, mirror: &Mirror, script: &str) -> String {
    let run = json!({
        "apiVersion": "knoll.dev/v1alpha1",
        "kind": "Run",
        "metadata": {"name": name},
        "spec": {
            "workspace": workspace,
            "operation": "command",
            "command": "sh",
            "args": ["-c", script],
            "source": {"inline": {"main.tf": MODULE}},
            "hooks": [{"name": "fill", "step": "pre-init", "script": mirror.fill()}],
            "retry": {"init": 1},
        },
    });
    run.to_string()
}

async fn output(namespace: &Namespace, name: &str) -> String {
    let has_output = |found: &Workspace| found.status.as_ref().is_some_and(|status| !status.outputs.is_empty());
    let found = namespace.until::<Workspace>(name, "had an output", has_output).await;
    found.status.unwrap().outputs["word"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn terraform_sees_the_mirror_the_token_and_the_variables_that_a_policy_supplies() {
    let namespace = World::get().namespace().await;
    let mirror = Mirror::of(&namespace);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "registry"},
        "stringData": {"token": "t0ken-of-the-registry", "netrc": "machine git.example.com login ci password pAssw0rd-of-git\n"},
    });
    let _ = namespace.kubectl_with(&secret.to_string(), &["create", "-f", "-"]).ok();
    let key = |key: &str| json!({"name": "registry", "key": key});
    let defaults = json!({"defaults": {
        "pod": {"env": [{"name": "OWN", "value": "default"}], "labels": {"team": "platform"}},
        "variables": [{"key": "word", "value": "default"}],
        "timeouts": {"plan": "9m"},
        "proxy": {"https": "http://proxy.example.com:3128", "exclude": [".example.com"]},
        "registry": {
            "terraformrc": {"value": mirror.settings()},
            "tokens": [{"host": "registry.example.com", "secretKeyRef": key("token")}],
            "netrc": key("netrc"),
        },
    }});
    let policy = PolicyOf::apply(&namespace, "a", &defaults);
    // Of two, the first by name counts.
    let second = PolicyOf::apply(
        &namespace,
        "b",
        &json!({"defaults": {"variables": [{"key": "word", "value": "second"}], "pod": {"labels": {"team": "b", "of": "b"}}}}),
    );
    namespace.create(&workspace("w"));
    policy.known("w").await;
    second.known("w").await;

    namespace.create(&look("one", "w", &mirror, LOOK));
    let status = namespace.run_in("one", RunPhase::Succeeded).await.status.unwrap();
    assert_eq!(status.timeouts.unwrap().plan.unwrap().as_str(), "9m");
    assert!(status.job.is_some(), "what a Policy supplies is frozen");
    let log = namespace.knoll(&["logs", "one"]).ok();
    let expect = "word=default proxy=http://proxy.example.com:3128,http://proxy.example.com:3128 none=.example.com token=21 own=default git=credential.helper netrc=1";
    assert!(log.contains(expect) && log.contains("filesystem_mirror"), "{log}");
    assert!(log.contains("installed=1.0.0"), "{log}");

    let shown = namespace.knoll(&["workspace", "show", "w"]).ok();
    for (setting, from) in [
        ("pod.env.HTTPS_PROXY", &policy.name),
        ("pod.labels.team", &policy.name),
        ("pod.labels.of", &second.name),
        ("registry.terraformrc", &policy.name),
        ("variables.word", &policy.name),
        ("timeouts.plan", &policy.name),
    ] {
        let is_shown =
            shown.lines().any(|line| line.starts_with(setting) && line.trim_end().ends_with(&format!("Policy/{from}")));
        assert!(is_shown, "{setting} of {from} in\n{shown}");
    }
    assert!(shown.lines().any(|line| line.starts_with("image") && line.trim_end().ends_with("operator")), "{shown}");

    // What a Workspace says itself wins, and a Secret never shows.
    let own = json!({
        "apiVersion": "knoll.dev/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": "own"},
        "spec": {"variables": [{"key": "word", "value": "own"}], "pod": {"env": [{"name": "OWN", "value": "mine"}]}},
    });
    namespace.create(&own.to_string());
    policy.known("own").await;
    let script = format!("{LOOK}; echo $TF_TOKEN_registry_example_com; cat $NETRC");
    namespace.create(&look("two", "own", &mirror, &script));
    namespace.run_in("two", RunPhase::Succeeded).await;
    let log = namespace.knoll(&["logs", "two"]).ok();
    assert!(log.contains("word=own") && log.contains("own=mine"), "{log}");
    assert!(!log.contains("t0ken-of") && !log.contains("pAssw0rd-of"), "{log}");
}

#[tokio::test]
async fn a_secret_that_a_policy_names_is_one_of_the_runs_own_namespace() {
    let namespace = World::get().namespace().await;
    let defaults = json!({"defaults": {"registry": {"netrc": {"name": "elsewhere", "key": "netrc"}}}});
    let policy = PolicyOf::apply(&namespace, "a", &defaults);
    namespace.create(&workspace("w"));
    policy.known("w").await;
    namespace.create(&look("one", "w", &Mirror::of(&namespace), "true"));
    let status = namespace.run_in("one", RunPhase::Failed).await.status.unwrap();
    let said: Vec<&str> = status.conditions.iter().map(|condition| condition.message.as_str()).collect();
    let expect =
        format!("The Secret `elsewhere` that `defaults.registry.netrc` of the Policy `{}` refers to", policy.name);
    assert!(said.iter().any(|message| message.contains(&expect)), "{said:?}");
    assert_eq!(status.pod_name, None);
}

#[tokio::test]
async fn the_account_of_a_policy_is_trusted_and_one_of_a_workspace_is_judged() {
    let namespace = World::get().namespace().await;
    for account in ["deployer", "other"] {
        let _ = namespace.kubectl(&["create", "serviceaccount", account]).ok();
    }
    let fields = json!({"allow": {"serviceAccounts": ["own"]}, "defaults": {"pod": {"serviceAccountName": "deployer"}, "variables": [{"key": "word", "value": "x"}]}});
    let policy = PolicyOf::apply(&namespace, "a", &fields);
    namespace.create(&workspace("w"));
    policy.known("w").await;
    let run = |name: &str| {
        format!(
            "apiVersion: knoll.dev/v1alpha1\nkind: Run\nmetadata: {{name: {name}}}\nspec: {{workspace: w, operation: apply, source: {}}}\n",
            inline(manifests::MODULE)
        )
    };
    namespace.create(&run("trusted"));
    let status = namespace.run_in("trusted", RunPhase::Succeeded).await.status.unwrap();
    assert_eq!(status.job.unwrap().apply_service_account.as_deref(), Some("deployer"));
    assert_eq!(output(&namespace, "w").await, "x", "a variable of the Policy");
    // A Run without files has those that were applied last, although its job is frozen.
    let plan = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "metadata": {"name": "again"}, "spec": {"workspace": "w", "operation": "plan"}});
    namespace.create(&plan.to_string());
    let status = namespace.run_in("again", RunPhase::Succeeded).await.status.unwrap();
    assert_eq!(status.plan.map(|plan| plan.add + plan.change + plan.destroy), Some(0));
    // So has a run of a Stack, whose revision does not have it.
    let stack = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": "s"}, "spec": {"source": {"inline": {"main.tf": manifests::MODULE}}}});
    namespace.create(&stack.to_string());
    assert_eq!(output(&namespace, "s").await, "x");
    let patch = r#"{"spec":{"pod":{"serviceAccountName":"other"}}}"#;
    let refused = namespace.kubectl(&["patch", "workspace", "w", "--type", "merge", "-p", patch]);
    assert!(refused.stderr.contains("spec.allow.serviceAccounts"), "{}", refused.stderr);
}

#[tokio::test]
async fn an_atom_without_an_account_acts_as_the_one_that_a_policy_names() {
    let namespace = World::get().namespace().await;
    let _ = namespace.kubectl(&["create", "serviceaccount", "deployer"]).ok();
    let account = format!("--serviceaccount={}:deployer", namespace.name);
    let _ = namespace.kubectl(&["create", "rolebinding", "deployer-edit", "--clusterrole=edit", &account]).ok();
    let _policy = PolicyOf::apply(&namespace, "a", &json!({"defaults": {"atom": {"serviceAccountName": "deployer"}}}));
    let folder = tempfile::tempdir().unwrap();
    let web = folder.path().join("web");
    std::fs::create_dir(&web).unwrap();
    std::fs::write(web.join("a.yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n").unwrap();
    // The first attempt may come before the operator knows the Policy; the account is a part of the revision, so it is
    // tried again.
    let _ = namespace.knoll(&["atom", "apply", "-f", &web.display().to_string()]);
    let is_there = |atom: &Atom| atom.status.as_ref().is_some_and(|status| status.current_version.is_some());
    namespace.until::<Atom>("web", "was updated", is_there).await;
    let value = namespace.kubectl(&["get", "cm/a", "-o", "jsonpath={.data.k}"]).ok();
    assert_eq!(value, "v");
    let managers = namespace.kubectl(&[
        "auth",
        "can-i",
        "create",
        "configmaps",
        "--as",
        &format!("system:serviceaccount:{}:default", namespace.name),
    ]);
    assert_eq!(managers.stdout.trim(), "no", "the account `default` could not have done it");
}
