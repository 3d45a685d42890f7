//! Rules on plans: the hub judges each plan before it is reviewed or applied, and nobody gets past a denial.
#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::names::{condition, reason};
use knoll_api::policy::RuleAction;
use knoll_api::run::{Run, RunPhase, RunStatus};
use knoll_api::workspace::Workspace;
use knoll_e2e::manifests::{MODULE, inline, run, workspace};
use knoll_e2e::{Namespace, World};

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
        let policy = PolicyOf::apply(&namespace, name, &format!("rego: [{{name: pack, inline: {text:?}}}]")).await;
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
    let pack = |text: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: packs}}\ndata: {{main.rego: {text:?}}}\n")
    };
    namespace.create(&pack(text));
    let digest = knoll_api::Digest::of(text);
    let at = format!("{{namespace: {}, name: packs, key: main.rego, digest: \"{digest}\"}}", namespace.name);
    let _policy = PolicyOf::apply(&namespace, "pack", &format!("rego: [{{name: pack, configMap: {at}}}]")).await;
    let module = "variable \"word\" { sensitive = true }\nresource \"terraform_data\" \"a\" { input = var.word }\n";
    namespace.create(&run("whisper", "w", &inline(module)));
    let status = namespace.run_in("whisper", RunPhase::Succeeded).await.status.unwrap();
    assert_eq!(status.plan_verdict.as_ref().unwrap().results[0].message, "input is (sensitive)");
    assert!(!serde_json::to_string(&status.plan_verdict).unwrap().contains("whisper"));

    let _ = namespace.kubectl_with(&pack("package main\nwarn := false\n"), &["apply", "-f", "-"]).ok();
    namespace.create(&run("forged", "w", &inline(MODULE)));
    let (message, _) = refused(&namespace, "forged", reason::POLICY_VIOLATION).await;
    assert!(message.contains("not the one that the Policy names"), "{message}");
}
