//! Measures an operator with many settled Stacks: its memory, and its requests while nothing changes.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::stack::StackPhase;
use knoll_api::step::{StepName, StepStatus};
use knoll_api::wire::{Exit, Progress};
use knoll_api::{Run, Stack};
use knoll_embedded::Cluster;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::StacksArgs;
use super::traffic::{Reading, writes};
use crate::table::Table;

pub async fn run(arguments: &StacksArgs) -> anyhow::Result<()> {
    let cluster = Cluster::memory().await?;
    let client = cluster.client();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in knoll_api::crds() {
        crds.create(&PostParams::default(), &crd).await?;
        await_condition(crds.clone(), &crd.name_any(), conditions::is_crd_established()).await?;
    }
    let kubeconfig = std::env::temp_dir().join(format!("knoll-bench-{}.kubeconfig", std::process::id()));
    cluster.write_kubeconfig(&kubeconfig)?;
    let measured = measure(arguments, &client, &kubeconfig.to_string_lossy()).await;
    let _ = std::fs::remove_file(&kubeconfig);
    cluster.stop().await;
    measured
}

async fn measure(arguments: &StacksArgs, client: &Client, kubeconfig: &str) -> anyhow::Result<()> {
    let port = free_port()?;
    let begin = |port: u16| Operator::start(arguments, kubeconfig, port);
    let first = begin(port)?;
    let empty = Reading::first(port, arguments.patience()).await?.memory;
    let stacks: Api<Stack> = Api::default_namespaced(client.clone());
    let playing = tokio::spawn(runners(client.clone()));
    let create = async |number: usize| {
        let stack = json!({
            "apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": format!("stack-{number}")},
            "spec": {
                "source": {"inline": {"main.tf": "resource \"terraform_data\" \"a\" {}\n"}},
                "variables": {"number": number},
                "drift": {"interval": "24h"},
            },
        });
        stacks.create(&PostParams::default(), &serde_json::from_value(stack)?).await?;
        anyhow::Ok(())
    };
    let begun = Instant::now();
    stream::iter(0..arguments.settled).map(create).buffer_unordered(16).try_collect::<Vec<_>>().await?;
    settled(&stacks, arguments).await?;
    let took = begun.elapsed();
    // The operator is restarted, so that the creation of the Stacks does not count.
    drop(first);
    playing.abort();
    let port = free_port()?;
    let _second = begin(port)?;
    Reading::first(port, arguments.patience()).await?;
    let deadline = Instant::now() + arguments.patience();
    while Reading::of(port).await?.reconciles < arguments.settled as u64 {
        if Instant::now() > deadline {
            bail!("the operator has not reconciled every Stack");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let before = Reading::of(port).await?;
    tokio::time::sleep(arguments.idle()).await;
    let after = Reading::of(port).await?;

    let minutes = arguments.idle().as_secs_f64() / 60.0;
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let mut table = Table::default();
    table.row([format!("{} settled stacks", arguments.settled).as_str(), ""]);
    table.row(["settled in", &format!("{:.1} s", took.as_secs_f64())]);
    table.row(["memory of an operator without any", &mib(empty)]);
    table.row(["memory of the operator", &mib(after.memory)]);
    let requests = after.since(&before);
    for ((verb, resource), count) in &requests {
        #[allow(clippy::cast_precision_loss, reason = "a rate, not an account")]
        let rate = *count as f64 / minutes;
        table.row([format!("{verb} {resource} a minute").as_str(), &format!("{rate:.0}")]);
    }
    table.lines().iter().for_each(|line| println!("{line}"));
    let other: Vec<_> =
        requests.iter().filter(|((verb, resource), _)| resource != "leases" && verb != "watch").collect();
    if !other.is_empty() {
        bail!("the operator sent requests other than for its Lease, although nothing changed: {other:?}");
    }
    let written: Vec<_> = after
        .requests
        .iter()
        .filter(|((verb, what), _)| writes(verb) && matches!(what.as_str(), "stacks" | "runs"))
        .collect();
    if !written.is_empty() {
        bail!("the operator wrote to settled Stacks: {written:?}");
    }
    Ok(())
}

/// An operator in its own process, which stops when dropped.
struct Operator(Child);

impl Operator {
    fn start(arguments: &StacksArgs, kubeconfig: &str, port: u16) -> anyhow::Result<Self> {
        let mut command = Command::new(&arguments.knoll);
        command.args(["operator", "--kubeconfig", kubeconfig, "--lease-namespace", "default"]);
        command.args(["--hub-listen", "127.0.0.1:0", "--hub-url", "https://127.0.0.1:1"]);
        command
            .args(["--metrics-listen", &format!("127.0.0.1:{port}"), "--page-listen", "127.0.0.1:0"])
            .env("KNOLL_LOG", "error");
        let child = command.stdin(Stdio::null()).spawn().context("cannot start `knoll operator`")?;
        Ok(Self(child))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        // SIGTERM lets the operator release its Lease, so that the next one does not wait for it.
        let _ = Command::new("kill").arg(&pid).status();
        let _ = self.0.wait();
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Finishes every Run as its runner would.
async fn runners(client: Client) {
    let runs: Api<Run> = Api::default_namespaced(client);
    let events = watcher(runs.clone(), watcher::Config::default()).default_backoff().touched_objects();
    let runs = Arc::new(runs);
    events
        .for_each_concurrent(16, |run| {
            let runs = runs.clone();
            async move {
                let Ok(run) = run else { return };
                let goes_on =
                    run.status.as_ref().is_some_and(|status| status.pod_uid.is_some() && !status.phase.is_finished());
                if !goes_on {
                    return;
                }
                let now = jiff::Timestamp::now();
                let steps = vec![StepStatus::started(StepName::Apply, MicroTime(now), 0)];
                let progress = Progress { sequence: 1, steps, exit: Some(Exit::default()), ..Progress::default() };
                let status = knoll_core::progress::merge(&run, &progress, now);
                let version = run.resource_version();
                let patch = knoll_core::patch::status(version.as_deref(), run.status.as_ref(), &status);
                // A conflicting write brings another event.
                if let Ok(Some(patch)) = patch {
                    let _ = runs.patch_status(&run.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
                }
            }
        })
        .await;
}

async fn settled(stacks: &Api<Stack>, arguments: &StacksArgs) -> anyhow::Result<()> {
    let deadline = Instant::now() + arguments.patience();
    loop {
        let found = stacks.list(&ListParams::default()).await?;
        let is_ready = |stack: &&Stack| stack.status.as_ref().is_some_and(|status| status.phase == StackPhase::Ready);
        let ready = found.iter().filter(is_ready).count();
        if ready == arguments.settled {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{ready} of {} Stacks are Ready", arguments.settled);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
