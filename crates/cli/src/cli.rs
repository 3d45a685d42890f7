//! The command line: every command, in the order of the help.

use clap::{Parser, Subcommand};

use crate::connect::{Connection, Role};
use crate::run::{ChangeArgs, RunArgs};
use crate::{
    atom, cluster, complete, doctor, install, logs, man, operator, policy, restore, run, runs, stack, state, ui,
    uninstall, version, workspace,
};

/// Run Terraform and OpenTofu on Kubernetes, with terraform's own commands and flags
#[derive(Parser)]
#[command(
    name = "knoll",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "`knoll plan`, `knoll apply` and the other run commands accept terraform's own flags. `knoll up` starts a local cluster. `knoll help COMMAND` shows the help of a command."
)]
pub struct Cli {
    #[command(flatten)]
    pub connection: Connection,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Initialize the working directory and update the dependency lock file
    Init(RunArgs),
    /// Show the changes required by the current configuration
    Plan(RunArgs),
    /// Create or update infrastructure
    Apply(ChangeArgs),
    /// Destroy all resources in the state
    Destroy(ChangeArgs),
    /// Update the state to match real resources
    Refresh(RunArgs),
    /// Import an existing resource into the state
    Import(RunArgs),
    /// Inspect, modify and roll back the state
    State(state::StateArgs),
    /// Restore states, and what belongs to them, from the backups of a cluster
    Restore(restore::RestoreArgs),
    /// Mark a resource for replacement by the next apply
    Taint(RunArgs),
    /// Remove the taint mark from a resource
    Untaint(RunArgs),
    /// Show output values from the state
    Output(RunArgs),
    /// Show the current state in human-readable form
    Show(RunArgs),
    /// Evaluate expressions interactively against the state
    Console(RunArgs),
    /// Check whether the configuration is valid
    Validate(RunArgs),
    /// Show the providers required by the configuration
    Providers(RunArgs),
    /// Generate a graph of the configuration's resources
    Graph(RunArgs),
    /// Release a stuck lock of an external backend
    ForceUnlock(RunArgs),
    /// Run the module's `.tftest.hcl` tests
    Test(RunArgs),
    /// Open a shell in a pod with the module and its state
    Sh(RunArgs),
    /// Format configuration files on this machine
    Fmt(run::fmt::FmtArgs),
    /// Create, select and inspect workspaces
    #[command(visible_alias = "ws")]
    Workspace(workspace::WorkspaceArgs),
    /// Inspect, apply, suspend and resume stacks
    #[command(visible_alias = "stk")]
    Stack(stack::StackArgs),
    /// Update a set of Kubernetes objects as one transaction
    Atom(atom::AtomArgs),
    /// List policies, explain what they require of a workspace, and test their rules
    Policy(policy::PolicyArgs),
    /// List runs
    Runs(runs::list::RunListArgs),
    /// Show a run
    Run(runs::show::RunCommand),
    /// Attach to the output and the terminal of a run
    #[command(
        after_help = "Ctrl-C asks the run to stop, whichever terminal it comes from. The run continues when this terminal is closed.\n\
                            `knoll logs -f RUN` only reads: there, Ctrl-C leaves the run alone."
    )]
    Attach(run::resume::AttachArgs),
    /// Print the logs of a run, even after its pod is deleted
    Logs(logs::LogsArgs),
    /// Cancel a run
    Cancel(runs::cancel::RunCancelArgs),
    /// Review the plan of a run and approve it
    Approve(runs::decide::DecisionArgs),
    /// Review the plan of a run and discard it
    Discard(runs::decide::DecisionArgs),
    /// Watch stacks and runs in a live table
    Watch(runs::watch::WatchArgs),
    /// Start the embedded cluster with Knoll running in it
    #[command(
        after_help = "The node of the embedded cluster runs containers as processes of this machine. It pulls no images: runs use the\n\
                            `terraform` or `tofu` on the PATH, whatever the `image` of a workspace says."
    )]
    Up(cluster::up::UpArgs),
    /// Stop the embedded cluster
    Down(cluster::down::DownArgs),
    /// Show whether the embedded cluster is running, and its address
    Status(cluster::status::StatusArgs),
    /// Open the web page, signed in
    Ui(ui::UiArgs),
    /// Install Knoll into a cluster
    Install(install::InstallArgs),
    /// Uninstall Knoll from a cluster
    Uninstall(uninstall::UninstallArgs),
    /// Diagnose the cluster, your permissions and this machine
    Doctor(doctor::DoctorArgs),
    /// Print the client and server versions
    Version(version::VersionArgs),
    /// Print the shell completion script
    Completion(complete::CompletionArgs),
    /// Write the manual pages to a directory
    Man(man::ManArgs),
    /// Run the controllers and the hub (the process of the operator's Deployment)
    Operator(Box<operator::OperatorArgs>),
    /// Run the steps of a Run inside its pod (started by the operator)
    #[command(hide = true)]
    Runner(knoll_runner::Args),
}

impl Command {
    /// The least role with which a user can complete the command in a cluster.
    pub fn role(&self) -> Role {
        match self {
            Command::Approve(_) | Command::Discard(_) => Role::Approver,
            Command::Workspace(args) => args.role(),
            Command::Stack(args) => args.role(),
            Command::Atom(args) => args.role(),
            Command::Init(_)
            | Command::Plan(_)
            | Command::Apply(_)
            | Command::Destroy(_)
            | Command::Refresh(_)
            | Command::Import(_)
            | Command::State(_)
            | Command::Taint(_)
            | Command::Untaint(_)
            | Command::Output(_)
            | Command::Show(_)
            | Command::Console(_)
            | Command::Validate(_)
            | Command::Providers(_)
            | Command::Graph(_)
            | Command::ForceUnlock(_)
            | Command::Test(_)
            | Command::Sh(_)
            | Command::Attach(_)
            | Command::Cancel(_) => Role::User,
            _ => Role::Viewer,
        }
    }
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
