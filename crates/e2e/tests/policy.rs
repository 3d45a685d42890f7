//! Policies: what an organisation demands holds for every Run, however it was started.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use knoll_api::approval::{Approval, ApprovalPhase};
use knoll_api::names::{condition, reason};
use knoll_api::run::{Run, RunPhase};
use knoll_api::stack::{Stack, StackPhase};
use knoll_api::workspace::Workspace;
use knoll_e2e::manifests::{MODULE, approval, inline, run, workspace};
use knoll_e2e::{Namespace, World};
use serde_json::{Value, json};

const CREATE: [&str; 3] = ["create", "-f", "-"];

/// Long enough for a busy machine, short enough to notice a hang.
const DEADLINE: Duration = Duration::from_secs(60);

/// Rules for everything that a Policy restricts.
const ALLOW: &str = "allow: {images: [registry.example.com/team/*], serviceAccounts: [terraform], pod: {}, hooks: None, \
    sources: {kinds: [inline, git], hosts: [{host: git.example.com, paths: [/platform]}]}, \
    tools: [{name: terraform}], privileged: {operations: [destroy]}}";

/// A Policy that holds in one namespace, deleted afterwards.
struct PolicyOf<'a> {
    namespace: &'a Namespace,
    name: String,
}

impl<'a> PolicyOf<'a> {
    /// Creates or changes a Policy with these fields (YAML flow style, without braces).
    #[track_caller]
    fn apply(namespace: &'a Namespace, name: &str, fields: &str) -> Self {
        let name = format!("{}-{name}", namespace.name);
        let _ = namespace.kubectl_with(&manifest(&name, &namespace.name, fields), &["apply", "-f", "-"]).ok();
        Self { namespace, name }
    }
}

impl Drop for PolicyOf<'_> {
    fn drop(&mut self) {
        let _ = self.namespace.kubectl(&["delete", "policy.knoll.dev", &self.name, "--ignore-not-found"]);
    }
}

fn manifest(name: &str, namespace: &str, fields: &str) -> String {
    format!(
        "apiVersion: knoll.dev/v1alpha1\nkind: Policy\nmetadata: {{name: {name}}}\nspec: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}, {fields}}}\n"
    )
}

fn ready(conditions: &[Condition]) -> &Condition {
    conditions.iter().find(|found| found.type_ == condition::READY).unwrap()
}

/// Waits until the Workspace shows a demand of this Policy: from then on the operator knows of it.
async fn known(namespace: &Namespace, workspace: &str, policy: &PolicyOf<'_>) {
    let from = format!("Policy/{}", policy.name);
    let shown = |found: &Workspace| {
        let settings = found.status.iter().flat_map(|status| &status.policy);
        settings.into_iter().any(|setting| setting.from == from)
    };
    namespace.until::<Workspace>(workspace, "showed the Policy", shown).await;
}

/// Waits until a Run is refused, and returns the message. No pod was ever made.
async fn refused(namespace: &Namespace, name: &str) -> String {
    let status = namespace.run_in(name, RunPhase::Failed).await.status.unwrap();
    let ready = ready(&status.conditions);
    assert_eq!(ready.reason, reason::POLICY_VIOLATION, "{ready:?}");
    assert_eq!(status.pod_name, None, "there was a pod");
    ready.message.clone()
}

/// An Approval by a user who names groups.
fn approval_in(name: &str, run: &str, digest: &str, by: &str, groups: &str) -> String {
    let by_user = format!("by: \"{by}\"");
    approval(name, run, digest, "Approve", by).replace(&by_user, &format!("{by_user}, groups: [{groups}]"))
}

async fn digest_of(namespace: &Namespace, name: &str) -> String {
    namespace.run_in(name, RunPhase::Review).await.status.unwrap().review_digest.unwrap()
}

fn stack(name: &str, fields: &str) -> String {
    format!(
        "apiVersion: knoll.dev/v1alpha1\nkind: Stack\nmetadata: {{name: {name}}}\nspec:\n  source: {}\n  variables: {{word: one}}\n{fields}",
        inline(MODULE)
    )
}

