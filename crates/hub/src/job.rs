//! What a runner has to do, from its Run, its Workspace and what they refer to.

use std::collections::BTreeMap;

use knoll_api::hooks::Hook;
use knoll_api::run::{Run, RunSpec, RunStatus, StepName};
use knoll_api::wire::{Job, JobHook, PROTOCOL, Stage};
use knoll_api::workspace::{StateKind, Workspace};
use knoll_core::run::is_cancelled;
use knoll_core::steps;
use knoll_storage::{Lookup, Owner, States, Storage};
use kube::ResourceExt;

use crate::error::Error;

/// Makes the job of a run's current pod, which claims the state if it is the `writer`.
///
/// # Errors
/// When something that the run refers to is not there.
pub async fn of(
    storage: &Storage,
    states: &States,
    run: &Run,
    workspace: &Workspace,
    writer: Option<&str>,
    log_offset: u64,
) -> Result<Job, Error> {
    let namespace = run.namespace().unwrap_or_default();
    let mut lookup = Lookup::new(storage, &namespace);
    let owner = Owner::from(workspace);
    let writer = writer.filter(|_| workspace.spec.state == StateKind::Managed);
    // What does not depend on each other is asked for at the same time.
    let (resolved, lock_file) = tokio::join!(
        async {
            let resolved = lookup.resolve(run, workspace).await?;
            let stage = steps::stage(&run.spec, &status(run));
            let (hooks, mut masked) =
                hooks(&mut lookup, &run.spec, &steps::of_stage(&run.spec, &status(run), stage)).await?;
            if let Some(settings) = &workspace.spec.pod {
                masked.extend(lookup.secrets_of(settings).await?);
            }
            Ok::<_, Error>((resolved, stage, hooks, masked))
        },
        states.open(&namespace, &owner, writer),
    );
    let (resolved, stage, hooks, masked) = resolved?;
    let status = status(run);
    let RunSpec { operation, command, args, targets, replace, retry, attach, attach_timeout, .. } = run.spec.clone();
    let attach_timeout = attach_timeout.map_or(RunSpec::DEFAULT_ATTACH_TIMEOUT, |timeout| timeout.get());
    let limits = steps::timeouts(&run.spec, Some(workspace));
    let timeouts: BTreeMap<StepName, u64> = StepName::ALL
        .into_iter()
        .filter_map(|step| Some((step, limits.of_step(step)?.get().as_secs().max(1))))
        .collect();
    let backoff = retry.unwrap_or_default().backoff();
    Ok(Job {
        protocol: PROTOCOL,
        stage,
        namespace: namespace.clone(),
        run: run.name_any(),
        workspace: run.spec.workspace.clone(),
        operation,
        command,
        args,
        tool: workspace.spec.tool,
        version: workspace.spec.version.clone(),
        steps: steps::of_stage(&run.spec, &status, stage),
        variables: resolved.variables,
        variable_files: resolved.files,
        sensitive_files: resolved.sensitive_files.into_iter().collect(),
        masked,
        targets,
        replace,
        managed_state: workspace.spec.state == StateKind::Managed,
        lock_file: lock_file?,
        plan_digest: (stage == Stage::Apply).then(|| status.plan.as_ref()?.digest.clone()).flatten(),
        hooks,
        retry: steps::attempts(&run.spec),
        retry_backoff_millis: u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX),
        timeouts,
        // A client attaches once, to the first pod.
        attach_timeout_seconds: (attach && stage != Stage::Apply).then_some(attach_timeout.as_secs()),
        cancel: is_cancelled(run),
        earlier_steps: status.steps,
        log_offset,
    })
}

fn status(run: &Run) -> RunStatus {
    run.status.clone().unwrap_or_default()
}

/// The hooks of these steps, and what their environment has from Secrets.
async fn hooks(lookup: &mut Lookup<'_>, spec: &RunSpec, of: &[StepName]) -> Result<(Vec<JobHook>, Vec<String>), Error> {
    let (mut hooks, mut masked) = (Vec::new(), Vec::new());
    for hook in spec.hooks.iter().filter(|hook| of.contains(&hook.step.into())) {
        let Hook { name, step, script, config_map, timeout, on_failure, .. } = hook.clone();
        let what = format!("the hook `{name}`");
        let script = match (script, config_map) {
            (Some(script), _) => script,
            (None, Some(key)) => lookup.config_map_key(&key, &what).await?,
            (None, None) => {
                return Err(Error::Invalid(format!("{what} has no script; set `script` or `configMap`")));
            }
        };
        let mut env = BTreeMap::new();
        for variable in &hook.env {
            let (value, secret) = lookup.env(variable, &what).await?;
            masked.extend(secret.then(|| value.clone()));
            env.insert(variable.name.clone(), value);
        }
        hooks.push(JobHook {
            container: knoll_core::pod::hook_container(hook),
            name,
            step: step.into(),
            script,
            env,
            timeout_seconds: timeout.map(|timeout| timeout.get().as_secs().max(1)),
            on_failure,
        });
    }
    Ok((hooks, masked))
}
