//! Shell completion of commands, flags, and the names of objects in the cluster.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use knoll_api::{Atom, Run, Stack, Workspace};
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::cli::Cli;
use crate::connect::Connection;
use crate::output;
use crate::workspace::Session;

/// The environment variable by which a shell requests completions.
const VARIABLE: &str = "KNOLL_COMPLETE";
/// The longest time a completion may take. A shell that blocks is worse than one without suggestions.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The arguments of `knoll completion`.
#[derive(clap::Args)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

/// Prints the completion script of a shell.
pub fn run(args: &CompletionArgs) -> Result<ExitCode> {
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell).context("unknown shell")?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "knoll", "knoll", "knoll", &mut script)?;
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Answers a completion request and exits. Returns if the process was not started for one.
pub fn answer() {
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
    }
}

pub fn workspaces() -> ArgValueCandidates {
    ArgValueCandidates::new(names::<Workspace>)
}

pub fn runs() -> ArgValueCandidates {
    ArgValueCandidates::new(names::<Run>)
}

pub fn stacks() -> ArgValueCandidates {
    ArgValueCandidates::new(names::<Stack>)
}

pub fn atoms() -> ArgValueCandidates {
    ArgValueCandidates::new(names::<Atom>)
}

fn names<K>() -> Vec<CompletionCandidate>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let work = async {
        let session = Session::find(&typed()).await.ok()?;
        let api: Api<K> = session.api();
        Some(api.list_metadata(&ListParams::default().limit(500)).await.ok()?.items)
    };
    let found = runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.ok().flatten() });
    found.unwrap_or_default().iter().map(|object| CompletionCandidate::new(object.name_any())).collect()
}

/// The connection flags of the partial command line, with the environment as fallback.
fn typed() -> Connection {
    let words: Vec<String> = std::env::args().collect();
    let value = |names: [&str; 2], variable: &str| {
        let flag = words.windows(2).find(|pair| names.contains(&pair[0].as_str())).map(|pair| pair[1].clone());
        flag.or_else(|| std::env::var(variable).ok().filter(|value| !value.is_empty()))
    };
    Connection {
        namespace: value(["-n", "--namespace"], "KNOLL_NAMESPACE"),
        context: value(["--context", "--context"], "KNOLL_CONTEXT"),
        kubeconfig: value(["--kubeconfig", "--kubeconfig"], "KNOLL_KUBECONFIG").map(Into::into),
        data_dir: value(["--data-dir", "--data-dir"], "KNOLL_DATA_DIR").map(Into::into),
    }
}