#[tokio::test]
async fn a_run_with_approval_auto_does_not_destroy_what_a_stack_wants_reviewed() {
    let namespace = World::get().namespace().await;
    let ann = namespace.person("ann", &["knoll-approver"]);
    namespace.create(&stack("net", "  approval: Manual\n"));
    let launched = |stack: &Stack| stack.status.as_ref().is_some_and(|status| status.last_run.is_some());
    let first = namespace.until::<Stack>("net", "started a run", launched).await.status.unwrap().last_run.unwrap();
    let digest = digest_of(&namespace, &first).await;
    let _ = ann.kubectl_with(&approval("first", &first, &digest, "Approve", &ann.user), &CREATE).ok();
    let is_ready = |stack: &Stack| stack.status.as_ref().is_some_and(|status| status.phase == StackPhase::Ready);
    namespace.until::<Stack>("net", "was ready", is_ready).await;

    let uma = namespace.person("uma", &["knoll-user"]);
    let head = "apiVersion: knoll.dev/v1alpha1\nkind: Run\n";
    let destroy = |name: &str, fields: &str| {
        format!(
            "{head}metadata: {{name: {name}}}\nspec: {{workspace: net, operation: destroy, approval: Auto, variables: {{word: one}}{fields}}}\n"
        )
    };
    let _ = uma.kubectl_with(&destroy("wipe", ", overrideStack: true"), &CREATE).ok();
    namespace.run_in("wipe", RunPhase::Review).await;
    // Without being asked for, it does not even plan.
    let _ = uma.kubectl_with(&destroy("stray", ""), &CREATE).ok();
    let stray = namespace.run_in("stray", RunPhase::Failed).await.status.unwrap();
    assert_eq!(stray.pod_name, None);
    let said: Vec<String> =
        stray.conditions.into_iter().map(|found| format!("{}: {}", found.reason, found.message)).collect();
    assert!(
        said.iter().any(|said| said.starts_with("BelongsToStack: Workspace `net` belongs to Stack `net`")),
        "{said:?}"
    );
    let _policy = PolicyOf::apply(&namespace, "stacks", "allow: {stackOverride: false}");
    let _ = uma.kubectl_with(&destroy("forbidden", ", overrideStack: true"), &CREATE).ok();
    let message = refused(&namespace, "forbidden").await;
    assert!(message.contains("spec.allow.stackOverride"), "{message}");
    // A command has no plan, so it needs an Approval before it starts.
    let shell = format!(
        "{head}metadata: {{name: shell}}\nspec: {{workspace: net, operation: command, command: sh, args: [-c, \"true\"]}}\n"
    );
    let _ = uma.kubectl_with(&shell, &CREATE).ok();
    let status = namespace.run_in("shell", RunPhase::Review).await.status.unwrap();
    assert_eq!(status.pod_name, None);
    let found: Workspace = namespace.api().get("net").await.unwrap();
    assert_eq!(found.status.unwrap().state.unwrap().resources, 1, "nothing was destroyed");
}

#[tokio::test]
async fn privileged_operations_are_reviewed_and_hooks_do_not_get_around_privileged_commands() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w").replace("spec: {}", "spec: {privilegedCommands: [apply, destroy]}"));
    namespace.create(&run("change", "w", &inline(MODULE)));
    namespace.run_in("change", RunPhase::Review).await;

    namespace.create(&workspace("v").replace("spec: {}", "spec: {privilegedCommands: [sh, state rm]}"));
    namespace.create(&run("first", "v", &inline(MODULE)));
    namespace.run_in("first", RunPhase::Succeeded).await;
    let hooked = "apiVersion: knoll.dev/v1alpha1\nkind: Run\nmetadata: {name: hooked}\nspec:\n  workspace: v\n  operation: refresh\n  variables: {word: first}\n  hooks: [{name: remove, step: pre-plan, script: \"terraform state rm terraform_data.a\"}]\n";
    namespace.create(hooked);
    let message = refused(&namespace, "hooked").await;
    assert!(message.contains("Workspace `v`") && message.contains("spec.privilegedCommands"), "{message}");
    let found: Workspace = namespace.api().get("v").await.unwrap();
    assert_eq!(found.status.unwrap().state.unwrap().resources, 1);
}

#[tokio::test]
async fn nothing_is_applied_by_the_hooks_of_a_run_that_nobody_has_approved() {
    let namespace = World::get().namespace().await;
    let uma = namespace.person("uma", &["knoll-user"]);
    namespace.create(&workspace("w"));
    let policy = PolicyOf::apply(&namespace, "hooks", "review: {floor: Manual}");
    known(&namespace, "w", &policy).await;
    let hook = "  hooks: [{name: a, step: pre-plan, script: \"terraform apply -auto-approve\"}]\n";
    let _ = uma.kubectl_with(&format!("{}{hook}", run("sly", "w", &inline(MODULE))), &CREATE).ok();
    let status = namespace.run_in("sly", RunPhase::Failed).await.status.unwrap();
    assert_eq!(ready(&status.conditions).reason, reason::STATE_NOT_SAVED, "{status:?}");
    let idle = |found: &Workspace| found.status.as_ref().is_some_and(|status| status.active.is_none());
    let found = namespace.until::<Workspace>("w", "was idle", idle).await.status.unwrap();
    assert_eq!((found.state, found.bundle), (None, None));
}

