//! `cargo xtask demo`: the life of a Stack on an embedded cluster, with real terraform: planned, reviewed, applied,
//! applied again when its variables change, and destroyed when it is deleted.
//!
//! Its arguments are the `knoll` binary and the tool that is on the PATH.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::TryStreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::run::{RunPhase, StepName, StepState};
use knoll_api::stack::StackPhase;
use knoll_api::{Run, Stack};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Resource, ResourceExt};
use serde_json::json;

/// The timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// Runs a piece of work, and prints how long it took.
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
        // The demo ignores the user's other clusters.
        command.args(words).env("KNOLL_DATA_DIR", &self.folder).env("KUBECONFIG", self.folder.join("kubeconfig"));
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
        let demo = Demo { knoll, client };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/stack-config-map");
        println!("==> kubectl create -f examples/stack-config-map");
        demo.create::<ConfigMap>(read(&folder.join("module.yaml"))?).await?;
        demo.create::<Secret>(read(&folder.join("variables.yaml"))?).await?;
        let mut stack: Stack = read(&folder.join("stack.yaml"))?;
        if tool == "tofu" {
            stack.spec.workspace.tool = knoll_api::workspace::Tool::Tofu;
        }
        let name = stack.metadata.name.clone().unwrap_or_default();
        demo.create(stack).await?;
        demo.reviewed(&name, 1).await?;
        demo.ready(&name, 1).await?;

        println!("==> kubectl patch secret net-vars: zones = [\"a\", \"b\", \"c\"]");
        let zones = json!({"stringData": {"zones.auto.tfvars": "zones = [\"a\", \"b\", \"c\"]\n"}});
        let secrets: Api<Secret> = Api::default_namespaced(demo.client.clone());
        secrets
            .patch("net-vars", &PatchParams::default(), &Patch::Merge(zones))
            .await
            .context("cannot edit the Secret")?;
        demo.reviewed(&name, 2).await?;
        demo.ready(&name, 2).await?;

        println!("==> kubectl delete stack {name}");
        demo.stacks().delete(&name, &DeleteParams::default()).await.context("cannot delete the Stack")?;
        demo.reviewed(&name, 3).await?;
        let gone = await_condition(demo.stacks(), &name, |stack: Option<&Stack>| stack.is_none());
        tokio::time::timeout(PATIENCE, gone).await.context("the Stack is still there")??;
        println!("    stack.knoll.dev/{name} is gone, and so is all that it made");
        Ok(())
    })
}

/// The cluster of this demo, and its user.
struct Demo<'a> {
    knoll: &'a Knoll,
    client: kube::Client,
}

impl Demo<'_> {
    fn stacks(&self) -> Api<Stack> {
        Api::default_namespaced(self.client.clone())
    }

    async fn create<K>(&self, object: K) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let (kind, name) = (K::kind(&()).to_lowercase(), object.name_any());
        let api: Api<K> = Api::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("cannot create the {kind} {name}"))?;
        println!("    {kind}/{name} created");
        Ok(())
    }

    /// Follows the Run of this number to its review, approves it, and follows it to its end.
    async fn reviewed(&self, stack: &str, number: u32) -> anyhow::Result<()> {
        let named = move |stack: Option<&Stack>| {
            stack.is_some_and(|stack| stack.status.as_ref().is_some_and(|status| status.runs >= number))
        };
        let waits = tokio::time::timeout(PATIENCE, await_condition(self.stacks(), stack, named));
        let found = waits.await.context("the Stack starts no run")??;
        let run = found.and_then(|stack| stack.status?.last_run).unwrap_or_default();
        let runs: Api<Run> = Api::default_namespaced(self.client.clone());
        println!("==> Run {run}, step by step");
        let mut seen = Seen::default();
        follow(&runs, &run, &mut seen).await?;
        println!("==> knoll approve {run} --yes");
        self.knoll.call(&["approve", &run, "--yes"])?;
        follow(&runs, &run, &mut seen).await
    }

    /// Waits until the Stack is Ready after this many Runs, and prints its outputs.
    async fn ready(&self, name: &str, runs: u32) -> anyhow::Result<()> {
        let is_ready = move |stack: Option<&Stack>| {
            let status = stack.and_then(|stack| stack.status.as_ref());
            status.is_some_and(|status| status.phase == StackPhase::Ready && status.settled >= runs)
        };
        let waits = tokio::time::timeout(PATIENCE, await_condition(self.stacks(), name, is_ready));
        let stack = waits.await.context("the Stack is not Ready")??;
        println!("==> outputs of the Stack (the sensitive ones are in the Secret net-outputs only)");
        for (key, value) in stack.and_then(|stack| stack.status).unwrap_or_default().outputs {
            println!("    {key} = {value}");
        }
        Ok(())
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{} is not what it should be", path.display()))
}

/// What was already printed of a Run.
#[derive(Default)]
struct Seen {
    phase: Option<RunPhase>,
    steps: Vec<(StepName, Option<jiff::Timestamp>)>,
}

/// Prints each phase and each finished step, until the Run is in review or finished.
async fn follow(runs: &Api<Run>, name: &str, seen: &mut Seen) -> anyhow::Result<()> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut stream = Box::pin(watcher(runs.clone(), config).applied_objects());
    let waited = seen.phase == Some(RunPhase::Review);
    while let Some(run) = stream.try_next().await? {
        let Some(status) = run.status else { continue };
        if waited && status.phase == RunPhase::Review {
            continue;
        }
        for step in status.steps.iter().filter(|step| step.state.is_finished()) {
            let key = (step.name, step.finished_at.as_ref().map(|time| time.0));
            if seen.steps.contains(&key) {
                continue;
            }
            seen.steps.push(key);
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
        if seen.phase != Some(status.phase) {
            seen.phase = Some(status.phase);
            println!("    {}", status.phase.as_str());
        }
        if status.phase == RunPhase::Review {
            if let Some(plan) = &status.plan {
                println!("    plan: {} to add, {} to change, {} to destroy", plan.add, plan.change, plan.destroy);
            }
            return Ok(());
        }
        if status.phase.is_finished() {
            if status.exit_code != Some(0) {
                let why = status.conditions.iter().map(|c| c.message.as_str()).collect::<Vec<_>>().join("; ");
                bail!("the run ended as {}: {why}", status.phase.as_str());
            }
            return Ok(());
        }
    }
    bail!("the watch ended before the run did")
}
