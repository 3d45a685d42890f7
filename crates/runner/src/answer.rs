//! Runs a reading command, whose output is an answer and not a log.
//!
//! The pod's output and the stored log are public, so sensitive values are masked there. Where that changes the answer, or
//! terraform prints to standard error too, the hub stores both streams as they are in a Secret of the Run, and the client
//! prints those. Otherwise the log is the answer.

use k8s_openapi::ByteString;
use knoll_api::step::StepName;
use knoll_api::wire::{Answer, EndReason, path};
use reqwest::Method;

use crate::memory;
use crate::process::{self, Collected, Ended, Program};
use crate::steps::{Failure, Steps};

/// Runs `program`, prints its output with sensitive values masked, and stores the answer if it differs.
///
/// # Errors
/// If the program cannot be run, or its answer cannot be stored.
pub async fn run(steps: &Steps, program: &Program) -> Result<Ended, Failure> {
    let failed = |why: String| Failure::new(EndReason::StepFailed, why);
    let oom_kills = memory::oom_kills();
    let collected = process::collect(program, steps.execution(steps.limit(StepName::Command))).await;
    let Collected { mut ended, stdout, stderr, is_whole } =
        collected.map_err(|error| failed(format!("cannot run `{}`: {error}", program.file.display())))?;
    let message = steps.console.show(&stdout, &stderr).await;
    ended.message = message;
    steps.check_memory(StepName::Command, &ended, oom_kills)?;
    if !is_whole {
        let most = Answer::LARGEST >> 20;
        return Err(failed(format!("the output is larger than {most} MiB, so only a part of it is shown")));
    }
    if !stderr.is_empty() || steps.console.is_masked(&stdout) {
        let answer = Answer { stdout: ByteString(stdout), stderr: ByteString(stderr) };
        let body = serde_json::to_vec(&answer).map_err(|error| failed(error.to_string()))?;
        let sent = steps.hub.send("the answer", Method::PUT, path::ANSWER, body.into()).await;
        sent.map_err(|error| failed(error.sentence()))?;
    }
    Ok(ended)
}