#[tokio::test]
async fn a_shell_does_not_get_around_privileged_operations() {
    let namespace = World::get().namespace().await;
    let uma = namespace.person("uma", &["knoll-user"]);
    namespace.create(&workspace("w"));
    let policy = PolicyOf::apply(&namespace, "operations", "allow: {privileged: {operations: [apply, plan]}}");
    known(&namespace, "w", &policy).await;
    let head = "apiVersion: knoll.dev/v1alpha1\nkind: Run\n";
    for (name, command) in [("shell", "sh, args: [-c, \"terraform apply -auto-approve\"]"), ("words", "plan")] {
        let spec = format!("{{workspace: w, operation: command, command: {command}, source: {}}}", inline(MODULE));
        let _ = uma.kubectl_with(&format!("{head}metadata: {{name: {name}}}\nspec: {spec}\n"), &CREATE).ok();
        assert_eq!(namespace.run_in(name, RunPhase::Review).await.status.unwrap().pod_name, None);
    }
    let spec = format!(
        "{{workspace: w, operation: refresh, source: {}, hooks: [{{name: a, step: pre-init, script: \"true\"}}]}}",
        inline(MODULE)
    );
    let _ = uma.kubectl_with(&format!("{head}metadata: {{name: hooked}}\nspec: {spec}\n"), &CREATE).ok();
    let message = refused(&namespace, "hooked").await;
    assert!(message.contains("spec.allow.privileged"), "{message}");
}

/// A refresh with `-refresh-only=false` was an apply without a review, and a variable of the Workspace made a destroy of
/// every apply.
#[tokio::test]
async fn no_flag_makes_another_operation_of_a_run() {
    let namespace = World::get().namespace().await;
    let uma = namespace.person("uma", &["knoll-user"]);
    let variables = "spec: {variables: [{key: TF_CLI_ARGS_plan, value: -destroy, category: env}]}";
    namespace.create(&workspace("w").replace("spec: {}", variables));
    for name in ["one", "two"] {
        namespace.create(&run(name, "w", &inline(MODULE)));
        namespace.run_in(name, RunPhase::Succeeded).await;
    }
    let has_one = |found: &Workspace| {
        let status = found.status.as_ref().filter(|status| status.active.is_none());
        status.and_then(|status| status.state.as_ref()).is_some_and(|state| state.resources == 1)
    };
    namespace.until::<Workspace>("w", "had its resource", has_one).await;

    let source = inline(MODULE);
    let of = |name: &str, operation: &str, flag: &str| {
        format!(
            "apiVersion: knoll.dev/v1alpha1\nkind: Run\nmetadata: {{name: {name}}}\nspec: {{workspace: w, operation: {operation}, args: ['{flag}'], variables: {{word: x}}, source: {source}}}\n"
        )
    };
    for (operation, flag) in [("refresh", "-refresh-only=false"), ("destroy", "--destroy=false")] {
        let said = uma.kubectl_with(&of("sly", operation, flag), &CREATE).refused();
        assert!(said.contains("are what they are called"), "{said}");
    }
}

#[tokio::test]
async fn the_floor_holds_for_every_run_and_a_stricter_policy_for_a_run_that_waits() {
    let namespace = World::get().namespace().await;
    let ann = namespace.person("ann", &["knoll-approver"]);
    let bob = namespace.person("bob", &["knoll-approver"]);
    namespace.create(&workspace("w"));
    let policy = PolicyOf::apply(&namespace, "floor", "review: {floor: ManualOnDestroy}");
    known(&namespace, "w", &policy).await;
    // Its plan destroys nothing.
    namespace.create(&run("first", "w", &inline(MODULE)));
    namespace.run_in("first", RunPhase::Succeeded).await;

    let policy = PolicyOf::apply(&namespace, "floor", "review: {floor: Manual}");
    let is_manual = |found: &Workspace| {
        let settings = found.status.iter().flat_map(|status| &status.policy);
        settings.into_iter().any(|setting| setting.setting == "review.floor" && setting.value == "Manual")
    };
    namespace.until::<Workspace>("w", "showed the stricter floor", is_manual).await;
    namespace.create(&run("second", "w", &inline(MODULE)));
    let digest = digest_of(&namespace, "second").await;
    let message = "It has 0 of 2 Approvals";
    let policy_of_two = PolicyOf::apply(&namespace, "two", "review: {approvers: 2}");
    let told = |run: &Run| ready(&run.status.as_ref().unwrap().conditions).message.contains(message);
    namespace.until::<Run>("second", "needed two", told).await;
    let _ = ann.kubectl_with(&approval("ann", "second", &digest, "Approve", &ann.user), &CREATE).ok();
    let counted = |approval: &Approval| approval.status.as_ref().is_some_and(|s| s.phase == ApprovalPhase::Counted);
    namespace.until::<Approval>("ann", "counted", counted).await;
    let _ = ann.kubectl_with(&approval("ann-again", "second", &digest, "Approve", &ann.user), &CREATE).ok();
    let says = |reason: &'static str| {
        move |approval: &Approval| {
            let conditions = approval.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|condition| condition.reason == reason)
        }
    };
    namespace.until::<Approval>("ann-again", "was a duplicate", says(reason::DUPLICATE)).await;
    let waiting: Run = namespace.api().get("second").await.unwrap();
    assert_eq!(waiting.status.unwrap().phase, RunPhase::Review);
    let _ = bob.kubectl_with(&approval("bob", "second", &digest, "Approve", &bob.user), &CREATE).ok();
    let status = namespace.run_in("second", RunPhase::Succeeded).await.status.unwrap();
    assert_eq!(status.decision.unwrap().approvals, ["ann", "bob"]);
    drop((policy, policy_of_two));
}

