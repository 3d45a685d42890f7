use knoll_api::{
    policy::RuleAction,
    verdict::{IsolatedPlan, PlanVerdict},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    pod::{Platform, PluginCache, Runner, ToolImage, build},
    run::isolated::template,
};

fn policy(name: &str, fields: Value) -> knoll_api::Policy {
    let mut plan = json!({"rules": [{"name": "r", "action": "Deny", "find": "true", "message": "No."}]});
    plan.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    knoll_api::Policy::new(name, serde_json::from_value(json!({"plan": plan})).unwrap())
}

fn effective(policies: &[knoll_api::Policy]) -> Effective {
    crate::policy::effective(policies, [], &BTreeMap::new(), &BTreeMap::new())
}

fn isolated() -> Effective {
    effective(&[policy("p", json!({"isolated": true, "image": "tools/terraform"}))])
}

fn verdict(policy: &Effective, action: Option<RuleAction>) -> PlanVerdict {
    let denied_by = if action == Some(RuleAction::Deny) { vec!["p".to_owned()] } else { Vec::new() };
    PlanVerdict {
        plan: Some("d".to_owned()),
        rules: policy.rules_digest(),
        action,
        denied_by,
        ..PlanVerdict::default()
    }
}

/// A world whose run has planned, and whose plan is handed over.
fn handed_over() -> World {
    let mut world = World::apply(RunApproval::Auto);
    world.policy = isolated();
    assert_eq!(creates(&world.step(1)), Some(Stage::Plan));
    world.report(2, &plans("d", true));
    world.pod = None;
    world
}

fn judged(mut world: World, action: Option<RuleAction>) -> World {
    assert_eq!(creates(&world.step(3)), Some(Stage::Judge));
    world.run.status = Some(progress::judge(&world.run, &verdict(&world.policy, action)));
    let mut described = plans("d", true);
    described.plan.as_mut().unwrap().destroy = 3;
    world.report(4, &described);
    world
}

#[test]
fn another_pod_describes_the_plan_and_its_word_alone_counts() {
    let world = handed_over();
    world.expect(RunPhase::Running, reason::PROGRESSING);
    assert_eq!(world.status().pod_uid, None, "the pod that planned is fenced off");
    let plan = world.status().plan.clone().unwrap();
    assert_eq!((plan.digest.as_deref(), plan.text_digest), (Some("d"), None), "what it says of the plan is forgotten");

    let mut world = judged(world, None);
    assert_eq!(world.status().plan.as_ref().unwrap().destroy, 3);
    assert_eq!(
        world.status().plan_verdict.as_ref().unwrap().isolated.as_ref().unwrap().image.as_deref(),
        Some("tools/terraform")
    );
    assert_eq!(creates(&world.step(5)), Some(Stage::Apply));

    let world = judged(handed_over(), Some(RuleAction::Deny));
    world.expect(RunPhase::Failed, reason::POLICY_VIOLATION);
}

#[test]
fn the_pod_that_plans_has_no_say_in_the_verdict() {
    let mut world = World::apply(RunApproval::Auto);
    world.policy = isolated();
    world.step(1);
    let forged = progress::judge(&world.run, &verdict(&world.policy, None));
    assert_eq!(Some(&forged), world.run.status.as_ref());
    world.report(2, &plans("d", true));
    // No pod, no verdict: whatever else happens, nothing is applied.
    assert_eq!(creates(&world.step(3)), Some(Stage::Judge));
    world.report(4, &plans("d", true));
    world.expect(RunPhase::Failed, reason::PLAN_NOT_JUDGED);
}

#[test]
fn a_pod_that_plans_passed_itself_off_as_the_one_that_describes() {
    let mut world = World::apply(RunApproval::Auto);
    world.policy = isolated();
    world.step(1);
    let judge = steps(&[(StepName::Judge, StepState::Running)]).steps;
    world.report(2, &Progress { steps: judge, exit: None, ..plans("d", true) });
    assert_eq!(crate::steps::stage(&world.run.spec, world.status()), Stage::Plan);
    let forged = progress::judge(&world.run, &verdict(&world.policy, None));
    assert_eq!(Some(&forged), world.run.status.as_ref());
    world.report(3, &plans("d", true));
    assert_eq!(creates(&world.step(4)), Some(Stage::Judge));
}

