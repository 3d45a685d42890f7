//! Runs the steps of a job, one after the other.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use knoll_api::names::reason;
use knoll_api::run::{Operation, PlanSummary};
use knoll_api::step::{StepName, StepState};
use knoll_api::wire::{Exit, Job, path, stored};
use reqwest::Method;
use tokio::task::JoinHandle;

use crate::console::Console;
use crate::describe::describe;
use crate::hub::Hub;
use crate::plan;
use crate::plugins::Plugins;
use crate::process::{self, Ended, Grace, Place, Program, Stops};
use crate::progress::Reporter;
use crate::setup::{self, Folders};
use crate::state::Keeper;
use crate::stop::{Reason, Stop};
use crate::terminal::Terminal;
use crate::{flags, hooks, memory, sensitive, tool};

/// The exit code of a run that was stopped, as a shell has it for SIGINT.
const STOPPED: i32 = 130;
/// The exit code of `plan -detailed-exitcode` when there are changes.
const CHANGES: i32 = 2;
/// The exit code of a process that was ended by SIGKILL, as a shell has it.
const KILLED: i32 = 137;
/// By how many percent terraform's memory may grow before it looks for garbage, where it is alone.
const LONG_LEASH: &str = "400";
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// All that the steps of a run work with.
pub struct Steps {
    /// What to do.
    pub job: Arc<Job>,
    /// Where things are.
    pub folders: Folders,
    /// Terraform or tofu, with its environment and folder; arguments are added.
    pub program: Program,
    /// Terraform's plugin cache, if there is one.
    pub plugins: Option<Arc<Plugins>>,
    /// Where output goes.
    pub console: Console,
    /// Where plans and lock files go.
    pub hub: Hub,
    /// Watches the state; absent when the module keeps it elsewhere.
    pub keeper: Option<Keeper>,
    /// Is told of each step.
    pub reporter: Arc<Reporter>,
    /// The terminal of a client that may type.
    pub terminal: Option<Terminal>,
    /// Says when to stop.
    pub stop: Stop,
    /// How fast terraform is stopped.
    pub grace: Grace,
}

/// Why a run does not go on.
#[derive(Debug)]
pub struct Failure {
    /// The exit code of what failed.
    pub code: i32,
    /// One word for a condition.
    pub reason: &'static str,
    /// A sentence or terraform's own message.
    pub message: String,
}

impl Failure {
    /// A failure that is not terraform's.
    pub fn new(reason: &'static str, message: impl ToString) -> Self {
        Failure { code: 1, reason, message: message.to_string() }
    }
}

/// A plan that was made or fetched.
struct Planned {
    digest: String,
    changes: bool,
    /// Makes the summary while the next steps go on.
    summary: Option<JoinHandle<()>>,
}

