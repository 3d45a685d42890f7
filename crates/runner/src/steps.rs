//! Runs the steps of a job in order.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::Either;
use knoll_api::names;
use knoll_api::plan_mode::PlanMode;
use knoll_api::run::{Operation, PlanSummary};
use knoll_api::sensitive::of_description;
use knoll_api::step::{StepName, StepState};
use knoll_api::wire::{EndReason, Exit, Job, Stage, path, step_heading, stored};
use knoll_api::workspace::Tool;
use reqwest::Method;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::console::Console;
use crate::describe::{describe, render, show_state};
use crate::hub::Hub;
use crate::plan;
use crate::plugins::Plugins;
use crate::process::{self, Ended, Execution, Grace, Program, Stops};
use crate::progress::Reporter;
use crate::prompt::Shown;
use crate::setup::{self, Folders, STATE_FILE};
use crate::state::StateUploader;
use crate::stop::{Reason, Stop};
use crate::terminal::Terminal;
use crate::tool::ToolSource;
use crate::{answer, flags, hooks, memory, retry, sensitive, state_only, tool};

/// The exit code of a cancelled run: 128 + SIGINT.
const STOPPED: i32 = 130;
/// The exit code of `plan -detailed-exitcode` when there are changes.
const CHANGES: i32 = 2;
/// The exit code of a process that was killed: 128 + SIGKILL.
const KILLED: i32 = 137;
/// `GOGC` for a terraform that runs without providers: its heap may grow by 400 % between garbage collections.
const GOGC_WITHOUT_PROVIDERS: &str = "400";
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// Everything that the steps of a run use.
pub struct Steps {
    pub job: Arc<Job>,
    pub folders: Folders,
    /// Terraform or tofu with its environment and directory; each step adds its arguments.
    pub program: Program,
    pub source: ToolSource,
    pub plugins: Option<Arc<Plugins>>,
    pub console: Console,
    /// The destination of plans and lock files.
    pub hub: Hub,
    /// Uploads the state, unless the module has its own backend.
    pub uploader: Option<StateUploader>,
    pub reporter: Arc<Reporter>,
    /// The terminal of an attached client.
    pub terminal: Option<Terminal>,
    pub stop: Stop,
    pub grace: Grace,
}

/// Why a run failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code of the run.
    pub code: i32,
    /// The reason of the Ready condition.
    pub reason: EndReason,
    /// A sentence, or terraform's own message.
    pub message: String,
}

impl Failure {
    /// A failure that does not come from terraform's exit code.
    pub fn new(reason: EndReason, message: impl ToString) -> Self {
        Failure { code: 1, reason, message: message.to_string() }
    }
}

/// A plan that was made or fetched.
struct Planned {
    digest: String,
    changes: bool,
    /// The text that people review; none when nobody does.
    text: Option<Bytes>,
    /// The task that summarizes the plan while the next steps run.
    summary: Option<JoinHandle<()>>,
}

impl Steps {
    /// Runs every step after `setup`. In any case it waits until the hub has the final state.
    pub async fn run(&self) -> Exit {
        let mut planned = None;
        let mut uploads = Vec::new();
        let mut end = self.steps(&mut planned, &mut uploads).await;
        if let Some(summary) = planned.as_mut().and_then(|planned| planned.summary.take()) {
            tokio::select! {
                _ = summary => {}
                () = self.stop.requested() => {}
            }
        }
        for upload in uploads {
            let _ = upload.await;
        }
        if let (Ok(()), Some(planned)) = (&end, &planned)
            && self.is_reviewed()
        {
            end = self.store_plan(planned).await;
        }
        // A state that was not saved is worse than any other failure.
        match self.settle().await.and(end) {
            Ok(()) => self.success(planned.as_ref()),
            Err(Failure { code, reason, message }) => {
                Exit { code: if code == 0 { 1 } else { code }, reason: Some(reason), message: Some(message) }
            }
        }
    }

    /// The exit of a successful run: 2 for a plan with changes, if the user passed `-detailed-exitcode`.
    fn success(&self, planned: Option<&Planned>) -> Exit {
        let detailed = self.job.operation == Operation::Plan && flags::wants_detailed_exit_code(&self.job.args);
        if detailed && planned.is_some_and(|planned| planned.changes) {
            return Exit { code: CHANGES, reason: Some(EndReason::Succeeded), message: None };
        }
        Exit::default()
    }