#[test]
fn a_pod_that_describes_another_plan_is_not_heard() {
    let mut world = handed_over();
    world.step(3);
    world.run.status = Some(progress::judge(&world.run, &verdict(&world.policy, None)));
    world.report(4, &plans("another", true));
    world.expect(RunPhase::Failed, reason::RUNNER_LOST);
    assert_eq!(world.status().plan.as_ref().unwrap().digest.as_deref(), Some("d"));
}

#[test]
fn a_plan_that_cannot_be_described_is_not_applied() {
    let mut world = handed_over();
    world.step(3);
    world.report(4, &Progress { exit: Some(Exit { code: 1, ..Exit::default() }), ..Progress::default() });
    world.expect(RunPhase::Failed, reason::STEP_FAILED);
    let ready = conditions::find(&world.status().conditions, condition::READY).unwrap();
    assert!(ready.message.contains("spec.plan.isolated"), "{}", ready.message);
}

#[test]
fn a_run_is_cancelled_between_its_pods() {
    let mut world = handed_over();
    world.run.annotations_mut().insert(annotation::CANCEL.to_owned(), "now".to_owned());
    world.step(3);
    world.expect(RunPhase::Cancelled, reason::CANCELLED);
}

/// The message of the Run's Ready condition.
fn told(world: &World) -> String {
    conditions::find(&world.status().conditions, condition::READY).unwrap().message.clone()
}

fn pending() -> i64 {
    i64::try_from(Timeouts::DEFAULT_PENDING.as_secs()).unwrap()
}

#[test]
fn a_pod_that_describes_and_never_starts_ends_its_run_and_names_the_image() {
    let mut world = handed_over();
    assert_eq!(creates(&world.step(3)), Some(Stage::Judge));
    let runner = k8s_openapi::api::core::v1::Container {
        name: "runner".to_owned(),
        image: Some("tools/terraform:1.9".to_owned()),
        ..Default::default()
    };
    let spec = k8s_openapi::api::core::v1::PodSpec { containers: vec![runner], ..Default::default() };
    world.pod.as_mut().unwrap().spec = Some(spec);
    world.pulls_in_vain();
    world.step(4);
    world.expect(RunPhase::Running, reason::IMAGE_PULL_BACK_OFF);
    assert_eq!(action(&world.step(3 + pending() - 1)), None);
    assert!(matches!(action(&world.step(3 + pending())), Some(RunAction::DeletePod { .. })));
    world.pod = None;
    world.step(4 + pending());
    world.expect(RunPhase::Failed, reason::TIMED_OUT);
    let message = told(&world);
    assert!(
        message.contains("`tools/terraform:1.9` of the Policy") && message.contains("(spec.plan.image)"),
        "{message}"
    );
}

/// Its Workspace was locked for ever.
#[test]
fn a_pod_that_describes_and_cannot_be_made_held_the_lock_without_an_end() {
    let mut world = handed_over();
    let blocked = || RunOutcome::PodBlocked {
        reason: reason::POD_FAILED,
        message: "The API does not allow the pod: exceeded quota.".to_owned(),
        job: None,
    };
    for second in [3, 2 + pending() - 1] {
        let decision = world.decide(second);
        assert_eq!((creates(&decision), decision.requeue_at), (Some(Stage::Judge), Some(at(2 + pending()))));
        world.settle(blocked(), second);
    }
    world.step(2 + pending());
    world.expect(RunPhase::Failed, reason::TIMED_OUT);
    let message = told(&world);
    assert!(message.contains("exceeded quota") && message.contains("`tools/terraform`"), "{message}");
}

