//! Measures Stacks that are created at once on an embedded cluster with real terraform, and a restart that must change
//! nothing.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::{Run, Stack};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::StacksArgs;
use super::traffic::{Reading, writes};
use crate::table::Table;
use crate::up::Up;

pub async fn run(arguments: &StacksArgs) -> anyhow::Result<()> {
    let up = Up::new(&arguments.knoll, "stacks");
    up.start()?;
    let measured = measure(arguments, &up).await;
    up.remove()?;
    measured
}

async fn measure(arguments: &StacksArgs, up: &Up) -> anyhow::Result<()> {
    let client = up.client().await?;
    let stacks: Api<Stack> = Api::default_namespaced(client.clone());
    let all: Vec<Stack> = (0..arguments.created).map(|number| stack(number, arguments.resources)).collect();
    let begun = Instant::now();
    let api = &stacks;
    let create = async |stack: Stack| api.create(&PostParams::default(), &stack).await.map(drop);
    stream::iter(all).map(create).buffer_unordered(32).try_collect::<Vec<_>>().await?;
    let created = begun.elapsed();
    ready(&stacks, arguments).await?;
    let took = begun.elapsed();
    let runs: Api<Run> = Api::default_namespaced(client.clone());
    let before = names(&runs).await?;

    up.stop()?;
    up.start()?;
    let client = up.client().await?;
    let runs: Api<Run> = Api::default_namespaced(client.clone());
    let port = port(&client).await?;
    let deadline = Instant::now() + arguments.patience();
    while Reading::of(port).await?.reconciles < arguments.created as u64 {
        if Instant::now() > deadline {
            bail!("the operator has not reconciled every Stack after its restart");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(arguments.idle().min(Duration::from_secs(20))).await;
    let reading = Reading::of(port).await?;
    let after = names(&runs).await?;
    // The only expected write records the operator's ports.
    let written: Vec<String> = reading
        .requests
        .iter()
        .filter(|((verb, resource), _)| writes(verb) && !matches!(resource.as_str(), "configmaps" | "tokenreviews"))
        .map(|((verb, resource), count)| format!("{count} {verb} {resource}"))
        .collect();

    let mut table = Table::default();
    let each = format!("{} stacks, {} resources each", arguments.created, arguments.resources);
    table.row([each.as_str(), ""]);
    table.row(["created", &format!("{:.1} s", created.as_secs_f64())]);
    table.row(["all Ready", &format!("{:.1} s", took.as_secs_f64())]);
    #[allow(clippy::cast_precision_loss, reason = "a rate, not an account")]
    let rate = arguments.created as f64 / took.as_secs_f64();
    table.row(["stacks a second", &format!("{rate:.2}")]);
    table.row(["runs", &before.len().to_string()]);
    table.row(["runs after a restart", &after.len().to_string()]);
    table.row(["writes after a restart", &written.len().to_string()]);
    table.lines().iter().for_each(|line| println!("{line}"));
    println!();
    if before.len() != arguments.created || after != before {
        bail!("{} runs for {} Stacks, {} after a restart", before.len(), arguments.created, after.len());
    }
    if !written.is_empty() {
        bail!("the operator wrote although nothing has changed: {}", written.join(", "));
    }
    Ok(())
}

fn stack(number: usize, resources: usize) -> Stack {
    let text: String = (0..resources)
        .map(|resource| format!("resource \"terraform_data\" \"r{resource}\" {{ input = \"{number}\" }}\n"))
        .collect();
    let stack = json!({
        "apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": format!("stack-{number}")},
        "spec": {"source": {"inline": {"main.tf": text}}},
    });
    serde_json::from_value(stack).unwrap_or_else(|_| Stack::new("", Default::default()))
}

async fn ready(stacks: &Api<Stack>, arguments: &StacksArgs) -> anyhow::Result<()> {
    let deadline = Instant::now() + arguments.patience();
    loop {
        let found = stacks.list(&ListParams::default()).await?;
        let phase = |stack: &Stack| stack.status.as_ref().map(|status| status.phase.as_str()).unwrap_or_default();
        let ready = found.iter().filter(|stack| phase(stack) == "Ready").count();
        if ready == arguments.created {
            return Ok(());
        }
        if let Some(failed) = found.iter().find(|stack| matches!(phase(stack), "Held" | "Failure")) {
            bail!("`{}` has failed: {:?}", failed.name_any(), failed.status);
        }
        if Instant::now() > deadline {
            bail!("{ready} of {} Stacks are Ready", arguments.created);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn names(runs: &Api<Run>) -> anyhow::Result<Vec<String>> {
    let mut names: Vec<String> =
        runs.list_metadata(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    names.sort();
    Ok(names)
}

/// The metrics port of the operator of `knoll up`.
async fn port(client: &Client) -> anyhow::Result<u16> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let map = maps.get("knoll-hub").await?;
    let port = map.data.as_ref().and_then(|data| data.get("metricsPort")).context("no port is recorded")?;
    Ok(port.parse()?)
}