/// Issue: at approval a Policy was judged on the Workspace as it was by then, and the frozen job ran.
#[tokio::test]
async fn a_policy_judges_what_was_frozen_and_not_the_workspace_at_the_moment_of_the_approval() {
    let namespace = World::get().namespace().await;
    let ann = namespace.person("ann", &["knoll-approver"]);
    for name in ["strong", "weak"] {
        let _ = namespace.kubectl(&["create", "serviceaccount", name]).ok();
        namespace.create(&workspace(name).replace("{}", &format!("{{pod: {{serviceAccountName: {name}}}}}")));
        namespace.create(&format!("{}  approval: Manual\n", run(name, name, &inline(MODULE))));
    }
    let (strong, weak) = (digest_of(&namespace, "strong").await, digest_of(&namespace, "weak").await);
    // The Workspace that was planned with the forbidden account looks harmless now, and the other one does not. A Workspace
    // that is there before the Policy keeps its account.
    for (name, now) in [("strong", "weak"), ("weak", "strong")] {
        let patch = format!("{{\"spec\": {{\"pod\": {{\"serviceAccountName\": \"{now}\"}}}}}}");
        let _ = namespace.kubectl(&["patch", "workspace", name, "--type=merge", "-p", &patch]).ok();
    }
    let policy = PolicyOf::apply(&namespace, "accounts", "allow: {serviceAccounts: [weak]}");
    for name in ["strong", "weak"] {
        known(&namespace, name, &policy).await;
    }
    for (name, digest) in [("strong", &strong), ("weak", &weak)] {
        let _ = ann.kubectl_with(&approval(name, name, digest, "Approve", &ann.user), &CREATE).ok();
    }
    let status = namespace.run_in("strong", RunPhase::Failed).await.status.unwrap();
    let ready = ready(&status.conditions);
    assert_eq!(ready.reason, reason::POLICY_VIOLATION, "{ready:?}");
    assert!(ready.message.contains("`strong`") && ready.message.contains("spec.allow.serviceAccounts"), "{ready:?}");
    assert_eq!(status.pod_name.as_deref(), Some("strong"), "no pod was made to apply");
    namespace.run_in("weak", RunPhase::Succeeded).await;
}

#[tokio::test]
async fn an_approver_is_in_the_group_and_one_person_discards() {
    let namespace = World::get().namespace().await;
    let ann = namespace.person("ann", &["knoll-approver"]);
    namespace.create(&workspace("w"));
    let policy = PolicyOf::apply(&namespace, "groups", "review: {floor: Manual, groups: [release]}");
    known(&namespace, "w", &policy).await;
    namespace.create(&run("change", "w", &inline(MODULE)));
    let digest = digest_of(&namespace, "change").await;

    let _ = ann.kubectl_with(&approval("nobody", "change", &digest, "Approve", &ann.user), &CREATE).ok();
    let not_in_group = |approval: &Approval| {
        let conditions = approval.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| found.reason == reason::NOT_IN_GROUP && found.message.contains("release"))
    };
    namespace.until::<Approval>("nobody", "was told why", not_in_group).await;
    // A group that the user is not in cannot be claimed.
    let said = ann.kubectl_with(&approval_in("lie", "change", &digest, &ann.user, "release"), &CREATE).refused();
    assert!(said.contains("knoll-approvals") && said.contains("spec.groups"), "{said}");
    let member = ["--as", ann.user.as_str(), "--as-group", "release", "--as-group", "system:authenticated"];
    let honest = approval_in("honest", "change", &digest, &ann.user, "release");
    let _ = namespace.kubectl_with(&honest, &[&member[..], &CREATE].concat()).ok();
    namespace.run_in("change", RunPhase::Succeeded).await;

    namespace.create(&run("second", "w", &inline(MODULE)));
    let digest = digest_of(&namespace, "second").await;
    let _ = ann.kubectl_with(&approval("discard", "second", &digest, "Discard", &ann.user), &CREATE).ok();
    namespace.run_in("second", RunPhase::Discarded).await;
}

