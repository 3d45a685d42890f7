//! Rules on plans: the hub judges each plan before it is reviewed or applied, and nobody gets past a denial.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use knoll_api::Policy;
use knoll_api::names::{condition, reason};
use knoll_api::policy::RuleAction;
use knoll_api::run::{Run, RunPhase, RunStatus};
use knoll_api::workspace::Workspace;
use knoll_e2e::git::{HttpServer, PASSWORD, Repositories, USER};
use knoll_e2e::manifests::{MODULE, inline, run, workspace};
use knoll_e2e::registry::Registry;
use knoll_e2e::{Namespace, TIMEOUT, World};
use kube::Api;
use kube::runtime::wait::await_condition;
use serde_json::json;

const CREATE: [&str; 3] = ["create", "-f", "-"];

/// A Policy that holds in one namespace, deleted afterwards.
struct PolicyOf<'a> {
    namespace: &'a Namespace,
    name: String,
}

impl<'a> PolicyOf<'a> {
    /// Creates or changes a Policy with these rules on plans (YAML flow style, without braces), and waits until the operator
    /// knows of it.
    async fn apply(namespace: &'a Namespace, name: &str, plan: &str) -> Self {
        let name = format!("{}-{name}", namespace.name);
        let selector = format!("{{matchLabels: {{kubernetes.io/metadata.name: {}}}}}", namespace.name);
        let manifest = format!(
            "apiVersion: knoll.dev/v1alpha1\nkind: Policy\nmetadata: {{name: {name}}}\nspec: {{namespaceSelector: {selector}, plan: {{{plan}}}}}\n"
        );
        let _ = namespace.kubectl_with(&manifest, &["apply", "-f", "-"]).ok();
        let from = format!("Policy/{name}");
        let shown = |found: &Workspace| {
            let settings = found.status.iter().flat_map(|status| &status.policy);
            settings.into_iter().any(|setting| setting.from == from && setting.setting == "plan")
        };
        namespace.until::<Workspace>("w", "showed the rules", shown).await;
        Self { namespace, name }
    }
}

impl Drop for PolicyOf<'_> {
    fn drop(&mut self) {
        let _ = self.namespace.kubectl(&["delete", "policy.knoll.dev", &self.name, "--ignore-not-found"]);
    }
}

fn rule(name: &str, action: &str, find: &str, message: &str) -> String {
    format!("{{name: {name}, action: {action}, find: {find:?}, message: {message:?}}}")
}

/// The reason and the message of the Ready condition.
fn ready(status: &RunStatus) -> (String, String) {
    let found = status.conditions.iter().find(|found| found.type_ == condition::READY).unwrap();
    (found.reason.clone(), found.message.clone())
}

/// A Run that ends as failed for this reason; returns the message. Nothing was applied.
async fn refused(namespace: &Namespace, name: &str, why: &str) -> (String, RunStatus) {
    let status = namespace.run_in(name, RunPhase::Failed).await.status.unwrap();
    let (reason, message) = ready(&status);
    assert_eq!(reason, why, "{message}");
    assert!(status.steps.iter().all(|step| step.name != knoll_api::run::StepName::Apply), "{:?}", status.steps);
    (message, status)
}

