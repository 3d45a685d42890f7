//! Reviews: decisions on the exact bytes of a plan, with a verified author.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::approval::Approval;
use knoll_api::run::{Run, RunPhase};
use knoll_api::stack::Stack;
use knoll_api::workspace::Workspace;
use knoll_e2e::manifests::{MODULE, approval, inline, run, workspace};
use knoll_e2e::{Namespace, World};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Resource, ResourceExt};

/// A Run in review, and the digest of its plan.
async fn waiting(namespace: &Namespace, name: &str) -> String {
    namespace.create(&workspace("w"));
    namespace.create(&format!("{}  approval: Manual\n", run(name, "w", &inline(MODULE))));
    let status = namespace.run_in(name, RunPhase::Review).await.status.unwrap();
    assert_eq!(status.plan.unwrap().add, 1);
    status.review_digest.unwrap()
}

fn resources(workspace: &Workspace) -> u32 {
    workspace.status.as_ref().and_then(|status| status.state.as_ref()).map_or(0, |state| state.resources)
}

#[tokio::test]
async fn what_was_approved_is_applied() {
    let namespace = World::get().namespace().await;
    let digest = waiting(&namespace, "change").await;
    assert_eq!(resources(&namespace.api::<Workspace>().get("w").await.unwrap()), 0);

    let ann = namespace.person("ann", &["knoll-approver"]);
    let decision = approval("approve", "change", &digest, "Approve", &ann.user);
    let _ = ann.kubectl_with(&decision, &["create", "-f", "-"]).ok();
    let status = namespace.run_in("change", RunPhase::Succeeded).await.status.unwrap();
    let (plan, job) = (status.plan.unwrap(), status.job.unwrap());
    assert!(plan.digest.is_some_and(|plan| plan != digest), "the approved digest covers more than the plan");
    assert!(job.digest != digest && !job.image.is_empty(), "{job:?}");
    assert_eq!(status.decision.unwrap().by, ann.user);
    namespace.until::<Workspace>("w", "had the resource", |workspace| resources(workspace) == 1).await;
}

/// Gives the ConfigMaps of a Run the content of those of another Run.
async fn forge(namespace: &Namespace, run: &str, decoy: &str) {
    let maps = namespace.api::<ConfigMap>();
    let of = async |run: &str| {
        let mut all = maps.list(&ListParams::default().labels(&format!("knoll.dev/run={run}"))).await.unwrap().items;
        all.sort_by_key(|map| map.labels().get("knoll.dev/content").cloned());
        all
    };
    let (own, others) = (of(run).await, of(decoy).await);
    assert!(!own.is_empty() && own.len() == others.len(), "{own:?} {others:?}");
    for (own, other) in own.into_iter().zip(others) {
        maps.delete(&own.name_any(), &DeleteParams::default()).await.unwrap();
        let metadata = ObjectMeta {
            name: own.metadata.name,
            labels: own.metadata.labels,
            owner_references: own.metadata.owner_references,
            annotations: other.metadata.annotations,
            ..ObjectMeta::default()
        };
        maps.create(&PostParams::default(), &ConfigMap { metadata, ..other }).await.unwrap();
    }
}

