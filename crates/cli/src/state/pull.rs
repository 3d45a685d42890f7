//! `knoll state pull`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use knoll_api::Workspace;

use crate::connect::Connection;
use crate::workspace::{Session, WorkspaceArg};

/// The arguments of `knoll state pull`.
#[derive(clap::Args)]
pub struct StatePullArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    workspace: WorkspaceArg,
    /// The serial of an earlier state version
    #[arg(long, env = "KNOLL_SERIAL", value_name = "SERIAL")]
    serial: Option<u64>,
}

/// Prints the state exactly as terraform wrote it.
pub async fn run(args: StatePullArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let workspace = session.workspace_name(&args.workspace)?;
    let state = read(&session, &workspace, args.serial).await?;
    match std::io::stdout().write_all(&state) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The bytes of a state.
pub async fn read(session: &Session, workspace: &str, serial: Option<u64>) -> Result<Vec<u8>> {
    let states = session.storage().states();
    if let Err(error) = session.workspace(workspace).await {
        // A state may outlive its Workspace, in a namespace that is being deleted.
        let is_gone = matches!(session.api::<Workspace>().get_opt(workspace).await, Ok(None));
        if !is_gone || !matches!(states.read(&session.namespace, workspace).await, Ok(Some(_))) {
            return Err(error);
        }
    }
    let state = match serial {
        None => states.read(&session.namespace, workspace).await,
        Some(serial) => states.version(&session.namespace, workspace, serial).await.map(Some),
    };
    let state = super::explain(
        state,
        session,
        &format!("cannot read the state of workspace `{workspace}`, which is stored in Secrets"),
    )?;
    state.map(|state| state.to_vec()).ok_or_else(|| {
        anyhow!(
            "workspace `{workspace}` has no state yet\n  `knoll apply` creates it, `knoll state push FILE` uploads one"
        )
    })
}