#[tokio::test]
async fn who_asked_for_a_change_does_not_approve_it() {
    let namespace = World::get().namespace().await;
    let uma = namespace.person("uma", &["knoll-user", "knoll-approver"]);
    let ann = namespace.person("ann", &["knoll-approver"]);
    namespace.create(&workspace("w"));
    let policy = PolicyOf::apply(&namespace, "eyes", "review: {floor: Manual, fourEyes: true}");
    known(&namespace, "w", &policy).await;
    let asked = format!("{}  requestedBy: {}\n", run("change", "w", &inline(MODULE)), uma.user);
    let _ = uma.kubectl_with(&asked, &CREATE).ok();
    let digest = digest_of(&namespace, "change").await;
    let _ = uma.kubectl_with(&approval("own", "change", &digest, "Approve", &uma.user), &CREATE).ok();
    let is_requester = |approval: &Approval| {
        let conditions = approval.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| found.reason == reason::REQUESTER && found.message.contains(&policy.name))
    };
    namespace.until::<Approval>("own", "was told why", is_requester).await;
    let _ = ann.kubectl_with(&approval("other", "change", &digest, "Approve", &ann.user), &CREATE).ok();
    namespace.run_in("change", RunPhase::Succeeded).await;

    // A Run that names nobody needs one more approver: one of the two may be the requester.
    let _ = uma.kubectl_with(&run("second", "w", &inline(MODULE)), &CREATE).ok();
    let digest = digest_of(&namespace, "second").await;
    let _ = uma.kubectl_with(&approval("one", "second", &digest, "Approve", &uma.user), &CREATE).ok();
    let counted = |approval: &Approval| approval.status.as_ref().is_some_and(|s| s.phase == ApprovalPhase::Counted);
    namespace.until::<Approval>("one", "counted", counted).await;
    let _ = ann.kubectl_with(&approval("two", "second", &digest, "Approve", &ann.user), &CREATE).ok();
    namespace.run_in("second", RunPhase::Succeeded).await;
}

/// Eve changed a ConfigMap of Uma's Stack. The Run named Uma, so Eve could approve her own change.
#[tokio::test]
async fn a_change_of_a_config_map_was_approved_by_its_author_in_the_name_of_another() {
    let namespace = World::get().namespace().await;
    let uma = namespace.person("uma", &["knoll-editor"]);
    let eve = namespace.person("eve", &["knoll-editor", "knoll-approver"]);
    let ann = namespace.person("ann", &["knoll-approver"]);
    let policy = PolicyOf::apply(&namespace, "eyes", "review: {floor: Manual, fourEyes: true}");
    let _ = uma.kubectl(&["create", "configmap", "net", "--from-literal=main.tf=# nothing"]).ok();
    let stack = format!(
        "apiVersion: knoll.dev/v1alpha1\nkind: Stack\nmetadata: {{name: net, annotations: {{knoll.dev/requested-by: \"{}\"}}}}\nspec: {{source: {{configMap: {{name: net}}}}}}\n",
        uma.user
    );
    let _ = uma.kubectl_with(&stack, &CREATE).ok();
    let is_ready = |stack: &Stack| stack.status.as_ref().is_some_and(|status| status.phase == StackPhase::Ready);
    let status = namespace.until::<Stack>("net", "was ready", is_ready).await.status.unwrap();
    let first: Run = namespace.api().get(&status.last_run.unwrap()).await.unwrap();
    assert_eq!(first.spec.requested_by.as_deref(), Some(uma.user.as_str()));
    known(&namespace, "net", &policy).await;

    let evil = r#"{"data": {"main.tf": "resource \"terraform_data\" \"a\" {}"}}"#;
    let _ = eve.kubectl(&["patch", "configmap", "net", "--type=merge", "--patch", evil]).ok();
    let is_second = |stack: &Stack| stack.status.as_ref().is_some_and(|status| status.runs == 2);
    let status = namespace.until::<Stack>("net", "started a second run", is_second).await.status.unwrap();
    let second = status.last_run.unwrap();
    let run: Run = namespace.api().get(&second).await.unwrap();
    assert_eq!(run.spec.requested_by, None);
    let digest = digest_of(&namespace, &second).await;
    let _ = eve.kubectl_with(&approval("own", &second, &digest, "Approve", &eve.user), &CREATE).ok();
    let counted = |approval: &Approval| approval.status.as_ref().is_some_and(|s| s.phase == ApprovalPhase::Counted);
    namespace.until::<Approval>("own", "counted", counted).await;
    let run: Run = namespace.api().get(&second).await.unwrap();
    assert_eq!(run.status.unwrap().phase, RunPhase::Review, "her own Approval is not enough");
    let _ = ann.kubectl_with(&approval("other", &second, &digest, "Approve", &ann.user), &CREATE).ok();
    namespace.run_in(&second, RunPhase::Succeeded).await;
}

