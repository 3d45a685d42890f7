//! `cargo xtask demo`: a real `terraform apply`, from a file to its outputs, on an embedded cluster.
//!
//! Its arguments are the `knoll` binary and the tool that is on the PATH.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};
use futures::TryStreamExt;
use knoll_api::run::StepState;
use knoll_api::{Run, Workspace};
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, watcher};

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(program), Some(tool)) = (words.next(), words.next()) else {
        bail!("start it with `cargo xtask demo`");
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().context("cannot make a folder for the demo")?;
    let knoll = Knoll { program: program.into(), folder: folder.path().join("data") };
    phase("knoll up --detach", || knoll.call(&["up", "--detach", "--port", "0"]))?;
    let shown = show(&knoll, &tool);
    phase("knoll down", || knoll.call(&["down"]))?;
    shown
}

/// Does a piece of work and says how long it took.
fn phase<T>(title: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    println!("==> {title}");
    let begun = Instant::now();
    let result = work()?;
    println!("    done in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(result)
}

/// The binary, and the cluster of this demo.
struct Knoll {
    program: PathBuf,
    folder: PathBuf,
}

impl Knoll {
    fn call(&self, words: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--data-dir").arg(&self.folder);
        let status = command.status().context("cannot start knoll")?;
        if !status.success() {
            bail!("`knoll {}` ended with {status}", words.join(" "));
        }
        Ok(())
    }

    async fn client(&self) -> anyhow::Result<kube::Client> {
        let file = kube::config::Kubeconfig::read_from(self.folder.join("kubeconfig"))?;
        let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
        Ok(kube::Client::try_from(config)?)
    }
}

fn show(knoll: &Knoll, tool: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = knoll.client().await.context("cannot use the cluster's kubeconfig")?;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/first-run");
        println!("==> kubectl create -f examples/first-run");
        let mut workspace: Workspace = read(&folder.join("workspace.yaml"))?;
        if tool == "tofu" {
            workspace.spec.tool = knoll_api::workspace::Tool::Tofu;
        }
        let workspaces: Api<Workspace> = Api::default_namespaced(client.clone());
        let workspace =
            workspaces.create(&PostParams::default(), &workspace).await.context("cannot create the Workspace")?;
        let name = workspace.metadata.name.unwrap_or_default();
        println!("    workspace.knoll.dev/{name} created");
        let runs: Api<Run> = Api::default_namespaced(client);
        let run = runs
            .create(&PostParams::default(), &read(&folder.join("run.yaml"))?)
            .await
            .context("cannot create the Run")?;
        let run = run.metadata.name.unwrap_or_default();
        println!("    run.knoll.dev/{run} created");
        follow(runs, &run).await?;
        println!("==> outputs of the Workspace");
        let outputs = outputs(workspaces, &name).await?;
        for (key, value) in &outputs {
            println!("    {key} = {value}");
        }
        Ok(())
    })
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{} is not what it should be", path.display()))
}

/// Prints each phase and each step as it ends.
async fn follow(runs: Api<Run>, name: &str) -> anyhow::Result<()> {
    println!("==> the Run, step by step");
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut stream = Box::pin(watcher(runs, config).applied_objects());
    let mut phase = None;
    let mut printed = 0;
    while let Some(run) = stream.try_next().await? {
        let Some(status) = run.status else { continue };
        if phase != Some(status.phase) {
            phase = Some(status.phase);
            println!("    {}", status.phase.as_str());
        }
        for step in status.steps.iter().skip(printed).take_while(|s| s.state.is_finished()) {
            printed += 1;
            let time = match (&step.started_at, &step.finished_at) {
                (Some(from), Some(to)) => format!("{:>5} ms", (to.0.as_millisecond() - from.0.as_millisecond())),
                _ => String::new(),
            };
            let code = step.exit_code.map(|c| format!("exit {c}")).unwrap_or_default();
            println!("      {:<10} {:<10} {time}  {code}", step.name.as_str(), format!("{:?}", step.state));
            if step.state == StepState::Failed {
                println!("{}", step.message.as_deref().unwrap_or_default());
            }
        }
        if status.phase.is_finished() {
            if let Some(plan) = &status.plan {
                println!("    plan: {} to add, {} to change, {} to destroy", plan.add, plan.change, plan.destroy);
            }
            if status.exit_code != Some(0) {
                let why = status.conditions.iter().map(|c| c.message.as_str()).collect::<Vec<_>>().join("; ");
                bail!("the run ended as {}: {why}", status.phase.as_str());
            }
            return Ok(());
        }
    }
    bail!("the watch ended before the run did")
}

/// The Workspace's outputs, once its controller has written them.
async fn outputs(workspaces: Api<Workspace>, name: &str) -> anyhow::Result<Vec<(String, String)>> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut stream = Box::pin(watcher(workspaces, config).applied_objects());
    while let Some(workspace) = stream.try_next().await? {
        let outputs = workspace.status.unwrap_or_default().outputs;
        if !outputs.is_empty() {
            return Ok(outputs.iter().map(|(key, value)| (key.clone(), value.to_string())).collect());
        }
    }
    bail!("the watch ended before there were outputs")
}
