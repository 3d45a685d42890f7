//! `knoll up`: runs API server, node, operator and hub in one process.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use knoll_embedded::{Cluster, IN_PROCESS_USER, NODE, Options};
use knoll_kube_node::{self as node, Node};
use knoll_storage::{Addresses, FetchSettings, IpNet, parse_range};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use super::folder::{Claim, Folder, FolderArgs, Held};
use crate::backups::BackupArgs;
use crate::install::apply;
use crate::style;

/// The word that a detached cluster prints to its parent when it is ready, before the link to its page.
const READY: &str = "ready";

/// The arguments of `knoll up`.
#[derive(clap::Args)]
pub struct UpArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// The port of the API server on 127.0.0.1 (0: the port of the last start, or a free one)
    #[arg(long, env = "KNOLL_PORT", default_value_t = 7443, value_name = "PORT")]
    port: u16,
    /// The ranges of addresses, besides public ones, that sources may be fetched from; repeatable
    #[arg(long, env = "KNOLL_ALLOW_SOURCE_CIDR", value_name = "CIDR", value_delimiter = ',', value_parser = parse_range,
        default_values_t = own_networks())]
    allow_source_cidr: Vec<IpNet>,
    /// Also send credentials of sources over `http://`, which is not encrypted
    #[arg(long, env = "KNOLL_PLAIN_HTTP_CREDENTIALS")]
    plain_http_credentials: bool,
    #[command(flatten)]
    backup: BackupArgs,
    /// Run the cluster in the background
    #[arg(long, short, env = "KNOLL_DETACH")]
    detach: bool,
    /// Be the background process of `--detach`
    #[arg(long, hide = true)]
    background: bool,
}