#[tokio::test]
async fn each_action_of_a_rule_has_its_effect_before_anything_is_applied() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    let created = "changes.filter(c, c.type == 'terraform_data' && 'create' in c.actions)";
    let policy =
        PolicyOf::apply(&namespace, "acts", &format!("rules: [{}]", rule("look", "Warn", created, "Look."))).await;
    namespace.create(&run("first", "w", &inline(MODULE)));
    let status = namespace.run_in("first", RunPhase::Succeeded).await.status.unwrap();
    let verdict = status.plan_verdict.unwrap();
    assert_eq!(verdict.action, Some(RuleAction::Warn));
    assert_eq!(verdict.results[0].addresses, ["terraform_data.a"]);
    assert_eq!(verdict.plan, status.plan.unwrap().digest);
    let shown = namespace.knoll(&["run", "show", "first"]).ok();
    assert!(shown.contains("Look.") && shown.contains("terraform_data.a"), "{shown}");
    let log = namespace.knoll(&["logs", "first"]).ok();
    assert!(
        log.contains(&format!("knoll: Policy `{}`, rule `look`, warns: Look. (`terraform_data.a`)", policy.name)),
        "{log}"
    );

    let changed = "changes.filter(c, 'update' in c.actions || 'delete' in c.actions)";
    let policy =
        PolicyOf::apply(&namespace, "acts", &format!("rules: [{}]", rule("ask", "RequireApproval", changed, "Ask.")))
            .await;
    namespace.create(&run("second", "w", &inline(MODULE)));
    let told =
        |run: &Run| run.status.as_ref().is_some_and(|status| ready(status).1.contains("rule `ask`, demands a review"));
    namespace.until::<Run>("second", "named the rule", told).await;
    let explained = namespace.knoll(&["policy", "explain", "w"]).ok();
    assert!(explained.contains("1 rule"), "{explained}");
    let approved = namespace.knoll(&["approve", "second", "--yes"]).ok();
    assert!(approved.contains("Ask."), "{approved}");
    namespace.run_in("second", RunPhase::Succeeded).await;

    let policy_of_denial =
        PolicyOf::apply(&namespace, "acts", &format!("rules: [{}]", rule("never", "Deny", changed, "Never."))).await;
    namespace.create(&run("third", "w", &inline(MODULE)));
    let (message, _) = refused(&namespace, "third", reason::POLICY_VIOLATION).await;
    assert!(message.contains("rule `never`, denies the plan: Never. (`terraform_data.a`)"), "{message}");
    // A run that only plans says the same.
    namespace.create(&run("plan", "w", &inline(MODULE)).replace("operation: apply", "operation: plan"));
    refused(&namespace, "plan", reason::POLICY_VIOLATION).await;
    let found: Workspace = namespace.api().get("w").await.unwrap();
    assert_eq!(found.status.unwrap().outputs["word"], "second");
    drop((policy, policy_of_denial));
}

#[tokio::test]
async fn a_denial_is_overridden_with_a_comment_by_the_group_that_the_policy_names() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    let rules = format!("rules: [{}], override: {{groups: [sre]}}", rule("never", "Deny", "true", "Never."));
    let _policy = PolicyOf::apply(&namespace, "lift", &rules).await;
    namespace.create(&run("change", "w", &inline(MODULE)));
    let told = |run: &Run| run.status.as_ref().is_some_and(|status| ready(status).1.contains("denies the plan"));
    let waiting = namespace.until::<Run>("change", "named the rule", told).await.status.unwrap();
    assert_eq!(waiting.phase, RunPhase::Review);
    let digest = waiting.review_digest.unwrap();
    let approval = |name: &str, by: &str, fields: &str| {
        format!(
            "apiVersion: knoll.dev/v1alpha1\nkind: Approval\nmetadata: {{name: {name}}}\nspec: {{run: change, digest: \"{digest}\", decision: Approve, by: \"{by}\"{fields}}}\n"
        )
    };
    let silent = namespace.person("ann", &["knoll-approver"]);
    let without = silent.kubectl_with(&approval("silent", &silent.user, ", groups: [sre], policy: override"), &CREATE);
    assert!(without.stderr.contains("policy: override needs a comment"), "{without:?}");
    // Who is in none of the groups cannot say so.
    let forged = ", groups: [sre], policy: override, comment: urgent";
    let forged = silent.kubectl_with(&approval("forged", &silent.user, forged), &CREATE);
    assert_ne!(forged.code, Some(0), "{forged:?}");
    let other = ", policy: override, comment: urgent";
    let _ = silent.kubectl_with(&approval("other", &silent.user, other), &CREATE).ok();
    let refused = |approval: &knoll_api::Approval| {
        let conditions = approval.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| found.reason == reason::NOT_IN_GROUP)
    };
    namespace.until::<knoll_api::Approval>("other", "was refused", refused).await;
    let _ = silent.kubectl_with(&approval("plain", &silent.user, ""), &CREATE).ok();
    let counted = |approval: &knoll_api::Approval| approval.status.is_some();
    namespace.until::<knoll_api::Approval>("plain", "was read", counted).await;
    let found: Run = namespace.api().get("change").await.unwrap();
    assert_eq!(found.status.unwrap().phase, RunPhase::Review, "an approval is no override");

    let by_group = ["--as", silent.user.as_str(), "--as-group", "sre", "--as-group", "system:authenticated"];
    let fields = ", groups: [sre], policy: override, comment: \"the incident of tonight\"";
    let _ =
        namespace.kubectl_with(&approval("right", &silent.user, fields), &[&by_group[..], &CREATE[..]].concat()).ok();
    let status = namespace.run_in("change", RunPhase::Succeeded).await.status.unwrap();
    assert!(status.decision.unwrap().approvals.contains(&"right".to_owned()));
}

