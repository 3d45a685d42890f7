//! `knoll workspace edit`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use knoll_api::Workspace;
use knoll_api::names::field_manager;
use knoll_api::workspace::WorkspaceSpec;
use kube::ResourceExt;
use kube::api::PostParams;

use super::{Place, WorkspaceArg};
use crate::connect::{Connection, Explain};
use crate::{output, style};

/// The arguments of `knoll workspace edit`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Its name [default: the workspace that this folder uses]
    #[arg(add = crate::complete::workspaces())]
    name: Option<String>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// Opens the settings in an editor until they are accepted, or left as they were.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let name = match args.name {
        Some(name) => name,
        None => place.workspace_name(&args.workspace)?,
    };
    let mut workspace = place.workspace(&name).await?;
    let before = output::yaml(&workspace.spec)?;
    let mut file = tempfile::Builder::new().prefix(&format!("{name}-")).suffix(".yaml").tempfile()?;
    writeln!(
        file,
        "# The settings (spec) of workspace `{name}`. Save and leave to apply them; change nothing to keep them."
    )?;
    file.write_all(before.as_bytes())?;
    file.flush()?;
    open_editor(file.path())?;
    let text = std::fs::read_to_string(file.path()).context("cannot read what the editor wrote")?;
    let spec: WorkspaceSpec = match serde_saphyr::from_str(&text) {
        Ok(spec) => spec,
        Err(error) => {
            let error = error.to_string();
            let error = error.trim_start_matches("error: ");
            bail!("the settings cannot be read: {error}\n  nothing was changed{}", keep(file));
        }
    };
    if spec == workspace.spec {
        style::say("Unchanged", &format!("workspace `{name}`"));
        return Ok(ExitCode::SUCCESS);
    }
    let shown = std::mem::replace(&mut workspace.spec, spec);
    if let Err(error) = replace(&place, &shown, workspace).await {
        bail!("{error:#}\n  nothing was changed{}", keep(file));
    }
    style::say("Changed", &format!("workspace `{name}`"));
    Ok(ExitCode::SUCCESS)
}

/// Writes other settings in place of those that were shown.
async fn replace(place: &Place, shown: &WorkspaceSpec, mut workspace: Workspace) -> Result<()> {
    let name = workspace.name_any();
    let params = PostParams { field_manager: Some(field_manager::CLI.to_owned()), ..PostParams::default() };
    loop {
        match place.api::<Workspace>().replace(&name, &params, &workspace).await {
            // Its status changes whenever a run does; only other settings are somebody's change.
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                let now = place.workspace(&name).await?;
                if now.spec != *shown {
                    bail!("somebody else changed the workspace `{name}` meanwhile; edit it again");
                }
                workspace = Workspace { spec: workspace.spec, ..now };
            }
            result => {
                result.explain(&place.cluster, &format!("cannot change the workspace `{name}`"))?;
                return Ok(());
            }
        }
    }
}

/// What a person wrote must not be lost because of one wrong word.
fn keep(file: tempfile::NamedTempFile) -> String {
    match file.keep() {
        Ok((_, path)) => format!("; what you wrote is in `{}`", path.display()),
        Err(_) => String::new(),
    }
}

fn open_editor(path: &Path) -> Result<()> {
    let editor = ["KNOLL_EDITOR", "VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
        .unwrap_or_else(|| "vi".to_owned());
    // The setting may have arguments, as in `code --wait`.
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status();
    let status = status.with_context(|| format!("cannot start the editor `{editor}`"))?;
    if !status.success() {
        bail!(
            "the editor `{editor}` ended with {status}\n  nothing was changed; set $EDITOR to another one if it is not there"
        );
    }
    Ok(())
}
