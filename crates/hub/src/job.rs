//! What a runner has to do: from its Run and from the frozen job, or from its Workspace if the run has one pod only.

use std::time::Duration;

use knoll_api::names;
use knoll_api::run::{Run, RunSpec, RunStatus, RunTool};
use knoll_api::step::Timeouts;
use knoll_api::wire::{Job, JobInput, JobRegistry, PROTOCOL, Stage, StopTimes};
use knoll_api::workspace::{StateKind, Workspace};
use knoll_core::frozen::{JobInputs, changed_since_planned};
use knoll_core::identity::Subject;
use knoll_core::policy::Supplied;
use knoll_core::run::{answer, arguments, must_stop};
use knoll_core::steps;
use knoll_storage::inputs;
use knoll_storage::{Error as StorageError, FreezeError, Input, Lookup, Owner, States, Storage};
use kube::ResourceExt;

use crate::error::Error;

/// How long a run waits for what its client sends right after it has created the Run: an input, or a state to push.
const CLIENT_PATIENCE: Duration = Duration::from_secs(60);

/// Makes the job of a run's current pod, which claims the state if it is the `writer`.
///
/// # Errors
/// When something that the run refers to is not there, or is not what was frozen.
pub async fn of(
    storage: &Storage,
    states: &States,
    run: &Subject<Run>,
    workspace: &Workspace,
    writer: Option<&str>,
    log_offset: u64,
    stop: StopTimes,
) -> Result<Job, Error> {
    let owner = Owner::of(workspace, run);
    let writer = writer.filter(|_| workspace.spec.state == StateKind::Managed);
    let status = run.status.clone().unwrap_or_default();
    let stage = steps::stage(&run.spec, &status);
    let is_judge = stage == Stage::Judge;
    // What does not depend on each other is asked for at the same time.
    let (inputs, input, lock_file) = tokio::join!(
        inputs(storage, run, &status, workspace, stage),
        input(storage, run, is_judge),
        states.open(run.namespace(), &owner, writer),
    );
    let JobInputs {
        tool,
        version,
        managed_state,
        terraform_workspace,
        mut variables,
        mut variable_files,
        sensitive_files,
        masked,
        mut hooks,
        timeouts,
        registry,
    } = inputs?;
    let RunSpec { operation, command, mut args, mut targets, mut replace, retry, attach, attach_timeout, .. } =
        run.spec.clone();
    if is_judge {
        // Their values have to stay out of what the pod prints, and nothing else is said of them.
        variables.retain(|variable| variable.sensitive);
        variable_files.retain(|name, _| sensitive_files.contains(name));
        (args, targets, replace) = Default::default();
    }
    let input = match input? {
        Some(input) => Some(of_input(input, command.as_deref().unwrap_or_default(), &mut args)?),
        None => None,
    };
    let attach_timeout = attach_timeout.map_or(RunSpec::DEFAULT_ATTACH_TIMEOUT, |timeout| timeout.get());
    let backoff = retry.unwrap_or_default().backoff();
    let steps = steps::of_stage(&run.spec, &status, stage);
    let answer_timeout = steps::timeouts_in_force(run, workspace).answer;
    let answer_timeout = answer_timeout.map_or(Timeouts::DEFAULT_ANSWER, |timeout| timeout.get());
    // A frozen job has the timeouts of its Workspace; a Policy may have shortened them.
    let timeouts = status.timeouts.as_ref().map_or(timeouts, steps::in_seconds);
    let answers = answer::answers(&run.spec);
    hooks.retain(|hook| steps.contains(&hook.step));
    let isolated = status.plan_verdict.as_ref().and_then(|verdict| verdict.isolated.as_ref());
    // A plan is applied with the providers that it was made with.
    let is_ignored = run.spec.ignore_lock_file && stage != Stage::Apply;
    Ok(Job {
        protocol: PROTOCOL,
        stage,
        namespace: run.namespace().to_owned(),
        run: run.name().to_owned(),
        workspace: run.spec.workspace.clone(),
        operation,
        command,
        args,
        answers,
        tool,
        version,
        steps,
        variables,
        variable_files,
        sensitive_files,
        input,
        // Users can write the Secrets that it comes from.
        registry: if is_judge { JobRegistry::default() } else { registry },
        masked,
        targets,
        replace,
        managed_state: managed_state && !is_judge,
        terraform_workspace,
        lock_file: lock_file?.filter(|_| !is_ignored && !is_judge),
        judged: is_judged_in(stage, &status),
        isolated: isolated.is_some() && stage == Stage::Plan,
        mirror: isolated.and_then(|isolated| isolated.mirror.clone()).filter(|_| is_judge),
        plan_digest: matches!(stage, Stage::Judge | Stage::Apply)
            .then(|| status.plan.as_ref()?.digest.clone())
            .flatten(),
        hooks,
        retry: steps::attempts(&run.spec),
        retry_backoff_millis: u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX),
        timeouts,
        stop,
        // A client attaches once, to the first pod.
        attach_timeout_seconds: (attach && matches!(stage, Stage::Whole | Stage::Plan))
            .then_some(attach_timeout.as_secs()),
        answer_timeout_seconds: answer_timeout.as_secs().max(1),
        cancel: must_stop(run),
        earlier_steps: status.steps,
        log_offset,
    })
}