#[tokio::test]
async fn a_rule_that_never_ends_or_needs_all_memory_is_an_error_of_its_policy() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    let endless = "package main\ndeny contains \"x\" if {\n  some a in numbers.range(1, 100000)\n  some b in numbers.range(1, 100000)\n  a * b == 0\n}\n";
    let large = "package main\ndeny contains \"x\" if {\n  count([a | some b in numbers.range(1, 100000000); a := sprintf(\"%d and so on\", [b])]) == 0\n}\n";
    for (name, text, expect) in [("endless", endless, "takes longer than"), ("large", large, "of memory")] {
        let policy = PolicyOf::apply(&namespace, name, &format!("packs: [{{name: pack, inline: {text:?}}}]")).await;
        namespace.create(&run(name, "w", &inline(MODULE)));
        let (message, status) = refused(&namespace, name, reason::POLICY_VIOLATION).await;
        assert!(message.contains(&policy.name) && message.contains("`pack`") && message.contains(expect), "{message}");
        assert!(status.plan_verdict.unwrap().results[0].failed);
    }
    let broken = rule("broken", "Warn", "changes.filter(c, c.nothing == 1)", "Never.");
    let policy = PolicyOf::apply(&namespace, "broken", &format!("rules: [{broken}]")).await;
    namespace.create(&run("broken", "w", &inline(MODULE)));
    let (message, _) = refused(&namespace, "broken", reason::POLICY_VIOLATION).await;
    assert!(message.contains(&policy.name) && message.contains("rule `broken`, cannot be evaluated"), "{message}");
}

#[tokio::test]
async fn a_pack_of_a_config_map_judges_by_its_digest_and_no_result_has_a_sensitive_value() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    let text = "package main\nwarn contains msg if {\n  some change in input.resource_changes\n  msg := sprintf(\"input is %v\", [change.change.after.input])\n}\n";
    let cel = "rules:\n- {name: new, action: Warn, find: changes, message: Something is new.}\n";
    let pack = |text: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: packs}}\ndata: {{main.rego: {text:?}, new.cel.yaml: {cel:?}}}\n"
        )
    };
    namespace.create(&pack(text));
    let packs = [("pack", "main.rego", text), ("cel", "new.cel.yaml", cel)].map(|(name, key, text)| {
        let digest = knoll_api::Digest::of(text);
        let at = format!("{{namespace: {}, name: packs, key: {key}, digest: \"{digest}\"}}", namespace.name);
        format!("{{name: {name}, configMap: {at}}}")
    });
    let _policy = PolicyOf::apply(&namespace, "pack", &format!("packs: [{}]", packs.join(", "))).await;
    let module = "variable \"word\" { sensitive = true }\nresource \"terraform_data\" \"a\" { input = var.word }\n";
    namespace.create(&run("whisper", "w", &inline(module)));
    let status = namespace.run_in("whisper", RunPhase::Succeeded).await.status.unwrap();
    let results = &status.plan_verdict.as_ref().unwrap().results;
    let results: Vec<_> = results.iter().map(|result| (result.rule.as_str(), result.message.as_str())).collect();
    assert_eq!(results, [("cel/new", "Something is new."), ("pack/main.warn", "input is (sensitive)")]);
    assert!(!serde_json::to_string(&status.plan_verdict).unwrap().contains("whisper"));

    let _ = namespace.kubectl_with(&pack("package main\nwarn := false\n"), &["apply", "-f", "-"]).ok();
    namespace.create(&run("forged", "w", &inline(MODULE)));
    let (message, _) = refused(&namespace, "forged", reason::POLICY_VIOLATION).await;
    assert!(message.contains("not the one that the Policy names"), "{message}");
}