#[tokio::test]
async fn what_a_policy_does_not_allow_is_refused_before_a_pod_exists() {
    let namespace = World::get().namespace().await;
    let rows = [
        ("image", "{image: registry.example.com.evil/team/tf}", "spec.allow.images"),
        ("account", "{pod: {serviceAccountName: admin}}", "spec.allow.serviceAccounts"),
        ("host", "{pod: {volumes: [{name: v, hostPath: {path: /}}]}}", "spec.allow.pod.hostPath"),
        ("root", "{pod: {containerSecurityContext: {privileged: true}}}", "spec.allow.pod.privileged"),
        ("tofu", "{tool: tofu}", "spec.allow.tools"),
    ];
    // Nothing demands anything yet, so admission accepts them.
    for (name, spec, _) in rows {
        namespace.create(&workspace(name).replace("{}", spec));
    }
    // A Run and a Stack do not tell all labels of their Workspace, so admission leaves them to the operator.
    let policy = PolicyOf::apply(
        &namespace,
        "allow",
        &format!("workspaceSelector: {{matchExpressions: [{{key: free, operator: DoesNotExist}}]}}, {ALLOW}"),
    );
    for (name, _, field) in rows {
        known(&namespace, name, &policy).await;
        namespace.create(&run(name, name, &inline(MODULE)));
        let message = refused(&namespace, name).await;
        assert!(message.contains(field) && message.contains(&policy.name), "{message}");
        let stalled = |found: &Workspace| {
            let ready = found.status.as_ref().map(|status| ready(&status.conditions));
            ready.is_some_and(|ready| ready.reason == reason::POLICY_VIOLATION && ready.message.contains(field))
        };
        namespace.until::<Workspace>(name, "said that it is not allowed", stalled).await;
    }

    namespace.create(&workspace("w"));
    known(&namespace, "w", &policy).await;
    let bundle = format!("{{bundle: {{digest: \"sha256:{}\"}}}}", "0".repeat(64));
    let sources = [
        ("kind", bundle.as_str(), "spec.allow.sources.kinds"),
        ("address", "{git: {url: \"https://git.example.com/platform-evil/net\"}}", "spec.allow.sources.hosts"),
    ];
    for (name, source, field) in sources {
        namespace.create(&run(name, "w", source));
        let message = refused(&namespace, name).await;
        assert!(message.contains(field), "{message}");
    }
    let hooks = "  hooks: [{name: a, step: pre-plan, script: \"true\"}]\n";
    namespace.create(&format!("{}{hooks}", run("hooked", "w", &inline(MODULE))));
    assert!(refused(&namespace, "hooked").await.contains("spec.allow.hooks"));
    // What is allowed goes its way; an operation that is privileged is reviewed.
    namespace.create(&run("fine", "w", &inline(MODULE)));
    namespace.run_in("fine", RunPhase::Succeeded).await;
    namespace.create(&run("wipe", "w", &inline(MODULE)).replace("operation: apply", "operation: destroy"));
    namespace.run_in("wipe", RunPhase::Review).await;

    // A Stack says so itself, and starts no Run.
    namespace.create(&stack("net", "  hooks: [{name: a, step: pre-plan, script: \"true\"}]\n"));
    let stalled = |found: &Stack| {
        let conditions = found.status.iter().flat_map(|status| &status.conditions);
        let mut stalled = conditions.into_iter().filter(|found| found.type_ == condition::STALLED);
        stalled.any(|found| found.reason == reason::POLICY_VIOLATION && found.message.contains("spec.allow.hooks"))
    };
    let found: Stack = namespace.until("net", "said that it is not allowed", stalled).await;
    assert_eq!(found.status.unwrap().last_run, None);
    // When the Policy allows it, the Stack goes on by itself.
    let _policy = PolicyOf::apply(&namespace, "allow", "allow: {hooks: Stack}");
    let launched = |stack: &Stack| stack.status.as_ref().is_some_and(|status| status.last_run.is_some());
    namespace.until::<Stack>("net", "started a run", launched).await;
}