/// Whether a pod of this stage hands in the JSON that the rules of Policies judge.
fn is_judged_in(stage: Stage, status: &RunStatus) -> bool {
    let Some(verdict) = &status.plan_verdict else { return false };
    match stage {
        Stage::Whole | Stage::Plan => verdict.isolated.is_none(),
        Stage::Judge => true,
        Stage::Apply => false,
    }
}

/// The inputs of the frozen job, where there is one. A run of one pod that nobody reviews has none, and takes what is
/// there now.
async fn inputs(
    storage: &Storage,
    run: &Subject<Run>,
    status: &RunStatus,
    workspace: &Workspace,
    stage: Stage,
) -> Result<JobInputs, Error> {
    match &status.job {
        Some(job) => Ok(storage.frozen_jobs().get(run, job).await?.inputs),
        // Policies supply nothing to it: such a run has a frozen job.
        None if stage == Stage::Whole => {
            let settings = workspace.spec.pod.clone().unwrap_or_default();
            let mut lookup = Lookup::new(storage, run.namespace());
            let mut inputs = lookup.inputs(run, workspace, &settings, &Supplied::default()).await?;
            // The pod has the image of the tool that the Workspace had when it was created.
            if let Some(RunTool { name, version }) = status.tool.clone() {
                (inputs.tool, inputs.version) = (name, version);
            }
            Ok(inputs)
        }
        None => Err(Error::Changed(changed_since_planned("The status, which names no frozen job,"))),
    }
}

/// The input that the Run names. Without it, the run does not start. The pod that describes a stored plan has none.
async fn input(storage: &Storage, run: &Subject<Run>, is_judge: bool) -> Result<Option<Input>, Error> {
    let Some(reference) = run.spec.input.as_ref().filter(|_| !is_judge) else { return Ok(None) };
    match storage.inputs().get(run.namespace(), run.name(), reference).await {
        Ok(Some(input)) => Ok(Some(input)),
        Ok(None) => {
            let missing = "the input of this run was not sent; start the command again".to_owned();
            Err(if is_late(run) { Error::Invalid(missing) } else { Error::NotYet(missing) })
        }
        Err(StorageError::Api(error)) => Err(Error::Api(error)),
        // The cause could have a value in it.
        Err(_) => Err(Error::Invalid(format!(
            "the Secret `{}` is not the input that this run was created with; start the command again",
            names::input_secret(run.name())
        ))),
    }
}

/// Whether a client that has not sent something for its Run will not do so any more.
pub fn is_late(run: &Run) -> bool {
    let created = run.creation_timestamp().map(|time| time.0);
    created.is_none_or(|created| created + CLIENT_PATIENCE <= jiff::Timestamp::now())
}

/// Puts the values of an input back into the arguments; the rest is for the runner.
fn of_input(input: Input, command: &str, args: &mut [String]) -> Result<JobInput, Error> {
    let refused = |error| Error::Invalid(format!("the input of this run cannot be used: {error}"));
    arguments::reveal(command, args, &input.values).map_err(refused)?;
    let variables = arguments::variables(command, args).into_iter();
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let Input { files, stdin, mut env, .. } = input;
    env.retain(|name, _| inputs::is_sent(name));
    Ok(JobInput { variables, files, stdin, env })
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
