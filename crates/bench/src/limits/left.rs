//! Many Runs in one Workspace, and what is left of them in the cluster and on the disk.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use knoll_api::run::RunPhase;
use knoll_api::{Run, Workspace};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{create_run, workspace};
use crate::table::Table;
use crate::up::Up;

const NAMESPACE: &str = "default";
/// How often the Runs are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How many Runs are in the queue at the same time.
const AHEAD: usize = 10;
/// The time after the last Run in which its pod is deleted.
const SETTLED: Duration = Duration::from_secs(40);

pub async fn run(count: usize, up: &Up, patience: Duration) -> anyhow::Result<()> {
    let client = up.client().await?;
    let workspaces: Api<Workspace> = Api::namespaced(client.clone(), NAMESPACE);
    workspaces.create(&PostParams::default(), &workspace("w")?).await?;
    let before = disk(&up.folder);
    let runs: Api<Run> = Api::namespaced(client.clone(), NAMESPACE);
    let begun = Instant::now();
    let mut created = 0;
    loop {
        let listed = runs.list(&ListParams::default()).await?;
        let phase = |run: &Run| run.status.as_ref().map(|status| status.phase).unwrap_or_default();
        if let Some(failed) = listed.iter().find(|run| phase(run) == RunPhase::Failed) {
            bail!("`{}` has failed: {:?}", failed.name_any(), failed.status);
        }
        let open = listed.iter().filter(|run| !phase(run).is_finished()).count();
        let is_late = begun.elapsed() > patience;
        if open == 0 && (created == count || is_late) {
            break;
        }
        let next = AHEAD.saturating_sub(open).min(count - created);
        for _ in 0..if is_late { 0 } else { next } {
            create_run(&client, NAMESPACE, &format!("run-{created:04}"), "w").await?;
            created += 1;
        }
        tokio::time::sleep(LOOK).await;
    }
    let took = begun.elapsed();
    tokio::time::sleep(SETTLED).await;
    let mut table = Table::default();
    let title = format!("left of {created} Runs");
    table.row([title.as_str(), "objects", "bytes"]);
    count_of::<Run>(&client, "Runs", &mut table).await?;
    count_of::<Pod>(&client, "Pods", &mut table).await?;
    count_of::<Secret>(&client, "Secrets", &mut table).await?;
    count_of::<ConfigMap>(&client, "ConfigMaps", &mut table).await?;
    let after = disk(&up.folder);
    let grown = |of: fn(&(u64, u64)) -> u64| of(&after).saturating_sub(of(&before)).to_string();
    table.row(["files on the disk, more than before", &grown(|it| it.0), &grown(|it| it.1)]);
    table.lines().iter().for_each(|line| println!("{line}"));
    println!("{created} Runs took {:.0} s", took.as_secs_f64());
    println!();
    Ok(())
}

async fn count_of<K>(client: &Client, name: &str, table: &mut Table) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Serialize
        + std::fmt::Debug,
{
    let found = Api::<K>::namespaced(client.clone(), NAMESPACE).list(&ListParams::default()).await?;
    let mut bytes = 0;
    for object in &found {
        bytes += serde_json::to_vec(object)?.len();
    }
    table.row([name, &found.items.len().to_string(), &bytes.to_string()]);
    Ok(())
}

/// The number of files below a folder and of their bytes. What goes away meanwhile does not count.
fn disk(folder: &Path) -> (u64, u64) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.fold((0, 0), |(files, bytes), entry| match entry.metadata() {
        Ok(found) if found.is_dir() => {
            let (more, larger) = disk(&entry.path());
            (files + more, bytes + larger)
        }
        Ok(found) => (files + 1, bytes + found.len()),
        Err(_) => (files, bytes),
    })
}