impl Steps {
    /// Runs every step after `setup`, and makes sure that the hub has the state that is left, whatever happened.
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
        // A state that is not saved is worse than anything that happened before.
        match self.settle().await.and(end) {
            Ok(()) => self.success(planned.as_ref()),
            Err(Failure { code, reason, message }) => {
                Exit { code: if code == 0 { 1 } else { code }, reason: Some(reason.to_owned()), message: Some(message) }
            }
        }
    }

    /// A plan with changes is told by its exit code, when the user wants that.
    fn success(&self, planned: Option<&Planned>) -> Exit {
        let detailed = self.job.operation == Operation::Plan && flags::wants_detailed_exit_code(&self.job.args);
        if detailed && planned.is_some_and(|planned| planned.changes) {
            return Exit { code: CHANGES, reason: Some(reason::SUCCEEDED.to_owned()), message: None };
        }
        Exit::default()
    }

    async fn steps(&self, planned: &mut Option<Planned>, uploads: &mut Vec<JoinHandle<()>>) -> Result<(), Failure> {
        for &step in self.job.steps.iter().filter(|step| **step != StepName::Setup) {
            self.step(step, planned, uploads).await?;
        }
        Ok(())
    }

    /// Whether another pod applies the plan of this one, when a person has agreed.
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
        let applies = matches!(step, StepName::PreApply | StepName::Apply | StepName::PostApply);
        if applies && planned.as_ref().is_some_and(|planned| !planned.changes) {
            // Terraform refuses to apply a plan without changes.
            self.reporter.ended(step, StepState::Skipped, None, Some("The plan changes nothing.".to_owned()));
            return Ok(());
        }
        if !matches!(step, StepName::Setup | StepName::Review | StepName::Outputs) {
            // The others take no time, and go with the next report.
            self.reporter.announce();
        }
        if step == StepName::PostApply
            && let Some(state) = self.keeper.as_ref().and_then(|_| std::fs::read(self.folders.state()).ok())
        {
            // A hook may print what the apply has just made.
            self.console.learn(&sensitive::of_state(&state));
        }
        let mut note = None;
        let result = match step {
            StepName::Setup | StepName::Review => Ok(()),
            StepName::Init => self.init(uploads).await,
            StepName::Plan => self.plan().await.map(|made| *planned = Some(made)),
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
                let cancelled = failure.reason == reason::CANCELLED;
                let state = if cancelled { StepState::Cancelled } else { StepState::Failed };
                let message = self.console.redact(&failure.message);
                self.reporter.ended(step, state, Some(failure.code), Some(message));
            }
        }
        result
    }

    /// Terraform as it starts next.
    ///
    /// A program of Go looks for garbage each time its memory has doubled, which is a third of all that a small run
    /// takes. Providers would inherit a longer leash, and theirs is the memory that counts; without any there is no
    /// lock file, and terraform alone stays small.
    fn terraform(&self) -> Program {
        let mut program = self.program.clone();
        if !self.folders.lock_file().exists() {
            program.env.entry("GOGC".into()).or_insert_with(|| LONG_LEASH.into());
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
                let wanted = self.job.version.as_deref().unwrap_or_default();
                let Err(mismatch) = tool::check(self.job.tool, wanted, &self.program).await else {
                    return Err(failure);
                };
                // Terraform's own words name a file that the user has never seen.
                self.console.line(&format!("knoll: {mismatch}")).await;
                return Err(Failure { message: mismatch.to_string(), ..failure });
            }
            Err(failure) => return Err(failure),
        }
        self.share_plugins().await;
        self.keep_lock_file(uploads);
        Ok(())
    }

    /// Whether a step's output is only worth reading when it fails: whoever asks for `output -json` wants just that.
    fn is_quiet(&self, step: StepName) -> bool {
        step == StepName::Init && self.job.operation == Operation::Command
    }

    /// Lets other runs have the providers that this one has downloaded.
    async fn share_plugins(&self) {
        let Some(plugins) = self.plugins.clone() else { return };
        let module = self.folders.module();
        match tokio::task::spawn_blocking(move || plugins.share(&module)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "other runs will download these providers again"),
            Err(error) => tracing::warn!(%error, "other runs will download these providers again"),
        }
    }

    /// Hands a lock file that has changed to the hub.
    fn keep_lock_file(&self, uploads: &mut Vec<JoinHandle<()>>) {
        // Without providers there is no lock file.
        if let Ok(lock_file) = std::fs::read(self.folders.lock_file())
            && Some(lock_file.as_slice()) != self.job.lock_file.as_ref().map(String::as_bytes)
        {
            let hub = self.hub.clone();
            uploads.push(tokio::spawn(async move {
                let sent = hub.send("the lock file", Method::PUT, path::LOCK, lock_file.into()).await;
                if let Err(error) = sent {
                    tracing::warn!(%error, "the lock file is not kept");
                }
            }));
        }
    }

    async fn plan(&self) -> Result<Planned, Failure> {
        let mut args: Vec<OsString> = vec!["plan".into(), self.input(), "-detailed-exitcode".into()];
        let mut out = OsString::from("-out=");
        out.push(self.folders.plan());
        args.push(out);
        match self.job.operation {
            Operation::Destroy => args.push("-destroy".into()),
            Operation::Refresh => args.push("-refresh-only".into()),
            Operation::Plan | Operation::Apply | Operation::Command => {}
        }
        args.extend(self.job.targets.iter().map(|target| OsString::from(format!("-target={target}"))));
        args.extend(self.job.replace.iter().map(|replace| OsString::from(format!("-replace={replace}"))));
        args.extend(flags::of_plan(&self.job.args));
        let ended = self.attempts(StepName::Plan, &args, &[0, CHANGES]).await?;
        let bytes = self.read_plan()?;
        let digest = plan::digest(&bytes);
        let changes = ended.code == CHANGES;
        let mut planned = Planned { digest, changes, summary: None };
        if !changes && !self.job.steps.contains(&StepName::PostPlan) {
            let digest = Some(planned.digest.clone());
            self.reporter.planned(PlanSummary { digest, ..PlanSummary::default() });
        } else if self.is_decided_on() {
            self.reporter.planned(self.describe(StepName::Plan, &planned.digest, changes).await?);
        } else if memory::is_limited() {
            // Terraform and its providers running twice might be what ends the apply.
            if let Ok(summary) = self.describe(StepName::Plan, &planned.digest, changes).await {
                self.reporter.planned(summary);
            }
        } else {
            let (reporter, console) = (Arc::clone(&self.reporter), self.console.clone());
            let summary = self.description(&planned.digest, changes);
            planned.summary = Some(tokio::spawn(async move {
                match summary.await {
                    Ok(summary) => reporter.planned(summary),
                    Err(error) => console.line(&format!("knoll: the plan cannot be described: {error}")).await,
                }
            }));
        }
        Ok(planned)
    }

    /// Whether anybody looks at the plan before it is applied.
    fn is_decided_on(&self) -> bool {
        let has = |step| self.job.steps.contains(&step);
        !has(StepName::Apply) || has(StepName::PostPlan) || has(StepName::PreApply)
    }

    /// Describes the plan, and says why when it cannot.
    pub(crate) async fn describe(&self, step: StepName, digest: &str, changes: bool) -> Result<PlanSummary, Failure> {
        let limit = self.job.timeouts.get(&step).copied().map_or(Duration::MAX, Duration::from_secs);
        let failed = |reason, why: &str| Failure::new(reason, format!("the plan cannot be described: {why}"));
        let described = tokio::select! {
            described = self.description(digest, changes) => {
                described.map_err(|error| failed(reason::STEP_FAILED, &error.to_string()))
            }
            () = tokio::time::sleep(limit) => {
                Err(failed(reason::TIMED_OUT, &format!("that takes more than its limit of {}s", limit.as_secs())))
            }
            () = self.stop.requested() => {
                return Err(self.stopped().unwrap_or_else(|| failed(reason::CANCELLED, "it was stopped")));
            }
        };
        if let Err(failure) = &described {
            self.console.line(&format!("knoll: {}", failure.message)).await;
        }
        described
    }

    fn description(&self, digest: &str, changes: bool) -> impl Future<Output = std::io::Result<PlanSummary>> + use<> {
        describe(self.terraform(), self.folders.clone(), self.console.clone(), digest.to_owned(), changes)
    }

    /// Hands the plan to the hub, so that exactly these bytes can be applied by another pod.
    async fn store_plan(&self, planned: &Planned) -> Result<(), Failure> {
        if !planned.changes {
            return Ok(());
        }
        let bytes = self.verified_plan(&planned.digest)?;
        let sent = self.hub.send("the plan", Method::PUT, path::PLAN, bytes).await;
        sent.map(drop).map_err(|error| Failure::new(reason::STEP_FAILED, error))
    }

    async fn apply(&self, planned: Option<&Planned>) -> Result<(), Failure> {
        // What was approved, or what this pod planned: nothing else is applied.
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

    /// Plans, asks the client that is attached, and applies, all in one process: terraform's own way.
    async fn apply_what_terraform_asks(&self) -> Result<(), Failure> {
        if self.terminal.is_none() {
            let message = "nobody attached in time to answer terraform, so nothing was changed; run it again";
            return Err(Failure::new(reason::ATTACH_TIMED_OUT, message));
        }
        let words: &[&str] = match self.job.operation {
            Operation::Destroy => &["destroy"],
            Operation::Refresh => &["apply", "-refresh-only"],
            Operation::Plan | Operation::Apply | Operation::Command => &["apply"],
        };
        let mut args: Vec<OsString> = words.iter().map(OsString::from).collect();
        args.push(self.input());
        args.extend(self.job.targets.iter().map(|target| OsString::from(format!("-target={target}"))));
        args.extend(self.job.replace.iter().map(|replace| OsString::from(format!("-replace={replace}"))));
        args.extend(self.job.args.iter().map(OsString::from));
        self.attempts(StepName::Apply, &args, &[0]).await.map(drop)
    }

    async fn command(&self, uploads: &mut Vec<JoinHandle<()>>) -> Result<(), Failure> {
        let command = self.job.command.as_deref().unwrap_or_default();
        let initialises = command == "init";
        let mut program = self.terraform();
        if command == "sh" {
            program.file = "sh".into();
            program.stops = Stops::Together;
        } else {
            if let Some(wanted) = &self.job.version
                && !self.job.steps.contains(&StepName::Init)
            {
                tool::check(self.job.tool, wanted, &self.program)
                    .await
                    .map_err(|error| Failure::new(reason::STEP_FAILED, error))?;
            }
            program.args.extend(command.split_whitespace().map(OsString::from));
        }
        for arg in &self.job.args {
            program.args.push(match self.stored_state(arg).await? {
                Some(file) => file.into_os_string(),
                None => arg.into(),
            });
        }
        program.input = Some(self.folders.bundle().join(knoll_bundle::INPUT_FILE)).filter(|file| file.is_file());
        let ended = self.process(StepName::Command, &program).await?;
        let judged = self.judge(StepName::Command, ended, &[0]).map(drop);
        if initialises && judged.is_ok() {
            self.share_plugins().await;
            self.keep_lock_file(uploads);
        }
        judged
    }

    /// The file of a state that the hub has, if that is what `arg` names.
    async fn stored_state(&self, arg: &str) -> Result<Option<PathBuf>, Failure> {
        let address = match arg.strip_prefix(stored::HISTORY) {
            Some(serial) => format!("{}?serial={serial}", path::HISTORY),
            None if arg == stored::UPLOAD => path::UPLOAD.to_owned(),
            None => return Ok(None),
        };
        let state = self.hub.get("the state to push", &address).await;
        let state = state.map_err(|error| Failure::new(reason::STEP_FAILED, error.sentence()))?.unwrap_or_default();
        let file = self.folders.root().join("pushed.tfstate");
        self.console.learn(&sensitive::of_state(&state));
        setup::write(&file, &state).map_err(|error| Failure::new(reason::STEP_FAILED, error))?;
        Ok(Some(file))
    }

    /// Runs terraform with `args`, as often as the step may be tried, until it ends with one of the `good` codes.
    async fn attempts(&self, step: StepName, args: &[OsString], good: &[i32]) -> Result<Ended, Failure> {
        let mut program = self.terraform();
        program.args.extend_from_slice(args);
        // An apply that failed may have done half of its work: its plan is stale.
        let most = if step == StepName::Apply { 1 } else { self.job.retry.get(&step).copied().unwrap_or(1) };
        let mut pause = Duration::from_millis(self.job.retry_backoff_millis);
        for attempt in 1.. {
            let ended = self.process(step, &program).await?;
            match self.judge(step, ended, good) {
                Ok(ended) => return Ok(ended),
                Err(failure) if attempt >= most || !may_pass(&failure) => return Err(failure),
                Err(failure) => {
                    self.console.line(&format!("knoll: {step} failed, attempt {attempt} of {most}")).await;
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
        Err(Failure::new(reason::STEP_FAILED, format!("{step} was never tried")))
    }

    /// Runs one process to its end, with the step's limit.
    pub(crate) async fn process(&self, step: StepName, program: &Program) -> Result<Ended, Failure> {
        let limit = self.job.timeouts.get(&step).copied().map(Duration::from_secs);
        let held = self.is_quiet(step).then(|| self.console.hold());
        let place = self.place(limit);
        let place = match &held {
            // Nobody can answer what is not shown.
            Some(console) => Place { console, terminal: None, ..place },
            None => place,
        };
        let oom_kills = memory::oom_kills();
        let running = process::run(program, place);
        let ended = match &self.keeper {
            None => running.await,
            Some(keeper) => {
                let mut running = std::pin::pin!(running);
                tokio::select! {
                    ended = &mut running => ended,
                    refused = keeper.refused() => {
                        // Nothing that terraform does from here on could be remembered.
                        self.stop.request_once(Reason::Fenced(refused.to_string()));
                        running.await
                    }
                }
            }
        };
        if let (Some(held), Ok(Ended { code: 1.., .. }) | Err(_)) = (&held, &ended) {
            self.console.release(held).await;
        }
        let ended = ended.map_err(|error| {
            Failure::new(reason::STEP_FAILED, format!("cannot run `{}`: {error}", program.file.display()))
        })?;
        if ended.code == KILLED && memory::oom_kills() > oom_kills {
            let message = format!(
                "{step} was killed because it used more memory than its limit; raise `pod.resources` of the Workspace"
            );
            return Err(Failure { code: ended.code, reason: reason::OOM_KILLED, message });
        }
        Ok(ended)
    }

    /// Whether terraform may ask: only where somebody can answer.
    fn input(&self) -> OsString {
        format!("-input={}", self.terminal.is_some()).into()
    }

    /// Where the processes of this run run.
    pub(crate) fn place(&self, limit: Option<Duration>) -> Place<'_> {
        let (console, terminal, stop) = (&self.console, self.terminal.as_ref(), &self.stop);
        Place { console, terminal, stop, grace: self.grace, limit }
    }

    /// What the end of a process means for the run.
    pub(crate) fn judge(&self, step: StepName, ended: Ended, good: &[i32]) -> Result<Ended, Failure> {
        if ended.timed_out {
            let limit = self.job.timeouts.get(&step).copied().unwrap_or_default();
            let message = format!("{step} was stopped after its limit of {limit}s\n{}", ended.message);
            return Err(Failure { code: ended.code, reason: reason::TIMED_OUT, message });
        }
        // What succeeded in spite of being asked to stop has succeeded.
        if good.contains(&ended.code) {
            return Ok(ended);
        }
        if let Some(stopped) = self.stopped() {
            return Err(Failure { code: ended.code, ..stopped });
        }
        let message = match ended.code {
            code if code > 128 && ended.message.is_empty() => {
                format!("{step} was ended by signal {}", code - 128)
            }
            code if code > 128 => format!("{step} was ended by signal {}\n{}", code - 128, ended.message),
            code if ended.message.is_empty() => format!("{step} ended with exit code {code}"),
            _ => ended.message,
        };
        Err(Failure { code: ended.code, reason: reason::STEP_FAILED, message })
    }

    fn stopped(&self) -> Option<Failure> {
        let (reason, message) = match self.stop.reason()? {
            Reason::Cancelled => (reason::CANCELLED, "terraform was asked to stop".to_owned()),
            // Whether the pod was deleted or evicted, the hub finds out.
            Reason::Terminated => (reason::POD_DELETED, "The pod was told to stop; terraform was stopped.".to_owned()),
            Reason::Fenced(why) => (reason::STATE_NOT_SAVED, why),
        };
        Some(Failure { code: STOPPED, reason, message })
    }

    /// Waits until the hub has the state that terraform left.
    async fn settle(&self) -> Result<(), Failure> {
        match &self.keeper {
            None => Ok(()),
            Some(keeper) => match keeper.settle().await {
                Ok(_) => Ok(()),
                Err(error) => Err(Failure::new(reason::STATE_NOT_SAVED, error)),
            },
        }
    }

    fn read_plan(&self) -> Result<Bytes, Failure> {
        std::fs::read(self.folders.plan())
            .map(Bytes::from)
            .map_err(|error| Failure::new(reason::STEP_FAILED, format!("cannot read the plan: {error}")))
    }

    fn verified_plan(&self, expected: &str) -> Result<Bytes, Failure> {
        let bytes = self.read_plan()?;
        let found = plan::digest(&bytes);
        if found == expected {
            return Ok(bytes);
        }
        let message =
            format!("the plan is `{found}`, not `{expected}`, so it is not applied; run again for a new plan");
        Err(Failure::new(reason::DIGEST_MISMATCH, message))
    }
}

/// Only what the network or a provider may have caused is worth another attempt.
fn may_pass(failure: &Failure) -> bool {
    failure.reason == reason::STEP_FAILED && !tool::is_version_failure(&failure.message)
}
