//! The steps of a run: retries, hooks, cancellation, other tools, providers, and following the log.
#![allow(clippy::unwrap_used, reason = "tests")]

mod world;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::run::{Run, RunPhase};
use knoll_api::step::{StepName, StepState};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use world::{Place, WAIT, World, a_moment, inline, reason, with_module, within};

const MODULE: &str =
    "resource \"terraform_data\" \"a\" { input = 1 }\noutput \"x\" { value = terraform_data.a.output }\n";

async fn config_map(place: &Place, name: &str, data: &[(&str, &str)]) {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let mut map = ConfigMap { data: Some(data), ..ConfigMap::default() };
    map.metadata.name = Some(name.to_owned());
    place.api().create(&PostParams::default(), &map).await.unwrap();
}

/// The search path in an image and on this machine.
fn search_path(first: &str) -> String {
    format!("{first}:{}:/usr/local/bin:/usr/bin:/bin", std::env::var("PATH").unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_that_fails_twice_is_tried_three_times() {
    let world = World::start().await;
    let place = world.place("retry").await;
    // A wrapper around terraform whose network fails twice.
    let fails_twice = r#"#!/bin/sh
PATH=${PATH#*:}
if test "$1" = init; then
  echo attempt >> ../attempts
  if test "$(wc -l < ../attempts)" -lt 3; then
    echo "Error: dial tcp: network is unreachable" >&2
    exit 1
  fi
fi
exec terraform "$@"
"#;
    config_map(&place, "before", &[("terraform", fails_twice)]).await;
    let pod = json!({
        "env": [{"name": "PATH", "value": search_path("/before")}],
        "volumes": [{"name": "before", "configMap": {"name": "before", "defaultMode": 0o755}}],
        "volumeMounts": [{"name": "before", "mountPath": "/before"}],
    });
    place.workspace("r", json!({"pod": pod})).await;
    place.run("r", with_module(MODULE, json!({"workspace": "r", "retry": {"backoff": "50ms"}}))).await;
    let status = place.succeeded("r").await;
    let init = status.steps.iter().find(|step| step.name == StepName::Init).unwrap();
    assert_eq!((init.attempts, init.exit_code), (3, Some(0)), "{init:?}");
    let log = world.call(&["logs", "-n", &place.namespace, "r"]);
    assert_eq!(String::from_utf8_lossy(&log.stdout).matches("network is unreachable").count(), 2, "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_are_scripts_keys_of_config_maps_and_have_images_of_their_own() {
    let world = World::start().await;
    let place = world.place("hooks").await;
    config_map(
        &place,
        "scripts",
        &[("after", "echo \"<$0 after $WORD>\"; test -s ../plan.json && echo '<described>'")],
    )
    .await;
    let hooks = json!([
        {"name": "one", "step": "pre-init", "script": "echo '<pre-init>'"},
        {"name": "two", "step": "post-init", "script": "#!/bin/sh\necho '<post-init>'"},
        {"name": "three", "step": "pre-plan", "script": "echo '<pre-plan>'"},
        {"name": "four", "step": "post-plan", "configMap": {"name": "scripts", "key": "after"},
         "env": [{"name": "WORD", "value": "a plan"}]},
        {"name": "five", "step": "pre-apply", "image": "knoll/box:1", "script": "echo '<pre-apply>'"},
        {"name": "six", "step": "post-apply", "script": "terraform output -raw x; echo; echo '<post-apply>'"},
        {"name": "seven", "step": "post-apply", "script": "echo '<not so bad>'; exit 3", "onFailure": "Continue"},
    ]);
    place.run("r", with_module(MODULE, json!({"hooks": hooks}))).await;
    let status = place.succeeded("r").await;
    let steps: Vec<&str> = status.steps.iter().map(|step| step.name.as_str()).collect();
    let expect = "setup pre-init init post-init pre-plan plan post-plan pre-apply apply post-apply outputs";
    assert_eq!(steps.join(" "), expect);
    assert!(status.steps.iter().all(|step| step.state == StepState::Succeeded), "{:?}", status.steps);
    let last = status.steps.iter().find(|step| step.name == StepName::PostApply).unwrap();
    assert!(last.message.as_deref().is_some_and(|message| message.contains("`seven`")), "{last:?}");
    let log = String::from_utf8(world.call(&["logs", "-n", &place.namespace, "r"]).stdout).unwrap();
    let said = ["<pre-init>", "Initializing", "<post-init>", "<pre-plan>", "1 to add", "after a plan>", "<described>"];
    let said = said.iter().chain(&["<pre-apply>", "Apply complete!", "\n1\n<post-apply>", "<not so bad>"]);
    let mut at = 0;
    for words in said {
        let found = log[at..].find(words).unwrap_or_else(|| panic!("`{words}` is not there, or too early: {log}"));
        at += found + words.len();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_keeps_what_terraform_made_and_the_next_one_goes_on() {
    let world = World::start().await;
    let place = world.place("cancel").await;
    let slow = "resource \"terraform_data\" \"a\" {}\nresource \"terraform_data\" \"b\" {\n  depends_on = [terraform_data.a]\n  provisioner \"local-exec\" { command = \"exec sleep 600\" }\n}\n";
    place.apply("r", slow).await;
    place.provisioning(&world, "r", "b").await;
    place.apply("next", "resource \"terraform_data\" \"a\" {}").await;
    let said = world.call(&["cancel", "-n", &place.namespace, "r"]);
    assert!(said.status.success(), "{said:?}");
    let status = place.ended("r").await;
    assert_eq!((status.phase, reason(&status).0.as_str()), (RunPhase::Cancelled, "Cancelled"), "{:?}", reason(&status));
    let apply = status.steps.iter().find(|step| step.name == StepName::Apply).unwrap();
    assert_eq!(apply.state, StepState::Cancelled);
    // `b` was started, so it is tainted in the state; `a` is unchanged.
    let plan = place.succeeded("next").await.plan.unwrap();
    assert_eq!((plan.add, plan.change, plan.destroy), (0, 0, 1), "{plan:?}");
    assert_eq!(place.resources("w").await, ["terraform_data.a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_run_goes_when_its_state_is_in() {
    let world = World::start().await;
    let place = world.place("deleted").await;
    let module = "resource \"terraform_data\" \"a\" {}\nresource \"terraform_data\" \"b\" {\n  depends_on = [terraform_data.a]\n";
    let slow = format!("{module}  provisioner \"local-exec\" {{ command = \"exec sleep 600\" }}\n}}\n");
    place.apply("r", &slow).await;
    place.provisioning(&world, "r", "b").await;
    place.apply("next", &format!("{module}}}\n")).await;
    place.api::<Run>().delete("r", &DeleteParams::default()).await.unwrap();
    // The last state records that `b` has failed.
    let plan = place.succeeded("next").await.plan.unwrap();
    assert_eq!((plan.add, plan.change, plan.destroy), (1, 0, 1), "{plan:?}");
    assert!(place.api::<Run>().get_opt("r").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_and_followed_while_the_run_goes_on() {
    let world = World::start().await;
    let place = world.place("follow").await;
    let hooks = json!([{"name": "wait", "step": "post-plan", "script": WAIT}]);
    place.run("r", with_module(MODULE, json!({"hooks": hooks}))).await;
    let waits = |status: &knoll_api::run::RunStatus| status.steps.iter().any(|step| step.name == StepName::PostPlan);
    place.until("r", "it waits", waits).await;
    let follow = |words: &[&str]| {
        let words = [&["logs", "-n", &place.namespace, "r", "-f"], words].concat();
        world.command(&words).stdout(Stdio::piped()).spawn().unwrap()
    };
    let (whole, apply) = (follow(&[]), follow(&["--step", "apply"]));
    let read = || String::from_utf8(world.call(&["logs", "-n", &place.namespace, "r"]).stdout).unwrap();
    let planned = async {
        while !read().contains("1 to add") {
            a_moment().await;
        }
    };
    within("what is printed is kept within a second", planned).await;
    assert!(!read().contains("Apply complete!"));
    place.release("r").await;
    place.succeeded("r").await;
    let text = |child: std::process::Child| String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let (whole, apply) = (text(whole), text(apply));
    assert_eq!(whole, read());
    assert!(apply.contains("Apply complete!") && !apply.contains("Plan:"), "{apply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tofu_runs_as_terraform_does() {
    let Some(tofu) = tofu() else {
        eprintln!(
            "NOT RUN: there is no `tofu` on the PATH, and KNOLL_TOFU names none; `cargo xtask image --tofu` builds it"
        );
        return;
    };
    let world = World::with_path(tofu.parent().unwrap()).await;
    let place = world.place("tofu").await;
    place.workspace("t", json!({"tool": "tofu"})).await;
    place.run("one", with_module(MODULE, json!({"workspace": "t", "approval": "Manual"}))).await;
    let status = place.until("one", "it is reviewed", |status| status.phase == RunPhase::Review).await;
    assert_eq!(status.plan.unwrap().add, 1);
    place.approve("one", status.review_digest.as_deref().unwrap()).await;
    place.succeeded("one").await;
    assert_eq!(place.idle("t").await.outputs["x"], json!(1));
    let log = String::from_utf8(world.call(&["logs", "-n", &place.namespace, "one"]).stdout).unwrap();
    assert!(log.contains("OpenTofu"), "{log}");
    place.run("end", json!({"workspace": "t", "operation": "destroy"})).await;
    place.succeeded("end").await;
    assert!(place.resources("t").await.is_empty());
    // An unavailable version is reported, with what to do.
    if !world.is_given() {
        place.workspace("other", json!({"tool": "tofu", "version": "1.6.0"})).await;
        place.run("wrong", with_module(MODULE, json!({"workspace": "other"}))).await;
        let (why, message) = reason(&place.ended("wrong").await);
        assert!(why == "StepFailed" && message.contains("1.6.0"), "{why}: {message}");
    }
}

fn tofu() -> Option<PathBuf> {
    let named = std::env::var_os("KNOLL_TOFU").map(PathBuf::from);
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = || std::env::split_paths(&search).map(|folder| folder.join("tofu")).find(|file| file.is_file());
    named.filter(|file| file.is_file()).or_else(found)
}

/// The number of concurrent runs with the same provider.
const AT_ONCE: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_begin_at_once_share_the_providers_and_lock_them() {
    let Some(mirror) = mirror() else {
        eprintln!("NOT RUN: a provider has to be built once, and there is no `go` on the PATH or no network");
        return;
    };
    let world = World::start().await;
    let place = world.place("providers").await;
    let module = r#"
terraform {
  required_providers { time = { source = "example.com/knoll/time" } }
}
resource "time_static" "now" {}
output "year" { value = time_static.now.year }
"#;
    let mount = json!({"name": "mirror", "mountPath": mirror, "readOnly": true});
    let pod = json!({
        "env": [{"name": "TF_CLI_CONFIG_FILE", "value": mirror.join("terraformrc")}],
        "volumes": [{"name": "mirror", "hostPath": {"path": mirror}}],
        "volumeMounts": [mount],
    });
    let names: Vec<String> = (0..AT_ONCE).map(|number| format!("p{number}")).collect();
    join_all(names.iter().map(|name| place.workspace(name, json!({"pod": pod})))).await;
    let spec = |name: &str| with_module(module, json!({"workspace": name}));
    join_all(names.iter().map(|name| place.run(name, spec(name)))).await;
    join_all(names.iter().map(|name| place.succeeded(name))).await;
    if !world.is_given() {
        let cache = world.folder.path().join("data/cache/plugins/example.com/knoll/time").join(VERSION);
        let copies = std::fs::read_dir(cache.join(platform())).unwrap().count();
        assert_eq!(copies, 1, "one copy for all");
    }
    // The next run of each Workspace has the lock file of the first one, and finds the provider.
    let again: Vec<String> = names.iter().map(|name| format!("{name}-again")).collect();
    join_all(names.iter().zip(&again).map(|(name, again)| place.run(again, spec(name)))).await;
    for name in &again {
        let status = place.succeeded(name).await;
        assert!(!status.plan.unwrap().changes);
        let log = world.call(&["logs", "-n", &place.namespace, name, "--step", "init"]);
        let log = String::from_utf8(log.stdout).unwrap();
        assert!(log.contains("dependency lock file"), "{log}");
    }
    assert!(place.idle("p0").await.outputs["year"].as_i64().is_some());
}

const VERSION: &str = "0.14.2";

fn platform() -> String {
    format!("linux_{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" })
}

/// A filesystem mirror with a real provider in the user's cache. The provider is built if it is missing.
fn mirror() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?;
    let mirror = cache.join("knoll/providers");
    // Packed, like a downloaded provider.
    let folder = mirror.join("example.com/knoll/time");
    let package = folder.join(format!("terraform-provider-time_{VERSION}_{}.zip", platform()));
    if !package.is_file() {
        let build = tempfile::tempdir().unwrap();
        let source = format!("github.com/hashicorp/terraform-provider-time@v{VERSION}");
        let mut go = Command::new("go");
        go.args(["install", &source]).env("GOBIN", build.path()).env("CGO_ENABLED", "0").current_dir(build.path());
        if !go.status().is_ok_and(|status| status.success()) {
            return None;
        }
        std::fs::create_dir_all(&folder).unwrap();
        // Written atomically, because another test program may do the same.
        let new = package.with_extension(std::process::id().to_string());
        let mut zip = zip::ZipWriter::new(std::fs::File::create(&new).unwrap());
        let options = zip::write::SimpleFileOptions::default().unix_permissions(0o755);
        zip.start_file(format!("terraform-provider-time_v{VERSION}"), options).unwrap();
        let mut provider = std::fs::File::open(build.path().join("terraform-provider-time")).unwrap();
        std::io::copy(&mut provider, &mut zip).unwrap();
        zip.finish().unwrap();
        std::fs::rename(&new, &package).unwrap();
    }
    let settings = format!("provider_installation {{\n  filesystem_mirror {{ path = {:?} }}\n}}\n", mirror);
    std::fs::write(mirror.join("terraformrc"), settings).unwrap();
    Some(mirror)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_too_long_and_a_pod_that_never_starts_end_by_themselves() {
    let world = World::start().await;
    let place = world.place("timeouts").await;
    let hooks = json!([{"name": "wait", "step": "pre-init", "script": WAIT}]);
    place.run("first", with_module(MODULE, json!({"hooks": hooks}))).await;
    place.until("first", "it holds the lock", |status| status.pod_name.is_some()).await;
    place.run("late", with_module(MODULE, json!({"timeouts": {"queue": "2s"}}))).await;
    let status = place.ended("late").await;
    assert_eq!((status.phase, reason(&status).0.as_str()), (RunPhase::Cancelled, "TimedOut"));
    assert!(reason(&status).1.contains("timeouts.queue"), "{:?}", reason(&status));
    place.release("first").await;
    place.succeeded("first").await;

    let pod = json!({"volumes": [{"name": "x", "secret": {"secretName": "nowhere"}}], "volumeMounts": [{"name": "x", "mountPath": "/x"}]});
    place.workspace("stuck", json!({"pod": pod, "timeouts": {"pending": "3s"}})).await;
    let mut spec = inline(MODULE);
    spec["workspace"] = json!("stuck");
    place.run("stuck", spec).await;
    let status = place.ended("stuck").await;
    assert_eq!((status.phase, reason(&status).0.as_str()), (RunPhase::Failed, "TimedOut"), "{:?}", reason(&status));
    assert!(reason(&status).1.contains("timeouts.pending"), "{:?}", reason(&status));
}
