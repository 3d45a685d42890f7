//! The binary `knoll`: the embedded cluster, the operator, the runner and the user's commands.

mod arguments;
mod atom;
mod backups;
mod cli;
mod cluster;
mod complete;
mod connect;
mod doctor;
mod fetches;
mod flags;
mod install;
mod logs;
mod man;
mod operator;
mod output;
mod outputs;
mod policy;
mod restore;
mod run;
mod runs;
mod services;
mod stack;
mod state;
mod style;
mod typos;
mod ui;
mod uninstall;
mod version;
mod workspace;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches};
use nix::sys::signal::SigSet;

use cli::{Cli, Command};
use connect::Connection;
use run::ChangeArgs;

fn main() -> ExitCode {
    // The parent process may have blocked signals. Children would inherit the mask, so it is cleared first.
    let _ = SigSet::empty().thread_set_mask();
    // The embedded node starts a shim for every container, so this path comes before any other work.
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|arg| arg == "shim") {
        return knoll_kube_node::shim_main(args);
    }
    // The hub starts this for each Policy that judges a plan.
    if std::env::args_os().nth(1).is_some_and(|arg| arg == knoll_rules::CHILD) {
        return knoll_rules::child_main();
    }
    // kube and the servers share one TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    complete::answer();
    let mut args = std::env::args_os().collect();
    let entered = enter(arguments::take_chdir(&mut args));
    let Cli { mut connection, command } = parse(args);
    connection.role = command.role();
    entered.and_then(|()| dispatch(command, &connection)).unwrap_or_else(|error| {
        style::error(&error);
        ExitCode::FAILURE
    })
}

/// Changes into the directory of `-chdir`.
fn enter(folder: Option<PathBuf>) -> Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    std::env::set_current_dir(&folder).with_context(|| format!("cannot change into `{}`", folder.display()))
}

/// Parses the command line. Exits with clap's message when it is invalid.
fn parse(args: Vec<OsString>) -> Cli {
    let mut command = Cli::command();
    let program = args.first().and_then(|arg| Path::new(arg).file_name()?.to_str().map(str::to_owned));
    if program.is_some_and(|program| program.starts_with("kubectl-")) {
        command = command.bin_name("kubectl knoll");
    }
    command = flags::describe(command);
    let args = arguments::expand_help(args);
    if let Some(error) = typos::error(&args, &command) {
        error.exit();
    }
    let args = arguments::reorder(args, &command);
    let matches = command.get_matches_from(args);
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn dispatch(command: Command, outer: &Connection) -> Result<ExitCode> {
    match command {
        Command::Up(args) => cluster::up::run(&args),
        Command::Down(args) => block_on(async move { cluster::down::run(&args).await }),
        Command::Status(args) => cluster::status::run(&args),
        Command::Operator(args) => operator::run(&args),
        Command::Runner(args) => Ok(args.run()),
        Command::Fmt(args) => run::fmt::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Completion(args) => complete::run(&args),
        command => block_on(user_command(command, outer)),
    }
}

async fn user_command(command: Command, outer: &Connection) -> Result<ExitCode> {
    let (words, args): (_, ChangeArgs) = match command {
        Command::Init(args) => ("init", args.into()),
        Command::Plan(args) => ("plan", args.into()),
        Command::Apply(args) => ("apply", args),
        Command::Destroy(args) => ("destroy", args),
        Command::Refresh(args) => ("refresh", args.into()),
        Command::Import(args) => ("import", args.into()),
        Command::Taint(args) => ("taint", args.into()),
        Command::Untaint(args) => ("untaint", args.into()),
        Command::Show(args) => ("show", args.into()),
        Command::Console(args) => ("console", args.into()),
        Command::Validate(args) => ("validate", args.into()),
        Command::Providers(args) => ("providers", args.into()),
        Command::Graph(args) => ("graph", args.into()),
        Command::ForceUnlock(args) => ("force-unlock", args.into()),
        Command::Test(args) => ("test", args.into()),
        Command::Sh(args) => ("sh", args.into()),
        Command::Output(args) => return outputs::run(args, outer).await,
        Command::State(args) => return state::run(args, outer).await,
        Command::Restore(args) => return restore::run(args, outer).await,
        Command::Workspace(args) => return workspace::run(args, outer).await,
        Command::Stack(args) => return stack::run(args, outer).await,
        Command::Policy(args) => return policy::run(args, outer).await,
        Command::Atom(args) => return atom::run(args, outer).await,
        Command::Runs(args) => return runs::list::run(args, outer).await,
        Command::Run(args) => return runs::show::run(args, outer).await,
        Command::Attach(args) => return run::resume::run(args, outer).await,
        Command::Logs(args) => return logs::run(args, outer).await,
        Command::Cancel(args) => return runs::cancel::run(args, outer).await,
        Command::Approve(args) => return runs::decide::run(args, runs::decide::APPROVE, outer).await,
        Command::Discard(args) => return runs::decide::run(args, runs::decide::DISCARD, outer).await,
        Command::Watch(args) => return runs::watch::run(args, outer).await,
        Command::Ui(args) => return ui::run(args, outer).await,
        Command::Install(args) => return install::run(args, outer).await,
        Command::Uninstall(args) => return uninstall::run(args, outer).await,
        Command::Doctor(args) => return doctor::run(args, outer).await,
        Command::Version(args) => return version::run(args, outer).await,
        Command::Up(_)
        | Command::Down(_)
        | Command::Status(_)
        | Command::Operator(_)
        | Command::Runner(_)
        | Command::Fmt(_)
        | Command::Man(_)
        | Command::Completion(_) => return Ok(ExitCode::FAILURE),
    };
    run::run(words, args, outer).await
}

/// Runs a command to completion. Tasks that are still blocked, such as a read of the terminal, are abandoned.
fn block_on(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("this command cannot start")?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}
