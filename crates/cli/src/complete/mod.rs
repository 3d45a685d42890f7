//! Shell completion of commands, flags, terraform's arguments, and the names of objects in the cluster.

mod addresses;
mod terraform;

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use knoll_api::{Atom, Run, Stack, Workspace};
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::arguments::is_run;
use crate::cli::Cli;
use crate::connect::Connection;
use crate::output;
use crate::workspace::{Session, WorkspaceArg};

/// The environment variable by which a shell requests completions.
const VARIABLE: &str = "KNOLL_COMPLETE";
/// The longest time a completion may take. A shell that blocks is worse than one without suggestions.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Whether the shell is bash. The engine removes the variable that says so.
static IS_BASH: OnceLock<bool> = OnceLock::new();
/// The program that kubectl calls to complete the words of its plugin, which is not a shell.
const KUBECTL: &str = "kubectl";
const KUBECTL_SCRIPT: &str = include_str!("kubectl_complete-knoll.sh");

/// The arguments of `knoll completion`.
#[derive(clap::Args)]
pub struct CompletionArgs {
    /// The shell, or `kubectl` for the program `kubectl_complete-knoll`, which completes `kubectl knoll`
    #[arg(value_parser = ["bash", "zsh", "fish", KUBECTL])]
    shell: String,
}

/// Prints the completion script of a shell.
pub fn run(args: &CompletionArgs) -> Result<ExitCode> {
    if args.shell == KUBECTL {
        output::print(KUBECTL_SCRIPT)?;
        return Ok(ExitCode::SUCCESS);
    }
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell).context("unknown shell")?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "knoll", "knoll", "knoll", &mut script)?;
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Answers a completion request and exits. Returns if the process was not started for one.
pub fn answer() {
    if let Some(shell) = std::env::var_os(VARIABLE) {
        let _ = IS_BASH.set(shell == "bash");
        CompleteEnv::with_factory(command).var(VARIABLE).complete();
    }
}

/// The command line as the engine completes it. The engine would take a flag of terraform's for a group of short ones.
fn command() -> Command {
    let cli = Cli::command();
    if CommandLine::read().is_at_terraform_flag() { without_short_flags(cli) } else { cli }
}

fn without_short_flags(command: Command) -> Command {
    if is_run(&command) {
        return command.disable_help_flag(true).mut_args(|arg| arg.short(None));
    }
    command.mut_subcommands(without_short_flags)
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

/// Completes terraform's own arguments.
pub fn terraform() -> ArgValueCompleter {
    ArgValueCompleter::new(terraform::candidates)
}

fn names<K>() -> Vec<CompletionCandidate>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let found = quietly(async {
        let session = CommandLine::read().session().await?;
        let api: Api<K> = session.api();
        Some(api.list_metadata(&ListParams::default().limit(500)).await.ok()?.items)
    });
    found.unwrap_or_default().iter().map(|object| CompletionCandidate::new(object.name_any())).collect()
}

/// Asks the cluster for at most [`PATIENCE`].
fn quietly<T>(work: impl Future<Output = Option<T>>) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.ok().flatten() })
}

/// The partial command line that the shell sends.
struct CommandLine {
    words: Vec<String>,
    /// The words before the one to complete, `knoll` first.
    before: Vec<String>,
    /// The word to complete.
    current: String,
}

impl CommandLine {
    fn read() -> Self {
        let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        // Some shells tell which word is completed; the others send the words up to it.
        let index = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|index| index.parse().ok());
        Self::new(words, index)
    }

    fn new(words: Vec<String>, index: Option<usize>) -> Self {
        let end = index.unwrap_or(words.len().saturating_sub(1)).min(words.len());
        // Bash splits words at `=`.
        let whole = |words: &[String]| words.iter().filter(|word| *word != "=").cloned().collect();
        let current = words.get(end).cloned().unwrap_or_default();
        CommandLine { before: whole(&words[..end]), words: whole(&words), current }
    }

    /// Whether the word to complete has one dash and more than one letter.
    fn is_at_terraform_flag(&self) -> bool {
        self.current.len() > 2 && self.current.starts_with('-') && !self.current.starts_with("--")
    }

    /// The value of a flag, with the environment as fallback.
    fn value(&self, names: &[&str], variable: &str) -> Option<String> {
        let next = self.words.windows(2).find(|pair| names.contains(&pair[0].as_str())).map(|pair| pair[1].clone());
        let joined = || {
            let mut pairs = self.words.iter().filter_map(|word| word.split_once('='));
            pairs.find(|(name, _)| names.contains(name)).map(|(_, value)| value.to_owned())
        };
        next.or_else(joined).or_else(|| std::env::var(variable).ok().filter(|value| !value.is_empty()))
    }

    fn workspace(&self) -> WorkspaceArg {
        WorkspaceArg { workspace: self.value(&["-w", "--workspace"], "KNOLL_WORKSPACE") }
    }

    /// The session of the connection flags. Never asks.
    async fn session(&self) -> Option<Session> {
        let connection = Connection {
            namespace: self.value(&["-n", "--namespace"], "KNOLL_NAMESPACE"),
            context: self.value(&["--context"], "KNOLL_CONTEXT"),
            kubeconfig: self.value(&["--kubeconfig"], "KNOLL_KUBECONFIG").map(Into::into),
            as_user: self.value(&["--as"], "KNOLL_AS"),
            as_group: self.value(&["--as-group"], "KNOLL_AS_GROUP").into_iter().collect(),
            data_dir: self.value(&["--data-dir"], "KNOLL_DATA_DIR").map(Into::into),
            ..Connection::default()
        };
        Session::find_quietly(&connection).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_shells_split_them() {
        let line = |text: &str, index| CommandLine::new(text.split(' ').map(str::to_owned).collect(), index);
        let bash = line("knoll plan --workspace = net -target = a -no-color", Some(7));
        assert_eq!(bash.before, ["knoll", "plan", "--workspace", "net", "-target"]);
        assert_eq!(bash.workspace().workspace.as_deref(), Some("net"));
        let fish = line("knoll plan -w=net -target=a", None);
        assert_eq!(fish.before, ["knoll", "plan", "-w=net"]);
        assert_eq!(fish.workspace().workspace.as_deref(), Some("net"));
        assert!(CommandLine::new(Vec::new(), Some(3)).before.is_empty());
    }
}