    async fn steps(&self, planned: &mut Option<Planned>, uploads: &mut Vec<JoinHandle<()>>) -> Result<(), Failure> {
        let skipped = |step| step == StepName::Setup || (step == StepName::Init && self.is_state_only());
        for &step in self.job.steps.iter().filter(|step| !skipped(**step)) {
            self.step(step, planned, uploads).await?;
        }
        Ok(())
    }

    /// Whether another pod applies this pod's plan after a review.
    fn is_reviewed(&self) -> bool {
        let applies = matches!(self.job.operation, Operation::Apply | Operation::Destroy | Operation::Refresh);
        applies && !self.job.steps.contains(&StepName::Apply)
    }

    async fn step(
        &self,
        step: StepName,
        planned: &mut Option<Planned>,
        uploads: &mut Vec<JoinHandle<()>>,
    ) -> Result<(), Failure> {
        if let Some(failure) = self.stopped() {
            return Err(failure);
        }
        self.reporter.started(step, self.console.offset());
        // The log of a command without hooks is the output of the command.
        let is_conversation =
            self.terminal.is_some() || (self.job.operation == Operation::Command && self.job.hooks.is_empty());
        let applies = matches!(step, StepName::PreApply | StepName::Apply | StepName::PostApply);
        if applies && planned.as_ref().is_some_and(|planned| !planned.changes) {
            // Terraform refuses to apply a plan without changes.
            self.reporter.ended(step, StepState::Skipped, None, Some("The plan changes nothing.".to_owned()));
            return Ok(());
        }
        if !matches!(step, StepName::Setup | StepName::Review | StepName::Outputs) {
            // The other steps take no time; they go into the next report.
            self.reporter.announce();
        }
        if !is_conversation && step != StepName::Outputs {
            self.console.line(&step_heading(step)).await;
        }
        let mut note = None;
        let result = match step {
            StepName::Setup | StepName::Review => Ok(()),
            StepName::Init => self.init(uploads).await,
            StepName::Plan => self.plan().await.map(|made| *planned = Some(made)),
            StepName::Judge => self.describe_stored().await.map(|stored| *planned = Some(stored)),
            StepName::Apply => self.apply(planned.as_ref()).await,
            StepName::Command => self.command(uploads).await,
            StepName::Outputs => self.settle().await,
            StepName::PreInit
            | StepName::PostInit
            | StepName::PrePlan
            | StepName::PostPlan
            | StepName::PreApply
            | StepName::PostApply => hooks::run(self, step).await.map(|failures| note = failures),
        };
        match &result {
            Ok(()) => self.reporter.ended(step, StepState::Succeeded, Some(0), note),
            Err(failure) => {
                let cancelled = failure.reason == EndReason::Cancelled;
                let state = if cancelled { StepState::Cancelled } else { StepState::Failed };
                let message = self.console.redact(&failure.message);
                self.reporter.ended(step, state, Some(failure.code), Some(message));
            }
        }
        result
    }

    /// The program of the next terraform process.
    ///
    /// A Go program collects garbage each time its heap has doubled, which is a third of the time of a small run.
    /// Providers would inherit a higher `GOGC`, and their memory is the larger part. Without providers there is no lock
    /// file, and terraform alone stays small.
    fn terraform(&self) -> Program {
        let mut program = self.program.clone();
        if !self.folders.lock_file().exists() {
            program.env.entry("GOGC".into()).or_insert_with(|| GOGC_WITHOUT_PROVIDERS.into());
        }
        program
    }