/// A terraform that says of every plan, as JSON and as text, that it changes nothing.
const FORGER: &str = r#"#!/bin/sh
PATH=${PATH#*:}
if test "$1" = show; then
  terraform "$@" | sed -e 's/"create"/"no-op"/g' -e 's/will be created/is harmless/'
else
  exec terraform "$@"
fi
"#;

/// A Workspace whose pods have [`FORGER`] in place of terraform: a hostile image, hook or module can do the same.
fn forging_workspace(namespace: &Namespace, variables: &serde_json::Value) {
    let tool =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tool"}, "data": {"terraform": FORGER}});
    namespace.create(&tool.to_string());
    let path = format!("/tool:{}:/usr/local/bin:/bin", std::env::var("PATH").unwrap_or_default());
    let pod = json!({
        "env": [{"name": "PATH", "value": path}],
        "volumes": [{"name": "tool", "configMap": {"name": "tool", "defaultMode": 0o755}}],
        "volumeMounts": [{"name": "tool", "mountPath": "/tool"}],
    });
    let workspace = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Workspace", "metadata": {"name": "w"}, "spec": {"pod": pod, "variables": variables}});
    namespace.create(&workspace.to_string());
}

#[tokio::test]
async fn a_pod_that_forges_the_json_of_its_plan_is_caught_where_another_one_describes_it() {
    let namespace = World::get().namespace().await;
    forging_workspace(&namespace, &json!([]));
    let created = "changes.filter(c, 'create' in c.actions)";
    let rules = |more: &str| format!("rules: [{}]{more}", rule("nothing-new", "Deny", created, "Nothing new."));
    let policy = PolicyOf::apply(&namespace, "forged", &rules("")).await;
    namespace.create(&run("forged", "w", &inline(MODULE)));
    // What the pod that plans says is believed without `isolated`: this is the attack.
    namespace.run_in("forged", RunPhase::Succeeded).await;

    let module = MODULE.replace("\"a\"", "\"b\"").replace("data.a.", "data.b.");
    drop(policy);
    let _isolated = PolicyOf::apply(&namespace, "isolated", &rules(", isolated: true")).await;
    namespace.create(&run("caught", "w", &inline(&module)));
    let (message, status) = refused(&namespace, "caught", reason::POLICY_VIOLATION).await;
    assert!(message.contains("Nothing new.") && message.contains("terraform_data.b"), "{message}");
    let steps: Vec<_> = status.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(steps, ["setup", "init", "plan", "judge"]);
    assert_eq!(status.pod_name.as_deref(), Some("caught-judge"));
}

#[tokio::test]
async fn an_approver_reads_the_plan_as_the_isolated_pod_describes_it() {
    let namespace = World::get().namespace().await;
    let kept = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kept"}, "stringData": {"word": "hunter2-and-more"}});
    namespace.create(&kept.to_string());
    let from = json!({"secretKeyRef": {"name": "kept", "key": "word"}});
    forging_workspace(&namespace, &json!([{"key": "word", "sensitive": true, "valueFrom": from}]));
    let ask = rule("ask", "RequireApproval", "changes.filter(c, 'create' in c.actions)", "Ask.");
    let _policy = PolicyOf::apply(&namespace, "shown", &format!("rules: [{ask}], isolated: true")).await;
    let secret = "variable \"word\" {}\nresource \"terraform_data\" \"a\" { input = var.word }\n";
    let source = run("change", "w", &inline(secret)).replace("  variables: {word: change}\n", "");
    namespace.create(&source);
    let reviewed = namespace.run_in("change", RunPhase::Review).await.status.unwrap();
    assert_eq!(reviewed.plan.as_ref().map(|plan| plan.add), Some(1));
    let approved = namespace.knoll(&["approve", "change", "--yes"]).ok();
    assert!(approved.contains("will be created") && !approved.contains("is harmless"), "{approved}");
    // The isolated pod gets no variables, but knows what to mask.
    assert!(!approved.contains("hunter2"), "{approved}");
    namespace.run_in("change", RunPhase::Succeeded).await;
    let log = namespace.knoll(&["logs", "change"]).ok();
    assert!(log.contains("knoll: step judge") && !log.contains("hunter2"), "{log}");
    let pods = namespace.kubectl(&["get", "pods", "-o", "name"]).ok();
    assert!(!pods.contains("judge-"), "{pods}");
}

/// A Secret in the operator's own namespace, deleted afterwards.
struct Credentials<'a> {
    world: &'a World,
    home: &'static str,
    name: String,
}

