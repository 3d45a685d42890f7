//! Tests the runner with real terraform and an in-memory hub.

#![allow(clippy::unwrap_used, reason = "tests")]

mod answers;
mod attach;
mod hub;
mod input;
mod judge;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use hub::{Hub, job};
use knoll_api::hooks::HookFailure;
use knoll_api::run::Operation;
use knoll_api::step::{StepName, StepState};
use knoll_api::wire::{EndReason, Job, JobHook, JobVariable, path};
use serde_json::json;

const WHOLE: [StepName; 5] = [StepName::Setup, StepName::Init, StepName::Plan, StepName::Apply, StepName::Outputs];

const THREE: &str = r#"
resource "terraform_data" "a" { input = "a" }
resource "terraform_data" "b" { input = terraform_data.a.output }
resource "terraform_data" "c" { input = terraform_data.b.output }
output "c" { value = terraform_data.c.output }
"#;

/// A module whose second resource runs a shell command after the first one was created.
fn with_command(command: &str) -> String {
    format!(
        r#"
resource "terraform_data" "first" {{ input = "1" }}
resource "terraform_data" "second" {{
  input = terraform_data.first.output
  provisioner "local-exec" {{ command = "{command}" }}
}}
resource "terraform_data" "third" {{ input = terraform_data.second.output }}
"#
    )
}