    async fn init(&self, uploads: &mut Vec<JoinHandle<()>>) -> Result<(), Failure> {
        let input = if self.is_quiet(StepName::Init) { "-input=false".into() } else { self.input() };
        let mut args = vec!["init".into(), input];
        args.extend(flags::of_init(&self.job.args));
        match self.attempts(StepName::Init, &args, &[0]).await {
            Ok(_) => {}
            Err(failure) if tool::is_version_failure(&failure.message) => {
                let requested = self.job.version.as_deref().unwrap_or_default();
                let Err(mismatch) = tool::check(self.job.tool, self.source, requested, &self.program).await else {
                    return Err(failure);
                };
                // Terraform's own message names a generated file that the user does not know.
                self.console.line(&format!("knoll: error: {mismatch}")).await;
                return Err(Failure { message: mismatch.to_string(), ..failure });
            }
            Err(failure) => return Err(self.explain_lock_file(failure).await),
        }
        self.share_plugins().await;
        self.keep_lock_file(uploads);
        Ok(())
    }

    /// Says where the lock file is that terraform complains about, if the user's directory has none.
    async fn explain_lock_file(&self, failure: Failure) -> Failure {
        let words = failure.message.split_whitespace().collect::<Vec<_>>().join(" ");
        let stored = self.job.lock_file.as_ref().map(String::as_bytes);
        let is_stored = stored.is_some() && std::fs::read(self.folders.lock_file()).ok().as_deref() == stored;
        if !is_stored || !words.contains("dependency lock file") {
            return failure;
        }
        let hint = format!(
            "the dependency lock file is that of earlier runs, in the Secret `{}` (key `lock`); `knoll init -upgrade` \
             replaces it, and so does a command with `--ignore-lock-file`",
            names::state_secret(&self.job.workspace)
        );
        self.console.line(&format!("knoll: {hint}")).await;
        Failure { message: format!("{}\n{hint}", failure.message), ..failure }
    }

    /// Whether a step's output is printed only if it fails, so that `knoll output -json` prints only JSON.
    fn is_quiet(&self, step: StepName) -> bool {
        step == StepName::Init && self.job.operation == Operation::Command
    }

    /// Adds the providers that `init` downloaded to the shared cache.
    async fn share_plugins(&self) {
        let Some(plugins) = self.plugins.clone() else { return };
        let module = self.folders.module();
        match tokio::task::spawn_blocking(move || plugins.share(&module)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot share the downloaded providers with other runs"),
            Err(error) => tracing::warn!(%error, "cannot share the downloaded providers with other runs"),
        }
    }

    /// Uploads the lock file if it has changed.
    fn keep_lock_file(&self, uploads: &mut Vec<JoinHandle<()>>) {
        // Without providers there is no lock file. The pod that describes a stored plan has the plan's own.
        if self.job.stage != Stage::Judge
            && let Ok(lock_file) = std::fs::read(self.folders.lock_file())
            && Some(lock_file.as_slice()) != self.job.lock_file.as_ref().map(String::as_bytes)
        {
            let hub = self.hub.clone();
            uploads.push(tokio::spawn(async move {
                let sent = hub.send("the lock file", Method::PUT, path::LOCK, lock_file.into()).await;
                if let Err(error) = sent {
                    tracing::warn!(%error, "cannot store the lock file");
                }
            }));
        }
    }

    async fn plan(&self) -> Result<Planned, Failure> {
        let mut args: Vec<OsString> = vec!["plan".into(), self.input(), "-detailed-exitcode".into()];
        let mut out = OsString::from("-out=");
        out.push(self.folders.plan());
        args.push(out);
        args.extend(self.job.targets.iter().map(|target| OsString::from(format!("-target={target}"))));
        args.extend(self.job.replace.iter().map(|replace| OsString::from(format!("-replace={replace}"))));
        args.extend(flags::of_plan(&self.job.args));
        args.extend(self.mode().flags().map(OsString::from));
        let ended = self.attempts(StepName::Plan, &args, &[0, CHANGES]).await?;
        let bytes = self.read_plan()?;
        let digest = plan::digest(&bytes);
        let changes = ended.code == CHANGES;
        let mut planned = Planned { digest, changes, text: None, summary: None };
        if !changes && !self.job.steps.contains(&StepName::PostPlan) {
            let digest = Some(planned.digest.clone());
            self.reporter.planned(PlanSummary { digest, ..PlanSummary::default() });
        } else if self.is_decided_on() {
            let mut summary = self.describe(StepName::Plan, &planned.digest, changes).await?;
            if changes && self.job.judged {
                self.have_judged(&planned.digest).await?;
            } else if changes && self.is_reviewed() {
                self.have_kept(&planned.digest).await;
            }
            if changes && self.is_reviewed() {
                // The description has told the console which values to mask in the text.
                let text = self.render(StepName::Plan).await?;
                summary.text_digest = Some(plan::digest(&text));
                planned.text = Some(text);
            }
            self.reporter.planned(summary);
        } else if memory::is_limited() {
            // Running terraform and its providers twice at a time could exceed the memory limit during the apply.
            if let Ok(summary) = self.describe(StepName::Plan, &planned.digest, changes).await {
                self.reporter.planned(summary);
            }
        } else {
            let (reporter, console) = (Arc::clone(&self.reporter), self.console.clone());
            let summary = self.description(&planned.digest, changes);
            planned.summary = Some(tokio::spawn(async move {
                match summary.await {
                    Ok(summary) => reporter.planned(summary),
                    Err(error) => console.line(&format!("knoll: error: cannot describe the plan: {error}")).await,
                }
            }));
        }
        Ok(planned)
    }

