//! What a runner has to do: from its Run and from the frozen job, or from its Workspace if the run has one pod only.

use knoll_api::run::{Run, RunSpec, RunStatus};
use knoll_api::wire::{Job, PROTOCOL, Stage, StopTimes};
use knoll_api::workspace::{StateKind, Workspace};
use knoll_core::frozen::{JobInputs, changed_since_planned};
use knoll_core::run::must_stop;
use knoll_core::steps;
use knoll_storage::{FreezeError, Lookup, Owner, States, Storage};
use kube::ResourceExt;

use crate::error::Error;

/// Makes the job of a run's current pod, which claims the state if it is the `writer`.
///
/// # Errors
/// When something that the run refers to is not there, or is not what was frozen.
pub async fn of(
    storage: &Storage,
    states: &States,
    run: &Run,
    workspace: &Workspace,
    writer: Option<&str>,
    log_offset: u64,
    stop: StopTimes,
) -> Result<Job, Error> {
    let namespace = run.namespace().unwrap_or_default();
    let owner = Owner::from(workspace);
    let writer = writer.filter(|_| workspace.spec.state == StateKind::Managed);
    let status = run.status.clone().unwrap_or_default();
    let stage = steps::stage(&run.spec, &status);
    // What does not depend on each other is asked for at the same time.
    let (inputs, lock_file) =
        tokio::join!(inputs(storage, run, &status, workspace, stage), states.open(&namespace, &owner, writer));
    let JobInputs {
        tool,
        version,
        managed_state,
        variables,
        variable_files,
        sensitive_files,
        masked,
        mut hooks,
        timeouts,
    } = inputs?;
    let RunSpec { operation, command, args, targets, replace, retry, attach, attach_timeout, .. } = run.spec.clone();
    let attach_timeout = attach_timeout.map_or(RunSpec::DEFAULT_ATTACH_TIMEOUT, |timeout| timeout.get());
    let backoff = retry.unwrap_or_default().backoff();
    let steps = steps::of_stage(&run.spec, &status, stage);
    hooks.retain(|hook| steps.contains(&hook.step));
    Ok(Job {
        protocol: PROTOCOL,
        stage,
        namespace,
        run: run.name_any(),
        workspace: run.spec.workspace.clone(),
        operation,
        command,
        args,
        tool,
        version,
        steps,
        variables,
        variable_files,
        sensitive_files,
        masked,
        targets,
        replace,
        managed_state,
        lock_file: lock_file?,
        plan_digest: (stage == Stage::Apply).then(|| status.plan.as_ref()?.digest.clone()).flatten(),
        hooks,
        retry: steps::attempts(&run.spec),
        retry_backoff_millis: u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX),
        timeouts,
        stop,
        // A client attaches once, to the first pod.
        attach_timeout_seconds: (attach && stage != Stage::Apply).then_some(attach_timeout.as_secs()),
        cancel: must_stop(run),
        earlier_steps: status.steps,
        log_offset,
    })
}

/// The inputs of the frozen job, where there is one. A run of one pod that nobody reviews has none, and takes what is
/// there now.
async fn inputs(
    storage: &Storage,
    run: &Run,
    status: &RunStatus,
    workspace: &Workspace,
    stage: Stage,
) -> Result<JobInputs, Error> {
    match &status.job {
        Some(job) => Ok(storage.frozen_jobs().get(run, job).await?.inputs),
        None if stage == Stage::Whole => {
            let namespace = run.namespace().unwrap_or_default();
            Ok(Lookup::new(storage, &namespace).inputs(run, workspace).await?)
        }
        None => Err(Error::Changed(changed_since_planned("The status, which names no frozen job,"))),
    }
}

impl From<FreezeError> for Error {
    fn from(error: FreezeError) -> Self {
        match error {
            FreezeError::Api(error) => Error::Api(error),
            FreezeError::Store(error) => error.into(),
            FreezeError::Changed(_) => Error::Changed(error.to_string()),
            error => Error::Invalid(error.to_string()),
        }
    }
}
