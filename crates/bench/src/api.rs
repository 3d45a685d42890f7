//! `cargo xtask bench api`: sends the same requests alternately to the embedded API server and to kube-apiserver with
//! etcd.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::try_join_all;
use http::Method;
use serde_json::{Value, json};

use crate::server::{Server, config_map};
use crate::spread::Spread;
use crate::table::Table;

/// The number of objects that are listed, read and patched.
const OBJECTS: u64 = 10_000;
/// The number of watches that see every change.
const WATCHES: usize = 100;
/// The number of changes.
const CHANGES: u64 = 200;
const CLIENTS: [usize; 2] = [1, 32];
const NAMES: [&str; 2] = ["embedded", "kube-apiserver + etcd"];

/// The flags of `bench api`.
#[derive(clap::Args)]
pub struct ApiArgs {
    /// The kubeconfig of the embedded server
    #[arg(long)]
    embedded: PathBuf,
    /// The process id of the embedded server
    #[arg(long, value_delimiter = ',')]
    embedded_processes: Vec<u32>,
    /// The start-up time of the embedded server, in milliseconds
    #[arg(long)]
    embedded_start: f64,
    /// The kubeconfig of the real server
    #[arg(long)]
    real: PathBuf,
    /// The process ids of kube-apiserver and etcd
    #[arg(long, value_delimiter = ',')]
    real_processes: Vec<u32>,
    /// How long it took to start, in milliseconds
    #[arg(long)]
    real_start: f64,
    /// How often each reading is taken
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long a reading takes, in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

/// A kind of request, of which a second's count is read.
#[derive(Clone, Copy)]
enum Load {
    Create,
    Get,
    Patch,
    List,
    Watch,
}

const LOADS: [(Load, &str); 5] = [
    (Load::Create, "create /s"),
    (Load::Get, "get /s"),
    (Load::Patch, "patch /s"),
    (Load::List, "list of 10,000 /s"),
    (Load::Watch, "watch, 100 of them: events /s"),
];

/// Measures and prints the table.
pub async fn run(arguments: &ApiArgs) -> anyhow::Result<()> {
    let servers = [
        Server::connect(&arguments.embedded, arguments.embedded_processes.clone()).await?,
        Server::connect(&arguments.real, arguments.real_processes.clone()).await?,
    ];
    let fresh = [servers[0].memory()?, servers[1].memory()?];
    for server in &servers {
        fill(server).await?;
    }
    let filled = [servers[0].memory()?, servers[1].memory()?];
    let mut table = Table::default();
    table.row(["", "clients", NAMES[0], NAMES[1], "embedded is"]);
    let starts = (arguments.embedded_start, arguments.real_start);
    table.row([
        "start, ms",
        "",
        &number(starts.0),
        &number(starts.1),
        &format!("{:.1} x faster", starts.1 / starts.0.max(1.0)),
    ]);
    let mut least = f64::INFINITY;
    for (load, title) in LOADS {
        for clients in CLIENTS {
            eprintln!("{title} with {clients} client{}", if clients == 1 { "" } else { "s" });
            let mut readings = [Spread::default(), Spread::default()];
            for round in 0..arguments.rounds {
                for ((server, spread), name) in servers.iter().zip(&mut readings).zip(NAMES) {
                    let period = Duration::from_secs_f64(arguments.seconds);
                    let reading = read(server, load, clients, round, period).await;
                    spread.add(reading.with_context(|| format!("{title}, {clients} clients, {name}"))?);
                }
            }
            let [ours, theirs] = &readings;
            let ratio = ours.median() / theirs.median();
            least = least.min(ratio);
            table.row([title, &clients.to_string(), &cell(ours), &cell(theirs), &format!("{ratio:.1} x")]);
        }
    }
    let full = [servers[0].memory()?, servers[1].memory()?];
    let share = |memory: [f64; 2]| format!("1/{:.1}", memory[1] / memory[0]);
    table.row(["memory at the start, MB", "", &number(fresh[0]), &number(fresh[1]), &share(fresh)]);
    table.row(["memory with 10,000 objects, MB", "", &number(filled[0]), &number(filled[1]), &share(filled)]);
    // By then the quicker server has been asked to keep more.
    table.row(["memory at the end, MB", "", &number(full[0]), &number(full[1]), &share(full)]);
    println!("\nMedians of {} readings (smallest to largest), both servers in turns:\n", arguments.rounds);
    table.lines().iter().for_each(|line| println!("{line}"));
    println!("\nThe embedded server answers at least {least:.1} times the requests.");
    Ok(())
}

/// The objects that are read and patched.
async fn fill(server: &Server) -> anyhow::Result<()> {
    server.namespace("bench").await?;
    server.namespace("bench-watch").await?;
    server.namespace("bench-create").await?;
    let lanes = 32;
    let work = (0..lanes).map(async |lane| {
        for at in (lane..OBJECTS).step_by(32) {
            let body = config_map(&format!("c{at:05}"));
            server.ask(Method::POST, "/api/v1/namespaces/bench/configmaps", Some(body)).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(work).await.context("cannot make the objects").map(drop)
}

/// One reading: how many a second.
async fn read(server: &Server, load: Load, clients: usize, round: usize, period: Duration) -> anyhow::Result<f64> {
    // Spread over all objects, the same for both servers.
    let object = |at: u64| format!("/api/v1/namespaces/bench/configmaps/c{:05}", at.wrapping_mul(7919) % OBJECTS);
    match load {
        Load::Create => {
            let path = "/api/v1/namespaces/bench-create/configmaps";
            let name = |at: u64| format!("n{clients}-{round}-{at}");
            server.rate(clients, period, |at| (Method::POST, path.to_owned(), Some(config_map(&name(at))))).await
        }
        Load::Get => server.rate(clients, period, |at| (Method::GET, object(at), None)).await,
        Load::Patch => {
            let body = |at: u64| json!({"data": {"n": format!("{clients}-{round}-{at}")}});
            server.rate(clients, period, |at| (Method::PATCH, object(at), Some(body(at)))).await
        }
        Load::List => {
            let path = "/api/v1/namespaces/bench/configmaps";
            server.rate(clients, period, |_| (Method::GET, path.to_owned(), None)).await
        }
        Load::Watch => watch(server, clients).await,
    }
}

/// Changes made by so many clients and seen by all watches: events a second, from the first change to the last event.
async fn watch(server: &Server, clients: usize) -> anyhow::Result<f64> {
    let list = server.ask(Method::GET, "/api/v1/namespaces/bench-watch/configmaps?limit=1", None).await?;
    let list: Value = serde_json::from_slice(&list)?;
    let from = list["metadata"]["resourceVersion"].as_str().context("a list has a resourceVersion")?.to_owned();
    let events = usize::try_from(CHANGES)?;
    let watches = try_join_all((0..WATCHES).map(|_| server.watch("bench-watch", &from))).await?;
    let begun = Instant::now();
    let watches = try_join_all(watches.into_iter().map(|watch| watch.sees(events)));
    let lanes = u64::try_from(clients)?;
    let changes = try_join_all((0..lanes).map(async |lane| {
        for at in (lane..CHANGES).step_by(clients) {
            let body = config_map(&format!("w{at}-{from}"));
            server.ask(Method::POST, "/api/v1/namespaces/bench-watch/configmaps", Some(body)).await?;
        }
        anyhow::Ok(())
    }));
    futures::try_join!(watches, changes)?;
    #[allow(clippy::cast_precision_loss, reason = "a rate, not an account")]
    let delivered = (WATCHES * events) as f64;
    Ok(delivered / begun.elapsed().as_secs_f64())
}

fn cell(spread: &Spread) -> String {
    let (least, most) = spread.bounds();
    format!("{} ({} to {})", number(spread.median()), number(least), number(most))
}

/// A number with as many digits as it deserves.
fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}
