//! The verdict on a plan: which Policies judge, and what comes into the Run's status.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use knoll_api::Policy;
use knoll_api::policy::RuleAction;
use knoll_api::verdict::PlanVerdict;
use knoll_api::wire::path;
use knoll_api::workspace::WorkspaceSpec;
use knoll_rules::Evaluator;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::world::{Runner, World, apply};

const DIGEST: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// A program that answers each evaluation with these lines. The rules themselves are tested where they are evaluated.
fn program(folder: &tempfile::TempDir, lines: &str) -> PathBuf {
    let file = folder.path().join("evaluator");
    std::fs::write(&file, format!("#!/bin/sh\ncat > /dev/null\n{lines}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
    file
}

async fn policy(world: &World, name: &str, spec: Value) {
    let policy = Policy::new(name, serde_json::from_value(spec).unwrap());
    Api::all(world.client.clone()).create(&PostParams::default(), &policy).await.unwrap();
}

fn rules(selector: &str) -> Value {
    let rule = json!({"name": "r", "action": "Warn", "find": "true", "message": "m"});
    json!({"workspaceSelector": {"matchLabels": {"env": selector}}, "plan": {"rules": [rule]}})
}

async fn judged(world: &World, runner: &Runner) -> PlanVerdict {
    let (status, body) = runner.put(&format!("{}?digest={DIGEST}", path::PLAN_JSON), "{}").await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    world.run("r").await.status.unwrap().plan_verdict.unwrap()
}

/// A runner whose Run is to be judged.
async fn runner(world: &World, evaluator: Evaluator) -> Runner {
    let hub = world.hub_with(evaluator).await;
    let runner = world.runner("r", apply()).await.at(&hub);
    world.set_status("r", json!({"status": {"planVerdict": {}}})).await;
    runner
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policies_that_hold_judge_and_the_verdict_is_in_the_status() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let found = r#"echo '{"begun":"r"}'; echo '{"found":{"rule":"r","action":"Warn","message":"m","addresses":["a.b"],"omitted":0,"failed":false}}'; echo '"done"'"#;
    let runner = runner(&world, Evaluator::of(program(&folder, found))).await;
    let verdict = judged(&world, &runner).await;
    assert_eq!((verdict.plan.as_deref(), verdict.rules, verdict.action), (Some(DIGEST), None, None));

    policy(&world, "elsewhere", rules("elsewhere")).await;
    policy(&world, "everywhere", json!({"plan": rules("x")["plan"]})).await;
    let verdict = judged(&world, &runner).await;
    assert_eq!(verdict.action, Some(RuleAction::Warn));
    let named: Vec<_> = verdict.results.iter().map(|result| (result.policy.as_str(), result.rule.as_str())).collect();
    assert_eq!(named, [("everywhere", "r")]);
    assert!(verdict.rules.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_without_a_result_denies_the_plan_and_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    policy(&world, "broken", json!({"plan": rules("x")["plan"]})).await;
    let runner = runner(&world, Evaluator::of(program(&folder, "echo '{\"begun\":\"r\"}'; exit 7"))).await;
    let verdict = judged(&world, &runner).await;
    assert_eq!((verdict.action, verdict.denied_by.as_slice()), (Some(RuleAction::Deny), &["broken".to_owned()][..]));
    assert!(verdict.results[0].failed && !verdict.overridable, "{verdict:?}");
    assert!(verdict.results[0].message.contains("broke off"), "{verdict:?}");
    // A program that is not there.
    let hub = world.hub_with(Evaluator::of("/nowhere")).await;
    let verdict = judged(&world, &runner.at(&hub)).await;
    assert!(verdict.results[0].message.contains("cannot be started"), "{verdict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_never_ends_is_stopped_while_other_requests_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    policy(&world, "endless", json!({"plan": rules("x")["plan"]})).await;
    let runner =
        runner(&world, Evaluator::of(program(&folder, "echo '{\"begun\":\"r\"}'; exec tail -f /dev/null"))).await;
    let other = runner.clone();
    let slow = tokio::spawn(async move {
        let verdict = judged(&world, &runner).await;
        (verdict, world)
    });
    let (mut longest, mut offset) = (Duration::ZERO, 0);
    while !slow.is_finished() {
        let begin = Instant::now();
        let (status, body) = other.ask(reqwest::Method::POST, &format!("{}?offset={offset}", path::LOG), "x").await;
        assert_eq!(status, 204, "at {offset}: {}", String::from_utf8_lossy(&body));
        offset += 1;
        longest = longest.max(begin.elapsed());
        tokio::task::yield_now().await;
    }
    let (verdict, _world) = slow.await.unwrap();
    assert!(verdict.results[0].failed && verdict.results[0].message.contains("takes longer than"), "{verdict:?}");
    assert!(offset > 0 && longest < Duration::from_secs(5), "{offset} other requests, of which one took {longest:?}");
}

/// Repeats a request until it is refused: the hub's copy of a Run follows the API.
async fn until_refused(runner: &Runner, method: reqwest::Method, address: &str) {
    let refused = async {
        while runner.ask(method.clone(), address, "{}").await.0 != 403 {
            tokio::task::yield_now().await;
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(30), refused).await;
    assert!(refused.is_ok(), "{method} {address} is never refused");
}

/// Makes the Run one whose plan another pod describes.
async fn isolate(world: &World, steps: Value) {
    let plan = json!({"digest": DIGEST, "changes": true, "add": 1, "change": 0, "destroy": 0});
    let status = json!({"planVerdict": {"isolated": {}}, "steps": steps, "plan": plan});
    world.set_status("r", json!({"status": status})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_isolated_pod_hands_in_the_json_and_nothing_else_of_the_run_is_its_own() {
    use reqwest::Method;
    let folder = tempfile::tempdir().unwrap();
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let rule = json!({"name": "r", "action": "Warn", "find": "true", "message": "m"});
    policy(&world, "isolated", json!({"plan": {"rules": [rule], "isolated": true}})).await;
    let found = r#"echo '{"begun":"r"}'; echo '"done"'"#;
    let runner = runner(&world, Evaluator::of(program(&folder, found))).await;

    // A Run that started before the Policy demanded it.
    let verdict = judged(&world, &runner).await;
    assert_eq!(verdict.action, Some(RuleAction::Deny));
    assert!(verdict.results[0].message.contains("a pod of its own describes the plan"), "{verdict:?}");

    isolate(&world, json!([])).await;
    until_refused(&runner, Method::PUT, &format!("{}?digest={DIGEST}", path::PLAN_JSON)).await;
    assert_eq!(runner.put(path::PLAN_TEXT, "a text").await.0, 403);

    isolate(&world, json!([{"name": "judge", "state": "Waiting"}])).await;
    for address in [path::BUNDLE, path::STATE] {
        until_refused(&runner, Method::GET, address).await;
    }
    for address in [path::STATE, path::LOCK, path::PLAN] {
        until_refused(&runner, Method::PUT, address).await;
    }
    assert_eq!(runner.put(path::PLAN_TEXT, "a text").await.0, 204);
    let verdict = judged(&world, &runner).await;
    assert_eq!((verdict.action, verdict.plan.as_deref()), (None, Some(DIGEST)));
    assert!(verdict.isolated.is_some());
    let kept = world.storage().descriptions().get("default", "r").await.unwrap();
    assert_eq!(kept.as_deref(), Some(&b"{}"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_pod_of_a_run_that_is_judged_hands_in_a_plan() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let runner = runner(&world, Evaluator::of("/nowhere")).await;
    for address in [path::PLAN_JSON.to_owned(), format!("{}?digest=x", path::PLAN_JSON)] {
        assert_eq!(runner.put(&address, "{}").await.0, 400, "{address}");
    }
    world.set_status("r", json!({"status": {"phase": "Review"}})).await;
    until_refused(&runner, reqwest::Method::GET, path::BUNDLE).await;
    let (status, _) = runner.put(&format!("{}?digest={DIGEST}", path::PLAN_JSON), "{}").await;
    assert_eq!(status, 403);
    assert_eq!(world.run("r").await.status.unwrap().plan_verdict, Some(PlanVerdict::default()));
}
