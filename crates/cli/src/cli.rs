//! The command line: every command, in the order of the help.

use clap::{Parser, Subcommand};

use crate::connect::Connection;
use crate::run::{ChangeArgs, RunArgs};
use crate::{
    atom, cluster, complete, doctor, install, logs, man, operator, run, runs, stack, state, uninstall, version,
    workspace,
};

/// Terraform and OpenTofu on Kubernetes: what you know from terraform, carried out in the cluster.
#[derive(Parser)]
#[command(
    name = "knoll",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "`knoll plan`, `apply` and the like take terraform's own flags. `knoll up` starts a cluster on this machine."
)]
pub struct Cli {
    #[command(flatten)]
    pub connection: Connection,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Initialise the module, and bring back its lock file
    Init(RunArgs),
    /// Show what would change
    Plan(RunArgs),
    /// Plan, and apply the plan
    Apply(ChangeArgs),
    /// Destroy everything that the state knows
    Destroy(ChangeArgs),
    /// Take what really exists into the state
    Refresh(RunArgs),
    /// Take an existing resource into the state
    Import(RunArgs),
    /// Look at the state, move things in it, go back to an earlier one
    State(state::Args),
    /// Mark a resource to be created anew
    Taint(RunArgs),
    /// Take such a mark away
    Untaint(RunArgs),
    /// Print the outputs of the state
    Output(RunArgs),
    /// Print the state in a readable form
    Show(RunArgs),
    /// Try expressions against the state
    Console(RunArgs),
    /// Check the module
    Validate(RunArgs),
    /// List the providers that the module needs
    Providers(RunArgs),
    /// Print the graph of the module's resources
    Graph(RunArgs),
    /// Unlock a state that is kept elsewhere
    ForceUnlock(RunArgs),
    /// Run the module's tests
    Test(RunArgs),
    /// Open a shell beside the module and its state
    Sh(RunArgs),
    /// Format the module's files, on this machine
    Fmt(run::fmt::Args),
    /// Make, choose and look at workspaces
    #[command(visible_alias = "ws")]
    Workspace(workspace::Args),
    /// Look at stacks, ask for their runs, let them hold still
    #[command(visible_alias = "stk")]
    Stack(stack::Args),
    /// Update sets of Kubernetes objects as one transaction
    Atom(atom::Args),
    /// List runs
    Runs(runs::list::Args),
    /// Look at one run
    Run(runs::show::RunCommand),
    /// Come back to a run: its output, and its terminal
    Attach(run::resume::Args),
    /// Print what a run has printed, also when its pod is gone
    Logs(logs::Args),
    /// Stop a run
    Cancel(runs::cancel::Args),
    /// Look at the plan of a run, and let it be applied
    Approve(runs::decide::Args),
    /// Look at the plan of a run, and do not let it be applied
    Discard(runs::decide::Args),
    /// Watch stacks and runs come and go
    Watch(runs::watch::Args),
    /// Start the embedded cluster, with Knoll running in it
    Up(cluster::up::Args),
    /// Stop the embedded cluster
    Down(cluster::down::Args),
    /// Tell whether the embedded cluster runs, and where
    Status(cluster::status::Args),
    /// Install Knoll into a cluster
    Install(install::Args),
    /// Take Knoll out of a cluster
    Uninstall(uninstall::Args),
    /// Check the cluster, your access to it, and this machine
    Doctor(doctor::Args),
    /// Print the versions of this program and of the cluster
    Version(version::Args),
    /// Print the script that lets a shell complete commands and names
    Completion(complete::Args),
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man(man::Args),
    /// Run the hub and the controllers (started by `knoll install` in a pod)
    Operator(Box<operator::Args>),
    /// Run inside a Run's pod (started by Knoll itself)
    #[command(hide = true)]
    Runner(knoll_runner::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn check(command: &clap::Command, path: &str, faults: &mut Vec<String>) {
        let flags = command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
        for flag in flags.filter(|flag| !matches!(flag.get_id().as_str(), "help" | "version")) {
            let variable = flag.get_env().and_then(|name| name.to_str()).unwrap_or_default();
            if !variable.starts_with("KNOLL_") {
                faults.push(format!("{path} --{}", flag.get_id()));
            }
        }
        for sub in command.get_subcommands() {
            check(sub, &format!("{path} {}", sub.get_name()), faults);
        }
    }

    #[test]
    fn every_flag_has_a_variable() {
        let mut faults = Vec::new();
        check(&Cli::command(), "knoll", &mut faults);
        assert_eq!(faults, Vec::<String>::new());
    }
}
