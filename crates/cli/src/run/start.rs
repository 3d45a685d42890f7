//! Starts a run with the files of the current folder, and stays with it.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use knoll_api::Run;
use knoll_api::names::field_manager;
use knoll_api::run::{Operation, RunSpec};
use knoll_api::source::Source;
use knoll_bundle::{Bundle, File, INPUT_FILE};
use knoll_fetch::module;
use kube::ResourceExt;
use kube::api::{ObjectMeta, PostParams};

use super::follow::{self, Outcome};
use super::spec::{self, Situation};
use super::{ApprovalFlag, RunArgs, keys, lock_file};
use crate::connect::{Connection, Explain};
use crate::workspace::Place;
use crate::{output, style};

/// The part of a run's name that says whose it is; Kubernetes adds five letters.
const LONGEST_NAME: usize = 50;

/// See [`super::run`].
pub async fn run(words: &str, args: RunArgs, approval: Option<ApprovalFlag>, outer: &Connection) -> Result<ExitCode> {
    let attended = keys::is_attended() && !args.detach;
    // Terraform colours what it prints, whether somebody sees it or not.
    let no_color = !style::stdout_is_coloured();
    let place = Place::find(&args.connection.or(outer)).await?;
    let workspace = place.workspace_name(&args.workspace)?;
    let mut spec = spec::spec(&workspace, words, args.args, Situation { attended, no_color, approval })?;
    let bundle = bundle(&place, words, &spec)?;
    warn_of_variables();
    // A workspace that is not there would let the run wait for ever.
    place.workspace(&workspace).await?;
    if let Some(bundle) = bundle {
        upload(&place, &bundle).await?;
        spec.source = Some(Source::bundle(bundle.digest));
    }
    let run = create(&place, words, spec).await?;
    let name = run.name_any();
    if args.detach {
        output::print(&format!("{name}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if std::io::stderr().is_terminal() {
        style::quiet(&format!("knoll: run `{name}` in workspace `{workspace}`"));
    }
    let outcome = follow::follow(&place, run).await?;
    let exit = follow::exit(&outcome, &name);
    if let (Outcome::Ended(_), "init") = (&outcome, words)
        && exit == ExitCode::SUCCESS
    {
        lock_file::fetch(&place, &workspace).await?;
    }
    Ok(exit)
}

/// Packs the module of the current folder; a command can do without one.
fn bundle(place: &Place, words: &str, spec: &RunSpec) -> Result<Option<Bundle>> {
    if !module::has_configuration(&place.folder) {
        if spec.operation == Operation::Command {
            return Ok(None);
        }
        bail!(
            "there is no terraform configuration in `{}`\n  change into the folder of a module, and `knoll {words}` again",
            place.folder.display()
        );
    }
    let mut module = module::collect(&place.folder, None, &spec::variable_files(&spec.args))?;
    if let Some(input) = input(words, spec)? {
        module.files.insert(INPUT_FILE.to_owned(), File::Plain { content: input, executable: false });
    }
    for link in &module.left_out {
        style::note(&format!("the link `{}` leads out of the module, and is left out", link.display()));
    }
    let bundle = knoll_bundle::pack_at(&module.files, &module.path).context("cannot make a bundle of this folder")?;
    Ok(Some(bundle))
}

/// What is piped into a console or a shell, to be read over there.
fn input(words: &str, spec: &RunSpec) -> Result<Option<Vec<u8>>> {
    let reads = words == "console" || (words == "sh" && spec.args.is_empty());
    if !reads || std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).context("cannot read standard input")?;
    Ok(Some(input).filter(|input| !input.is_empty()))
}

/// Uploads the bundle, unless the cluster has it.
async fn upload(place: &Place, bundle: &Bundle) -> Result<()> {
    let size = bundle.bytes.len() as u64;
    let bar = ProgressBar::with_draw_target(Some(size), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("Uploading {wide_bar} {bytes} of {total_bytes}") {
        bar.set_style(style);
    }
    let progress = bar.clone();
    let stored = knoll_storage::bundles::store_with(&place.cluster.client, &place.namespace, bundle, move |bytes| {
        progress.inc(bytes)
    });
    let stored = stored.await;
    bar.finish_and_clear();
    match stored {
        Err(knoll_storage::bundles::StoreError::Api(error)) => {
            Err(error).explain(&place.cluster, "cannot upload the files of this folder")
        }
        result => Ok(result?),
    }
}

/// Creates a run of `spec`, named after `words`.
pub async fn create(place: &Place, words: &str, spec: RunSpec) -> Result<Run> {
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
    place.api::<Run>().create(&params, &run).await.explain(&place.cluster, "cannot start the run")
}

/// Variables of this shell stay in this shell: a Run can be read by others.
fn warn_of_variables() {
    let names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with("TF_VAR_"))
        .collect();
    if let Some(first) = names.first() {
        let others = names.len() - 1;
        let others = if others == 0 { String::new() } else { format!(" and {others} more") };
        style::note(&format!(
            "`{first}`{others} of your environment stays here; use -var, a .tfvars file or `knoll workspace edit`"
        ));
    }
}