/// Addresses that the user of a machine reaches without Knoll: its own and those of the networks it is in. Those of the
/// link, where clouds have the credentials of machines, stay closed.
const OWN_NETWORKS: [&str; 6] = ["127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];

fn own_networks() -> Vec<IpNet> {
    OWN_NETWORKS.iter().filter_map(|range| parse_range(range).ok()).collect()
}

/// Starts the cluster, in the foreground or with `--detach` in the background.
pub fn run(args: &UpArgs) -> Result<ExitCode> {
    let folder = args.folder.folder()?;
    if args.detach && !args.background {
        if let Some(running) = folder.running()? {
            return Ok(already_runs(&folder, running.pid));
        }
        return detach(args, &folder);
    }
    match folder.claim()? {
        Claim::Taken { pid } => Ok(already_runs(&folder, pid)),
        Claim::Ours { held, stale } => {
            if let Some(pid) = stale {
                style::note(&format!("the previous process {pid} did not stop cleanly; no acknowledged write is lost"));
            }
            stay(args, &folder, held)
        }
    }
}

fn already_runs(folder: &Folder, pid: Option<i32>) -> ExitCode {
    let process = pid.map_or_else(|| "another process is starting it".to_owned(), |pid| format!("process {pid}"));
    style::say("Already running:", &format!("the cluster in `{}` ({process})", folder.path().display()));
    print_access(folder, None);
    ExitCode::SUCCESS
}

/// Shows how to reach the cluster. `page` is a link that signs in once.
fn print_access(folder: &Folder, page: Option<&str>) {
    if let Some(address) = folder.address() {
        style::field("server", &address);
    }
    style::field("kubeconfig", &folder.kubeconfig().display().to_string());
    style::field("page", page.unwrap_or("`knoll ui` opens it"));
    style::hint(&format!("\nexport KUBECONFIG={}", folder.kubeconfig().display()));
}

/// Starts this executable again in the background, and waits until it is ready or has failed.
fn detach(args: &UpArgs, folder: &Folder) -> Result<ExitCode> {
    folder.create()?;
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(folder.log())
        .with_context(|| format!("cannot write `{}`", folder.log().display()))?;
    let start = log.metadata().map(|m| m.len()).unwrap_or_default();
    let program = std::env::current_exe().context("cannot find this executable")?;
    let ranges: Vec<String> = args.allow_source_cidr.iter().map(ToString::to_string).collect();
    let mut child = Command::new(program)
        .args(["up", "--background", "--port", &args.port.to_string(), "--data-dir"])
        .arg(folder.path())
        .args(["--allow-source-cidr", &ranges.join(",")])
        .args(args.plain_http_credentials.then_some("--plain-http-credentials"))
        .args(args.backup.backup_url.iter().flat_map(|url| ["--backup-url", url]))
        .args(["--backup-keep", &args.backup.backup_keep.to_string()])
        .args(["--backup-keep-for", &args.backup.backup_keep_for.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        // Ctrl-C in this terminal does not reach a process group of its own.
        .process_group(0)
        .spawn()
        .context("cannot start the background process")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).context("cannot read from the background process")?;
    }
    let ready = line.trim().strip_prefix(READY).map(str::trim);
    let Some(page) = ready else {
        let status = child.wait().context("cannot wait for the background process")?;
        let text = std::fs::read(folder.log()).unwrap_or_default();
        let from = usize::try_from(start).unwrap_or_default().min(text.len());
        let said = String::from_utf8_lossy(&text[from..]).trim().trim_start_matches("error: ").to_owned();
        if said.is_empty() {
            bail!("the cluster did not start ({status}); see `{}`", folder.log().display());
        }
        bail!("{said}");
    };
    style::say("Started:", &format!("the cluster in `{}` (process {})", folder.path().display(), child.id()));
    print_access(folder, Some(page).filter(|page| !page.is_empty()));
    Ok(ExitCode::SUCCESS)
}

fn stay(args: &UpArgs, folder: &Folder, held: Held) -> Result<ExitCode> {
    let filter = EnvFilter::try_from_env("KNOLL_LOG").unwrap_or_else(|_| EnvFilter::new("info,kube=warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(!args.background).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(serve(args, folder));
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    held.release();
    result.map(|()| ExitCode::SUCCESS)
}

async fn serve(args: &UpArgs, folder: &Folder) -> Result<()> {
    let begun = Instant::now();
    let backup = args.backup.settings()?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let options = Options { data_dir: Some(folder.path().to_owned()), port: port(args.port, folder), place_pods: true };
    let cluster = Cluster::start(options).await?;
    let client = cluster.client();
    apply::kinds_and_rules(&client, IN_PROCESS_USER).await?;
    let stop = CancellationToken::new();
    let node = Node::start(client.clone(), node_config(folder)?, stop.child_token()).await?;
    cluster.server.set_runtime(node.clone());
    let (services, page) =
        super::services::start(client, &cluster.kubeconfig(), folder, fetches(args), backup, stop.clone()).await?;
    cluster.write_kubeconfig(&folder.kubeconfig())?;
    if args.background {
        let mut out = std::io::stdout();
        // The parent may have been killed; the cluster keeps running.
        let _ = writeln!(out, "{READY} {}", page.unwrap_or_default()).and_then(|()| out.flush());
    } else {
        style::say(
            "Ready",
            &format!("in {} ms: the cluster in `{}`", begun.elapsed().as_millis(), folder.path().display()),
        );
        print_access(folder, page.as_deref());
        style::hint("Press Ctrl-C to stop it.");
    }
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        error = services.failed() => tracing::error!(%error, "a service of the cluster has failed: shutting down"),
    }
    tracing::info!("stopping");
    stop.cancel();
    services.finished().await;
    node.stopped().await;
    cluster.stop().await;
    Ok(())
}

/// The port to listen on. With `--port 0` it is the port of the last start, if that is free: kubeconfigs and directories
/// that know its address still work.
fn port(asked: u16, folder: &Folder) -> u16 {
    if asked != 0 {
        return asked;
    }
    let last = folder.address().and_then(|address| address.rsplit(':').next()?.parse().ok());
    last.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).unwrap_or_default()
}

/// `file://` sources are allowed, because the user of the embedded cluster is the user of the machine.
fn fetches(args: &UpArgs) -> FetchSettings {
    let addresses = Addresses::new(&args.allow_source_cidr);
    FetchSettings { local: true, addresses, plain_http_credentials: args.plain_http_credentials }
}

fn node_config(folder: &Folder) -> Result<node::Config> {
    let program = std::env::current_exe().context("cannot find this executable")?;
    let beside = program.parent().map(std::path::Path::to_owned).unwrap_or_default();
    Ok(node::Config {
        name: NODE.to_owned(),
        dir: folder.pods(),
        path: vec![beside],
        shim: program,
        shim_args: vec!["shim".to_owned()],
    })
}