    /// Describes the plan that another pod has stored, and has it judged.
    async fn describe_stored(&self) -> Result<Planned, Failure> {
        let digest = self.job.plan_digest.clone().unwrap_or_default();
        self.verified_plan(&digest)?;
        let mut summary = self.describe(StepName::Judge, &digest, true).await?;
        self.have_judged(&digest).await?;
        let text = self.render(StepName::Judge).await?;
        summary.text_digest = Some(plan::digest(&text));
        self.reporter.planned(summary);
        Ok(Planned { digest, changes: true, text: Some(text), summary: None })
    }

    /// Whether a person or a hook reviews the plan before it is applied.
    fn is_decided_on(&self) -> bool {
        let has = |step| self.job.steps.contains(&step);
        !has(StepName::Apply) || has(StepName::PostPlan) || has(StepName::PreApply)
    }

    /// Summarizes the plan with `terraform show -json`. A failure says why.
    pub(crate) async fn describe(&self, step: StepName, digest: &str, changes: bool) -> Result<PlanSummary, Failure> {
        self.shown(step, self.description(digest, changes)).await
    }

    /// The plan as `terraform show` prints it for people.
    async fn render(&self, step: StepName) -> Result<Bytes, Failure> {
        self.shown(step, render(self.terraform(), self.folders.clone(), self.console.clone())).await
    }

    /// Waits for a `terraform show` of the plan. A failure says why.
    async fn shown<T>(&self, step: StepName, show: impl Future<Output = std::io::Result<T>>) -> Result<T, Failure> {
        let limit = self.job.timeouts.get(&step).copied().map_or(Duration::MAX, Duration::from_secs);
        let failed = |reason, why: &str| Failure::new(reason, format!("cannot describe the plan: {why}"));
        let shown = tokio::select! {
            shown = show => shown.map_err(|error| failed(EndReason::StepFailed, &error.to_string())),
            () = tokio::time::sleep(limit) => {
                Err(failed(EndReason::TimedOut, &format!("`show` exceeded the timeout of {}s", limit.as_secs())))
            }
            () = self.stop.requested() => {
                return Err(self.stopped().unwrap_or_else(|| failed(EndReason::Cancelled, "it was cancelled")));
            }
        };
        if let Err(failure) = &shown {
            self.console.line(&format!("knoll: error: {}", failure.message)).await;
        }
        shown
    }

    fn description(&self, digest: &str, changes: bool) -> impl Future<Output = std::io::Result<PlanSummary>> + use<> {
        describe(self.terraform(), self.folders.clone(), self.console.clone(), digest.to_owned(), changes)
    }

    /// Learns the sensitive values that an apply has created, because a hook may print them.
    pub(crate) async fn learn_state(&self) -> Result<(), Failure> {
        if self.uploader.is_some() {
            let state = std::fs::read(self.folders.state()).unwrap_or_default();
            self.console.learn(&sensitive::of_state(&state));
            return Ok(());
        }
        let shown = show_state(self.terraform()).await;
        let shown = shown.map_err(|error| {
            Failure::new(EndReason::StepFailed, format!("cannot read the state, so no hook runs: {error}"))
        })?;
        self.console.learn(&of_description(&shown));
        Ok(())
    }

