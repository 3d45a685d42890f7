//! Two tenants and a few slots: the large one has its Runs in line before the small one begins.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use knoll_api::run::RunPhase;
use knoll_api::{Policy, Run};
use kube::api::{ListParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::{LimitsArgs, create_run, from, workspace};
use crate::spread::Spread;
use crate::table::Table;
use crate::up::Up;

/// How often the Runs are looked at.
const LOOK: Duration = Duration::from_secs(1);

pub async fn run(arguments: &LimitsArgs, up: &Up, patience: Duration) -> anyhow::Result<()> {
    let client = up.client().await?;
    let limits = json!({"limits": {"runs": {"cluster": arguments.slots}}});
    let policy: Policy = from(json!({"metadata": {"name": "slots"}, "spec": limits}))?;
    Api::all(client.clone()).create(&PostParams::default(), &policy).await?;
    for tenant in ["large", "small"] {
        let namespace: Namespace = from(json!({"metadata": {"name": tenant}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), tenant);
        let there = await_condition(accounts, "default", |account: Option<&ServiceAccount>| account.is_some());
        tokio::time::timeout(patience, there).await.context("the namespace has no account")??;
    }
    start(&client, "large", arguments.large).await?;
    let begun = Instant::now();
    start(&client, "small", arguments.small).await?;
    let wanted = [("large", arguments.large), ("small", arguments.small)];
    let mut most = 0;
    let mut small_took = None;
    loop {
        let (mut ended, mut at_once) = (BTreeMap::new(), 0);
        for (tenant, _) in wanted {
            let runs: Api<Run> = Api::namespaced(client.clone(), tenant);
            let runs = runs.list(&ListParams::default()).await?;
            let phases = runs.iter().map(|run| run.status.as_ref().map(|status| status.phase).unwrap_or_default());
            let (mut done, mut working) = (0, 0);
            for phase in phases {
                done += usize::from(phase.is_finished());
                working += usize::from(matches!(phase, RunPhase::Starting | RunPhase::Running));
            }
            at_once += working;
            ended.insert(tenant, done);
        }
        most = most.max(at_once);
        if ended.get("small") == Some(&arguments.small) {
            small_took.get_or_insert(begun.elapsed());
        }
        if wanted.iter().all(|(tenant, count)| ended.get(tenant) == Some(count)) || begun.elapsed() > patience {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let mut table = Table::default();
    let title = format!("{} Runs at once", arguments.slots);
    table.row([title.as_str(), "Runs", "started", "ended", "first wait", "median wait", "longest wait", "median run"]);
    for (tenant, count) in wanted {
        let runs: Api<Run> = Api::namespaced(client.clone(), tenant);
        let runs = runs.list(&ListParams::default()).await?;
        let waits = spread(runs.iter().filter_map(wait));
        let took = spread(runs.iter().filter_map(duration));
        let is_done = |run: &&Run| run.status.as_ref().is_some_and(|status| status.phase.is_finished());
        let started = runs.iter().filter(|run| wait(run).is_some()).count();
        let seconds = |value: f64| format!("{value:.1} s");
        let (first, longest) = waits.bounds();
        table.row([
            tenant,
            &count.to_string(),
            &started.to_string(),
            &runs.iter().filter(is_done).count().to_string(),
            &seconds(first),
            &seconds(waits.median()),
            &seconds(longest),
            &seconds(took.median()),
        ]);
    }
    table.lines().iter().for_each(|line| println!("{line}"));
    let all = small_took.map_or_else(|| "not".to_owned(), |took| format!("after {:.1} s", took.as_secs_f64()));
    println!("the small tenant was done: {all}; most Runs with a pod at a look: {most}");
    println!();
    Ok(())
}

async fn start(client: &Client, tenant: &str, count: usize) -> anyhow::Result<()> {
    let one = async |number: usize| {
        let name = format!("{tenant}-{number:04}");
        let api = Api::namespaced(client.clone(), tenant);
        api.create(&PostParams::default(), &workspace(&name)?).await?;
        create_run(client, tenant, &name, &name).await
    };
    stream::iter(0..count).map(one).buffer_unordered(16).try_collect::<Vec<_>>().await.map(drop)
}

/// From the creation of a Run to that of its pod. The API counts creations in whole seconds.
fn wait(run: &Run) -> Option<f64> {
    let created = run.creation_timestamp()?.0;
    let started = run.status.as_ref()?.started_at.as_ref()?.0;
    Some(started.duration_since(created).as_secs_f64().max(0.0))
}

fn duration(run: &Run) -> Option<f64> {
    let status = run.status.as_ref()?;
    let (started, finished) = (status.started_at.as_ref()?.0, status.finished_at.as_ref()?.0);
    Some(finished.duration_since(started).as_secs_f64())
}

fn spread(readings: impl Iterator<Item = f64>) -> Spread {
    let mut spread = Spread::default();
    readings.for_each(|reading| spread.add(reading));
    spread
}
