//! Reading commands: their answer is terraform's own, whatever the log may show of it.

use std::collections::BTreeMap;

use knoll_api::run::Operation;
use knoll_api::step::StepName;
use knoll_api::wire::{Job, JobInput};
use serde_json::Value;

use super::WHOLE;
use super::hub::{Hub, job};

const MODULE: &str = r#"
resource "terraform_data" "web" { input = { port = 54321, kind = "string", token = "web-t0ken" } }
output "port" { value = 54321 }
output "url" { value = "https://web-t0ken.example:54321" }
output "closed" {
  value     = [54321, "web-t0ken", "string", "web"]
  sensitive = true
}
"#;

/// The state of [`MODULE`] after an apply.
async fn state() -> String {
    let hub = Hub::start(job(Operation::Apply, &WHOLE), &[("main.tf", MODULE)], None, None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    hub.last_state().to_string()
}

fn command(words: &str, args: &[&str]) -> Job {
    Job {
        command: Some(words.to_owned()),
        args: args.iter().map(ToString::to_string).collect(),
        answers: true,
        ..job(Operation::Command, &[StepName::Setup, StepName::Init, StepName::Command])
    }
}

fn answer(hub: &Hub) -> String {
    let answer = hub.told.lock().unwrap().answer.clone();
    answer.map(|answer| String::from_utf8(answer.stdout.0).unwrap()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_a_reading_command_is_true_and_its_log_shows_no_secret() {
    let state = state().await;
    for (words, args) in [("show", vec!["-json"]), ("output", vec!["-json"]), ("state pull", vec![])] {
        let hub = Hub::start(command(words, &args), &[("main.tf", MODULE)], Some(state.clone()), None).await;
        assert_eq!(hub.run().await.code, 0, "{words}: {}", hub.log());
        let answer = answer(&hub);
        let parsed: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{words}: {error}: {answer}"));
        assert!(parsed.to_string().contains("https://web-t0ken.example:54321"), "{words}: {answer}");
        assert!(!hub.log().contains("web-t0ken") && !hub.log().contains("54321"), "{words}: {}", hub.log());
        // The log stays JSON, and common words stay words.
        serde_json::from_str::<Value>(&hub.log()).unwrap_or_else(|error| panic!("{words}: {error}: {}", hub.log()));
        assert!(hub.log().contains("string"), "{words}: {}", hub.log());
    }
    let hub = Hub::start(command("state list", &[]), &[("main.tf", MODULE)], Some(state), None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    assert_eq!(answer(&hub), "terraform_data.web\n", "an address is not a secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_log_shows_is_stored_nowhere_else() {
    let main = "output \"x\" { value = 1 }\n";
    let hub = Hub::start(command("version", &[]), &[("main.tf", main)], None, None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    assert!(hub.told.lock().unwrap().answer.is_none(), "{}", hub.log());
    assert!(["Terraform v1.", "OpenTofu v1."].iter().any(|name| hub.log().starts_with(name)), "{}", hub.log());
}

/// The console said `(known after apply)` of every resource.
#[tokio::test(flavor = "multi_thread")]
async fn the_console_and_a_shell_see_the_state() {
    let state = state().await;
    let stdin = Some(k8s_openapi::ByteString(b"terraform_data.web.output.kind\n".to_vec()));
    let asked = Job { input: Some(JobInput { stdin, ..JobInput::default() }), ..command("console", &[]) };
    let hub = Hub::start(asked, &[("main.tf", MODULE)], Some(state.clone()), None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    assert_eq!(hub.log(), "\"string\"\n");

    let script = "echo terraform_data.web.output.kind | terraform console; terraform state list";
    let asked = Job { answers: false, ..command("sh", &["-c", script]) };
    let hub = Hub::start(asked, &[("main.tf", MODULE)], Some(state), None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    assert!(hub.log().starts_with("\"string\"\n") && hub.log().contains("terraform_data."), "{}", hub.log());
}

/// A state-only command failed when the module's providers could not be installed.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_only_command_needs_no_provider_and_no_init() {
    let state = state().await;
    // No such provider exists, and the module has a syntax error.
    let main = "terraform {\n  required_providers { x = { source = \"127.0.0.1:1/no/where\" } }\n}\nresource {";
    let rows = [
        ("state list", vec![], "terraform_data."),
        ("state show", vec!["terraform_data.web"], "resource \"terraform_data\""),
        ("show", vec![], "terraform_data"),
        ("output", vec!["-raw", "port"], "(sensitive)"),
        ("state mv", vec!["terraform_data.web", "terraform_data.moved"], "Successfully moved 1 object(s)."),
        ("state rm", vec!["terraform_data.web"], "Removed terraform_data."),
        ("force-unlock", vec!["-force", "x"], "not locked"),
    ];
    for (words, args, says) in rows {
        let asked = Job { answers: false, ..command(words, &args) };
        let hub = Hub::start(asked, &[("main.tf", main)], Some(state.clone()), None).await;
        let exit = hub.run().await;
        assert!(exit.code == 0 || words == "force-unlock", "{words}: {exit:?} {}", hub.log());
        assert!(hub.log().contains(says), "{words}: {}", hub.log());
        let steps: Vec<StepName> = hub.last_report().steps.iter().map(|step| step.name).collect();
        assert_eq!(steps, [StepName::Setup, StepName::Command], "{words}");
        match words {
            "state mv" => assert_eq!(hub.resources(), ["moved"]),
            "state rm" => assert!(hub.resources().is_empty() && !hub.serials().is_empty()),
            _ => assert!(hub.serials().is_empty(), "{words} changes nothing"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_has_a_heading_and_the_backend_of_the_runner_is_not_mentioned() {
    let main = "output \"x\" { value = 1 }\n";
    let asked = Job { args: vec!["-json".into()], ..job(Operation::Apply, &WHOLE) };
    let hub = Hub::start(asked, &[("main.tf", main)], None, None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    let log = hub.log();
    assert!(log.starts_with("knoll: step init\n"), "{log}");
    assert!(log.contains("Initializing the backend") && !log.contains("Successfully configured the backend"), "{log}");
    let (_, terraform) = log.split_once("knoll: step plan\n").unwrap();
    let mut lines: BTreeMap<bool, Vec<&str>> = BTreeMap::new();
    for line in terraform.lines() {
        lines.entry(serde_json::from_str::<Value>(line).is_ok()).or_default().push(line);
    }
    assert_eq!(lines[&false], ["knoll: step apply"], "{log}");
}

/// After a provider's binary had changed, every run failed because of a file that the user did not have.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_lock_file_is_named_and_an_upgrade_drops_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var("PATH").unwrap();
    // The checksums of the stored lock file match no provider.
    let wrapper = "#!/bin/sh\nPATH=${PATH#*:}\nif [ \"$1\" = init ] && [ -e .terraform.lock.hcl ]; then\n\
                   echo 'Error: the package does not match any of the checksums recorded in the dependency lock file' >&2\n\
                   exit 1\nfi\nexec terraform \"$@\"\n";
    std::fs::write(folder.path().join("terraform"), wrapper).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path().join("terraform"), mode).unwrap();
    let variable = knoll_api::wire::JobVariable {
        key: "PATH".to_owned(),
        value: Value::from(format!("{}:{path}", folder.path().display())),
        env: true,
        sensitive: false,
        expression: false,
    };
    let locked = |job: Job| Job { lock_file: Some("# old\n".into()), variables: vec![variable.clone()], ..job };
    let files = [("main.tf", MODULE)];
    let hub = Hub::start(locked(job(Operation::Plan, &WHOLE[..3])), &files, None, None).await;
    let message = hub.run().await.message.unwrap();
    for words in ["Secret `knoll-state-ws`", "key `lock`", "`knoll init -upgrade`", "`--ignore-lock-file`"] {
        assert!(message.contains(words), "{message}");
    }
    let init = |args: &[&str]| Job {
        answers: false,
        steps: vec![StepName::Setup, StepName::Command],
        ..command("init", args)
    };
    let hub = Hub::start(locked(init(&[])), &files, None, None).await;
    assert_eq!(hub.run().await.code, 1, "{}", hub.log());
    let hub = Hub::start(locked(init(&["-upgrade"])), &files, None, None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
}
