//! Compares the embedded API server with a real one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Parser;
use futures::StreamExt;
use knoll_conformance::accepted::{Accepted, fits};
use knoll_conformance::connection::Connection;
use knoll_conformance::run::{Outcome, Suite};
use knoll_conformance::scenario::Scenario;
use knoll_conformance::{cases, report, scenario, sequence};
use knoll_embedded::Cluster;
use serde_json::Value;

/// How often a sequence that differs is compared again.
const REPEATS: usize = 20;

/// Runs every scenario against the embedded API server and a real one, and compares the responses
#[derive(Parser)]
#[command(name = "knoll-conformance")]
struct Arguments {
    /// The kubeconfig of an administrator of the real cluster (API server, etcd and controller-manager)
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// Run only scenarios whose FILE/NAME matches; `*` matches any text
    #[arg(long, value_name = "GLOB", default_value = "*")]
    only: String,
    /// How many random sequences of writes are compared
    #[arg(long, value_name = "N", default_value_t = 100)]
    sequences: u64,
    /// The seed of the first random sequence [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many writes a random sequence has
    #[arg(long, value_name = "N", default_value_t = 15)]
    length: usize,
    /// How many scenarios run concurrently
    #[arg(long, value_name = "N", default_value_t = 12)]
    jobs: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The log of the embedded server is enabled with `RUST_LOG`.
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::OFF.into())
        .from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // Several providers may be linked in, so one is chosen explicitly.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(compare(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether there were no differences except accepted ones.
async fn compare(arguments: &Arguments) -> anyhow::Result<bool> {
    let start = Instant::now();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&arguments.kubeconfig)
        .with_context(|| format!("cannot read the kubeconfig `{}`", arguments.kubeconfig.display()))?;
    let mut all = scenario::load(&folder.join("scenarios"))?;
    all.extend(cases::load(&folder.join("../api/cases"))?);
    let seed = arguments.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    if arguments.sequences > 0 {
        println!("random sequences from seed {seed}");
    }
    all.extend((0..arguments.sequences).map(|n| sequence::make(seed + n, arguments.length)));
    all.retain(|s| fits(&arguments.only, &label(s)));
    let theirs = Connection::open(&text).await?;
    let cluster = Cluster::memory().await.context("the embedded cluster did not start")?;
    let ours = Connection::open(&cluster.kubeconfig()).await?;
    let run = format!("c{:08x}", rand::random::<u32>());
    let suite = Suite::new(ours, theirs, Accepted::load(&folder.join("accepted.yaml"))?, run);
    let fixtures: BTreeSet<&String> = all.iter().flat_map(|s| &s.with).collect();
    for name in fixtures {
        for definition in fixture(folder, name)? {
            suite.install(&definition).await.with_context(|| format!("the fixture `{name}` could not be installed"))?;
        }
    }
    let mut total = Outcome::default();
    let (mut scenarios, mut broken) = (0, 0);
    let shared = &suite;
    let mut results = futures::stream::iter(&all)
        .map(|scenario| async move { (scenario, shared.run(scenario).await) })
        .buffered(arguments.jobs.max(1));
    let mut file = (String::new(), 0, 0);
    while let Some((scenario, result)) = results.next().await {
        if file.0 != scenario.file {
            say(&file);
            file = (scenario.file.clone(), 0, 0);
        }
        scenarios += 1;
        match result {
            Ok(mut outcome) => {
                let random = scenario.file == "random" && outcome.differed > 0;
                if random && varies(&suite, scenario, &outcome).await? {
                    println!(
                        "{}: the real server's responses vary, and those of the embedded server are among them",
                        label(scenario)
                    );
                    outcome.differed = 0;
                    outcome.findings.clear();
                }
                for finding in &outcome.findings {
                    println!("{}", report::finding(&label(scenario), finding));
                }
                if random && outcome.differed > 0 {
                    shrink(&suite, scenario).await?;
                }
                file.1 += outcome.requests;
                file.2 += outcome.differed;
                total.requests += outcome.requests;
                total.differed += outcome.differed;
            }
            Err(error) => {
                broken += 1;
                println!("{}: {error:#}\n", label(scenario));
            }
        }
    }
    say(&file);
    drop(results);
    let mut stale = 0;
    for (entry, count) in suite.accepted.counts() {
        if count > 0 {
            println!(
                "accepted {count} times: {} | {} | {}: {}",
                entry.scenario, entry.request, entry.path, entry.reason
            );
        } else if arguments.only == "*" {
            stale += 1;
            println!("accepted.yaml: this entry is unused: {} | {} | {}", entry.scenario, entry.request, entry.path);
        }
    }
    println!(
        "{} requests compared in {scenarios} scenarios, {} differed ({:.1} s)",
        total.requests,
        total.differed,
        start.elapsed().as_secs_f64()
    );
    if broken > 0 {
        println!("{broken} scenarios could not be completed");
    }
    cluster.stop().await;
    Ok(total.differed == 0 && broken == 0 && stale == 0)
}

/// Whether the real server's responses to a sequence vary, and the embedded server's response is one of them.
///
/// The workers of a garbage collector run in no particular order. Foreground deletion of an owner deletes a
/// non-blocking dependent or not, depending on which of the two is processed first.
async fn varies(suite: &Suite, scenario: &Scenario, first: &Outcome) -> anyhow::Result<bool> {
    let mut outcomes = vec![first.clone()];
    for _ in 0..REPEATS {
        outcomes.push(suite.run(scenario).await?);
        let is_theirs = |ours: &Outcome| outcomes.iter().any(|theirs| suite.agree(scenario, ours, theirs));
        if outcomes.iter().all(is_theirs) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Prints the shortest sequence that still differs.
async fn shrink(suite: &Suite, scenario: &Scenario) -> anyhow::Result<()> {
    let mut smallest = scenario.clone();
    let mut at = 0;
    while let Some(smaller) = sequence::without(&smallest, at) {
        if suite.run(&smaller).await?.differed > 0 {
            smallest = smaller;
        } else {
            at += 1;
        }
    }
    let last = suite.run(&smallest).await?;
    if last.differed == 0 {
        println!("{}: did not differ again\n", label(scenario));
        return Ok(());
    }
    println!("{}, made smaller:", label(scenario));
    for step in &smallest.steps {
        let Some(request) = &step.request else { continue };
        println!("  {request} {}", step.body.as_ref().map(Value::to_string).unwrap_or_default());
    }
    for finding in &last.findings {
        println!("{}", report::finding("  then", finding));
    }
    Ok(())
}

fn label(scenario: &Scenario) -> String {
    format!("{}/{}", scenario.file, scenario.scenario)
}

fn say((file, requests, differed): &(String, usize, usize)) {
    if !file.is_empty() {
        println!("{file}: {requests} requests, {differed} differed");
    }
}

/// The CRDs of a fixture. `knoll` names Knoll's own CRDs.
fn fixture(folder: &Path, name: &str) -> anyhow::Result<Vec<Value>> {
    if name == "knoll" {
        return knoll_api::crds().iter().map(|crd| Ok(serde_json::to_value(crd)?)).collect();
    }
    let path = folder.join("fixtures").join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    scenario::read_yaml(&text).with_context(|| format!("`{}` is not a list of definitions", path.display()))
}
