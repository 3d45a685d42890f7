//! A client attaches, types, and sees terraform's prompts.

use std::sync::Arc;

use knoll_api::run::Operation;
use knoll_api::step::{StepName, StepState};
use knoll_api::wire::{Job, env};
use knoll_runner::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::WHOLE;
use crate::hub::{Hub, job};

/// Set in the child process that is the runner of the other test.
const CHILD: &str = "KNOLL_TEST_RUNNER";

/// Not a test of its own: the runner needs a process with a terminal.
#[test]
fn runner_in_a_terminal() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let config = Config::from_env(|name| std::env::var(name).ok()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(knoll_runner::run(config));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attached_client_answers_what_terraform_asks() {
    let main = r#"
variable "name" {}
resource "terraform_data" "a" { input = "hello ${var.name}" }
output "a" { value = terraform_data.a.output }
"#;
    let asked = Job { attach_timeout_seconds: Some(60), ..job(Operation::Apply, &WHOLE) };
    let hub = Hub::start(asked, &[("main.tf", main)], None, None).await;
    let (pty, pts) = pty_process::open().unwrap();
    pty.resize(pty_process::Size::new(40, 132)).unwrap();
    let mut child = pty_process::Command::new(std::env::current_exe().unwrap())
        .args(["attach::runner_in_a_terminal", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env(env::HUB_URL, hub.url())
        .env(env::TOKEN_FILE, hub.home.path().join("token"))
        .env(env::WORK_DIR, hub.work_dir())
        .spawn(pts)
        .unwrap();
    let (mut screen, mut keyboard) = pty.into_split();
    let seen = Arc::new(std::sync::Mutex::new(String::new()));
    let reading = tokio::spawn({
        let seen = Arc::clone(&seen);
        async move {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = screen.read(&mut buffer).await {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        }
    });

    // Nothing is printed before the client has attached.
    hub.until("the runner waits", |hub| hub.last_report().steps.iter().any(|step| step.name == StepName::Setup)).await;
    assert_eq!(hub.step(StepName::Setup).state, StepState::Running);
    assert!(!seen.lock().unwrap().contains("Initializing"));
    keyboard.write_all(b"\r").await.unwrap();
    hub.until("the client is seen", |hub| hub.last_report().attached).await;
    hub.until("terraform asks", |hub| hub.log().contains("Enter a value:")).await;
    keyboard.write_all(b"world\r").await.unwrap();

    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), child.wait()).await.unwrap();
    assert!(ended.unwrap().success());
    reading.await.unwrap();
    assert_eq!(hub.last_state()["outputs"]["a"]["value"], "hello world");
    assert!(seen.lock().unwrap().contains("Apply complete!"));
    assert_eq!(hub.last_report().exit.unwrap().code, 0);
}
