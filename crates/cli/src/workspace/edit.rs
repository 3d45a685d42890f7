//! `knoll workspace edit`.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use knoll_api::Workspace;
use knoll_api::names::field_manager;
use knoll_api::workspace::WorkspaceSpec;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams, ValidationDirective};

use super::{Session, WorkspaceArg};
use crate::connect::{Connection, Explain};
use crate::{output, style};

/// The arguments of `knoll workspace edit`.
#[derive(clap::Args)]
pub struct WorkspaceEditArgs {
    #[command(flatten)]
    connection: Connection,
    /// The name of the workspace [default: the one selected in this directory]
    #[arg(add = crate::complete::workspaces(), value_parser = crate::workspace::plain_name::<knoll_api::Workspace>)]
    name: Option<String>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// Opens the spec in an editor until the API server accepts it or it is unchanged.
pub async fn run(args: WorkspaceEditArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let name = match args.name {
        Some(name) => name,
        None => session.workspace_name(&args.workspace)?,
    };
    let mut workspace = session.workspace(&name).await?;
    let before = output::yaml(&workspace.spec)?;
    let mut file = tempfile::Builder::new().prefix(&format!("{name}-")).suffix(".yaml").tempfile()?;
    writeln!(
        file,
        "# The spec of workspace `{name}`. Save and close the editor to apply it; leave it unchanged to cancel."
    )?;
    file.write_all(before.as_bytes())?;
    file.flush()?;
    open_editor(file.path())?;
    let text = std::fs::read_to_string(file.path()).context("cannot read the edited file")?;
    let spec: WorkspaceSpec = match serde_saphyr::from_str(&text) {
        Ok(spec) => spec,
        Err(error) => {
            let error = error.to_string();
            let error = error.trim_start_matches("error: ");
            bail!("the spec is not valid YAML: {error}\n  nothing was changed{}", keep(file));
        }
    };
    if text != before
        && let Err(error) = check(&session, &name, &text).await
    {
        bail!("{error:#}\n  nothing was changed{}", keep(file));
    }
    if spec == workspace.spec {
        style::say("Unchanged", &format!("workspace `{name}`"));
        return Ok(ExitCode::SUCCESS);
    }
    let shown = std::mem::replace(&mut workspace.spec, spec);
    if let Err(error) = replace(&session, &shown, workspace).await {
        bail!("{error:#}\n  nothing was changed{}", keep(file));
    }
    style::say("Changed", &format!("workspace `{name}`"));
    Ok(ExitCode::SUCCESS)
}

/// Lets the API server check the edited text. An unknown field is an error here; the typed spec would leave it out.
async fn check(session: &Session, name: &str, text: &str) -> Result<()> {
    let spec: serde_json::Value = serde_saphyr::from_str(text)?;
    let params = PatchParams {
        dry_run: true,
        field_manager: Some(field_manager::CLI.to_owned()),
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(serde_json::json!({"spec": spec}));
    let checked = session.api::<Workspace>().patch(name, &params, &patch).await;
    checked.explain(&session.cluster, &format!("cannot update workspace `{name}`"))?;
    Ok(())
}

/// Replaces the spec, unless it differs from the one that was shown.
async fn replace(session: &Session, shown: &WorkspaceSpec, mut workspace: Workspace) -> Result<()> {
    let name = workspace.name_any();
    let params = PostParams { field_manager: Some(field_manager::CLI.to_owned()), ..PostParams::default() };
    loop {
        match session.api::<Workspace>().replace(&name, &params, &workspace).await {
            // The status changes with every run. Only a changed spec is a conflict.
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                let now = session.workspace(&name).await?;
                if now.spec != *shown {
                    bail!("workspace `{name}` was changed by someone else in the meantime; edit it again");
                }
                workspace = Workspace { spec: workspace.spec, ..now };
            }
            result => {
                result.explain(&session.cluster, &format!("cannot update workspace `{name}`"))?;
                return Ok(());
            }
        }
    }
}

/// Keeps the edited file, so that a rejected edit is not lost.
fn keep(file: tempfile::NamedTempFile) -> String {
    match file.keep() {
        Ok((_, path)) => format!("; your changes are saved in `{}`", path.display()),
        Err(_) => String::new(),
    }
}

fn open_editor(path: &Path) -> Result<()> {
    let named = ["KNOLL_EDITOR", "VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()));
    if named.is_none() && !std::io::stdin().is_terminal() {
        bail!(
            "there is no terminal for an editor\n  set $EDITOR to a program that needs none, or use `kubectl patch workspace`"
        );
    }
    let editor = named.unwrap_or_else(|| "vi".to_owned());
    // `$EDITOR` may have arguments, as in `code --wait`.
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status();
    let status = status.with_context(|| format!("cannot start the editor `{editor}`"))?;
    if !status.success() {
        bail!(
            "the editor `{editor}` failed with {status}\n  nothing was changed; set $EDITOR to choose another editor"
        );
    }
    Ok(())
}