    /// Uploads the plan, so that another pod can apply exactly these bytes, and the text that people review.
    async fn store_plan(&self, planned: &Planned) -> Result<(), Failure> {
        if !planned.changes {
            return Ok(());
        }
        let bytes = self.verified_plan(&planned.digest)?;
        let failed = |error| Failure::new(EndReason::StepFailed, error);
        if self.job.stage != Stage::Judge {
            self.hub.send("the plan", Method::PUT, path::PLAN, bytes).await.map_err(failed)?;
        }
        // Another pod describes the plan, and its text is the one that counts.
        if let Some(text) = planned.text.clone().filter(|_| !self.job.isolated) {
            self.hub.send("the plan's text", Method::PUT, path::PLAN_TEXT, text).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn apply(&self, planned: Option<&Planned>) -> Result<(), Failure> {
        // Only the approved plan, or the plan of this pod, is applied.
        let digest = self.job.plan_digest.as_ref().or(planned.map(|planned| &planned.digest));
        let Some(digest) = digest else {
            return self.apply_what_terraform_asks().await;
        };
        self.verified_plan(digest)?;
        let mut args = vec!["apply".into(), self.input()];
        args.extend(flags::of_apply(&self.job.args));
        args.push(self.folders.plan().into_os_string());
        self.attempts(StepName::Apply, &args, &[0]).await?;
        Ok(())
    }

    /// Runs `terraform apply`, which plans, asks the attached client, and applies in one process. Without a client, the
    /// input of the run has the answer.
    async fn apply_what_terraform_asks(&self) -> Result<(), Failure> {
        let input = self.stdin();
        if self.terminal.is_none() && input.is_none() {
            let message = "no client attached in time to answer terraform, so nothing was changed; start a new run";
            return Err(Failure::new(EndReason::AttachTimedOut, message));
        }
        let words: &[&str] = match self.job.operation {
            Operation::Destroy => &["destroy"],
            Operation::Plan | Operation::Apply | Operation::Refresh | Operation::Command => &["apply"],
        };
        let mut program = self.terraform();
        let args = &mut program.args;
        args.extend(words.iter().map(OsString::from));
        args.push("-input=true".into());
        args.extend(self.job.targets.iter().map(|target| OsString::from(format!("-target={target}"))));
        args.extend(self.job.replace.iter().map(|replace| OsString::from(format!("-replace={replace}"))));
        args.extend(self.job.args.iter().map(OsString::from));
        // `destroy` has no other mode, and refuses the flags.
        if self.job.operation != Operation::Destroy {
            args.extend(self.mode().flags().map(OsString::from));
        }
        program.env.remove(OsStr::new("TF_INPUT"));
        program.input = input;
        let ended = self.process(StepName::Apply, &program).await?;
        match self.judge(StepName::Apply, ended, &[0]) {
            Ok(_) => Ok(()),
            Err(failure) if is_declined(&failure) => {
                let message = "The plan was not approved at the prompt, so nothing was changed.".to_owned();
                Err(Failure { reason: EndReason::Cancelled, message, ..failure })
            }
            Err(failure) => Err(failure),
        }
    }

    async fn command(&self, uploads: &mut Vec<JoinHandle<()>>) -> Result<(), Failure> {
        let command = self.job.command.as_deref().unwrap_or_default();
        let initialises = command == "init";
        let mut program = self.terraform();
        if command == "sh" {
            program.file = "sh".into();
            program.stops = Stops::Together;
        } else {
            if let Some(requested) = &self.job.version
                && (self.is_state_only() || !self.job.steps.contains(&StepName::Init))
            {
                tool::check(self.job.tool, self.source, requested, &self.program)
                    .await
                    .map_err(|error| Failure::new(EndReason::StepFailed, error))?;
            }
            program.args.extend(command.split_whitespace().map(OsString::from));
        }
        for arg in &self.job.args {
            program.args.push(match self.stored_state(arg).await? {
                Some(file) => file.into_os_string(),
                None => arg.into(),
            });
        }
        if self.is_state_only() {
            program.folder = self.folders.state_folder();
            // Without a backend, terraform reads the state file of its directory only in this workspace.
            program.env.insert("TF_WORKSPACE".into(), setup::DEFAULT_WORKSPACE.into());
        }
        if self.job.managed_state && matches!(command, "console" | "sh") {
            // `terraform console` reads this file, whatever its backend.
            match std::os::unix::fs::symlink(self.folders.state(), self.folders.module().join(STATE_FILE)) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(Failure::new(EndReason::StepFailed, format!("cannot link the state file: {error}")));
                }
                _ => {}
            }
        }
        program.input = self.stdin();
        let ended = match self.job.answers && self.terminal.is_none() {
            true => answer::run(self, &program).await?,
            false => self.process(StepName::Command, &program).await?,
        };
        let judged = self.judge(StepName::Command, ended, &[0]).map(drop);
        if initialises && judged.is_ok() {
            self.share_plugins().await;
            self.keep_lock_file(uploads);
        }
        judged
    }

