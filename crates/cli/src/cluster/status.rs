//! `knoll status`.

use std::process::ExitCode;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::{Run, Workspace};
use kube::api::{Api, ListParams};

use super::folder::{Folder, FolderArgs};
use crate::style;

/// The arguments of `knoll status`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    folder: FolderArgs,
}

/// Tells whether the cluster runs. The exit code is 0 when it does and 1 when it does not.
pub fn run(args: &Args) -> Result<ExitCode> {
    let folder = args.folder.folder()?;
    let Some(running) = folder.running()? else {
        style::say("Not running:", &format!("no cluster in `{}`; start it with `knoll up`", folder.path().display()));
        return Ok(ExitCode::FAILURE);
    };
    let pid = running.pid.map_or_else(|| "starting".to_owned(), |pid| pid.to_string());
    style::say("Running:", &format!("the cluster in `{}`", folder.path().display()));
    style::field("process", &pid);
    if let Some(address) = folder.address() {
        style::field("server", &address);
    }
    style::field("kubeconfig", &folder.kubeconfig().display().to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(contents(&folder)) {
        Ok((version, counts)) => {
            style::field("version", &version);
            style::field("objects", &counts);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            style::note(&format!("the API server does not answer: {error:#}"));
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn contents(folder: &Folder) -> Result<(String, String)> {
    let config = kube::config::Kubeconfig::read_from(folder.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await?;
    let client = kube::Client::try_from(config)?;
    let version = client.apiserver_version().await?.git_version;
    let few = ListParams::default();
    let workspaces = Api::<Workspace>::all(client.clone()).list_metadata(&few).await?.items.len();
    let runs = Api::<Run>::all(client.clone()).list_metadata(&few).await?.items.len();
    let pods = Api::<Pod>::all(client).list_metadata(&few).await?.items.len();
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let counts = [count(workspaces, "workspace"), count(runs, "run"), count(pods, "pod")];
    Ok((version, counts.join(", ")))
}