#[test]
fn a_run_whose_plan_nobody_has_described_ends_with_its_workspace() {
    let mut world = handed_over();
    world.workspace.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at(2)));
    world.step(3);
    world.expect(RunPhase::Discarded, reason::WORKSPACE_DELETED);
}

#[test]
fn an_unchanged_plan_is_described_by_nobody() {
    let mut world = World::apply(RunApproval::Auto);
    world.policy = isolated();
    world.step(1);
    world.report(2, &plans("d", false));
    assert_eq!(world.status().phase, RunPhase::Succeeded);
}

#[test]
fn a_demand_that_came_after_the_start_refuses_the_plan() {
    let mut world = World::apply(RunApproval::Auto);
    world.policy = effective(&[policy("p", json!({}))]);
    world.step(1);
    world.policy = isolated();
    // The rules of this moment have judged what the pod that plans has handed in.
    world.run.status = Some(progress::judge(&world.run, &verdict(&world.policy, None)));
    world.report(2, &plans("d", true));
    world.step(3);
    world.expect(RunPhase::Failed, reason::POLICY_VIOLATION);
    let ready = conditions::find(&world.status().conditions, condition::READY).unwrap();
    assert!(ready.message.contains("spec.plan.isolated"), "{}", ready.message);
}

#[test]
fn policies_that_name_different_images_let_nothing_start() {
    let named = |name: &str, fields: Value| policy(name, fields);
    let of = |policies: &[knoll_api::Policy]| effective(policies).isolated();
    let image = |image: &str| json!({"isolated": true, "image": image});
    let mirror = json!({"isolated": true, "mirror": "https://mirror.example.com/"});
    let both = of(&[named("a", image("x")), named("b", mirror)]).unwrap().unwrap();
    let expect = IsolatedPlan { image: Some("x".to_owned()), mirror: Some("https://mirror.example.com/".to_owned()) };
    assert_eq!(both, expect);
    assert_eq!(of(&[named("a", image("x")), named("b", json!({}))]).unwrap().unwrap().image.as_deref(), Some("x"));
    assert_eq!(of(&[named("a", json!({}))]).unwrap(), None);
    let conflict = of(&[named("a", image("x")), named("b", image("y"))]).unwrap_err();
    assert_eq!(conflict.field, "spec.plan.image");
    assert!(conflict.from.contains("`b`") && conflict.message.contains("`a`"), "{conflict}");

    let mut world = World::apply(RunApproval::Auto);
    world.policy = effective(&[named("a", image("x")), named("b", image("y"))]);
    world.step(1);
    world.expect(RunPhase::Failed, reason::POLICY_VIOLATION);
}

fn platform() -> Platform {
    let image = |repository: &str| ToolImage { repository: repository.to_owned(), version: "1.9".to_owned() };
    Platform {
        knoll_image: "knoll:1".to_owned(),
        runner: Runner::Container("knoll-runner"),
        terraform: image("terraform"),
        tofu: image("tofu"),
        hub_url: "https://hub:8443".to_owned(),
        hub_ca: "PEM".to_owned(),
        plugin_cache: Some(PluginCache { path: "/plugins".to_owned(), volume: None }),
        pulls_images: true,
    }
}

/// A job with everything that a user can put into a pod.
fn job(version: Option<&str>) -> FrozenJob {
    let settings: PodSettings = serde_json::from_value(json!({
        "serviceAccountName": "writer",
        "plan": {"serviceAccountName": "reader"},
        "resources": {"limits": {"memory": "1Gi"}},
        "nodeSelector": {"pool": "runs"},
        "env": [{"name": "TF_CLI_ARGS", "value": "-x"}, {"name": "HTTPS_PROXY", "value": "http://users-own"}],
        "envFrom": [{"secretRef": {"name": "keys"}}],
        "volumes": [{"name": "own", "configMap": {"name": "own"}}],
        "volumeMounts": [{"name": "own", "mountPath": "/own"}],
        "labels": {"inject": "sidecar"},
        "annotations": {"sidecar.example.com/inject": "true"},
    }))
    .unwrap();
    let pods =
        PodTemplate { image: "users/own:1".to_owned(), image_is_named: true, settings, ..PodTemplate::default() };
    let inputs = JobInputs { version: version.map(str::to_owned), ..JobInputs::default() };
    FrozenJob { pods, inputs, ..FrozenJob::default() }
}

