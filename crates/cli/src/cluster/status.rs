//! `knoll status`: shows whether the embedded cluster is running.

use std::process::ExitCode;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::{Run, Workspace};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::folder::{Folder, FolderArgs};
use crate::output::{self, Format, OutputArgs};
use crate::style;

/// The arguments of `knoll status`.
#[derive(clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the status. The exit code is 0 when the cluster is running and healthy, and 1 otherwise.
pub fn run(args: &StatusArgs) -> Result<ExitCode> {
    let folder = args.folder.folder()?;
    let status = inspect(&folder)?;
    match args.output.output {
        Format::Table | Format::Wide => show(&folder, &status),
        Format::Name => output::print(&format!("{}\n", folder.path().display()))?,
        format => output::value(&status, format)?,
    }
    let works = status["running"] == true && status["problem"].is_null();
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn inspect(folder: &Folder) -> Result<Value> {
    let Some(running) = folder.running()? else {
        return Ok(json!({"running": false, "folder": folder.path()}));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let contents = runtime.block_on(contents(folder));
    let problem = contents.as_ref().err().map(|error| format!("the API server does not respond: {error:#}"));
    let (version, objects) = contents.ok().unzip();
    Ok(json!({
        "running": true, "folder": folder.path(), "process": running.pid, "server": folder.address(),
        "kubeconfig": folder.kubeconfig(), "version": version, "objects": objects, "problem": problem,
    }))
}

fn show(folder: &Folder, status: &Value) {
    if status["running"] != true {
        style::say("Not running:", &format!("no cluster in `{}`; start it with `knoll up`", folder.path().display()));
        return;
    }
    style::say("Running:", &format!("the cluster in `{}`", folder.path().display()));
    style::field("process", &status["process"].as_i64().map_or_else(|| "starting".to_owned(), |pid| pid.to_string()));
    for name in ["server", "kubeconfig", "version"] {
        if let Some(text) = status[name].as_str() {
            style::field(name, text);
        }
    }
    if let Some(objects) = status["objects"].as_object() {
        let count = |(what, number): (&String, &Value)| {
            format!("{number} {}", if *number == 1 { what.trim_end_matches('s') } else { what })
        };
        style::field("objects", &objects.iter().map(count).collect::<Vec<_>>().join(", "));
    }
    if let Some(problem) = status["problem"].as_str() {
        style::note(problem);
    }
}

/// The version of the API server, and the number of objects of some kinds.
async fn contents(folder: &Folder) -> Result<(String, Value)> {
    let config = kube::config::Kubeconfig::read_from(folder.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await?;
    let client = kube::Client::try_from(config)?;
    let version = client.apiserver_version().await?.git_version;
    let few = ListParams::default();
    let workspaces = Api::<Workspace>::all(client.clone()).list_metadata(&few).await?.items.len();
    let runs = Api::<Run>::all(client.clone()).list_metadata(&few).await?.items.len();
    let pods = Api::<Pod>::all(client).list_metadata(&few).await?.items.len();
    Ok((version, json!({"workspaces": workspaces, "runs": runs, "pods": pods})))
}
