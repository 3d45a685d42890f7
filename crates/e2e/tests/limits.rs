//! The order of the queue, what is kept of finished Runs, slots and windows.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::Pod;
use knoll_api::names::{condition, reason};
use knoll_api::run::{Run, RunPhase, RunStatus};
use knoll_api::workspace::Workspace;
use knoll_e2e::manifests::{MODULE, inline, run, workspace};
use knoll_e2e::{Namespace, World};
use kube::ResourceExt;
use kube::api::ListParams;
use kube::runtime::wait::await_condition;

/// A module whose plan waits for the hook of a test: no Run of it ends by itself.
const SLOW: &str = "hooks: [{name: wait, step: pre-plan, script: \"until [ -e /tmp/never ]; do sleep 1; done\"}]\n";

/// A Policy that holds in one namespace, deleted afterwards.
struct PolicyOf<'a> {
    namespace: &'a Namespace,
    name: String,
}

impl<'a> PolicyOf<'a> {
    /// Creates or changes a Policy with these fields (YAML flow style, without braces).
    #[track_caller]
    fn apply(namespace: &'a Namespace, fields: &str) -> Self {
        let name = format!("{}-limits", namespace.name);
        let of = &namespace.name;
        let manifest = format!(
            "apiVersion: knoll.dev/v1alpha1\nkind: Policy\nmetadata: {{name: {name}}}\nspec: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {of}}}}}, {fields}}}\n"
        );
        let _ = namespace.kubectl_with(&manifest, &["apply", "-f", "-"]).ok();
        Self { namespace, name }
    }

