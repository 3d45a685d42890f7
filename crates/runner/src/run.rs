//! Executes one job, from fetching it to its exit code.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use knoll_api::step::{StepName, StepState};
use knoll_api::wire::{EndReason, Exit, Job, JobError, Stage, StopTimes, env, path};
use tokio_util::task::AbortOnDropHandle;

use crate::console::Console;
use crate::hub::{Hub, HubError};
use crate::log::Log;
use crate::plugins::Plugins;
use crate::process::{Grace, Program, Stops};
use crate::progress::Reporter;
use crate::redact::Redactor;
use crate::setup::{self, Folders, Material};
use crate::stable_path;
use crate::state::{StateFile, StateUploader};
use crate::steps::{Failure, Steps};
use crate::stop::{Reason, Stop};
use crate::terminal::Terminal;
use crate::tool::ToolSource;
use crate::{cancel, declared, gate, judge, plan, sensitive, tool};

#[derive(Clone, Debug)]
pub struct Config {
    pub hub_url: String,
    /// The hub's certificate authority (PEM). Without it the hub needs plain HTTP or a publicly trusted certificate.
    pub hub_ca: Option<String>,
    /// The file of the service account token for the hub.
    pub token_file: PathBuf,
    pub work_dir: PathBuf,
    /// The plugin cache shared by all runs.
    pub plugin_cache: Option<PathBuf>,
    /// Where the cluster pulls no images: the one that the Workspace names, or an empty text.
    pub unused_image: Option<String>,
}

/// A required environment variable is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable `{0}` is not set; `knoll runner` only runs inside a Run's pod")]
pub struct ConfigError(&'static str);

impl Config {
    /// Reads the configuration from the environment, through `get`.
    ///
    /// # Errors
    /// If a variable is missing.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let required = |name: &'static str| get(name).filter(|value| !value.is_empty()).ok_or(ConfigError(name));
        Ok(Config {
            hub_url: required(env::HUB_URL)?,
            hub_ca: get(env::HUB_CA).filter(|value| !value.is_empty()),
            token_file: required(env::TOKEN_FILE)?.into(),
            work_dir: required(env::WORK_DIR)?.into(),
            plugin_cache: get(env::PLUGIN_CACHE).filter(|value| !value.is_empty()).map(PathBuf::from),
            unused_image: get(env::UNUSED_IMAGE),
        })
    }
}

/// The exit code of a runner that was stopped before it had a job: 128 + SIGTERM.
const TERMINATED: i32 = 143;