#[test]
fn nothing_of_the_users_is_in_the_pod_that_describes() {
    let hook = serde_json::from_value(json!({"name": "h", "step": "post-init", "image": "users/hook", "script": "x"}));
    let mut run = World::apply(RunApproval::Auto).run;
    run.spec.hooks = vec![hook.unwrap()];
    run.spec.attach = true;
    let template = template(&job(None), &IsolatedPlan::default(), Vec::new(), &platform());
    let pod = build(&run, &template, Stage::Judge, &platform()).unwrap();
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(spec.service_account_name.as_deref(), Some("default"));
    assert_eq!(spec.automount_service_account_token, Some(false));
    assert_eq!(spec.node_selector.as_ref().unwrap()["pool"], "runs");
    let names: Vec<_> = spec.containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["knoll", "runner"], "no hook");
    let runner = &spec.containers[1];
    assert!(runner.resources.is_some() && runner.stdin.is_none() && runner.env_from.is_none());
    let text = serde_json::to_string(&pod).unwrap();
    for word in ["TF_CLI_ARGS", "keys", "/own", "sidecar", "writer", "reader", "/plugins", "users"] {
        assert!(!text.contains(word), "`{word}` is in {text}");
    }
}

/// Where providers are reached by a proxy only, no plan could be described.
#[test]
fn the_pod_that_describes_has_the_proxy_of_policies_and_not_that_of_its_workspace() {
    let supplies = |name: &str, proxy: Value| {
        knoll_api::Policy::new(name, serde_json::from_value(json!({"defaults": {"proxy": proxy}})).unwrap())
    };
    let policies = effective(&[
        supplies("a", json!({"https": "http://proxy-a:3128", "exclude": ["svc", "10.0.0.0/8"]})),
        supplies("b", json!({"https": "http://proxy-b:3128", "http": "http://proxy-b:3128"})),
    ]);
    let run = World::apply(RunApproval::Auto).run;
    let template = template(&job(None), &IsolatedPlan::default(), policies.proxy(), &platform());
    let pod = build(&run, &template, Stage::Judge, &platform()).unwrap();
    let runner = pod.spec.unwrap().containers.into_iter().find(|container| container.name == "runner").unwrap();
    let env: BTreeMap<String, String> =
        runner.env.unwrap().into_iter().filter_map(|env| Some((env.name, env.value?))).collect();
    for (name, value) in [
        ("HTTPS_PROXY", "http://proxy-a:3128"),
        ("https_proxy", "http://proxy-a:3128"),
        ("HTTP_PROXY", "http://proxy-b:3128"),
        ("NO_PROXY", "svc,10.0.0.0/8"),
    ] {
        assert_eq!(env[name], value, "{name}");
    }
    assert!(!env.contains_key("TF_CLI_ARGS"));
}

#[test]
fn the_image_is_that_of_the_policy_or_of_the_installation() {
    let image = |named: Option<&str>, version: Option<&str>| {
        let isolated = IsolatedPlan { image: named.map(str::to_owned), mirror: None };
        template(&job(version), &isolated, Vec::new(), &platform()).image
    };
    assert_eq!(image(None, None), "terraform:1.9");
    assert_eq!(image(None, Some("1.11.4")), "terraform:1.11.4");
    assert_eq!(image(Some("registry:5000/tools/tf"), Some("1.11.4")), "registry:5000/tools/tf:1.11.4");
    assert_eq!(image(Some("registry:5000/tools/tf"), None), "registry:5000/tools/tf:1.9");
    assert_eq!(image(Some("tools/tf:7"), Some("1.11.4")), "tools/tf:7");
    assert_eq!(image(Some("tools/tf@sha256:1"), None), "tools/tf@sha256:1");
}
