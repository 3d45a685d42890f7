//! `knoll state pull`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use knoll_storage::states;

use crate::connect::Connection;
use crate::workspace::{Place, WorkspaceArg};

/// The arguments of `knoll state pull`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    workspace: WorkspaceArg,
    /// The serial of an earlier state
    #[arg(long, env = "KNOLL_SERIAL", value_name = "SERIAL")]
    serial: Option<u64>,
}

/// Prints the state as terraform wrote it.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let workspace = place.workspace_name(&args.workspace)?;
    let state = read(&place, &workspace, args.serial).await?;
    match std::io::stdout().write_all(&state) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The bytes of a state.
pub async fn read(place: &Place, workspace: &str, serial: Option<u64>) -> Result<Vec<u8>> {
    place.workspace(workspace).await?;
    let state = states::pull(&place.cluster.client, &place.namespace, workspace, serial).await;
    let state = super::explain(state, place, &format!("cannot read the state of `{workspace}`, which is in Secrets"))?;
    state.map(|state| state.to_vec()).ok_or_else(|| {
        anyhow!("the workspace `{workspace}` has no state yet\n  `knoll apply` makes one, `knoll state push FILE` brings one")
    })
}