#[tokio::test]
async fn a_policy_names_versions_and_privileged_commands_and_no_pod_shares_a_host() {
    let namespace = World::get().namespace().await;
    let rows = [("any", "{}", "the Workspace names no version"), ("other", "{version: 1.11.4}", "terraform 1.11.4")];
    for (name, spec, _) in rows {
        namespace.create(&workspace(name).replace("{}", spec));
    }
    let selector = "workspaceSelector: {matchExpressions: [{key: free, operator: DoesNotExist}]}";
    let fields = format!("{selector}, allow: {{tools: [{{name: terraform, versions: [1.0.*]}}]}}");
    let policy = PolicyOf::apply(&namespace, "versions", &fields);
    for (name, _, says) in rows {
        known(&namespace, name, &policy).await;
        namespace.create(&run(name, name, &inline(MODULE)));
        let message = refused(&namespace, name).await;
        assert!(message.contains("spec.allow.tools") && message.contains(says), "{message}");
    }
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        let manifest = workspace("shares").replace("{}", &format!("{{pod: {{{field}: true}}}}"));
        let said = namespace.kubectl_with(&manifest, &CREATE).refused();
        assert!(said.contains(&format!("unknown field \"spec.pod.{field}\"")), "{said}");
    }

    namespace.create(&workspace("w").replace("metadata: {", "metadata: {labels: {free: \"\"}, "));
    let fields = "allow: {privileged: {commands: [state rm, sh]}}";
    let policy = PolicyOf::apply(&namespace, "commands", fields);
    known(&namespace, "w", &policy).await;
    namespace.create(&run("first", "w", &inline(MODULE)));
    namespace.run_in("first", RunPhase::Succeeded).await;
    for (name, command) in
        [("rm", "state rm, args: [terraform_data.a]"), ("shell", "sh, args: [-c, terraform state rm terraform_data.a]")]
    {
        let spec = format!("{{workspace: w, operation: command, command: {command}}}");
        namespace
            .create(&format!("apiVersion: knoll.dev/v1alpha1\nkind: Run\nmetadata: {{name: {name}}}\nspec: {spec}\n"));
        assert_eq!(namespace.run_in(name, RunPhase::Review).await.status.unwrap().pod_name, None);
    }
    let has_one = |found: &Workspace| {
        let state = found.status.as_ref().and_then(|status| status.state.as_ref());
        state.is_some_and(|state| state.resources == 1)
    };
    namespace.until::<Workspace>("w", "had its resource", has_one).await;
}

