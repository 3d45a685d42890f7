//! What the limits of Policies do: how long the Runs of a small tenant wait beside those of a large one, and what is left
//! after many Runs in one Workspace. On an embedded cluster with real terraform.

mod fairness;
mod left;

use std::path::PathBuf;
use std::time::Duration;

use knoll_api::Run;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::up::Up;

/// A module with one resource.
const MODULE: &str = "resource \"terraform_data\" \"a\" { input = \"x\" }\n";

/// The flags of `bench limits`.
#[derive(clap::Args)]
pub struct LimitsArgs {
    /// The `knoll` binary
    #[arg(long, value_name = "FILE")]
    knoll: PathBuf,
    /// How many Runs the large tenant starts; 0 skips this half
    #[arg(long, default_value_t = 500, value_name = "COUNT")]
    large: usize,
    /// How many Runs the small tenant starts after it
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    small: usize,
    /// How many Runs may have a pod at once
    #[arg(long, default_value_t = 4, value_name = "COUNT")]
    slots: usize,
    /// How many Runs a Workspace has; 0 skips this half
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    runs: usize,
    /// How long each half may take; what has ended until then is reported
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    patience: u64,
}

/// Measures both halves and prints a table of each.
pub async fn run(arguments: &LimitsArgs) -> anyhow::Result<()> {
    let patience = Duration::from_secs(arguments.patience);
    if arguments.large > 0 {
        let up = Up::new(&arguments.knoll, "fairness");
        up.start()?;
        let measured = fairness::run(arguments, &up, patience).await;
        up.remove()?;
        measured?;
    }
    if arguments.runs > 0 {
        let up = Up::new(&arguments.knoll, "left");
        up.start()?;
        let measured = left::run(arguments.runs, &up, patience).await;
        up.remove()?;
        measured?;
    }
    Ok(())
}

fn from<T: DeserializeOwned>(value: Value) -> anyhow::Result<T> {
    Ok(serde_json::from_value(value)?)
}

fn workspace(name: &str) -> anyhow::Result<knoll_api::Workspace> {
    from(json!({"metadata": {"name": name}, "spec": {}}))
}

async fn create_run(client: &Client, namespace: &str, name: &str, workspace: &str) -> anyhow::Result<()> {
    let spec = json!({"workspace": workspace, "operation": "apply", "source": {"inline": {"main.tf": MODULE}}});
    let mut run: Run = from(json!({"metadata": {"name": name}, "spec": spec}))?;
    run.metadata.finalizers = knoll_core::run::finalizers(&run.spec);
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &run).await?;
    Ok(())
}