/// Issue: the plan that `knoll approve` shows is in ConfigMaps, and whoever may write those could show a harmless one.
#[tokio::test]
async fn a_plan_whose_text_was_forged_is_neither_shown_nor_approved() {
    let namespace = World::get().namespace().await;
    waiting(&namespace, "change").await;
    let shown = namespace.knoll(&["run", "show", "change"]).ok();
    assert!(shown.contains("# terraform_data.a will be created"), "{shown}");
    namespace.create(&workspace("other"));
    let harmless = inline("resource \"terraform_data\" \"harmless\" {}\n");
    let decoy = run("decoy", "other", &harmless).replace("  variables: {word: decoy}\n", "");
    namespace.create(&format!("{decoy}  approval: Manual\n"));
    namespace.run_in("decoy", RunPhase::Review).await;
    forge(&namespace, "change", "decoy").await;

    let shown = namespace.knoll(&["run", "show", "change"]);
    assert!(!shown.stdout.contains("harmless") && shown.stderr.contains("cannot be shown"), "{shown:?}");
    let approved = namespace.knoll(&["approve", "change", "--yes"]);
    assert!(!approved.stdout.contains("harmless"), "{approved:?}");
    let said = approved.refused();
    assert!(said.contains("somebody changed it") && said.contains("no decision was recorded"), "{said}");
    let run: Run = namespace.api().get("change").await.unwrap();
    assert_eq!(run.status.unwrap().phase, RunPhase::Review);

    let _ = namespace.kubectl(&["delete", "configmaps", "-l", "knoll.dev/run=change"]).ok();
    let said = namespace.knoll(&["approve", "change", "--yes"]).refused();
    assert!(said.contains("is missing"), "{said}");
    let _ = namespace.knoll(&["discard", "change", "--yes"]).ok();
    namespace.run_in("change", RunPhase::Discarded).await;
}

/// Issue: a user may create ConfigMaps, and `knoll logs` printed each that had the labels of a log.
#[tokio::test]
async fn a_log_that_a_user_wrote_is_not_the_runs() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    namespace.create(&run("change", "w", &inline(MODULE)));
    namespace.run_in("change", RunPhase::Succeeded).await;
    namespace.create(
        &run("decoy", "w", &inline("output \"forged\" { value = \"words\" }\n"))
            .replace("  variables: {word: decoy}\n", ""),
    );
    namespace.run_in("decoy", RunPhase::Succeeded).await;
    let maps = namespace.api::<ConfigMap>();
    let logs = ListParams::default().labels("knoll.dev/content=log,knoll.dev/run=decoy");
    let log = maps.list(&logs).await.unwrap().items.remove(0);
    let mut labels = log.metadata.labels.clone().unwrap();
    labels.insert("knoll.dev/run".to_owned(), "change".to_owned());
    let annotations = Some([("knoll.dev/offset".to_owned(), "1000000".to_owned())].into());
    // Whoever reads the Run can name it as the owner.
    let run: Run = namespace.api().get("change").await.unwrap();
    let owner_references = Some(vec![run.owner_ref(&()).unwrap()]);
    let metadata = ObjectMeta { labels: Some(labels), annotations, owner_references, ..ObjectMeta::default() };
    let uma = namespace.person("uma", &["knoll-user"]);
    let create = |name: &str| {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..metadata.clone() };
        let forged = serde_json::to_string(&ConfigMap { metadata, ..log.clone() }).unwrap();
        uma.kubectl_with(&forged, &["create", "-f", "-"])
    };
    let _ = create("mine").ok();
    let said = create("knoll-log-change-7").refused();
    assert!(said.contains("only the operator creates ConfigMaps"), "{said}");
    let log = namespace.knoll(&["logs", "change"]).ok();
    assert!(log.contains("terraform_data.a") && !log.contains("forged"), "{log}");
}

#[tokio::test]
async fn what_was_discarded_is_not() {
    let namespace = World::get().namespace().await;
    let digest = waiting(&namespace, "change").await;
    let ann = namespace.person("ann", &["knoll-approver"]);
    let _ =
        ann.kubectl_with(&approval("discard", "change", &digest, "Discard", &ann.user), &["create", "-f", "-"]).ok();
    namespace.run_in("change", RunPhase::Discarded).await;
    assert_eq!(resources(&namespace.api::<Workspace>().get("w").await.unwrap()), 0);
}