impl<'a> Credentials<'a> {
    fn create(world: &'a World, name: String, labels: &serde_json::Value) -> Self {
        let home = if world.is_real() { "knoll-system" } else { "kube-system" };
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "stringData": {"username": USER, "password": PASSWORD}});
        let _ = world.kubectl_with(&secret.to_string(), &["-n", home, "create", "-f", "-"]).ok();
        Self { world, home, name }
    }
}

impl Drop for Credentials<'_> {
    fn drop(&mut self) {
        let _ = self.world.kubectl(&["-n", self.home, "delete", "secret", &self.name, "--ignore-not-found"]);
    }
}

const PACK: &str = "package main\ndeny contains msg if {\n  some change in input.resource_changes\n  \"create\" in change.change.actions\n  msg := sprintf(\"%s is new\", [change.address])\n}\n";

#[tokio::test]
async fn packs_of_a_repository_and_of_a_registry_judge_and_without_them_nothing_passes() {
    let world = World::get();
    let namespace = world.namespace().await;
    namespace.create(&workspace("w"));
    let marked = json!({"knoll.dev/credentials": "true"});
    let secret = Credentials::create(world, format!("packs-{}", namespace.name), &marked);
    let other = Credentials::create(world, format!("other-{}", namespace.name), &json!({}));
    let repositories = Repositories::new();
    repositories.create("rules.git");
    let commit =
        repositories.commit("rules.git", &[("policy/new.rego", PACK), ("policy/new_test.rego", "package main")]);
    let server = HttpServer::start(&repositories).await;
    let url = format!("http://{}:{}/rules.git", world.open_address(), server.port);
    let git = |commit: &str, secret: &str| {
        format!(
            "packs: [{{name: pack, git: {{url: {url:?}, commit: {commit:?}, path: policy, secretRef: {{name: {secret}}}}}}}]"
        )
    };
    let policy = PolicyOf::apply(&namespace, "git", &git(&commit, &secret.name)).await;
    namespace.create(&run("of-git", "w", &inline(MODULE)));
    let (message, _) = refused(&namespace, "of-git", reason::POLICY_VIOLATION).await;
    assert!(message.contains("pack/main.deny") && message.contains("terraform_data.a is new"), "{message}");

    // A pack that was fetched is kept, so its server may go.
    drop(server);
    namespace.create(&run("kept", "w", &inline(MODULE)));
    let (message, _) = refused(&namespace, "kept", reason::POLICY_VIOLATION).await;
    assert!(message.contains("terraform_data.a is new"), "{message}");

    for (name, plan, expect) in [
        ("gone", git(&"1".repeat(40), &secret.name), "cannot reach"),
        ("anybody", git(&"2".repeat(40), "nowhere"), "has no Secret `nowhere` with the label `knoll.dev/credentials"),
        ("unmarked", git(&"3".repeat(40), &other.name), "` with the label `knoll.dev/credentials: \"true\"`"),
    ] {
        let other = PolicyOf::apply(&namespace, "git", &plan).await;
        namespace.create(&run(name, "w", &inline(MODULE)));
        let (message, _) = refused(&namespace, name, reason::POLICY_VIOLATION).await;
        assert!(message.contains(&other.name) && message.contains("spec.plan.packs[0]: `"), "{message}");
        assert!(message.contains(expect), "no `{expect}` in: {message}");
    }
    drop(policy);
    if world.is_real() {
        // The registry of this test has no certificate, and a registry elsewhere than on loopback needs one.
        return;
    }
    let registry = Registry::start().await;
    let rules = "application/vnd.cncf.openpolicyagent.policy.layer.v1+rego";
    let digest = registry.push("team/rules", &[(rules, "new.rego", PACK.as_bytes())]);
    let repository = format!("127.0.0.1:{}/team/rules", registry.port);
    let oci = format!(
        "packs: [{{name: pack, oci: {{repository: {repository:?}, digest: {digest:?}, secretRef: {{name: {}}}}}}}]",
        secret.name
    );
    let _policy = PolicyOf::apply(&namespace, "oci", &oci).await;
    namespace.create(&run("of-oci", "w", &inline(MODULE)));
    let (message, _) = refused(&namespace, "of-oci", reason::POLICY_VIOLATION).await;
    assert!(message.contains("terraform_data.a is new"), "{message}");
}