/// Runs the job of this pod. The exit code is terraform's own.
pub async fn run(config: Config) -> ExitCode {
    match try_run(&config).await {
        Ok(exit) => ExitCode::from(u8::try_from(exit.code).unwrap_or(1)),
        Err(error) => {
            // The kubelet copies the end of the log into the container's termination message.
            eprintln!("knoll: error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn try_run(config: &Config) -> Result<Exit, HubError> {
    let stop = Stop::default();
    let _signals = stop.on_signals();
    let hub = Hub::new(&config.hub_url, config.hub_ca.as_deref(), config.token_file.clone(), stop.clone())?;
    let job: Arc<Job> = tokio::select! {
        biased;
        job = job(&hub) => Arc::new(job?),
        // Nothing has started, so there is nothing to report.
        () = stop.requested() => return Ok(Exit { code: TERMINATED, ..Exit::default() }),
    };
    if job.cancel {
        stop.request_once(Reason::Cancelled);
    }
    let StopTimes { silence, interrupt, terminate, deliver, .. } = job.stop;
    let _cancel = AbortOnDropHandle::new(tokio::spawn(cancel::listen(hub.clone(), stop.clone(), job.stop)));
    let given_up = async {
        stop.silent().await;
        tokio::time::sleep(interrupt + terminate + deliver).await;
    };
    tokio::select! {
        exit = carry_out(config, job, &hub, &stop) => exit,
        () = given_up => Err(HubError::Silent(silence)),
    }
}

/// Carries the job out, and returns once the hub has its last state and report.
async fn carry_out(config: &Config, job: Arc<Job>, hub: &Hub, stop: &Stop) -> Result<Exit, HubError> {
    let masked = sensitive::of_job(&job);
    let job = match job.stage {
        Stage::Judge => Arc::new(judge::without_inputs(Arc::unwrap_or_clone(job))),
        Stage::Whole | Stage::Plan | Stage::Apply => job,
    };
    let log = Log::new(job.log_offset);
    let _log = AbortOnDropHandle::new(tokio::spawn(log.clone().deliver(hub.clone())));
    let redactor = Redactor::default();
    redactor.learn(masked.iter().map(String::as_str));
    let console = Console::new(log.clone(), redactor);
    let reporter = Arc::new(Reporter::start(job.earlier_steps.clone(), hub.clone(), stop.clone()));
    reporter.started(StepName::Setup, console.offset());
    let prepared = async {
        // The module is downloaded while the client connects.
        let (terminal, material) = tokio::join!(attach(&job, stop, &reporter), fetch(&job, hub));
        prepare(config, &job, material?, hub, &console, terminal, stop, &reporter)
    };
    let exit = match prepared.await {
        Ok(steps) => {
            if let Some(image) = config.unused_image.as_deref().filter(|image| !image.is_empty()) {
                let program = steps.program.file.display();
                console.line(&format!("knoll: this cluster uses no images: `{program}` runs, and not `{image}`")).await;
            }
            reporter.ended(StepName::Setup, StepState::Succeeded, None, None);
            let exit = steps.run().await;
            gate::close(&config.work_dir);
            exit
        }
        Err(failure) => {
            gate::close(&config.work_dir);
            let message = console.redact(&failure.message);
            console.line(&format!("knoll: error: {message}")).await;
            reporter.ended(StepName::Setup, StepState::Failed, None, Some(message.clone()));
            Exit { code: failure.code, reason: Some(failure.reason), message: Some(message) }
        }
    };
    let exit = Exit { message: exit.message.map(|message| console.redact(&message)), ..exit };
    log.flush().await;
    reporter.finish(exit.clone()).await?;
    Ok(exit)
}

/// Asks the hub for the job of this pod.
async fn job(hub: &Hub) -> Result<Job, HubError> {
    let what = "the job";
    let body = hub.get(what, path::JOB).await?.unwrap_or_default();
    Job::read(&body).map_err(|error| match error {
        JobError::Protocol(protocol) => HubError::Protocol(protocol),
        JobError::Json(source) => HubError::Answer { what, source },
    })
}

/// Waits for a client to attach, if the job asks for it, before anything is printed. After the timeout the run
/// continues without one.
async fn attach(job: &Job, stop: &Stop, reporter: &Reporter) -> Option<Terminal> {
    let limit = Duration::from_secs(job.attach_timeout_seconds?);
    let terminal = match Terminal::open() {
        Ok(terminal) => terminal?,
        Err(error) => {
            tracing::warn!(%error, "cannot use the terminal; continuing without it");
            return None;
        }
    };
    // The client attaches once the status shows that the runner has started.
    reporter.announce();
    tokio::select! {
        waited = tokio::time::timeout(limit, terminal.attached()) => waited.ok()?,
        () = stop.requested() => return None,
    }
    reporter.attached();
    Some(terminal)
}

/// Downloads everything that the hub stores for this run.
async fn fetch(job: &Job, hub: &Hub) -> Result<Material, Failure> {
    let get = async |approved: bool, what, path, reason| match approved {
        true => hub.get(what, path).await.map_err(|error| Failure::new(reason, error.sentence())),
        false => Ok(None),
    };
    let (bundle, state, plan) = tokio::try_join!(
        get(job.stage != Stage::Judge, "the module", path::BUNDLE, EndReason::SourceFailed),
        get(job.managed_state, "the state", path::STATE, EndReason::StepFailed),
        get(job.plan_digest.is_some(), "the plan", path::PLAN, EndReason::StepFailed),
    )?;
    Ok(Material { bundle, state, plan })
}

/// Prepares the working directory and assembles the steps.
#[allow(clippy::too_many_arguments, reason = "this is the only place that assembles a run")]
fn prepare(
    config: &Config,
    job: &Arc<Job>,
    material: Material,
    hub: &Hub,
    console: &Console,
    terminal: Option<Terminal>,
    stop: &Stop,
    reporter: &Arc<Reporter>,
) -> Result<Steps, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::new(EndReason::StepFailed, error);
    if let Some(approved) = &job.plan_digest
        && material.plan.as_ref().map(|plan| plan::digest(plan)).as_ref() != Some(approved)
    {
        let message = format!("the stored plan is not the approved one, `{approved}`; start a new run to plan again");
        return Err(Failure::new(EndReason::DigestMismatch, message));
    }
    if let Some(bundle) = &material.bundle {
        let digest = knoll_bundle::digest_of(bundle).map_err(|error| failed(&error))?;
        reporter.bundled(digest);
    }
    if let Some(state) = &material.state {
        console.learn(&sensitive::of_state(state));
    }
    let folders = Folders::new(&config.work_dir, job);
    match (job.stage, &material.plan) {
        (Stage::Judge, plan) => judge::prepare(job, plan.as_deref().unwrap_or_default(), &folders),
        _ => setup::prepare(job, &material, &folders),
    }
    .map_err(|error| failed(&error))?;
    console.learn(&declared::values(job, &folders.module()));
    reporter.undeclared(declared::undeclared(job, &folders.module()));
    let plugins = config.plugin_cache.as_deref().and_then(|shared| plugins_of(shared, &folders));
    let cache = plugins.as_deref().map(Plugins::path);
    let mut env = setup::environment(job, &folders, cache, terminal.is_some(), std::env::vars_os())
        .map_err(|error| failed(&error))?;
    // An image has its volumes at the same paths in every pod.
    if config.unused_image.is_some()
        && let Some(path) = stable_path::of(folders.root(), &folders.module())
    {
        env.insert("PWD".into(), path.into());
    }
    let search = env.get(std::ffi::OsStr::new("PATH")).cloned().unwrap_or_default();
    let source = if config.unused_image.is_some() { ToolSource::Machine } else { ToolSource::Image };
    let file = tool::find(job.tool, source, &search).map_err(|error| failed(&error))?;
    let uploader = match &material.state {
        _ if !job.managed_state => None,
        state => {
            let known = match state {
                None => None,
                Some(content) => Some(StateFile::parse(content.clone()).map_err(|error| failed(&error))?),
            };
            Some(StateUploader::start(&folders.state(), known, hub.clone()).map_err(|error| failed(&error))?)
        }
    };
    Ok(Steps {
        job: Arc::clone(job),
        source,
        program: Program { file, args: Vec::new(), env, folder: folders.module(), input: None, stops: Stops::Alone },
        folders,
        plugins,
        console: console.clone(),
        hub: hub.clone(),
        uploader,
        reporter: Arc::clone(reporter),
        terminal,
        stop: stop.clone(),
        grace: Grace { interrupt: job.stop.interrupt, terminate: job.stop.terminate },
    })
}

/// Opens the plugin cache of this run. Without one, terraform downloads its providers.
fn plugins_of(shared: &Path, folders: &Folders) -> Option<Arc<Plugins>> {
    let lock_file = std::fs::read_to_string(folders.lock_file()).unwrap_or_default();
    let opened = Plugins::open(shared).and_then(|plugins| plugins.lend(&lock_file).map(|()| plugins));
    opened.inspect_err(|error| tracing::warn!(%error, "cannot use the plugin cache")).ok().map(Arc::new)
}