#[tokio::test]
async fn an_approval_of_something_else_has_no_effect_and_says_so() {
    let namespace = World::get().namespace().await;
    let digest = waiting(&namespace, "change").await;
    let ann = namespace.person("ann", &["knoll-approver"]);
    let other = format!("sha256:{}", "0".repeat(64));
    let _ = ann.kubectl_with(&approval("wrong", "change", &other, "Approve", &ann.user), &["create", "-f", "-"]).ok();
    let told = |approval: &Approval| {
        let conditions = approval.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.reason == "DigestMismatch")
    };
    namespace.until::<Approval>("wrong", "was told", told).await;
    let run: Run = namespace.api().get("change").await.unwrap();
    assert_eq!(run.status.unwrap().phase, RunPhase::Review);

    let _ = ann.kubectl_with(&approval("right", "change", &digest, "Approve", &ann.user), &["create", "-f", "-"]).ok();
    namespace.run_in("change", RunPhase::Succeeded).await;
}

#[tokio::test]
async fn nobody_approves_in_the_name_of_another() {
    let namespace = World::get().namespace().await;
    let digest = waiting(&namespace, "change").await;
    let liar = namespace.person("liar", &["knoll-approver"]);
    let said =
        liar.kubectl_with(&approval("lie", "change", &digest, "Approve", "ann"), &["create", "-f", "-"]).refused();
    assert!(said.contains("knoll-approvals") && said.contains(&liar.user), "{said}");
    // The rule also holds for administrators.
    let said = namespace.kubectl_with(&approval("lie", "change", &digest, "Approve", "ann"), &["create", "-f", "-"]);
    assert!(said.refused().contains("spec.by"));
    let run: Run = namespace.api().get("change").await.unwrap();
    assert_eq!(run.status.unwrap().phase, RunPhase::Review);
}

#[tokio::test]
async fn nobody_asks_for_a_run_in_the_name_of_another() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    let uma = namespace.person("uma", &["knoll-user"]);
    let asked = |name: &str, by: &str| format!("{}  requestedBy: \"{by}\"\n", run(name, "w", &inline(MODULE)));
    let create = ["create", "-f", "-"];
    let said = uma.kubectl_with(&asked("lie", "ann"), &create).refused();
    assert!(said.contains("knoll-runs") && said.contains(&uma.user), "{said}");
    // The rule also holds for administrators, and for the mark of a Stack's Run, by which the operator could be meant.
    let said = namespace.kubectl_with(&asked("lie", "ann"), &create).refused();
    assert!(said.contains("spec.requestedBy"), "{said}");
    let marked = asked("lie", "ann").replace("{name: lie}", "{name: lie, labels: {knoll.dev/stack: w}}");
    let said = uma.kubectl_with(&marked, &create).refused();
    assert!(said.contains("knoll-runs"), "{said}");

    let _ = uma.kubectl_with(&asked("own", &uma.user), &create).ok();
    let own = namespace.run_in("own", RunPhase::Succeeded).await;
    assert_eq!(own.spec.requested_by.as_deref(), Some(uma.user.as_str()));
    // Others may change what is not a record.
    let _ = namespace.kubectl(&["label", "runs", "own", "seen=yes"]).ok();
    // A Run without a name is accepted: its requester is unknown.
    let _ = uma.kubectl_with(&run("unknown", "w", &inline(MODULE)), &create).ok();
    assert_eq!(namespace.run_in("unknown", RunPhase::Succeeded).await.spec.requested_by, None);
}

#[tokio::test]
async fn nobody_cancels_a_run_in_the_name_of_another() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    namespace.create(&format!("{}  approval: Manual\n", run("change", "w", &inline(MODULE))));
    namespace.run_in("change", RunPhase::Review).await;
    let uma = namespace.person("uma", &["knoll-user"]);
    let eve = namespace.person("eve", &["knoll-user"]);
    let by = |who: &str| format!("knoll.dev/cancelled-by={who}");
    let said = uma.kubectl(&["annotate", "runs", "change", "knoll.dev/cancel=gently", &by("ann")]).refused();
    assert!(said.contains("knoll.dev/cancelled-by"), "{said}");
    // A name beside which nobody cancels yet, and then another user does.
    let _ = uma.kubectl(&["annotate", "runs", "change", &by(&uma.user)]).ok();
    let said = eve.kubectl(&["annotate", "runs", "change", "knoll.dev/cancel=gently"]).refused();
    assert!(said.contains("knoll.dev/cancelled-by"), "{said}");
    let own = by(&eve.user);
    let _ = eve.kubectl(&["annotate", "--overwrite", "runs", "change", "knoll.dev/cancel=gently", &own]).ok();
    let status = namespace.run_in("change", RunPhase::Cancelled).await.status.unwrap();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert!(ready.message.contains(&format!("cancelled by {}", eve.user)), "{}", ready.message);
}