/// As [`with_command`], but terraform has written a state with the first resource before the command runs.
///
/// Terraform writes the state file after each resource. OpenTofu writes it when a resource is ready 20 seconds or more
/// after it last did, so another resource takes that long here.
fn with_command_after_a_state(command: &str) -> String {
    let program = std::process::Command::new("terraform").arg("version").output().unwrap();
    let is_tofu = String::from_utf8_lossy(&program.stdout).contains("OpenTofu");
    let pause = if is_tofu { "sleep 21" } else { "true" };
    let between = format!(
        r#"
resource "terraform_data" "between" {{
  input = terraform_data.first.output
  provisioner "local-exec" {{ command = "{pause}" }}
}}
"#
    );
    with_command(command).replace("terraform_data.first.output", "terraform_data.between.output") + &between
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_reports_its_steps_and_hands_in_each_state() {
    let hub = Hub::start(job(Operation::Apply, &WHOLE), &[("main.tf", THREE)], None, None).await;
    let exit = hub.run().await;
    assert_eq!(exit.code, 0, "{exit:?}\n{}", hub.log());
    let report = hub.last_report();
    let steps: Vec<_> = report.steps.iter().map(|step| (step.name, step.state)).collect();
    assert_eq!(steps, WHOLE.map(|step| (step, StepState::Succeeded)));
    let plan = report.plan.unwrap();
    assert_eq!((plan.add, plan.change, plan.destroy, plan.changes), (3, 0, 0, true));
    assert!(plan.digest.unwrap().starts_with("sha256:"));
    let serials = hub.serials();
    assert!(serials.windows(2).all(|pair| pair[0] < pair[1]), "{serials:?}");
    assert_eq!(hub.resources(), ["a", "b", "c"]);
    assert_eq!(hub.last_state()["outputs"]["c"]["value"], "a");
    assert!(hub.log().contains("Apply complete!"));
    // The output of each step begins at the offset in its status.
    let offset = usize::try_from(hub.step(StepName::Apply).log_offset.unwrap()).unwrap();
    assert!(hub.log()[offset..].contains("Creating..."));
    // One report per step that takes time, and the last one. No report counts changes before they are known.
    let reports = &hub.told.lock().unwrap().reports;
    assert!(reports.len() <= 4);
    assert!(reports.iter().filter_map(|report| report.plan.as_ref()).all(|plan| plan.add == 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn states_arrive_while_terraform_still_applies() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let main = with_command_after_a_state(&format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display()));
    let hub = Hub::start(job(Operation::Apply, &WHOLE), &[("main.tf", &main)], None, None).await;
    let running = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { hub.run().await }
    });
    hub.until("the first resource's state", |hub| hub.resources().contains(&"first".to_owned())).await;
    assert_eq!(hub.last_report().exit, None);
    std::fs::write(gate, "").unwrap();
    assert_eq!(running.await.unwrap().code, 0);
    assert_eq!(hub.resources(), ["between", "first", "second", "third"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_terraform_leaves_the_state_it_had() {
    let main = with_command_after_a_state("kill -9 $PPID; sleep 30");
    let hub = Hub::start(job(Operation::Apply, &WHOLE), &[("main.tf", &main)], None, None).await;
    let exit = hub.run().await;
    assert_eq!(exit.code, 137, "{exit:?}");
    assert_eq!(exit.reason, Some(EndReason::StepFailed));
    assert!(exit.message.unwrap().contains("signal 9"));
    assert!(hub.resources().contains(&"first".to_owned()));
    assert_eq!(hub.step(StepName::Apply).state, StepState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_stops_terraform_and_keeps_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let main = endless(folder.path());
    let hub = Hub::start(job(Operation::Apply, &WHOLE), &[("main.tf", &main)], None, None).await;
    let running = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { hub.run().await }
    });
    until_process(folder.path(), true).await;
    hub.cancel();
    let exit = running.await.unwrap();
    assert_eq!(exit.reason, Some(EndReason::Cancelled));
    assert_ne!(exit.code, 0);
    assert_eq!(hub.step(StepName::Apply).state, StepState::Cancelled);
    assert!(hub.resources().contains(&"first".to_owned()));
    assert!(!hub.resources().contains(&"third".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ignores_every_request_to_stop_is_killed_after_its_grace() {
    let steps = [StepName::Setup, StepName::Command];
    let stubborn = "trap 'echo not yet' INT; trap 'echo never' TERM; echo begun; while :; do sleep 0.02; done";
    let args = vec!["-c".to_owned(), stubborn.to_owned()];
    let mut asked = Job { command: Some("sh".into()), args, ..job(Operation::Command, &steps) };
    (asked.stop.interrupt, asked.stop.terminate) = (Duration::from_millis(200), Duration::from_millis(200));
    let hub = Hub::start(asked, &[("main.tf", THREE)], None, None).await;
    let running = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { hub.run().await }
    });
    hub.until("it has begun", |hub| hub.log().contains("begun")).await;
    hub.cancel();
    let exit = running.await.unwrap();
    assert_eq!((exit.code, exit.reason), (137, Some(EndReason::Cancelled)), "{exit:?}");
    let log = hub.log();
    assert!(log.find("not yet").unwrap() < log.find("never").unwrap(), "{log}");
}

/// The command of a resource that records its process, and never ends by itself.
fn endless(hub_folder: &std::path::Path) -> String {
    with_command(&format!(
        "echo $$ > {0}/begun.part && mv {0}/begun.part {0}/begun && exec sleep 600",
        hub_folder.display()
    ))
}

/// Waits until the process that [`endless`] recorded is there, or is gone.
async fn until_process(folder: &std::path::Path, is_there: bool) {
    let found = || {
        let pid = std::fs::read_to_string(folder.join("begun")).unwrap_or_default();
        !pid.is_empty() && std::path::Path::new("/proc").join(pid.trim()).exists()
    };
    let waited = async {
        while found() != is_there {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_whose_hub_went_silent_applied_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let mut asked = job(Operation::Apply, &WHOLE);
    asked.stop.silence = Duration::from_secs(2);
    asked.stop.deliver = Duration::from_secs(1);
    (asked.stop.interrupt, asked.stop.terminate) = (Duration::from_secs(2), Duration::from_secs(2));
    let hub = Hub::start(asked, &[("main.tf", &endless(folder.path()))], None, None).await;
    let running = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { hub.run().await }
    });
    until_process(folder.path(), true).await;
    hub.told.lock().unwrap().silent = true;
    until_process(folder.path(), false).await;
    // Nobody takes the last state, so the runner ends without having delivered it.
    let ended = tokio::time::timeout(Duration::from_secs(60), running).await;
    assert_eq!(ended.unwrap().unwrap().reason, None, "the last report was not delivered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_comes_back_gets_the_state_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut asked = job(Operation::Apply, &WHOLE);
    (asked.stop.silence, asked.stop.answer) = (Duration::from_secs(2), Duration::from_secs(1));
    let hub = Hub::start(asked, &[("main.tf", &endless(folder.path()))], None, None).await;
    let running = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { hub.run().await }
    });
    until_process(folder.path(), true).await;
    hub.told.lock().unwrap().away = usize::MAX;
    until_process(folder.path(), false).await;
    hub.told.lock().unwrap().away = 0;
    let exit = tokio::time::timeout(Duration::from_secs(60), running).await.unwrap().unwrap();
    assert_eq!(exit.reason, Some(EndReason::HubLost), "{exit:?}");
    assert!(exit.message.unwrap().contains("did not respond for 2s"));
    assert!(hub.resources().contains(&"first".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_on_any_path_was_only_logged() {
    for (path, status) in [(path::CANCEL, 403), (path::CANCEL, 401), (path::CANCEL, 409), (path::LOG, 403)] {
        let folder = tempfile::tempdir().unwrap();
        let main = endless(folder.path()).replace("exec sleep 600", "while sleep 0.1; do echo on; done");
        let hub = Hub::start(job(Operation::Apply, &WHOLE), &[("main.tf", &main)], None, None).await;
        let running = tokio::spawn({
            let hub = Arc::clone(&hub);
            async move { hub.run().await }
        });
        until_process(folder.path(), true).await;
        hub.told.lock().unwrap().refuse = Some((path, status));
        until_process(folder.path(), false).await;
        let exit = tokio::time::timeout(Duration::from_secs(60), running).await.unwrap().unwrap();
        assert_eq!(exit.reason, Some(EndReason::StateNotSaved), "{path} {status}: {exit:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_state_stops_the_run() {
    let main = with_command_after_a_state("sleep 600");
    let hub = Hub::start(job(Operation::Apply, &WHOLE), &[("main.tf", &main)], None, None).await;
    hub.told.lock().unwrap().refuse_states = Some("another pod has the workspace");
    let exit = hub.run().await;
    assert_eq!(exit.reason, Some(EndReason::StateNotSaved));
    assert!(exit.message.unwrap().contains("another pod has the workspace"));
    assert!(hub.serials().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_while_the_hub_is_away_and_delivers_afterwards() {
    let hub = Hub::start(job(Operation::Apply, &WHOLE), &[("main.tf", THREE)], None, None).await;
    hub.told.lock().unwrap().away = 3;
    let running = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { hub.run().await }
    });
    hub.until("the plan", |hub| hub.last_report().steps.iter().any(|step| step.name == StepName::Plan)).await;
    hub.told.lock().unwrap().away = 12;
    assert_eq!(running.await.unwrap().code, 0);
    assert_eq!(hub.resources(), ["a", "b", "c"]);
    assert!(hub.log().contains("Apply complete!"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_that_can_pass_is_tried_again_and_another_is_not() {
    let rows = [
        (r#"module "x" { source = "./nowhere" }"#, 1, "Error: Unreadable module directory"),
        ("resource {", 1, "Error: "),
        (r#"module "x" { source = "http://127.0.0.1:1/x.zip" }"#, 2, "Error: Failed to download module"),
    ];
    for (main, attempts, says) in rows {
        let asked = Job { retry: [(StepName::Init, 2)].into(), ..job(Operation::Apply, &WHOLE) };
        let hub = Hub::start(asked, &[("main.tf", main)], None, None).await;
        let exit = hub.run().await;
        assert_eq!(exit.code, 1);
        let init = hub.step(StepName::Init);
        assert_eq!((init.state, init.attempts, init.exit_code), (StepState::Failed, attempts, Some(1)), "{main}");
        let message = init.message.unwrap();
        assert!(message.starts_with(says), "{message}");
        assert!(!message.contains('\u{1b}') && !message.contains('│'), "{message}");
        assert_eq!(hub.last_report().steps.len(), 2, "nothing runs after a failure");
        assert_eq!(hub.log().contains("knoll: init failed, attempt 2 of 2; giving up"), attempts == 2, "{}", hub.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_than_asked_for_says_what_to_do() {
    let asked =
        Job { version: Some("0.13.7".into()), retry: [(StepName::Init, 3)].into(), ..job(Operation::Apply, &WHOLE) };
    let hub = Hub::start(asked, &[("main.tf", THREE)], None, None).await;
    let exit = hub.run().await;
    let message = exit.message.unwrap();
    assert!(message.contains("requires terraform 0.13.7, but the run's image has 1."), "{message}");
    assert!(message.contains("`spec.version`") && message.contains("`spec.image`"), "{message}");
    assert!(hub.log().contains(&format!("knoll: error: {message}")), "{}", hub.log());
    assert_eq!(hub.step(StepName::Init).attempts, 1, "another attempt would not help");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_asked_for_is_accepted() {
    let hub = Hub::start(
        Job { version: Some("1".into()), ..job(Operation::Plan, &WHOLE[..3]) },
        &[("main.tf", THREE)],
        None,
        None,
    )
    .await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    assert!(hub.serials().is_empty(), "a plan changes no state");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reviewed_plan_is_applied_byte_for_byte_by_another_pod() {
    let first = Hub::start(job(Operation::Apply, &WHOLE[..3]), &[("main.tf", THREE)], None, None).await;
    assert_eq!(first.run().await.code, 0, "{}", first.log());
    assert!(first.serials().is_empty());
    let plan = first.told.lock().unwrap().plan.clone().unwrap();
    let summary = first.last_report().plan.unwrap();
    assert_eq!(summary.add, 3);
    let text = first.told.lock().unwrap().plan_text.clone().unwrap();
    assert!(text.contains("terraform_data.a will be created") && text.contains("Plan: 3 to add"), "{text}");
    assert_eq!(summary.text_digest, Some(knoll_api::Digest::of(&text).to_string()));

    let steps = [StepName::Setup, StepName::Init, StepName::Apply, StepName::Outputs];
    let approved = Job { plan_digest: summary.digest, ..job(Operation::Apply, &steps) };
    let second = Hub::start(approved.clone(), &[("main.tf", THREE)], None, Some(plan.clone())).await;
    assert_eq!(second.run().await.code, 0, "{}", second.log());
    assert_eq!(second.resources(), ["a", "b", "c"]);

    let mut other = plan.to_vec();
    other[10] ^= 1;
    let third = Hub::start(approved, &[("main.tf", THREE)], None, Some(other.into())).await;
    let exit = third.run().await;
    assert_eq!(exit.reason, Some(EndReason::DigestMismatch));
    assert!(third.serials().is_empty());
}

/// A run with a hook before its apply.
fn with_hook(script: &str, steps: &[StepName]) -> Job {
    let hook = JobHook {
        name: "hook".into(),
        step: StepName::PreApply,
        script: script.into(),
        container: None,
        env: Default::default(),
        timeout_seconds: None,
        on_failure: HookFailure::Fail,
    };
    Job { hooks: vec![hook], ..job(Operation::Apply, steps) }
}

const HOOKED: [StepName; 6] =
    [StepName::Setup, StepName::Init, StepName::Plan, StepName::PreApply, StepName::Apply, StepName::Outputs];

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_cannot_be_described_is_not_decided_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var("PATH").unwrap();
    // A crashing provider may print more than fits into a status.
    let wrapper = "#!/bin/sh\nPATH=${PATH#*:}\n\
                   [ \"$1\" = show ] && echo {half && seq 100000 >&2 && echo no schema >&2 && exit 1\n\
                   exec terraform \"$@\"\n";
    std::fs::write(folder.path().join("terraform"), wrapper).unwrap();
    std::fs::set_permissions(folder.path().join("terraform"), Permissions::from_mode(0o755)).unwrap();
    let variable = JobVariable {
        key: "PATH".to_owned(),
        value: json!(format!("{}:{path}", folder.path().display())),
        env: true,
        sensitive: false,
        expression: false,
    };
    let start = async |job: Job| {
        let asked = Job { variables: vec![variable.clone()], ..job };
        let hub = Hub::start(asked, &[("main.tf", THREE)], None, None).await;
        let exit = hub.run().await;
        assert_eq!(hub.last_report().plan, None, "what it would do is not known");
        assert!(hub.log().contains("knoll: error: cannot describe the plan"), "{}", hub.log());
        assert!(hub.log().contains("no schema"), "{}", hub.log());
        (hub, exit)
    };
    let decided = [
        job(Operation::Apply, &WHOLE[..3]),
        job(Operation::Plan, &WHOLE[..3]),
        with_hook("echo the hook decides", &HOOKED),
    ];
    for asked in decided {
        let (hub, exit) = start(asked).await;
        assert_eq!((exit.code, exit.reason), (1, Some(EndReason::StepFailed)), "{exit:?}");
        let message = exit.message.unwrap();
        assert!(message.contains("no schema") && message.len() < 4096, "{} bytes", message.len());
        assert_eq!(hub.step(StepName::Plan).state, StepState::Failed);
        assert!(hub.told.lock().unwrap().plan.is_none());
        assert!(hub.serials().is_empty());
        assert!(!hub.log().contains("the hook decides"));
    }
    // Without a review, the plan is applied as it was made.
    let (hub, exit) = start(job(Operation::Apply, &WHOLE)).await;
    assert_eq!(exit.code, 0, "{}", hub.log());
    assert_eq!(hub.resources(), ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_find_the_plan_described_in_either_pod_and_without_changes() {
    let script = "grep -c '\"create\"' $KNOLL_PLAN_JSON";
    let alone = Hub::start(with_hook(script, &HOOKED), &[("main.tf", THREE)], None, None).await;
    assert_eq!(alone.run().await.code, 0, "{}", alone.log());

    let first = Hub::start(job(Operation::Apply, &WHOLE[..3]), &[("main.tf", THREE)], None, None).await;
    assert_eq!(first.run().await.code, 0, "{}", first.log());
    let plan = first.told.lock().unwrap().plan.clone();
    let steps = [StepName::Setup, StepName::Init, StepName::PreApply, StepName::Apply, StepName::Outputs];
    let approved = Job { plan_digest: first.last_report().plan.unwrap().digest, ..with_hook(script, &steps) };
    let second = Hub::start(approved, &[("main.tf", THREE)], None, plan).await;
    assert_eq!(second.run().await.code, 0, "{}", second.log());

    let mut again = with_hook("grep -c '\"no-op\"' $KNOLL_PLAN_JSON", &HOOKED);
    again.steps[3] = StepName::PostPlan;
    again.hooks[0].step = StepName::PostPlan;
    let again = Hub::start(again, &[("main.tf", THREE)], Some(second.last_state().to_string()), None).await;
    assert_eq!(again.run().await.code, 0, "{}", again.log());
    let plan = again.last_report().plan.unwrap();
    assert_eq!((plan.changes, plan.add, plan.resources.len()), (false, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_a_hook_changed_is_not_applied() {
    let asked = with_hook("echo tampered >> ../plan", &HOOKED);
    let hub = Hub::start(asked, &[("main.tf", THREE)], None, None).await;
    let exit = hub.run().await;
    assert_eq!(exit.reason, Some(EndReason::DigestMismatch), "{exit:?}");
    assert!(hub.serials().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn state_goes_through_apply_command_and_destroy() {
    let files = [("main.tf", THREE)];
    let apply = Hub::start(job(Operation::Apply, &WHOLE), &files, None, None).await;
    assert_eq!(apply.run().await.code, 0);
    let state = apply.last_state().to_string();

    let remove = Job {
        command: Some("state rm".into()),
        args: vec!["terraform_data.c".into()],
        ..job(Operation::Command, &[StepName::Setup, StepName::Init, StepName::Command])
    };
    let command = Hub::start(remove, &files, Some(state), None).await;
    assert_eq!(command.run().await.code, 0, "{}", command.log());
    assert_eq!(command.resources(), ["a", "b"]);
    let state = command.last_state().to_string();

    let destroy = Hub::start(job(Operation::Destroy, &WHOLE), &files, Some(state), None).await;
    assert_eq!(destroy.run().await.code, 0, "{}", destroy.log());
    assert_eq!(destroy.last_report().plan.unwrap().destroy, 2);
    assert!(destroy.resources().is_empty());
    // OpenTofu would apply an output whose value is not known.
    let files = [("main.tf", THREE.split("\noutput ").next().unwrap())];
    let refresh =
        Hub::start(job(Operation::Refresh, &WHOLE), &files, Some(destroy.last_state().to_string()), None).await;
    assert_eq!(refresh.run().await.code, 0, "{}", refresh.log());
    assert_eq!(refresh.step(StepName::Apply).state, StepState::Skipped);
}

/// A refresh with `-refresh-only=false` was an apply that nobody had reviewed, and so were variables of the environment.
#[tokio::test(flavor = "multi_thread")]
async fn no_argument_and_no_variable_makes_another_operation_of_a_run() {
    let files = [("main.tf", THREE)];
    let apply = Hub::start(job(Operation::Apply, &WHOLE), &files, None, None).await;
    assert_eq!(apply.run().await.code, 0);
    let state = apply.last_state().to_string();
    let env = |value: &str| JobVariable {
        key: "TF_CLI_ARGS_plan".into(),
        value: value.into(),
        env: true,
        sensitive: false,
        expression: false,
    };
    // The operation, its arguments, a variable of the environment, and what the plan destroys.
    for (operation, args, variable, expect) in [
        (Operation::Refresh, &["-refresh-only=false", "-destroy"][..], "", 0),
        (Operation::Refresh, &[], "-destroy", 0),
        (Operation::Apply, &[], "-destroy", 0),
        (Operation::Destroy, &["-destroy=false"], "", 3),
        (Operation::Apply, &["-destroy"], "-destroy=false", 3),
    ] {
        let variables = if variable.is_empty() { Vec::new() } else { vec![env(variable)] };
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let asked = Job { args, variables, ..job(operation, &WHOLE) };
        let hub = Hub::start(asked, &files, Some(state.clone()), None).await;
        assert_eq!(hub.run().await.code, 0, "{operation:?} {}", hub.log());
        let destroyed = hub.last_report().plan.map_or(0, |plan| plan.destroy);
        assert_eq!(destroyed, expect, "{operation:?} {variable}: {}", hub.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_reach_the_module_and_sensitive_ones_reach_nothing_else() {
    let main = r#"
variable "size" { type = number }
variable "zones" { type = list(string) }
variable "password" {}
variable "from_file" {}
resource "terraform_data" "a" {
  input = "${var.size} ${join("+", var.zones)} ${var.from_file}"
  provisioner "local-exec" { command = "echo the password is ${var.password} in $REGION" }
}
output "a" { value = terraform_data.a.output }
"#;
    let variable = |key: &str, value: serde_json::Value, env, sensitive, expression| JobVariable {
        key: key.into(),
        value,
        env,
        sensitive,
        expression,
    };
    let asked = Job {
        variables: vec![
            variable("size", json!(3), false, false, false),
            variable("zones", json!("[\"x\", \"y\"]"), false, false, true),
            variable("password", json!("hunter2"), false, true, true),
            variable("REGION", json!("north"), true, false, true),
        ],
        variable_files: [("more.tfvars".to_owned(), "from_file = \"f\"\n".to_owned())].into(),
        ..job(Operation::Apply, &WHOLE)
    };
    let hub = Hub::start(asked, &[("main.tf", main)], None, None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    assert_eq!(hub.last_state()["outputs"]["a"]["value"], "3 x+y f");
    assert!(hub.log().contains("the password is (sensitive) in north"), "{}", hub.log());
    assert!(!hub.log().contains("hunter2"));
    assert!(!serde_json::to_string(&hub.last_report()).unwrap().contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_between_the_steps_and_the_one_that_fails_ends_the_run() {
    let hook = |name: &str, step, script: &str, on_failure| JobHook {
        name: name.into(),
        step,
        script: script.into(),
        container: None,
        env: [("WHO".to_owned(), "world".to_owned())].into(),
        timeout_seconds: None,
        on_failure,
    };
    let steps = [
        StepName::Setup,
        StepName::PreInit,
        StepName::Init,
        StepName::Plan,
        StepName::PostPlan,
        StepName::Apply,
        StepName::Outputs,
    ];
    let asked = Job {
        hooks: vec![
            hook("hello", StepName::PreInit, "echo hello $WHO in $KNOLL_STEP of $KNOLL_RUN", HookFailure::Fail),
            hook("may-fail", StepName::PreInit, "exit 3", HookFailure::Continue),
            hook("check", StepName::PostPlan, "grep -c '\"create\"' $KNOLL_PLAN_JSON\nfalse\n", HookFailure::Fail),
        ],
        ..job(Operation::Apply, &steps)
    };
    let hub = Hub::start(asked, &[("main.tf", THREE)], None, None).await;
    let exit = hub.run().await;
    assert_eq!(exit.code, 1);
    assert!(hub.log().contains("hello world in pre-init of run"), "{}", hub.log());
    assert_eq!(hub.step(StepName::PreInit).state, StepState::Succeeded);
    let failed = hub.step(StepName::PostPlan);
    assert_eq!(failed.state, StepState::Failed);
    assert!(failed.message.unwrap().contains("hook `check` failed"));
    assert!(hub.serials().is_empty(), "nothing is applied after a hook that failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_takes_too_long_is_stopped() {
    let asked = Job { timeouts: [(StepName::Apply, 6)].into(), ..job(Operation::Apply, &WHOLE) };
    let hub = Hub::start(asked, &[("main.tf", &with_command("sleep 600"))], None, None).await;
    let exit = hub.run().await;
    assert_eq!(exit.reason, Some(EndReason::TimedOut), "{exit:?}");
    assert!(hub.resources().contains(&"first".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_remains_of_a_working_copy_are_left_behind() {
    let files = [("main.tf", THREE), ("terraform.tfstate", "{}"), (".terraform/terraform.tfstate", "{}")];
    let hub = Hub::start(job(Operation::Apply, &WHOLE), &files, None, None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    // Another workspace of terraform, whose state would stay in the pod, is not chosen in a folder either.
    let files = [(".knoll-module", "m"), ("m/main.tf", THREE), ("m/.terraform/environment", "other")];
    let hub = Hub::start(job(Operation::Apply, &WHOLE), &files, None, None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    assert_eq!(hub.resources(), ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_backend_was_replaced_by_an_empty_state() {
    let with = |block: &str| format!("terraform {{\n  {block} {{\n  }}\n}}\n{THREE}");
    for (block, operation) in [("backend \"s3\"", Operation::Apply), ("cloud", Operation::Plan)] {
        let hub = Hub::start(job(operation, &WHOLE), &[("main.tf", &with(block))], None, None).await;
        let exit = hub.run().await;
        let says = exit.message.unwrap();
        assert!(exit.code == 1 && says.contains(&format!("declares `{block}`")), "{says}");
        for way in ["--external-state", "knoll state push FILE", "remove the block"] {
            assert!(says.contains(way), "{says}");
        }
        assert_eq!(hub.resources(), Vec::<String>::new());
    }
    // A state that was pushed is used, and a destroy of nothing ends.
    let first = Hub::start(job(Operation::Apply, &WHOLE), &[("main.tf", THREE)], None, None).await;
    assert_eq!(first.run().await.code, 0, "{}", first.log());
    let state = first.told.lock().unwrap().states.last().unwrap().to_string();
    let files = with("backend \"s3\"");
    let second = Hub::start(job(Operation::Apply, &WHOLE), &[("main.tf", &files)], Some(state), None).await;
    assert_eq!(second.run().await.code, 0, "{}", second.log());
    let nothing = Hub::start(job(Operation::Destroy, &WHOLE), &[("main.tf", &files)], None, None).await;
    assert_eq!(nothing.run().await.code, 0, "{}", nothing.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_state_was_lost_with_its_pod() {
    let local = format!("terraform {{\n  backend \"local\" {{\n  }}\n}}\n{THREE}");
    for (module, declared) in [(THREE, "no backend"), (local.as_str(), "without an absolute `path`")] {
        let asked = Job { managed_state: false, ..job(Operation::Apply, &WHOLE) };
        let hub = Hub::start(asked, &[("main.tf", module)], None, None).await;
        let exit = hub.run().await;
        let says = exit.message.unwrap();
        assert!(exit.code == 1 && says.contains(declared) && says.contains("lost with the pod"), "{says}");
        assert!(!hub.log().contains("Creating..."), "{}", hub.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn terraform_workspace_is_the_one_of_the_job_and_its_state_is_handed_in() {
    let module = "resource \"terraform_data\" \"a\" { input = terraform.workspace }\noutput \"in\" { value = terraform_data.a.output }\n";
    let files = [("main.tf", module)];
    for (asked, expect) in [(None, "default"), (Some("default"), "default"), (Some("net"), "net")] {
        let with = |operation, steps: &[StepName]| Job {
            terraform_workspace: asked.map(str::to_owned),
            ..job(operation, steps)
        };
        let hub = Hub::start(with(Operation::Apply, &WHOLE), &files, None, None).await;
        assert_eq!(hub.run().await.code, 0, "{}", hub.log());
        let state = hub.told.lock().unwrap().states.last().unwrap().clone();
        assert_eq!(state["outputs"]["in"]["value"], expect);
        // A later run finds that state, and a command too.
        let again = Hub::start(with(Operation::Plan, &WHOLE[..3]), &files, Some(state.to_string()), None).await;
        assert_eq!(again.run().await.code, 0, "{}", again.log());
        assert!(again.log().contains("No changes."), "{}", again.log());
        let command = Job {
            command: Some("state rm".into()),
            args: vec!["terraform_data.a".into()],
            ..with(Operation::Command, &[StepName::Setup, StepName::Init, StepName::Command])
        };
        let removal = Hub::start(command, &files, Some(state.to_string()), None).await;
        assert_eq!(removal.run().await.code, 0, "{}", removal.log());
        assert_eq!(removal.resources(), Vec::<String>::new(), "{}", removal.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_terraform_that_is_alone_may_keep_its_garbage() {
    let lock_file = "provider \"example.org/acme/thing\" {\n  version = \"3.2.4\"\n}\n".to_owned();
    for (lock_file, leash) in [(None, "400"), (Some(lock_file), "as it was")] {
        let args = vec!["-c".to_owned(), "echo leash: ${GOGC-as it was}".to_owned()];
        let steps = [StepName::Setup, StepName::Command];
        let asked = Job { command: Some("sh".into()), args, lock_file, ..job(Operation::Command, &steps) };
        let hub = Hub::start(asked, &[("main.tf", THREE)], None, None).await;
        assert_eq!(hub.run().await.code, 0, "{}", hub.log());
        assert!(hub.log().contains(&format!("leash: {leash}\n")), "{}", hub.log());
    }
}
