//! Starts a run with the files of the current directory, and follows it.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use knoll_api::names::field_manager;
use knoll_api::run::{Operation, RunSpec, StartNow};
use knoll_api::source::Source;
use knoll_api::{Run, Workspace};
use knoll_bundle::Bundle;
use knoll_core::run::arguments;
use knoll_fetch::module::{self, VariableFiles};
use knoll_storage::{Input, PackedInput};
use kube::ResourceExt;
use kube::api::{ObjectMeta, PostParams};

use super::follow::{self, Outcome};
use super::spec::{self, Situation};
use super::{ChangeArgs, ResultFormat, environment, guard, keys, lock_file, stop, waiting};
use crate::connect::{Connection, Explain};
use crate::output::Format;
use crate::workspace::Session;
use crate::{output, style};

/// The maximum length of a Run's name prefix. Kubernetes appends five characters.
const LONGEST_NAME: usize = 50;

/// How long standard input is read before the user is told.
const SILENT_READ: Duration = Duration::from_secs(1);

/// See [`super::run`].
pub async fn run(words: &str, args: ChangeArgs, outer: &Connection) -> Result<ExitCode> {
    let ChangeArgs { approval, override_stack, now: at_once, because, run: args } = args;
    let attended = keys::is_attended() && !args.detach && args.output.is_none();
    // Terraform in the pod prints colours regardless of this terminal.
    let no_color = !style::stdout_is_coloured();
    let session = Session::find(&args.connection.or(outer)).await?;
    let workspace = match session.workspace_name(&args.workspace) {
        Ok(name) => name,
        Err(error) => return Err(session.missing_namespace().await.unwrap_or(error)),
    };
    let piped = !attended && !args.detach && spec::asks(words, &args.args, approval);
    let answer = if piped { answer().await? } else { None };
    let now = Situation { attended, answered: attended || answer.is_some(), no_color, approval };
    let mut spec = spec::spec(&workspace, words, args.args, now)?;
    let mut input = Input::new(uuid::Uuid::new_v4().to_string());
    let bundle = bundle(&session, words, &mut spec, &mut input)?;
    input.stdin = answer.map_or_else(|| stdin(words, &spec), |answer| Ok(Some(answer)))?.map(ByteString);
    input.values = arguments::hide(words, &mut spec.args);
    input.env = environment::take(words, args.with_env);
    let input = if input.is_empty() { None } else { Some(input.pack().context("cannot send the input of the run")?) };
    spec.input = input.as_ref().map(|input| input.reference.clone());
    // Without this check, a run of a missing Workspace would wait forever.
    let (found, user) = tokio::join!(session.workspace(&workspace), session.cluster.user());
    // The first of two errors would depend on which request was answered sooner.
    let found = found?;
    user?;
    spec.override_stack = override_stack;
    spec.ignore_lock_file = args.ignore_lock_file;
    if let Some(because) = because.filter(|_| at_once) {
        let groups = session.cluster.decider().await?.groups.clone();
        spec.start_now = Some(StartNow { because, groups });
    }
    guard::of_stack(&session, &found, &spec).await?;
    guard::of_other_state(&session.folder, &found, &spec)?;
    if let Some(bundle) = bundle {
        upload(&session, &bundle).await?;
        spec.source = Some(Source::bundle(bundle.digest));
    }
    let run = create(&session, words, spec).await?;
    let name = run.name_any();
    if let Some(input) = input {
        send(&session, &run, &input).await?;
    }
    announce(&session, &run);
    if run.spec.operation == Operation::Plan {
        say_who_changes(&session, &found).await;
    }
    match (args.detach, args.output) {
        (true, Some(ResultFormat::Json)) => {
            output::value(&output::typed(&run)?, Format::Json)?;
            return Ok(ExitCode::SUCCESS);
        }
        (true, None) => {
            output::print(&format!("{name}\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        (false, _) => {}
    }
    let stdout = args.output.map(|_| output::Aside::begin()).transpose()?;
    let outcome = follow::follow(&session, run).await?;
    if let (Some(stdout), Outcome::Ended(run)) = (stdout, &outcome) {
        stdout.end()?;
        output::value(&output::typed(run.as_ref())?, Format::Json)?;
    }
    let exit = follow::exit(&outcome, &name);
    if let (Outcome::Ended(_), "init") = (&outcome, words)
        && exit == ExitCode::SUCCESS
    {
        lock_file::fetch(&session, &workspace).await?;
    }
    Ok(exit)
}

/// Says first what is started and where, also in a log of a CI system.
pub fn announce(session: &Session, run: &Run) {
    style::quiet(&format!(
        "knoll: run `{}` in workspace `{}`, namespace `{}`, cluster {}",
        run.name_any(),
        run.spec.workspace,
        session.namespace,
        session.cluster.server
    ));
}

/// Says which run changes the state of the Workspace at the time of a plan, as far as the user may read it.
pub async fn say_who_changes(session: &Session, workspace: &Workspace) {
    let Some(status) = &workspace.status else { return };
    let Some(active) = &status.active else { return };
    let holder = session.api::<Run>().get_opt(active).await.ok().flatten();
    let is_over = |run: &Run| run.status.as_ref().is_some_and(|status| status.phase.is_finished());
    if let Some(holder) = holder.filter(|run| !is_over(run)) {
        style::note(&waiting::beside(&holder, status, Timestamp::now()));
    }
}

/// Packs the module of the current directory, without its variable files: these go into the input. Some commands need
/// no module.
fn bundle(session: &Session, words: &str, spec: &mut RunSpec, input: &mut Input) -> Result<Option<Bundle>> {
    if !module::has_configuration(&session.folder, None) {
        if spec.operation == Operation::Command {
            return Ok(None);
        }
        bail!(
            "no terraform configuration found in `{}`\n  run `knoll {words}` in the directory of a module",
            session.folder.display()
        );
    }
    let module = module::collect(&session.folder, None, VariableFiles::Apart(&spec::variable_files(spec)))?;
    spec::relocate(spec, &module.named);
    input.files = module.variables.into_iter().map(|(path, content)| (path, ByteString(content))).collect();
    for link in &module.left_out {
        style::note(&format!("ignoring the symlink `{}`: its target is outside of the module", link.display()));
    }
    let bundle = knoll_bundle::pack_at(&module.files, &module.path).context("cannot bundle this directory")?;
    Ok(Some(bundle))
}

/// What is piped as the answer to terraform's question, as in `echo yes | knoll apply`; none when nothing is.
async fn answer() -> Result<Option<Vec<u8>>> {
    let mut read = tokio::task::spawn_blocking(|| {
        let mut input = Vec::new();
        if !std::io::stdin().is_terminal() {
            std::io::stdin().read_to_end(&mut input)?;
        }
        std::io::Result::Ok(input)
    });
    let read = match tokio::time::timeout(SILENT_READ, &mut read).await {
        Ok(read) => read,
        Err(_) => {
            style::quiet("knoll: reading the answer to terraform's question from standard input, until its end");
            read.await
        }
    };
    let input = read.context("cannot read standard input")?.context("cannot read standard input")?;
    Ok(Some(input).filter(|input| !input.is_empty()))
}

/// The standard input of `console` or `sh`, if it is piped.
fn stdin(words: &str, spec: &RunSpec) -> Result<Option<Vec<u8>>> {
    let reads = words == "console" || (words == "sh" && spec.args.is_empty());
    if !reads || std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).context("cannot read standard input")?;
    Ok(Some(input).filter(|input| !input.is_empty()))
}

/// Uploads the bundle, unless the cluster already has it.
async fn upload(session: &Session, bundle: &Bundle) -> Result<()> {
    let size = bundle.bytes.len() as u64;
    let bar = ProgressBar::with_draw_target(Some(size), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("Uploading {wide_bar} {bytes} of {total_bytes}") {
        bar.set_style(style);
    }
    let progress = bar.clone();
    let bundles = session.storage().bundles();
    let stored = bundles.store_with(&session.namespace, bundle, |bytes| progress.inc(bytes)).await;
    bar.finish_and_clear();
    match stored {
        Err(knoll_storage::BundleError::Api(error)) => {
            Err(error).explain(&session.cluster, "cannot upload the files of this directory")
        }
        result => Ok(result?),
    }
}

/// Stores the input of a Run that was just created. A Run without its input does not start, and must not block the queue.
async fn send(session: &Session, run: &Run, input: &PackedInput) -> Result<()> {
    let Err(error) = session.storage().inputs().put(run, input).await else { return Ok(()) };
    let _ = stop::cancel(session, &run.name_any(), false).await;
    let what = "cannot store variable files, values of variables and piped input in a Secret of the run";
    match error {
        knoll_storage::Error::Api(error) => Err(error).explain(&session.cluster, what),
        error => Err(anyhow::Error::new(error).context(what)),
    }
}

/// Creates a Run of `spec` in the name of this user, named after `words`.
pub async fn create(session: &Session, words: &str, mut spec: RunSpec) -> Result<Run> {
    spec.requested_by = Some(session.cluster.user().await?.to_owned());
    let verb: String = words.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let mut prefix = format!("{}-{verb}", spec.workspace);
    prefix.truncate(LONGEST_NAME);
    let run = Run {
        metadata: ObjectMeta {
            generate_name: Some(format!("{prefix}-")),
            finalizers: knoll_core::run::finalizers(&spec),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    };
    let params = PostParams { field_manager: Some(field_manager::CLI.to_owned()), ..PostParams::default() };
    session.api::<Run>().create(&params, &run).await.explain(&session.cluster, "cannot create the run")
}