#[tokio::test]
async fn a_new_rule_is_tried_on_the_plans_that_are_kept() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    // A Run that nobody judges or reviews is skipped.
    namespace.create(&run("unseen", "w", &inline(MODULE)));
    namespace.run_in("unseen", RunPhase::Succeeded).await;
    let policy =
        PolicyOf::apply(&namespace, "keeps", &format!("rules: [{}]", rule("none", "Warn", "false", "Never."))).await;
    let two = MODULE
        .replace("variable", "resource \"terraform_data\" \"secret\" { input = sensitive(\"hunter2\") }\nvariable");
    namespace.create(&run("seen", "w", &inline(&two)));
    namespace.run_in("seen", RunPhase::Succeeded).await;
    drop(policy);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new.yaml");
    let tried = |namespaces: &str| {
        let find = "changes.filter(c, 'create' in c.actions && c.after.input == 'hunter2')";
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespaces}});
        let rules = json!([{"name": "new", "action": "Deny", "find": find, "message": "New.", "messageExpression": "'it is ' + plan.resource_changes.filter(c, c.name == 'secret')[0].change.after.input"}]);
        let policy = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": {"name": "new"}, "spec": {"namespaceSelector": selector, "plan": {"rules": rules}}});
        std::fs::write(&file, policy.to_string()).unwrap();
        namespace.knoll(&["policy", "test", "-f", file.to_str().unwrap(), "--since", "1d"]).ok()
    };
    let shown = tried(&namespace.name);
    let lines = [
        "Of 1 run with a plan, the rules would have refused 1, demanded a review of 0 and warned of 0.",
        "Skipped 1 run, as the JSON of the plan is not kept.",
        "terraform_data.secret",
    ];
    for expect in lines {
        assert!(shown.contains(expect), "no `{expect}` in: {shown}");
    }
    assert!(shown.contains("it is (sensitive)") && !shown.contains("hunter2"), "{shown}");
    let shown = tried("elsewhere");
    assert!(shown.contains("Left out 2 runs"), "{shown}");

    // The plan is in a Secret, and goes with its Run.
    let kept = namespace.kubectl(&["get", "secrets", "-l", "knoll.dev/content=description", "-o", "name"]).ok();
    assert_eq!(kept.trim(), "secret/knoll-description-seen");
    let viewer = namespace.person("uma", &["knoll-viewer"]);
    assert!(!viewer.may("get", "secrets"));
    let _ = namespace.kubectl(&["delete", "run", "seen", "--timeout=60s"]).ok();
    let gone = ["wait", "--for=delete", "secret/knoll-description-seen", "--timeout=60s"];
    let _ = namespace.kubectl(&gone).ok();
}

/// The Ready condition of a Policy.
fn condition_of(policy: &Policy) -> Option<&Condition> {
    policy.status.as_ref()?.conditions.iter().find(|found| found.type_ == condition::READY)
}

/// The message of a Policy that is Ready or not, once it says this.
async fn policy_until(namespace: &Namespace, name: &str, status: &str, part: &str) -> String {
    let policies: Api<Policy> = Api::all(World::get().client().await);
    let is_so = |policy: Option<&Policy>| {
        let generation = policy.and_then(|policy| policy.metadata.generation);
        let found = policy.and_then(condition_of);
        found.is_some_and(|found| {
            found.observed_generation == generation && found.status == status && found.message.contains(part)
        })
    };
    let found = tokio::time::timeout(TIMEOUT, await_condition(policies, name, is_so)).await;
    let shown = || namespace.kubectl(&["get", "policy.knoll.dev", name, "-o", "jsonpath={.status}"]).ok();
    let Ok(found) = found else { panic!("never {status} with `{part}`: {}", shown()) };
    condition_of(&found.unwrap().unwrap()).unwrap().message.clone()
}

