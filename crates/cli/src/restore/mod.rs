//! `knoll restore`: takes states, and the objects that belong to them, out of the backups of a cluster.
//!
//! *Guarantees.* Nothing that is in the cluster is changed, except for an older version of the same state, and with `--force`
//! any other state. A state is restored while no Run changes it. What is read has the digest of its record. The user's
//! own permissions count for everything that is written.

mod objects;
mod states;

use std::process::ExitCode;

use anyhow::{Result, bail};
use knoll_backup::Archive;

use crate::backups::ArchiveArgs;
use crate::connect::Connection;
use crate::style;
use crate::workspace::Session;

/// The arguments of `knoll restore`.
#[derive(clap::Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    connection: Connection,
    /// The workspace [default: every workspace and stack of the namespace]
    #[arg(long, short, env = "KNOLL_WORKSPACE", value_name = "WORKSPACE", add = crate::complete::workspaces(), value_parser = crate::workspace::plain_name::<knoll_api::Workspace>)]
    workspace: Option<String>,
    /// Restore everything: policies, namespaces, workspaces with their states and bundles, stacks
    #[arg(long, short = 'A', env = "KNOLL_ALL_NAMESPACES", conflicts_with = "workspace")]
    all_namespaces: bool,
    #[command(flatten)]
    archive: ArchiveArgs,
    /// The serial of the version [default: the newest]
    #[arg(long, env = "KNOLL_SERIAL", value_name = "SERIAL", requires = "workspace")]
    serial: Option<u64>,
    /// Restore over a newer serial or another lineage, too
    #[arg(long, env = "KNOLL_FORCE")]
    force: bool,
    /// Do not suspend the stacks that are restored
    #[arg(long, env = "KNOLL_RESUME")]
    resume: bool,
    /// Only show what would be restored
    #[arg(long, env = "KNOLL_DRY_RUN")]
    dry_run: bool,
}

/// What a restore works with.
struct Restore {
    session: Session,
    archive: Archive,
    serial: Option<u64>,
    force: bool,
    resume: bool,
    dry_run: bool,
    /// How many states are as in the backups now.
    states: usize,
    /// How many other objects were created.
    objects: usize,
    /// The objects that stay as they are in the cluster.
    kept: Vec<String>,
    /// The stacks that were restored suspended, as flags of a command.
    suspended: Vec<String>,
    failures: usize,
}

/// How many objects one message names.
const NAMED: usize = 8;

/// Restores one state, a namespace or everything.
pub async fn run(args: RestoreArgs, outer: &Connection) -> Result<ExitCode> {
    let RestoreArgs { connection, workspace, all_namespaces, archive, serial, force, resume, dry_run } = args;
    let archive = archive.archive()?;
    let session = Session::find(&connection.or(outer)).await?;
    let namespace = session.namespace.clone();
    let mut restore = Restore {
        session,
        archive,
        serial,
        force,
        resume,
        dry_run,
        states: 0,
        objects: 0,
        kept: Vec::new(),
        suspended: Vec::new(),
        failures: 0,
    };
    match workspace {
        Some(workspace) => restore.workspace(&namespace, &workspace, false).await,
        None if all_namespaces => restore.everything().await?,
        None => restore.namespace(&namespace).await?,
    }
    restore.end()
}

impl Restore {
    async fn everything(&mut self) -> Result<()> {
        self.policies().await?;
        let mut namespaces = self.archive.namespaces().await?;
        namespaces.extend(self.archive.object_namespaces().await?);
        namespaces.sort();
        namespaces.dedup();
        for namespace in namespaces {
            if self.has_content(&namespace).await? {
                self.namespace(&namespace).await?;
            }
        }
        Ok(())
    }

    /// States first: a Stack or a Run that finds none would create everything again.
    async fn namespace(&mut self, namespace: &str) -> Result<()> {
        self.create_namespace(namespace).await;
        let mut workspaces = self.archive.workspaces(namespace).await?;
        let stateless = self.archive.objects(knoll_backup::kinds::WORKSPACE, Some(namespace)).await?;
        workspaces.extend(stateless.into_iter().map(|address| address.name));
        workspaces.sort();
        workspaces.dedup();
        for workspace in workspaces {
            self.workspace(namespace, &workspace, true).await;
        }
        self.stacks(namespace).await
    }

    /// The state of a Workspace, then the Workspace.
    async fn workspace(&mut self, namespace: &str, workspace: &str, may_have_none: bool) {
        let what = format!("workspace `{workspace}` in namespace `{namespace}`");
        let restored = self.state(namespace, workspace, may_have_none).await;
        let restored = match restored {
            Ok(()) => self.workspace_object(namespace, workspace).await,
            Err(error) => Err(error),
        };
        self.count(restored, &what);
    }

    /// Reports a failure, which does not keep the rest from being restored.
    fn count(&mut self, result: Result<()>, what: &str) {
        if let Err(error) = result {
            self.failures += 1;
            style::error(&error.context(format!("{what} was not restored")));
        }
    }

    fn say(&self, what: &str) {
        style::say(if self.dry_run { "Would restore" } else { "Restored" }, what);
    }

    fn end(self) -> Result<ExitCode> {
        let Restore { archive, states, objects, kept, suspended, failures, dry_run, .. } = self;
        let is_nothing = states + objects + failures == 0;
        if is_nothing {
            style::hint_aside(&format!(
                "Nothing to restore: the cluster has everything that `{}` has.",
                archive.shown()
            ));
        } else if !kept.is_empty() {
            style::hint_aside(&format!("Left as they are, because the cluster has them: {}.", named(&kept)));
        }
        if !is_nothing && !dry_run {
            let next = match suspended.as_slice() {
                [] => "`knoll plan` shows whether the infrastructure is as the states say.".to_owned(),
                [stack] => format!(
                    "Stack suspended. See what it would change with `knoll stack plan {stack}`, then `knoll stack resume {stack}`."
                ),
                stacks => format!(
                    "{} stacks suspended. For each, see what it would change with `knoll stack plan`, then `knoll stack resume`: {}.",
                    stacks.len(),
                    named(stacks)
                ),
            };
            style::hint_aside(&next);
        }
        if failures > 0 {
            bail!("{failures} of the backups were not restored; see the messages above");
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn named(items: &[String]) -> String {
    let mut shown: Vec<String> = items.iter().take(NAMED).cloned().collect();
    if items.len() > NAMED {
        shown.push(format!("{} more", items.len() - NAMED));
    }
    shown.join(", ")
}