/// A Stack whose annotation is `by`, with a module that differs by `version`.
fn stack(by: &str, version: u8) -> String {
    let annotations =
        if by.is_empty() { String::new() } else { format!(", annotations: {{knoll.dev/requested-by: \"{by}\"}}") };
    format!(
        "apiVersion: knoll.dev/v1alpha1\nkind: Stack\nmetadata: {{name: net{annotations}}}\nspec: {{source: {{inline: {{main.tf: \"# {version}\"}}}}}}\n"
    )
}

#[tokio::test]
async fn nobody_changes_a_stack_in_the_name_of_another() {
    let namespace = World::get().namespace().await;
    let (uma, eve) = (namespace.person("uma", &["knoll-editor"]), namespace.person("eve", &["knoll-editor"]));
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    let said = uma.kubectl_with(&stack("ann", 1), &apply).refused();
    assert!(said.contains("knoll-stacks") && said.contains(&uma.user), "{said}");
    let _ = uma.kubectl_with(&stack(&uma.user, 1), &apply).ok();
    let requester = async |number: u32| {
        let launched = |stack: &Stack| stack.status.as_ref().is_some_and(|status| status.runs >= number);
        let status = namespace.until::<Stack>("net", "launched a Run", launched).await.status.unwrap();
        namespace.api::<Run>().get(&status.last_run.unwrap()).await.unwrap().spec.requested_by
    };
    assert_eq!(requester(1).await.as_deref(), Some(uma.user.as_str()));
    let applied = |stack: &Stack| stack.status.as_ref().is_some_and(|status| status.revision.is_some());
    namespace.until::<Stack>("net", "was applied", applied).await;

    // Eve cannot leave her change under Uma's name.
    for manifest in [stack(&uma.user, 2), stack("", 2)] {
        let said = eve
            .kubectl_with(&manifest, &["apply", "--server-side", "--force-conflicts", "--field-manager=eve", "-f", "-"])
            .refused();
        assert!(said.contains("knoll.dev/requested-by"), "{said}");
    }
    let _ = eve.kubectl(&["label", "stacks", "net", "seen=yes"]).ok();
    let _ = eve.kubectl_with(&stack(&eve.user, 2), &apply).ok();
    assert_eq!(requester(2).await.as_deref(), Some(eve.user.as_str()));
    // Without the annotation nobody is guessed.
    let patch = r##"{"metadata": {"annotations": {"knoll.dev/requested-by": null}}, "spec": {"source": {"inline": {"main.tf": "# 3"}}}}"##;
    let _ = uma.kubectl(&["patch", "stacks", "net", "--type=merge", "--patch", patch]).ok();
    assert_eq!(requester(3).await, None);
}

#[tokio::test]
async fn a_users_run_does_not_become_one_of_a_stack() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    let uma = namespace.person("uma", &["knoll-user"]);
    let create = ["create", "-f", "-"];
    let named = |metadata: &str| run("fake", "w", &inline(MODULE)).replace("{name: fake}", metadata);
    let marks = [
        "{name: fake, labels: {knoll.dev/stack: w}}",
        "{name: fake, annotations: {knoll.dev/stack-uid: x}}",
        "{name: fake, annotations: {knoll.dev/number: \"99\"}}",
    ];
    for metadata in marks {
        let said = uma.kubectl_with(&named(metadata), &create).refused();
        assert!(said.contains("only the operator marks the Runs of a Stack"), "{metadata}: {said}");
    }
    let _ = uma.kubectl_with(&named("{name: fake}"), &create).ok();
    for (verb, mark) in
        [("label", "knoll.dev/stack=w"), ("annotate", "knoll.dev/stack-uid=x"), ("annotate", "knoll.dev/number=99")]
    {
        let said = uma.kubectl(&[verb, "runs", "fake", mark]).refused();
        assert!(said.contains("only the operator marks the Runs of a Stack"), "{mark}: {said}");
    }
    let _ = uma.kubectl(&["label", "runs", "fake", "mine=yes"]).ok();
}