#[tokio::test]
async fn the_status_of_a_policy_names_each_field_that_cannot_be_read() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    let text = "package main\nwarn contains \"w\" if { false }\n";
    let at = format!(
        "{{namespace: {}, name: packs, key: main.rego, digest: \"{}\"}}",
        namespace.name,
        knoll_api::Digest::of(text)
    );
    let good = rule("good", "Warn", "changes.filter(c, 'delete' in c.actions)", "m");
    let broken = rule("broken", "Warn", "changes.filter(c,", "m");
    let typo = rule("typo", "Deny", "resources.size() > 0", "m");
    let packs = format!(
        "packs: [{{name: brace, inline: \"package main\\ndeny contains 1 if {{\"}}, {{name: map, configMap: {at}}}]"
    );
    let plan = format!("rules: [{good}, {broken}, {typo}], {packs}");
    let policy = PolicyOf::apply(&namespace, "unreadable", &plan).await;
    let message = policy_until(&namespace, &policy.name, "False", "spec.plan.packs[1]").await;
    for part in [
        "`spec.plan.rules[1]`: `find`: ",
        "`spec.plan.rules[2]`: `find`: ",
        "`spec.plan.packs[0]`: it cannot be read as Rego v1",
        "`spec.plan.packs[1]`: the ConfigMap `",
        "Until this is corrected, no plan",
    ] {
        assert!(message.contains(part), "no `{part}` in: {message}");
    }
    assert!(!message.contains("rules[0]"), "{message}");
    // Where an administrator looks, and where a user does.
    let listed = namespace.kubectl(&["get", "policy.knoll.dev", &policy.name]).ok();
    assert!(listed.contains("REASON") && listed.contains("False   InvalidSpec"), "{listed}");
    let listed = namespace.knoll(&["policy", "list"]).stderr;
    assert!(listed.contains(&format!("policy `{}`: `spec.plan.rules[1]`", policy.name)), "{listed}");
    let shown = |found: &Workspace| {
        let settings = found.status.iter().flat_map(|status| &status.policy);
        settings.into_iter().any(|setting| setting.value.starts_with("unreadable: `spec.plan.rules[1]`"))
    };
    namespace.until::<Workspace>("w", "showed what cannot be read", shown).await;

    // Corrected, but for the pack, which comes later.
    let policy =
        PolicyOf::apply(&namespace, "unreadable", &format!("rules: [{good}], packs: [{{name: map, configMap: {at}}}]"))
            .await;
    policy_until(&namespace, &policy.name, "False", "It is tried again").await;
    namespace.create(&format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: packs}}\ndata: {{main.rego: {text:?}}}\n"
    ));
    let message = policy_until(&namespace, &policy.name, "True", "").await;
    assert_eq!(message, "Every field can be read.");

    // A schedule that has the form of one, and a time zone that does not exist.
    let windows = "spec: {windows: {open: [{schedule: 0 9 * * mon-fri, duration: 1h}, {schedule: 61 * * * *, duration: 1h}], freezes: [{schedule: 0 9 * * *, timeZone: Europe/Atlantis, duration: 1h, reason: r}]}}";
    let patch = ["patch", "policy.knoll.dev", &policy.name, "--type", "merge", "-p", windows];
    let _ = namespace.kubectl(&patch).ok();
    let message = policy_until(&namespace, &policy.name, "False", "spec.windows").await;
    assert!(message.contains("`spec.windows.open[1].schedule`: `61` is no minute"), "{message}");
    assert!(
        message.contains("`spec.windows.freezes[0].timeZone`: there is no time zone `Europe/Atlantis`"),
        "{message}"
    );
    assert!(message.contains("no run can start in the workspaces"), "{message}");
}