/// Waits until admission knows a Policy that does not allow this object.
async fn enforced(namespace: &Namespace, manifest: &str) {
    let refused = async {
        while namespace.kubectl_with(manifest, &["apply", "--dry-run=server", "-f", "-"]).code == Some(0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, refused).await.expect("admission never refused it");
}

#[tokio::test]
async fn what_one_object_tells_is_refused_at_apply_and_changes_nothing() {
    let namespace = World::get().namespace().await;
    let uma = namespace.person("uma", &["knoll-user", "knoll-editor"]);
    let evil = |name: &str| workspace(name).replace("{}", "{image: evil/terraform}");
    namespace.create(&evil("old").replace("metadata: {", "metadata: {finalizers: [example.com/wait], "));
    let policy = PolicyOf::apply(&namespace, "allow", ALLOW);
    enforced(&namespace, &evil("new")).await;
    let git = "{git: {url: \"https://git.example.com/platform-evil/net\"}}";
    let hooks = "  hooks: [{name: a, step: pre-plan, script: \"true\"}]\n";
    let pod = |pod: &str| workspace("new").replace("{}", &format!("{{pod: {pod}}}"));
    let rows = [
        ("workspace", evil("new"), "images", "`evil/terraform`; allowed are `registry.example.com/team/*`"),
        (
            "workspace",
            pod("{apply: {serviceAccountName: admin}}"),
            "serviceAccounts",
            "`admin`; allowed are `terraform`",
        ),
        ("workspace", pod("{volumes: [{name: v, hostPath: {path: /}}]}"), "pod.hostPath", "`pod.volumes[v].hostPath`"),
        ("workspace", pod("{containerSecurityContext: {privileged: true}}"), "pod.privileged", "privileged` is set"),
        ("workspace", workspace("new").replace("{}", "{tool: tofu}"), "tools", "allowed are `terraform`"),
        ("stack", stack("new", "  workspace: {image: evil/terraform}\n"), "images", "`evil/terraform`"),
        ("stack", stack("new", hooks), "hooks", "Leave the hooks out"),
        ("run", run("new", "old", git), "sources.hosts", "is at none of `git.example.com`"),
        (
            "run",
            run("new", "old", "{configMap: {name: c}}"),
            "sources.kinds",
            "`configMap`; allowed are `inline`, `git`",
        ),
        ("run", format!("{}{hooks}", run("new", "old", &inline(MODULE))), "hooks", "`a`"),
    ];
    for (kind, manifest, field, says) in rows {
        let said = uma.kubectl_with(&manifest, &["apply", "-f", "-"]).refused();
        let from = format!("Policy `{}` does not allow it (spec.allow.{field})", policy.name);
        assert!(said.contains(&from) && said.contains(says), "{manifest}\n{said}");
        let found = namespace.kubectl(&["get", kind, "new", "--ignore-not-found", "-o", "name"]).ok();
        assert_eq!(found, "", "{manifest}");
    }
    let fine = workspace("new").replace("{}", "{image: \"registry.example.com/team/terraform:1\"}");
    let _ = uma.kubectl_with(&fine, &["apply", "-f", "-"]).ok();
    let said = uma.kubectl_with(&evil("new"), &["apply", "-f", "-"]).refused();
    assert!(said.contains("spec.allow.images"), "{said}");
    let found: Workspace = namespace.api().get("new").await.unwrap();
    assert_eq!(found.spec.image.as_deref(), Some("registry.example.com/team/terraform:1"));

    // An object from before the Policy still gets its status, is labelled and is deleted.
    let stalled = |found: &Workspace| {
        let ready = found.status.as_ref().map(|status| ready(&status.conditions));
        ready.is_some_and(|ready| ready.reason == reason::POLICY_VIOLATION)
    };
    namespace.until::<Workspace>("old", "said that it is not allowed", stalled).await;
    let _ = uma.kubectl(&["label", "workspace", "old", "a=b"]).ok();
    let said =
        uma.kubectl(&["patch", "workspace", "old", "--type=merge", "-p", "{\"spec\":{\"image\":\"evil/other\"}}"]);
    assert!(said.refused().contains("spec.allow.images"));
    let _ = uma.kubectl(&["delete", "workspace", "old", "--wait=false"]).ok();
    let _ =
        uma.kubectl(&["patch", "workspace", "old", "--type=merge", "-p", "{\"metadata\":{\"finalizers\":null}}"]).ok();
    let _ = uma.kubectl(&["wait", "--for=delete", "workspace/old", "--timeout=60s"]).ok();
}

#[tokio::test]
async fn a_policy_is_explained_and_only_an_administrator_writes_it() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w").replace("spec: {}", "spec: {privilegedCommands: [sh]}"));
    let policy = PolicyOf::apply(&namespace, "explained", "review: {floor: Manual, fourEyes: true}");
    known(&namespace, "w", &policy).await;
    let said = namespace.knoll(&["policy", "explain", "w"]).ok();
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    let from = format!("Policy/{}", policy.name);
    assert!(lines.contains(&vec!["review.floor", "Manual", &from]), "{said}");
    assert!(lines.contains(&vec!["review.fourEyes", "true", &from]), "{said}");
    assert!(lines.contains(&vec!["allow.privileged", "sh", "Workspace/w"]), "{said}");
    let said = namespace.knoll(&["policy", "list"]).ok();
    assert!(said.contains(&policy.name) && said.contains("Manual; four eyes"), "{said}");
    // A Workspace that does not exist yet.
    let said = namespace.knoll(&["policy", "explain", "planned", "-o", "json"]).ok();
    let told: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&told["workspace"], &told["exists"]), (&json!("planned"), &json!(false)), "{said}");
    let floor = json!({"setting": "review.floor", "value": "Manual", "from": from});
    assert!(told["policy"].as_array().unwrap().contains(&floor), "{said}");

    let uma = namespace.person("uma", &["knoll-user", "knoll-approver", "edit", "admin"]);
    let user = format!("uma@{}.example.com", namespace.name);
    let said = namespace.knoll(&["policy", "explain", "planned", "--as", &user]).refused();
    assert!(said.contains("`planned` does not exist") && said.contains("by a ClusterRoleBinding"), "{said}");
    let name = format!("{}-mine", namespace.name);
    let said = uma.kubectl_with(&manifest(&name, &namespace.name, "review: {floor: Auto}"), &CREATE).refused();
    assert!(said.contains("cannot create resource \"policies\""), "{said}");
    let said = uma.kubectl(&["delete", "policy.knoll.dev", &policy.name]).refused();
    assert!(said.contains("cannot delete resource \"policies\""), "{said}");
}

#[tokio::test]
async fn a_policy_with_a_selector_that_cannot_be_read_blocks_what_it_might_match() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    let bad = "workspaceSelector: {matchExpressions: [{key: a, operator: Like, values: [x]}]}";
    let policy = PolicyOf::apply(&namespace, "bad", bad);
    known(&namespace, "w", &policy).await;
    namespace.create(&run("change", "w", &inline(MODULE)));
    let message = refused(&namespace, "change").await;
    assert!(message.contains("spec.workspaceSelector") && message.contains(&policy.name), "{message}");
    drop(policy);
    let free = |found: &Workspace| found.status.as_ref().is_some_and(|status| status.policy.is_empty());
    namespace.until::<Workspace>("w", "was free again", free).await;
    namespace.create(&run("again", "w", &inline(MODULE)));
    namespace.run_in("again", RunPhase::Succeeded).await;
}
