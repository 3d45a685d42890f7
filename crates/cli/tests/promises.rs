//! The promises of a run: no secret leaves it, invalid input is reported and changes nothing, and its files, log and
//! earlier states are kept.
#![allow(clippy::unwrap_used, reason = "tests")]

mod world;

use std::process::Command;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use knoll_api::Run;
use knoll_api::run::{RunPhase, RunStatus};
use knoll_bundle::{File, Files};
use knoll_storage::{LogRange, Storage};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use world::{Place, World, often, reason, with_module};

async fn secret(place: &Place, name: &str, data: &[(&str, &str)]) {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect();
    let mut secret = Secret { data: Some(data), ..Secret::default() };
    secret.metadata.name = Some(name.to_owned());
    place.api().create(&PostParams::default(), &secret).await.unwrap();
}

/// Everything in the cluster except Secrets, unpacked, and the log of every container.
async fn everything(world: &World, place: &Place) -> String {
    let kubectl = |words: &[&str]| {
        let output = Command::new("kubectl").arg("--kubeconfig").arg(world.kubeconfig()).args(words).output().unwrap();
        assert!(output.status.success(), "kubectl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let kinds = kubectl(&["api-resources", "--verbs=list", "-o", "name"]);
    let mut all = String::new();
    for kind in kinds.lines().filter(|kind| *kind != "secrets") {
        all += &kubectl(&["get", kind, "-A", "-o", "json", "--ignore-not-found"]);
    }
    // The operator's own log, if it is a pod.
    all += &kubectl(&["logs", "-n", "knoll-system", "-l", "app.kubernetes.io/name=knoll", "--ignore-errors"]);
    for map in place.api::<ConfigMap>().list(&ListParams::default()).await.unwrap() {
        for content in map.binary_data.unwrap_or_default().into_values() {
            all += &String::from_utf8_lossy(&zstd::decode_all(&content.0[..]).unwrap_or(content.0));
        }
    }
    for pod in place.api::<Pod>().list(&ListParams::default()).await.unwrap() {
        for container in &pod.spec.as_ref().unwrap().containers {
            all += &kubectl(&["logs", "-n", &place.namespace, &pod.name_any(), "-c", &container.name]);
        }
    }
    let log = std::fs::read_to_string(world.folder.path().join("data/knoll.log")).unwrap_or_default();
    all + &log
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_leaves_a_run() {
    let world = World::start().await;
    let place = world.place("secrets").await;
    let variables = [
        ("password", "hunter2-variable"),
        ("pin", "x7q"),
        ("pem", "-----BEGIN KEY-----\nMIIlinetwo\nMIIlinethree\n-----END KEY-----\n"),
        ("more.tfvars", "from_file = \"hunter2-file\"\n"),
        ("json.tfvars.json", r#"{"from_json": ["hunter2-json"]}"#),
    ];
    secret(&place, "vars", &variables).await;
    secret(&place, "env", &[("token", "hunter2-environment"), ("HOOK_TOKEN", "hunter2-hook")]).await;
    let spec = json!({
        "variables": [
            {"key": "listed", "valueFrom": {"secretKeyRef": {"name": "listed", "key": "value"}}},
            {"key": "REGION", "value": "hunter2-region", "category": "env", "sensitive": true},
        ],
        "pod": {"env": [{"name": "POD_TOKEN", "valueFrom": {"secretKeyRef": {"name": "env", "key": "token"}}}]},
    });
    secret(&place, "listed", &[("value", r#"["hunter2-first", "hunter2-second"]"#)]).await;
    place.workspace("s", spec).await;
    let module = r#"
variable "password" {}
variable "pin" {}
variable "pem" {}
variable "from_file" {}
variable "from_json" { type = list(string) }
variable "listed" { type = list(string) }
resource "terraform_data" "a" {
  input = { password = var.password, pem = var.pem, list = var.listed }
  provisioner "local-exec" {
    command = <<-EOT
      echo "${var.password} ${var.pin} ${var.from_file} ${join(",", var.from_json)} ${join(",", var.listed)}"
      echo '${jsonencode(var.pem)} ${base64encode(var.password)} ${base64encode("user:${var.password}")}'
      echo "${urlencode(var.password)}" $REGION $POD_TOKEN
      printf '%s' "${var.pem}"
    EOT
  }
}
output "open" { value = "harmless" }
output "closed" {
  value     = sensitive(sha256(var.password))
  sensitive = true
}
"#;
    let hook = json!([
        {"name": "tells", "step": "post-apply", "script": "terraform output -raw closed; terraform output -json; echo $HOOK_TOKEN; terraform state pull",
         "env": [{"name": "HOOK_TOKEN", "valueFrom": {"secretKeyRef": {"name": "env", "key": "HOOK_TOKEN"}}}]},
        {"name": "apart", "step": "post-apply", "image": "knoll/box:1", "script": "echo $POD_TOKEN $HOOK_TOKEN hunter2-region",
         "env": [{"name": "HOOK_TOKEN", "valueFrom": {"secretKeyRef": {"name": "env", "key": "HOOK_TOKEN"}}}]},
    ]);
    let from = json!([{"secretRef": {"name": "vars"}}]);
    let extra = json!({"workspace": "s", "variablesFrom": from, "hooks": hook});
    place.run("tells", with_module(module, extra.clone())).await;
    place.succeeded("tells").await;
    // A failing plan says why, without secrets.
    let failing = format!(
        "{module}\nresource \"terraform_data\" \"f\" {{\n  lifecycle {{\n    precondition {{\n      condition = false\n      error_message = \"not ${{nonsensitive(var.password)}}\"\n    }}\n  }}\n}}\n"
    );
    place.run("fails", with_module(&failing, extra)).await;
    assert_eq!(place.ended("fails").await.phase, RunPhase::Failed);
    let output = json!({"workspace": "s", "operation": "command", "command": "output", "args": ["-json"]});
    place.run("output", output).await;
    place.succeeded("output").await;

    let all = everything(&world, &place).await;
    assert!(all.contains("harmless") && all.contains("(sensitive)"), "the test itself is wrong");
    let sha = state(&place, "s").await["outputs"]["closed"]["value"].as_str().unwrap().to_owned();
    let secrets =
        ["hunter2", "MIIlinetwo", "MIIlinethree", &sha, "aHVudGVyMi12YXJpYWJsZQ", "aHVudGVyMi12YXJpYWJsZ", " x7q "];
    for secret in secrets {
        // The Workspace of this test has the value in its spec, where a user wrote it.
        let all = all.replace("\"value\": \"hunter2-region\"", "").replace("\\\"value\\\":\\\"hunter2-region\\\"", "");
        let all = all.replace("echo $POD_TOKEN $HOOK_TOKEN hunter2-region", "");
        if let Some(at) = all.find(secret) {
            let around: String = all[at.saturating_sub(300)..].chars().take(600).collect();
            panic!("`{secret}` is in the cluster: {around}");
        }
    }
}

async fn state(place: &Place, workspace: &str) -> Value {
    let state = Storage::new(place.client.clone()).states().read(&place.namespace, workspace).await.unwrap();
    serde_json::from_slice(&state.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_told_and_changes_nothing() {
    let world = World::start().await;
    let place = world.place("bad").await;
    let good = "variable \"size\" { type = number }\nresource \"terraform_data\" \"a\" { input = var.size }\n";
    // An installation on a cluster fetches from no loopback address; `knoll up` does, and nobody answers there.
    let of_loopback = if world.is_given() {
        "cannot fetch `https://127.0.0.1:1/x.git`: `127.0.0.1` is a loopback address"
    } else {
        "cannot reach `https://127.0.0.1:1/x.git`: "
    };
    let rows: [(&str, Value, &str, &str); 7] = [
        ("type", with_module(good, json!({"variables": {"size": "many"}})), "StepFailed", "not suitable for var.size"),
        ("subcommand", json!({"operation": "command", "command": "nonsense"}), "StepFailed", "no command named"),
        ("source", json!({"source": {"configMap": {"name": "nowhere"}}}), "SourceFailed", "the ConfigMap `nowhere`"),
        (
            "bundle",
            json!({"source": {"bundle": {"digest": format!("sha256:{}", "0".repeat(64))}}}),
            "SourceFailed",
            "there is no bundle",
        ),
        ("nothing", json!({}), "SourceFailed", "has no source"),
        ("git", json!({"source": {"git": {"url": "https://127.0.0.1:1/x.git"}}}), "SourceFailed", of_loopback),
        (
            "key",
            with_module(good, json!({"variablesFrom": [{"secretRef": {"name": "gone"}}]})),
            "VariablesFailed",
            "the Secret `gone`",
        ),
    ];
    for (name, spec, why, says) in &rows {
        place.run(name, spec.clone()).await;
        let status = place.ended(name).await;
        let (found, message) = reason(&status);
        assert_eq!((status.phase, found.as_str()), (RunPhase::Failed, *why), "{name}: {message}");
        assert!(message.contains(says), "{name}: `{message}` does not say `{says}`");
    }
    // A bundle made by hand, with a file outside of it.
    let digest = evil(&place).await;
    place.run("outside", json!({"source": {"bundle": {"digest": digest}}})).await;
    let (why, message) = reason(&place.ended("outside").await);
    assert!(why == "StepFailed" && message.contains("`../evil.tf`"), "{why}: {message}");
    assert!(place.resources("w").await.is_empty(), "nothing was touched");

    // A missing Workspace: the run reports it, and continues once it exists.
    place.run("waits", with_module("", json!({"workspace": "later"}))).await;
    let waits =
        place.until("waits", "it says what it waits for", |status| reason(status).0 == "WorkspaceNotFound").await;
    assert!(reason(&waits).1.contains("Workspace `later` does not exist"));
    place.told("waits", "WorkspaceNotFound").await;
    place.workspace("later", json!({})).await;
    place.succeeded("waits").await;
}

/// Stores a bundle with the file `../evil.tf`, which the packer would reject.
async fn evil(place: &Place) -> String {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..10].copy_from_slice(b"../evil.tf");
    header.set_size(0);
    header.set_mode(0o644);
    header.set_cksum();
    archive.append(&header, &b""[..]).unwrap();
    let archive = archive.into_inner().unwrap();
    let digest = knoll_api::Digest::of(&archive);
    let bundle = knoll_bundle::Bundle { digest: digest.clone(), bytes: zstd::encode_all(&archive[..], 1).unwrap() };
    Storage::new(place.client.clone()).bundles().store(&place.namespace, &bundle).await.unwrap();
    digest.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_the_log_and_earlier_states_outlive_their_run() {
    let world = World::start().await;
    let place = world.place("kept").await;
    let module = |word: &str| {
        format!(
            "resource \"terraform_data\" \"a\" {{ input = \"{word}\" }}\noutput \"word\" {{ value = terraform_data.a.output }}\n"
        )
    };
    let mut map = ConfigMap { data: Some([("main.tf".to_owned(), module("one"))].into()), ..ConfigMap::default() };
    map.metadata.name = Some("tf".to_owned());
    place.api::<ConfigMap>().create(&PostParams::default(), &map).await.unwrap();
    place.run("one", json!({"source": {"configMap": {"name": "tf"}}})).await;
    let one = place.succeeded("one").await;
    let bundle = place.idle("w").await.bundle;
    assert!(bundle.is_some() && bundle == one.bundle, "{bundle:?} {:?}", one.bundle);

    // The log is available without the pod, and each step has its own range.
    place.api::<Pod>().delete("one", &DeleteParams::default()).await.unwrap();
    let logs = |words: &[&str]| {
        let output = world.call(&[&["logs", "-n", &place.namespace], words].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let whole = logs(&["one"]);
    assert!(whole.contains("Initializing") && whole.contains("Apply complete!"), "{whole}");
    assert_eq!(logs(&["one", "-f"]), whole);
    let plan = logs(&["one", "--step", "plan"]);
    assert!(plan.contains("1 to add") && !plan.contains("Initializing") && !plan.contains("Apply complete!"), "{plan}");
    let parts: String = ["init", "plan", "apply"].iter().map(|step| logs(&["one", "--step", step])).collect();
    assert_eq!(parts, whole);
    let wrong = world.call(&["logs", "-n", &place.namespace, "one", "--step", "command"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("its steps are setup, init, plan, apply"), "{wrong:?}");

    // A second version; then the first one is pushed again through the queue.
    place.apply("two", &module("two")).await;
    place.succeeded("two").await;
    let kept = Storage::new(place.client.clone()).states().history(&place.namespace, "w").await.unwrap();
    assert_eq!(kept.len(), 2);
    let mut back = Run::new("back", knoll_storage::states::rollback("w", kept[1].serial));
    place.api::<Run>().create(&PostParams::default(), &back).await.unwrap();
    let status = place.succeeded("back").await;
    assert_eq!(status.exit_code, Some(0));
    assert_eq!(place.idle("w").await.outputs["word"], json!("one"));
    let kept = Storage::new(place.client.clone()).states().history(&place.namespace, "w").await.unwrap();
    assert_eq!((kept.len(), kept[0].run.as_str(), kept[0].lineage == kept[1].lineage), (3, "back", true));

    // A state of another lineage needs `--force`.
    let foreign = json!({"version": 4, "serial": 1, "lineage": "another", "terraform_version": "1.5.0", "outputs": {"word": {"value": "foreign", "type": "string"}}, "resources": []});
    for (name, force, phase) in [("push", false, RunPhase::Failed), ("force", true, RunPhase::Succeeded)] {
        let foreign = foreign.to_string();
        back = Run::new(name, knoll_storage::states::push("w", foreign.as_bytes(), force));
        let run = place.api::<Run>().create(&PostParams::default(), &back).await.unwrap();
        Storage::new(place.client.clone()).uploads().put(&run, foreign.as_bytes()).await.unwrap();
        let status = place.ended(name).await;
        assert_eq!(status.phase, phase, "{name}: {:?}", reason(&status));
    }
    assert_eq!(place.idle("w").await.outputs["word"], json!("foreign"));

    // A run without a source uses the bundle that was applied last.
    place.api::<ConfigMap>().delete("tf", &DeleteParams::default()).await.unwrap();
    place.run("again", json!({})).await;
    place.succeeded("again").await;
    assert_eq!(place.idle("w").await.outputs["word"], json!("two"));
    place.run("destroy", json!({"operation": "destroy"})).await;
    place.succeeded("destroy").await;
    assert!(place.resources("w").await.is_empty());
}

/// 20 MB each with `cargo xtask test --thorough`.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_state_and_a_large_plan_work() {
    let world = World::start().await;
    let place = world.place("large").await;
    // Incompressible text keeps state and plan large. The state contains the text as an input and as an output, the
    // plan contains it once, with the module's files beside it.
    let size = often(3_000_000, 14_000_000);
    let noise = noise(size);
    let files = Files::from([
        ("main.tf".to_owned(), File::new("resource \"terraform_data\" \"a\" { input = file(\"noise.txt\") }\n")),
        ("noise.tf".to_owned(), File::new(format!("# {noise}\n"))),
        ("noise.txt".to_owned(), File::new(noise)),
    ]);
    let bundle = knoll_bundle::pack(&files).unwrap();
    Storage::new(place.client.clone()).bundles().store(&place.namespace, &bundle).await.unwrap();
    let source = json!({"source": {"bundle": {"digest": bundle.digest}}, "approval": "Manual"});
    place.run("r", source.clone()).await;
    let waits = |status: &RunStatus| status.phase == RunPhase::Review || status.phase.is_finished();
    let status = place.until("r", "it is reviewed", waits).await;
    assert_eq!(status.phase, RunPhase::Review, "{:?}", reason(&status));
    let plans = ListParams::default().labels("knoll.dev/content=plan");
    let plans = place.api::<Secret>().list(&plans).await.unwrap();
    let stored: usize = plans.iter().flat_map(|part| part.data.iter().flatten()).map(|(_, part)| part.0.len()).sum();
    assert!(stored > size * 10 / 7, "the plan has {stored} bytes");
    place.approve("r", status.review_digest.as_deref().unwrap()).await;
    place.succeeded("r").await;
    let pulled = Storage::new(place.client.clone()).states().read(&place.namespace, "w").await.unwrap().unwrap().len();
    assert!(pulled > size * 10 / 7, "the state has {pulled} bytes");
    let run = place.api::<Run>().get("r").await.unwrap();
    let log = Storage::new(place.client.clone()).logs().read(&run, LogRange::WHOLE).await.unwrap();
    assert!(log.len() > size, "the log has {} bytes", log.len());
    place.run("again", source).await;
    let plan = place.succeeded("again").await.plan.unwrap();
    assert!(!plan.changes, "{plan:?}");
}

/// Text of this size that does not compress well.
fn noise(bytes: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut seed = 88_172_645_463_325_252_u64;
    let letter = std::iter::repeat_with(|| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        char::from(LETTERS[usize::try_from(seed % 64).unwrap()])
    });
    letter.take(bytes).collect()
}
