//! Runs the user's hooks between the steps.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

use knoll_api::hooks::HookFailure;
use knoll_api::step::StepName;
use knoll_api::wire::{EndReason, ErrorBody, JobHook, path};

use crate::gate;
use crate::hub::Hub;
use crate::process::{self, Program, Stops};
use crate::steps::{Failure, Steps};

/// How long a hook's container may take to reach its gate before the hub is asked about it.
const CONTAINER_GRACE: Duration = Duration::from_secs(1);

/// Runs the hooks of `step` in order. The first failure ends the step, unless the hook may fail: then the step's
/// message mentions it.
///
/// # Errors
/// If a hook fails whose `onFailure` is `Fail`.
pub async fn run(steps: &Steps, step: StepName) -> Result<Option<String>, Failure> {
    if let (StepName::PreApply, Some(approved)) = (step, &steps.job.plan_digest) {
        // The plan was made by another pod.
        steps.describe(step, approved, true).await?;
    }
    if step == StepName::PostApply {
        steps.learn_state().await?;
    }
    let mut failures = Vec::new();
    for hook in steps.job.hooks.iter().filter(|hook| hook.step == step) {
        match run_one(steps, hook).await {
            Ok(()) => {}
            Err(failure) if hook.on_failure == HookFailure::Continue && failure.reason != EndReason::Cancelled => {
                steps.console.line(&format!("knoll: hook `{}` failed; the run continues", hook.name)).await;
                let message = format!("hook `{}` failed, and the run continued: {}", hook.name, failure.message);
                failures.push(steps.console.redact(&message));
            }
            Err(failure) => {
                let message = format!("hook `{}` failed: {}", hook.name, failure.message);
                return Err(Failure { message, ..failure });
            }
        }
    }
    Ok((!failures.is_empty()).then(|| failures.join("\n")))
}

async fn run_one(steps: &Steps, hook: &JobHook) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(EndReason::StepFailed, error);
    let script = write_script(steps, hook).map_err(failed)?;
    let mut program =
        Program { file: script.clone(), args: Vec::new(), stops: Stops::Together, ..steps.program.clone() };
    if !hook.script.starts_with("#!") {
        program.file = "sh".into();
        program.args = vec!["-e".into(), script.into()];
    }
    let mut own = BTreeMap::from(
        [
            ("KNOLL_RUN", steps.job.run.as_str()),
            ("KNOLL_WORKSPACE", &steps.job.workspace),
            ("KNOLL_NAMESPACE", &steps.job.namespace),
            ("KNOLL_OPERATION", steps.job.operation.as_str()),
            ("KNOLL_STEP", hook.step.as_str()),
            ("KNOLL_HOOK", &hook.name),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    if steps.folders.plan_json().exists() {
        own.insert("KNOLL_PLAN_JSON".to_owned(), steps.folders.plan_json().display().to_string());
    }
    own.extend(hook.env.clone());
    let execution = steps.execution(hook.timeout_seconds.map(Duration::from_secs));
    let ended = if let Some(container) = &hook.container {
        gate::open(steps.folders.root(), &hook.name, &program, own, execution, will_not_come(&steps.hub, container))
            .await
    } else {
        program.env.extend(own.into_iter().map(|(name, value)| (name.into(), value.into())));
        process::run(&program, execution).await
    };
    let ended = ended.map_err(failed)?;
    if ended.timed_out {
        let message = format!("stopped after its timeout of {}s", hook.timeout_seconds.unwrap_or_default());
        return Err(Failure { code: ended.code, reason: EndReason::TimedOut, message });
    }
    steps.judge(hook.step, ended, &[0]).map(drop)
}

/// Asks the hub whether the hook's container failed to start. The container gets a moment first, so that a usual hook
/// needs no request.
async fn will_not_come(hub: &Hub, container: &str) -> String {
    tokio::time::sleep(CONTAINER_GRACE).await;
    loop {
        match hub.get("the hook's container", &format!("{}?name={container}", path::CONTAINER)).await {
            Ok(Some(answer)) => {
                let answer: ErrorBody = serde_json::from_slice(&answer).unwrap_or_default();
                return answer.error;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot ask the hub about the hook's container");
                std::future::pending().await
            }
        }
    }
}

fn write_script(steps: &Steps, hook: &JobHook) -> std::io::Result<PathBuf> {
    let path = steps.folders.hooks().join(&hook.name);
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(&path)?;
    file.write_all(hook.script.as_bytes())?;
    Ok(path)
}
