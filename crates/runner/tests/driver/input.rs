//! What a client sends beside the bundle: variable files, values and standard input. None of it is in a log.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use knoll_api::hooks::HookFailure;
use knoll_api::run::Operation;
use knoll_api::step::StepName;
use knoll_api::wire::{EndReason, Job, JobHook, JobInput};

use super::WHOLE;
use super::hub::{Hub, job};

fn input(files: &[(&str, &str)]) -> Option<JobInput> {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), ByteString(text.as_bytes().to_vec()))).collect();
    Some(JobInput { files, ..JobInput::default() })
}

fn hook(step: StepName, script: &str) -> JobHook {
    JobHook {
        name: "tells".into(),
        step,
        script: script.into(),
        container: None,
        env: BTreeMap::new(),
        timeout_seconds: None,
        on_failure: HookFailure::Fail,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variable_files_have_the_precedence_that_they_have_at_home() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let declared: String =
        names.iter().map(|name| format!("variable \"{name}\" {{ default = \"default\" }}\n")).collect();
    let shown: Vec<String> = names.iter().map(|name| format!("${{var.{name}}}")).collect();
    let main = format!("{declared}output \"all\" {{ value = \"{}\" }}\n", shown.join(" "));
    // Each file sets the variables from its own on, so that the last one to set a variable shows.
    let set = |from: usize, value: &str| -> String {
        names[from..].iter().map(|name| format!("{name} = \"{value}\"\n")).collect()
    };
    let json: Vec<String> = names[1..].iter().map(|name| format!("\"{name}\": \"json\"")).collect();
    let json = format!("{{{}}}", json.join(", "));
    let asked = Job {
        args: ["-var-file=env/one.tfvars", "-var", "f=var", "-var=g=var", "-var-file=env/two.tfvars"]
            .map(Into::into)
            .into(),
        input: input(&[
            ("terraform.tfvars", &set(0, "tfvars")),
            ("terraform.tfvars.json", &json),
            ("b.auto.tfvars", &set(3, "b")),
            ("a.auto.tfvars", &set(2, "a")),
            ("env/one.tfvars", &set(4, "one")),
            ("env/two.tfvars", "g = \"two\"\n"),
            ("env/unread.auto.tfvars", &set(0, "unread")),
        ]),
        ..job(Operation::Apply, &WHOLE)
    };
    let hub = Hub::start(asked, &[("main.tf", &main)], None, None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    assert_eq!(hub.last_state()["outputs"]["all"]["value"], "tfvars json a b one var two");
}

/// Issue: a post-plan hook that prints `$KNOLL_PLAN_JSON` had the sensitive values of the plan in the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_prints_the_plan_or_the_variables_shows_no_sensitive_value() {
    let main = r#"
variable "open" {}
variable "closed" { sensitive = true }
variable "typed" {
  type      = map(string)
  sensitive = true
}
variable "by_flag" { sensitive = true }
resource "terraform_data" "a" { input = { open = var.open, closed = var.closed, made = sensitive(sha256("made")) } }
output "closed" {
  value     = "derived-${var.closed}-derived"
  sensitive = true
}
"#;
    let steps = [StepName::Setup, StepName::PreInit, StepName::Init, StepName::Plan, StepName::PostPlan];
    let script = "cat $KNOLL_PLAN_JSON terraform.tfvars x.auto.tfvars.json; terraform show -json ../plan";
    let asked = Job {
        args: vec!["-var=by_flag=hunter2-flag".into()],
        hooks: vec![hook(StepName::PreInit, "cat terraform.tfvars"), hook(StepName::PostPlan, script)],
        input: Some(JobInput {
            variables: [("by_flag".to_owned(), "hunter2-flag".to_owned())].into(),
            ..input(&[
                ("terraform.tfvars", "open = \"harmless\"\nclosed = \"hunter2-file\"\n"),
                ("x.auto.tfvars.json", "{\"typed\": {\"a\": \"hunter2-typed\"}}"),
            ])
            .unwrap()
        }),
        ..job(Operation::Plan, &steps)
    };
    let hub = Hub::start(asked, &[("main.tf", main)], None, None).await;
    let exit = hub.run().await;
    let log = hub.log();
    assert_eq!(exit.code, 0, "{log}");
    assert!(log.contains("harmless") && log.contains("resource_changes"), "the test itself is wrong: {log}");
    // The hash of `made` is known by the plan only.
    for secret in ["hunter2", "ea0890697a77af0a2e054cccec587c8a42feb5cf38e778c6c6e2a96bfb945c0b", "derived-"] {
        assert!(!log.contains(secret), "`{secret}`: {log}");
    }
}

/// The text of a plan that people review is in a ConfigMap, which every viewer may read.
#[tokio::test(flavor = "multi_thread")]
async fn the_text_of_a_reviewed_plan_shows_no_sensitive_value() {
    let main = "variable \"closed\" { sensitive = true }\nvariable \"masked\" {}\n\
                resource \"terraform_data\" \"a\" { input = [\"harmless\", nonsensitive(var.closed), var.masked] }\n\
                resource \"terraform_data\" \"keyed\" { for_each = toset([var.masked]) }\n";
    let files = [("terraform.tfvars", "closed = \"hunter2-file\"\nmasked = \"hunter2-masked\"\n")];
    let steps = [StepName::Setup, StepName::Init, StepName::Plan];
    let asked = Job { input: input(&files), masked: vec!["hunter2-masked".into()], ..job(Operation::Apply, &steps) };
    let hub = Hub::start(asked, &[("main.tf", main)], None, None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    let text = hub.told.lock().unwrap().plan_text.clone().unwrap();
    assert!(text.contains("harmless") && text.contains("(sensitive)"), "the test itself is wrong: {text}");
    assert!(!text.contains("hunter2"), "{text}");
    // Nor does the status: the key of an instance is part of its address.
    let plan = serde_json::to_string(&hub.last_report().plan).unwrap();
    assert!(plan.contains("terraform_data.keyed") && !plan.contains("hunter2"), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_prints_an_external_state_shows_no_sensitive_value() {
    let volume = tempfile::tempdir().unwrap();
    let state = volume.path().join("terraform.tfstate").display().to_string();
    let main = format!(
        "terraform {{\n  backend \"local\" {{\n    path = \"{state}\"\n  }}\n}}\n\
         resource \"terraform_data\" \"a\" {{ input = sensitive(sha256(timestamp())) }}\n\
         output \"made\" {{\n  value     = terraform_data.a.output\n  sensitive = true\n}}\noutput \"open\" {{ value = \"harmless\" }}\n"
    );
    let mut steps = WHOLE.to_vec();
    steps.insert(4, StepName::PostApply);
    let script = format!("terraform output -raw made > ../made; terraform output -json; cat {state}");
    let hooks = vec![hook(StepName::PostApply, &script)];
    let asked = Job { hooks, managed_state: false, ..job(Operation::Apply, &steps) };
    let hub = Hub::start(asked, &[("main.tf", &main)], None, None).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    let made = std::fs::read_to_string(hub.work_dir().join("made")).unwrap();
    let log = hub.log();
    assert!(
        made.len() == 64 && log.contains("harmless") && log.contains("(sensitive)"),
        "the test itself is wrong: {log}"
    );
    assert!(!log.contains(&made), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_quotes_a_variable_file_shows_no_value() {
    let main = "variable \"closed\" { sensitive = true }\n";
    let broken = "closed = \"hunter2-file\" \"and more\"\n";
    let asked = Job { input: input(&[("terraform.tfvars", broken)]), ..job(Operation::Plan, &WHOLE[..3]) };
    let hub = Hub::start(asked, &[("main.tf", main)], None, None).await;
    let exit = hub.run().await;
    assert_eq!(exit.code, 1);
    let told = format!("{} {exit:?} {:?}", hub.log(), hub.last_report());
    assert!(told.contains("terraform.tfvars line 1") && !told.contains("hunter2"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reads_the_input_that_was_piped() {
    let command = |command: &str, stdin: &str| Job {
        command: Some(command.to_owned()),
        input: Some(JobInput { stdin: Some(ByteString(stdin.as_bytes().to_vec())), ..JobInput::default() }),
        ..job(Operation::Command, &[StepName::Setup, StepName::Init, StepName::Command])
    };
    for (asked, expect) in [
        (command("console", "1 + 41\n"), "42"),
        (command("sh", "echo $((6 * 7)) and \"$(ls)\"\n"), "42 and knoll_override.tf.json\nmain.tf\n"),
    ] {
        let hub = Hub::start(asked, &[("main.tf", "")], None, None).await;
        assert_eq!(hub.run().await.code, 0, "{}", hub.log());
        assert!(hub.log().contains(expect), "{}", hub.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_file_stays_inside_of_the_modules_files() {
    for path in ["../evil.tfvars", "/evil.tfvars", "a/../../evil.tfvars", ".."] {
        let asked = Job { input: input(&[(path, "x = 1\n")]), ..job(Operation::Plan, &WHOLE[..3]) };
        let hub = Hub::start(asked, &[("main.tf", "")], None, None).await;
        let exit = hub.run().await;
        assert_eq!(exit.reason, Some(EndReason::StepFailed), "{path}");
        assert!(exit.message.unwrap().contains("outside of the module's files"), "{path}");
        assert!(!hub.work_dir().join("evil.tfvars").exists());
    }
}