#[tokio::test]
async fn a_plan_that_nobody_decides_on_is_discarded_in_time() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    let waits = run("change", "w", &inline(MODULE));
    namespace.create(&format!("{waits}  approval: Manual\n  timeouts: {{review: 1s}}\n"));
    let status = namespace.run_in("change", RunPhase::Discarded).await.status.unwrap();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.reason, "TimedOut");
    assert!(ready.message.contains("timeouts.review"), "{ready:?}");
    namespace.create(&run("next", "w", &inline(MODULE)));
    namespace.run_in("next", RunPhase::Succeeded).await;
}

#[tokio::test]
async fn a_privileged_command_runs_when_exactly_it_was_approved() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w").replace("spec: {}", "spec: {privilegedCommands: [state rm]}"));
    namespace.create(&run("first", "w", &inline(MODULE)));
    namespace.run_in("first", RunPhase::Succeeded).await;
    let command = |name: &str, words: &str| {
        let head = format!("apiVersion: knoll.dev/v1alpha1\nkind: Run\nmetadata: {{name: {name}}}\n");
        format!("{head}spec: {{workspace: w, operation: command, {words}}}\n")
    };
    namespace.create(&command("list", "command: state list"));
    namespace.run_in("list", RunPhase::Succeeded).await;

    namespace.create(&command("remove", "command: state rm, args: [terraform_data.a]"));
    let status = namespace.run_in("remove", RunPhase::Review).await.status.unwrap();
    assert_eq!(status.pod_name, None, "nothing starts before it is approved");
    // A waiting command does not block others, because it has not joined the queue.
    namespace.create(&run("second", "w", &inline(MODULE)));
    namespace.run_in("second", RunPhase::Succeeded).await;
    let ann = namespace.person("ann", &["knoll-approver"]);
    let decision = approval("approve", "remove", &status.review_digest.unwrap(), "Approve", &ann.user);
    let _ = ann.kubectl_with(&decision, &["create", "-f", "-"]).ok();
    namespace.run_in("remove", RunPhase::Succeeded).await;
    namespace.until::<Workspace>("w", "had nothing left", |workspace| resources(workspace) == 0).await;

    namespace.create(&command("again", "command: state rm, args: [terraform_data.b]"));
    let digest = namespace.run_in("again", RunPhase::Review).await.status.unwrap().review_digest.unwrap();
    let decision = approval("discard", "again", &digest, "Discard", &ann.user);
    let _ = ann.kubectl_with(&decision, &["create", "-f", "-"]).ok();
    namespace.run_in("again", RunPhase::Discarded).await;
}

/// The pod that applies had another path than the one that planned, so terraform called the plan inconsistent, and each plan
/// changed the path again.
#[tokio::test]
async fn a_path_of_the_module_is_the_same_in_every_pod() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    let module = "resource \"terraform_data\" \"a\" {\n  input = [path.cwd, abspath(path.module)]\n  provisioner \"local-exec\" {\n    command = \"cd / && test -f ${path.cwd}/main.tf\"\n  }\n}\n";
    let manual = format!("{}  approval: Manual\n", run("first", "w", &inline(module)));
    namespace.create(&manual);
    namespace.run_in("first", RunPhase::Review).await;
    let _ = namespace.knoll(&["approve", "first", "--yes"]).ok();
    namespace.run_in("first", RunPhase::Succeeded).await;
    namespace.create(&run("second", "w", &inline(module)));
    let plan = namespace.run_in("second", RunPhase::Succeeded).await.status.unwrap().plan.unwrap();
    assert!(!plan.changes, "{plan:?}");
}
