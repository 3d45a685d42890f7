//! A client attaches, types, and sees terraform's prompts.

use std::sync::Arc;

use knoll_api::run::Operation;
use knoll_api::step::{StepName, StepState};
use knoll_api::wire::{EndReason, Job, env};
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

/// A runner in a terminal, as a client sees it.
struct Screen {
    child: tokio::process::Child,
    keyboard: pty_process::OwnedWritePty,
    seen: Arc<std::sync::Mutex<String>>,
    reading: tokio::task::JoinHandle<()>,
}

impl Screen {
    fn open(hub: &Hub) -> Self {
        let (pty, pts) = pty_process::open().unwrap();
        pty.resize(pty_process::Size::new(40, 132)).unwrap();
        let child = pty_process::Command::new(std::env::current_exe().unwrap())
            .args(["attach::runner_in_a_terminal", "--exact", "--nocapture"])
            .env(CHILD, "1")
            .env(env::HUB_URL, hub.url())
            .env(env::TOKEN_FILE, hub.home.path().join("token"))
            .env(env::WORK_DIR, hub.work_dir())
            .spawn(pts)
            .unwrap();
        let (mut screen, keyboard) = pty.into_split();
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
        Screen { child, keyboard, seen, reading }
    }

    async fn types(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).await.unwrap();
    }

    /// Waits for the end of the runner, and returns everything that it printed.
    async fn ends(mut self) -> String {
        let ended = tokio::time::timeout(std::time::Duration::from_secs(60), self.child.wait()).await.unwrap();
        assert!(ended.unwrap().success());
        self.reading.await.unwrap();
        self.seen.lock().unwrap().clone()
    }
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
    let mut screen = Screen::open(&hub);

    // Nothing is printed before the client has attached.
    hub.until("the runner waits", |hub| hub.last_report().steps.iter().any(|step| step.name == StepName::Setup)).await;
    assert_eq!(hub.step(StepName::Setup).state, StepState::Running);
    assert!(!screen.seen.lock().unwrap().contains("Initializing"));
    screen.types(b"\r").await;
    hub.until("the client is seen", |hub| hub.last_report().attached).await;
    hub.until("terraform asks", |hub| hub.log().contains("Enter a value:")).await;
    screen.types(b"world\r").await;

    let seen = screen.ends().await;
    assert_eq!(hub.last_state()["outputs"]["a"]["value"], "hello world");
    assert!(seen.contains("Apply complete!"));
    assert_eq!(hub.last_report().exit.unwrap().code, 0);
}

/// The steps of an apply with terraform's own prompt.
const ASKS: [StepName; 4] = [StepName::Setup, StepName::Init, StepName::Apply, StepName::Outputs];

/// An interactive apply had no counts, and "no" at its prompt was a failure with terraform's first line.
#[tokio::test(flavor = "multi_thread")]
async fn no_at_the_prompt_cancels_a_run_whose_plan_has_counts() {
    let asked = Job { attach_timeout_seconds: Some(60), ..job(Operation::Apply, &ASKS) };
    let hub = Hub::start(asked, &[("main.tf", "resource \"terraform_data\" \"a\" {}\n")], None, None).await;
    let mut screen = Screen::open(&hub);
    hub.until("the runner waits", |hub| !hub.last_report().steps.is_empty()).await;
    screen.types(b"\r").await;
    hub.until("terraform waits for an answer", |hub| hub.last_report().prompted_at.is_some()).await;
    let plan = hub.last_report().plan.unwrap();
    assert_eq!((plan.changes, plan.add, plan.change, plan.destroy), (true, 1, 0, 0));
    screen.types(b"no\r").await;
    let seen = screen.ends().await;
    assert!(seen.contains("Apply cancelled."), "{seen}");
    let exit = hub.last_report().exit.unwrap();
    assert_eq!((exit.code, exit.reason), (1, Some(EndReason::Cancelled)), "{exit:?}");
    assert!(exit.message.unwrap().contains("not approved at the prompt"));
    assert_eq!(hub.last_report().prompted_at, None);
    assert_eq!(hub.step(StepName::Apply).state, StepState::Cancelled);
    assert!(hub.serials().is_empty());
}

/// A prompt that nobody answered kept the lock of its Workspace forever.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_nobody_answers_ends_the_run() {
    let asked = Job { attach_timeout_seconds: Some(60), answer_timeout_seconds: 1, ..job(Operation::Apply, &ASKS) };
    let hub = Hub::start(asked, &[("main.tf", "resource \"terraform_data\" \"a\" {}\n")], None, None).await;
    let mut screen = Screen::open(&hub);
    hub.until("the runner waits", |hub| !hub.last_report().steps.is_empty()).await;
    screen.types(b"\r").await;
    screen.ends().await;
    let exit = hub.last_report().exit.unwrap();
    assert_eq!(exit.reason, Some(EndReason::TimedOut), "{exit:?}");
    assert!(exit.message.unwrap().contains("timeouts.answer"));
    assert!(hub.serials().is_empty());
}