    /// Waits until the Workspace shows the Policy: from then on the operator knows of it.
    async fn known(&self, workspace: &str) {
        let from = format!("Policy/{}", self.name);
        let shown = |found: &Workspace| {
            let settings = found.status.iter().flat_map(|status| &status.policy);
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

fn ready(status: &RunStatus) -> (&str, &str) {
    let ready = status.conditions.iter().find(|found| found.type_ == condition::READY);
    ready.map(|ready| (ready.reason.as_str(), ready.message.as_str())).unwrap_or_default()
}

async fn waits_for(namespace: &Namespace, run: &str, why: &str) -> RunStatus {
    let waits = |run: &Run| run.status.as_ref().is_some_and(|status| ready(status).0 == why);
    namespace.until::<Run>(run, &format!("waited: {why}"), waits).await.status.unwrap()
}

#[tokio::test]
async fn runs_of_one_second_queue_in_the_order_in_which_they_were_created() {
    let namespace = World::get().namespace().await;
    // All of them before their Workspace, so that the operator writes to each while none has a place yet.
    let names: Vec<String> = (0..12).rev().map(|number| format!("run-{number:02}")).collect();
    let manifests: Vec<String> =
        names.iter().map(|name| format!("{}  {SLOW}", run(name, "w", &inline(MODULE)))).collect();
    let _ = namespace.kubectl_with(&manifests.join("---\n"), &["create", "-f", "-"]).ok();
    for name in &names {
        waits_for(&namespace, name, reason::WORKSPACE_NOT_FOUND).await;
    }
    namespace.create(&workspace("w"));
    let placed = |found: &Workspace| found.status.as_ref().is_some_and(|status| status.queue.len() == names.len() - 1);
    let queued = |found: &Workspace| {
        let status = found.status.clone().unwrap_or_default();
        status.active.into_iter().chain(status.queue).collect::<Vec<_>>()
    };
    let found = namespace.until::<Workspace>("w", "had all in its queue", placed).await;
    assert_eq!(queued(&found), names);
}

#[tokio::test]
async fn a_workspace_keeps_its_last_runs_and_pods_go_with_their_files() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w").replace("spec: {}", "spec: {runHistory: 2}"));
    for name in ["one", "two", "three"] {
        namespace.create(&run(name, "w", &inline(MODULE)));
        namespace.run_in(name, RunPhase::Succeeded).await;
    }
    let gone = |run: Option<&Run>| run.is_none();
    tokio::time::timeout(knoll_e2e::TIMEOUT, await_condition(namespace.api::<Run>(), "one", gone))
        .await
        .unwrap()
        .unwrap();
    let left = namespace.api::<Run>().list(&ListParams::default()).await.unwrap();
    let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["three", "two"]);
    // The log is still there when the pod is not.
    let gone = |pod: Option<&Pod>| pod.is_none();
    let pod = namespace.run_in("three", RunPhase::Succeeded).await.status.unwrap().pod_name.unwrap();
    tokio::time::timeout(knoll_e2e::TIMEOUT, await_condition(namespace.api::<Pod>(), &pod, gone))
        .await
        .unwrap()
        .unwrap();
    let log = namespace.knoll(&["logs", "three"]).ok();
    assert!(log.contains("Apply complete!"), "{log}");
    let state = namespace.api::<Workspace>().get("w").await.unwrap().status.unwrap().state.unwrap();
    assert_eq!(state.resources, 1);
}

#[tokio::test]
async fn a_policy_limits_how_many_runs_have_a_pod_and_for_how_long_steps_may_take() {
    let namespace = World::get().namespace().await;
    let fields = "limits: {runs: {namespace: 1}, timeouts: {queue: 10m}}";
    let policy = PolicyOf::apply(&namespace, fields);
    for name in ["a", "b"] {
        namespace.create(&workspace(name));
        policy.known(name).await;
    }
    namespace.create(&format!("{}  {SLOW}", run("first", "a", &inline(MODULE))));
    let status = namespace.run_in("first", RunPhase::Running).await.status.unwrap();
    assert_eq!(status.timeouts.unwrap().queue.unwrap().as_str(), "10m");
    namespace.create(&run("second", "b", &inline(MODULE)));
    let status = waits_for(&namespace, "second", reason::WAITING_FOR_SLOT).await;
    let expect = format!(
        "It waits for a slot: Policy `{}` allows 1 Run at once in this namespace (spec.limits.runs.namespace).",
        policy.name
    );
    assert_eq!(ready(&status).1, expect);
    assert_eq!(status.pod_name, None);
    let explained = namespace.knoll(&["policy", "explain", "b"]).ok();
    assert!(explained.contains("limits.runs.namespace"), "{explained}");
    waits_for(&namespace, "second", reason::WAITING_FOR_SLOT).await;
    let _ = namespace.knoll(&["cancel", "first", "--now"]);
    namespace.run_in("second", RunPhase::Succeeded).await;
}

#[tokio::test]
async fn a_destroy_by_a_flag_waits_for_the_end_of_a_freeze_of_destroys() {
    let namespace = World::get().namespace().await;
    let freeze = "windows: {freezes: [{reason: The fair., from: \"2020-01-01T00:00:00Z\", until: \"2090-01-01T00:00:00Z\", changes: [Destroy]}]}";
    let policy = PolicyOf::apply(&namespace, freeze);
    namespace.create(&workspace("w"));
    policy.known("w").await;
    namespace.create(&run("made", "w", &inline(MODULE)));
    namespace.run_in("made", RunPhase::Succeeded).await;
    let destroy = run("gone", "w", &inline(MODULE)) + "  args: [--destroy=true]\n";
    namespace.create(&destroy);
    let status = waits_for(&namespace, "gone", reason::WAITING_FOR_WINDOW).await;
    assert_eq!(status.pod_name, None);
}

#[tokio::test]
async fn a_change_waits_for_the_end_of_a_freeze_unless_somebody_may_start_it_now() {
    let namespace = World::get().namespace().await;
    let freeze = "windows: {freezes: [{reason: The fair., from: \"2020-01-01T00:00:00Z\", until: \"2090-01-01T00:00:00Z\"}], overrideGroups: [\"system:authenticated\"]}";
    let policy = PolicyOf::apply(&namespace, freeze);
    namespace.create(&workspace("w"));
    policy.known("w").await;
    namespace.create(&run("waits", "w", &inline(MODULE)));
    let status = waits_for(&namespace, "waits", reason::WAITING_FOR_WINDOW).await;
    let expect = format!(
        "It waits until 2090-01-01T00:00:00Z: Policy `{}` has a freeze: The fair (spec.windows.freezes). Users in `system:authenticated` may start a Run at any time: knoll apply --now --because REASON",
        policy.name
    );
    assert_eq!((ready(&status).1, &status.pod_name), (expect.as_str(), &None));
    // A plan changes nothing.
    let plan = run("plan", "w", &inline(MODULE)).replace("operation: apply", "operation: plan");
    namespace.create(&plan);
    namespace.run_in("plan", RunPhase::Succeeded).await;
    // Nobody takes the name of another user, or a group that they are not in.
    let uma = namespace.person("uma", &["knoll-user"]);
    let now = |name: &str, by: &str, group: &str| {
        let fields = format!("  requestedBy: {by}\n  startNow: {{because: outage, groups: [\"{group}\"]}}\n");
        run(name, "v", &inline(MODULE)) + &fields
    };
    let create = ["create", "-f", "-"];
    let refused = uma.kubectl_with(&now("x", &uma.user, "system:masters"), &create);
    assert!(refused.stderr.contains("set spec.startNow.groups to groups that you are in"), "{}", refused.stderr);
    let nobody = now("x", &uma.user, "system:authenticated").replace(&format!("  requestedBy: {}\n", uma.user), "");
    let refused = uma.kubectl_with(&nobody, &create);
    assert!(refused.stderr.contains("startNow needs requestedBy"), "{}", refused.stderr);
    namespace.create(&workspace("v"));
    policy.known("v").await;
    let _ = uma.kubectl_with(&now("urgent", &uma.user, "system:authenticated"), &create).ok();
    let status = namespace.run_in("urgent", RunPhase::Succeeded).await.status.unwrap();
    let record = status.conditions.iter().find(|found| found.type_ == condition::WINDOW_OVERRIDDEN).unwrap();
    let expect = format!("{} did not wait for the windows of Policy `{}`: outage", uma.user, policy.name);
    assert_eq!(record.message, expect);
    // Who did so deletes the Run, and the Workspace keeps the record.
    let _ = uma.kubectl(&["delete", "run", "urgent"]).ok();
    let expect = format!("Run `urgent`: {expect}");
    let kept = |found: &Workspace| {
        let conditions = found.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| found.type_ == condition::WINDOW_OVERRIDDEN && found.message == expect)
    };
    namespace.until::<Workspace>("v", "kept the record", kept).await;
    // When the freeze is over, the Run that waited starts by itself.
    drop(policy);
    namespace.run_in("waits", RunPhase::Succeeded).await;
}