    /// Whether the command needs the state and nothing else. The state of tofu may be encrypted as the module says.
    fn is_state_only(&self) -> bool {
        let command = self.job.command.as_deref().unwrap_or_default();
        self.job.managed_state
            && self.job.operation == Operation::Command
            && (self.job.tool == Tool::Terraform || !setup::names_encryption(&self.folders.module()))
            && state_only::suffices(command, &self.job.args, &std::fs::read(self.folders.state()).unwrap_or_default())
    }

    /// The file of a state that the hub stores, if `arg` names one.
    async fn stored_state(&self, arg: &str) -> Result<Option<PathBuf>, Failure> {
        let address = match arg.strip_prefix(stored::HISTORY) {
            Some(serial) => format!("{}?serial={serial}", path::HISTORY),
            None if arg.starts_with(stored::UPLOAD) => path::UPLOAD.to_owned(),
            None => return Ok(None),
        };
        let state = self.hub.get("the state to push", &address).await;
        let state = state.map_err(|error| Failure::new(EndReason::StepFailed, error.sentence()))?.unwrap_or_default();
        let file = self.folders.root().join("pushed.tfstate");
        self.console.learn(&sensitive::of_state(&state));
        setup::write(&file, &state).map_err(|error| Failure::new(EndReason::StepFailed, error))?;
        Ok(Some(file))
    }