/// The state of a module with a long value.
const LARGE: &str = "variable \"word\" {}\nresource \"terraform_data\" \"a\" { input = \"${var.word}${join(\"\", [for i in range(1000) : \"xxxxxxxx\"])}\" }\n";

#[tokio::test]
async fn a_state_that_has_grown_beyond_its_limit_is_stored_and_stops_the_next_apply() {
    let namespace = World::get().namespace().await;
    let policy = PolicyOf::apply(&namespace, "limits: {sizes: {state: 4Ki, log: 1Ki}}");
    namespace.create(&workspace("w"));
    policy.known("w").await;
    namespace.create(&run("grows", "w", &inline(LARGE)));
    namespace.run_in("grows", RunPhase::Succeeded).await;
    let stored = |found: &Workspace| found.status.as_ref().is_some_and(|status| status.state.is_some());
    let found = namespace.until::<Workspace>("w", "had a state", stored).await;
    assert_eq!(found.status.unwrap().state.unwrap().resources, 1, "what terraform has done is not lost");
    let log = namespace.knoll(&["logs", "grows"]).ok();
    let cut = format!("the rest of the log is not stored: Policy `{}` allows 1Ki (spec.limits.sizes.log)", policy.name);
    assert!(log.contains(&cut), "{log}");

    namespace.create(&run("next", "w", &inline(LARGE)));
    let status = namespace.run_in("next", RunPhase::Failed).await.status.unwrap();
    let expect = format!("Policy `{}` allows 4Ki (spec.limits.sizes.state). Nothing was changed.", policy.name);
    assert!(ready(&status).1.contains(&expect), "{status:?}");
    let destroy = run("smaller", "w", &inline(LARGE)).replace("operation: apply", "operation: destroy");
    namespace.create(&destroy);
    namespace.run_in("smaller", RunPhase::Succeeded).await;
}