    /// Runs terraform with `args` until it exits with one of the `good` codes, at most as often as the step may be
    /// tried.
    async fn attempts(&self, step: StepName, args: &[OsString], good: &[i32]) -> Result<Ended, Failure> {
        let mut program = self.terraform();
        program.args.extend_from_slice(args);
        // A failed apply may have changed infrastructure, so its plan is stale.
        let most = if step == StepName::Apply { 1 } else { self.job.retry.get(&step).copied().unwrap_or(1) };
        let mut pause = Duration::from_millis(self.job.retry_backoff_millis);
        for attempt in 1.. {
            let ended = self.process(step, &program).await?;
            match self.judge(step, ended, good) {
                Ok(ended) => return Ok(ended),
                Err(failure) if attempt >= most || !may_pass(&failure) => {
                    if attempt > 1 {
                        self.console
                            .line(&format!("knoll: {step} failed, attempt {attempt} of {most}; giving up"))
                            .await;
                    }
                    return Err(failure);
                }
                Err(failure) => {
                    self.console
                        .line(&format!("knoll: {step} failed, attempt {attempt} of {most}; trying again"))
                        .await;
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.stop.requested() => {}
                    }
                    if let Some(stopped) = self.stopped() {
                        return Err(stopped);
                    }
                    self.reporter.tried_again(step, Some(failure.code), self.console.redact(&failure.message));
                    pause = (pause * 2).min(LONGEST_BACKOFF);
                }
            }
        }
        Err(Failure::new(EndReason::StepFailed, format!("{step} has no attempts")))
    }

    /// Runs one process with the step's timeout.
    pub(crate) async fn process(&self, step: StepName, program: &Program) -> Result<Ended, Failure> {
        let limit = self.limit(step);
        let initialises = step == StepName::Init || self.job.command.as_deref() == Some("init");
        let hiding = (initialises && self.job.managed_state).then(|| self.console.hiding_backend());
        let console = hiding.as_ref().unwrap_or(&self.console);
        let held = self.is_quiet(step).then(|| console.hold());
        let (shown, seen) = watch::channel(Shown::default());
        let observed = self.terminal.is_some().then(|| console.observed(Arc::new(shown)));
        let console = observed.as_ref().unwrap_or(console);
        let execution = Execution { console, ..self.execution(limit) };
        let execution = match &held {
            // A prompt that is not shown cannot be answered.
            Some(console) => Execution { console, terminal: None, ..execution },
            None => execution,
        };
        let oom_kills = memory::oom_kills();
        let answered = self.answered(seen);
        let running = async {
            let running = std::pin::pin!(process::run(program, execution));
            match futures::future::select(running, std::pin::pin!(answered)).await {
                Either::Left((ended, _)) => ended,
                Either::Right((never, _)) => match never {},
            }
        };
        let ended = match &self.uploader {
            None => running.await,
            Some(uploader) => {
                let mut running = std::pin::pin!(running);
                tokio::select! {
                    ended = &mut running => ended,
                    refused = uploader.refused() => {
                        // The state of anything terraform does from now on would be lost.
                        self.stop.request_once(Reason::Fenced(refused.to_string()));
                        running.await
                    }
                }
            }
        };
        if let (Some(held), Ok(Ended { code: 1.., .. }) | Err(_)) = (&held, &ended) {
            if self.terminal.is_none() {
                self.console.line(&step_heading(step)).await;
            }
            self.console.release(held).await;
        }
        let ended = ended.map_err(|error| {
            Failure::new(EndReason::StepFailed, format!("cannot run `{}`: {error}", program.file.display()))
        })?;
        self.check_memory(step, &ended, oom_kills)?;
        Ok(ended)
    }

    /// Reports what terraform shows in a terminal, and stops the run if nobody answers a prompt in time.
    async fn answered(&self, mut seen: watch::Receiver<Shown>) -> Infallible {
        let limit = Duration::from_secs(self.job.answer_timeout_seconds);
        let mut planned = None;
        let mut waits = false;
        loop {
            let Shown { waiting, plan } = seen.borrow_and_update().clone();
            if plan != planned {
                planned.clone_from(&plan);
                plan.into_iter().for_each(|plan| self.reporter.planned(plan));
                self.reporter.announce();
            }
            if waits != (waiting > 0) {
                waits = waiting > 0;
                self.reporter.waits_for_answer(waits);
            }
            let late = async {
                match waits {
                    true => tokio::time::sleep(limit).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = seen.changed() => if changed.is_err() {
                    std::future::pending::<()>().await;
                },
                () = late => {
                    self.stop.request_once(Reason::Unanswered(limit));
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// The timeout of a step.
    pub(crate) fn limit(&self, step: StepName) -> Option<Duration> {
        self.job.timeouts.get(&step).copied().map(Duration::from_secs)
    }

    /// Finds out whether a process was killed for its use of memory. `before` is the count of such kills before it ran.
    pub(crate) fn check_memory(&self, step: StepName, ended: &Ended, before: Option<u64>) -> Result<(), Failure> {
        if ended.code == KILLED && memory::oom_kills() > before {
            let message = format!("{step} was OOM-killed; raise the memory limit in `pod.resources` of the Workspace");
            return Err(Failure { code: ended.code, reason: EndReason::OomKilled, message });
        }
        Ok(())
    }

    /// The `-input` flag: terraform may prompt only if a client is attached.
    /// What the plan is for. Its flags come last, because the user's arguments and variables of the environment such as
    /// `TF_CLI_ARGS_plan` could say something else.
    fn mode(&self) -> PlanMode {
        PlanMode::of(self.job.operation, &self.job.args)
    }

    fn input(&self) -> OsString {
        format!("-input={}", self.terminal.is_some()).into()
    }

    /// The file with what the client piped.
    fn stdin(&self) -> Option<PathBuf> {
        let is_piped = self.job.input.as_ref().is_some_and(|input| input.stdin.is_some());
        is_piped.then(|| self.folders.stdin())
    }

    /// The environment of the run's processes.
    pub(crate) fn execution(&self, limit: Option<Duration>) -> Execution<'_> {
        let (console, terminal, stop) = (&self.console, self.terminal.as_ref(), &self.stop);
        Execution { console, terminal, stop, grace: self.grace, limit }
    }

    /// Turns the result of a process into the result of a step.
    pub(crate) fn judge(&self, step: StepName, ended: Ended, good: &[i32]) -> Result<Ended, Failure> {
        let mut ended = ended;
        if self.job.command.as_deref() == Some("sh") {
            // What somebody typed, and what it printed, is no reason of a failure, and everybody can read the status.
            ended.message = format!("the shell ended with exit code {}", ended.code);
        }
        if ended.timed_out {
            let limit = self.job.timeouts.get(&step).copied().unwrap_or_default();
            let message = format!("{step} was stopped after its timeout of {limit}s\n{}", ended.message);
            return Err(Failure { code: ended.code, reason: EndReason::TimedOut, message });
        }
        // A process that succeeded although it was asked to stop has succeeded.
        if good.contains(&ended.code) {
            return Ok(ended);
        }
        if let Some(stopped) = self.stopped() {
            return Err(Failure { code: ended.code, ..stopped });
        }
        let message = match ended.code {
            code if code > 128 && ended.message.is_empty() => {
                format!("{step} was killed by signal {}", code - 128)
            }
            code if code > 128 => format!("{step} was killed by signal {}\n{}", code - 128, ended.message),
            code if ended.message.is_empty() => format!("{step} failed with exit code {code}"),
            _ => ended.message,
        };
        Err(Failure { code: ended.code, reason: EndReason::StepFailed, message })
    }

    fn stopped(&self) -> Option<Failure> {
        let (reason, message) = match self.stop.reason()? {
            Reason::Cancelled => (EndReason::Cancelled, "terraform was interrupted".to_owned()),
            Reason::Unanswered(time) => (
                EndReason::TimedOut,
                format!(
                    "Terraform's prompt was not answered within {}s (timeouts.answer), so it was stopped.",
                    time.as_secs()
                ),
            ),
            // The hub finds out whether the pod was deleted or evicted.
            Reason::Terminated => {
                (EndReason::PodDeleted, "The pod was terminated, and terraform was interrupted.".to_owned())
            }
            Reason::Fenced(why) => (EndReason::StateNotSaved, why),
            Reason::Silent(time) => (
                EndReason::HubLost,
                format!("The hub did not respond for {}s, so terraform was stopped.", time.as_secs()),
            ),
        };
        Some(Failure { code: STOPPED, reason, message })
    }

    /// Waits until the hub has the state that terraform left.
    async fn settle(&self) -> Result<(), Failure> {
        match &self.uploader {
            None => Ok(()),
            Some(uploader) => match uploader.settle().await {
                Ok(_) => Ok(()),
                Err(error) => Err(Failure::new(EndReason::StateNotSaved, error)),
            },
        }
    }

    fn read_plan(&self) -> Result<Bytes, Failure> {
        std::fs::read(self.folders.plan())
            .map(Bytes::from)
            .map_err(|error| Failure::new(EndReason::StepFailed, format!("cannot read the plan: {error}")))
    }

    fn verified_plan(&self, expected: &str) -> Result<Bytes, Failure> {
        let bytes = self.read_plan()?;
        let found = plan::digest(&bytes);
        if found == expected {
            return Ok(bytes);
        }
        let message =
            format!("the plan is `{found}`, not `{expected}`, so it is not applied; start a new run to plan again");
        Err(Failure::new(EndReason::DigestMismatch, message))
    }
}

/// Whether terraform ended because the user did not answer its prompt with "yes".
fn is_declined(failure: &Failure) -> bool {
    let last = failure.message.lines().last().unwrap_or_default();
    failure.reason == EndReason::StepFailed && matches!(last, "Apply cancelled." | "Destroy cancelled.")
}

/// Whether another attempt can succeed.
fn may_pass(failure: &Failure) -> bool {
    failure.reason == EndReason::StepFailed && retry::can_pass(&failure.message)
}
