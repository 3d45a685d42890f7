//! `cargo xtask cluster`: a real Kubernetes of one machine, for tests and for trying things out.
//!
//! Everything lies in one folder. `up` makes what is missing and changes nothing else, so it can be repeated, and goes
//! on after any of its runs or processes was killed. `down` ends exactly what `up` started.

mod assets;
mod control;
mod mounts;
mod network;
mod node;
mod packages;
mod pki;
mod place;
mod ports;
mod process;
mod ready;
mod record;
mod runtime;
mod shims;
mod show;
mod traces;
mod version;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Subcommand;

use process::Ensured;
use ready::Kubectl;
use record::Record;

pub use assets::{build as build_binaries, home as kube_home, possible as control_plane_possible};
pub use packages::{Tools, busybox, node_possible};
pub use place::{DEFAULT_NAME, Place, lock, user_cache, write};
pub use show::status;
pub use version::KubeVersion;

/// The version of Kubernetes when none is asked for.
pub const KUBE_VERSION: &str = "1.34.4";

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// The name of the cluster [default: default]
    #[arg(long, global = true)]
    name: Option<String>,
}

#[derive(Subcommand)]
enum Action {
    /// Start the cluster, or the processes of it that do not run
    Up {
        /// Add a node that runs pods (needs Linux and root)
        #[arg(long)]
        node: bool,
        /// The version of Kubernetes [default: 1.34.4, or the version that the cluster was created with]
        #[arg(long)]
        kube_version: Option<String>,
    },
    /// Stop the cluster and keep its data for the next `up`
    Down {
        /// Remove its data too
        #[arg(long)]
        delete: bool,
    },
    /// Show the processes of the cluster
    Status,
    /// Show the log of a process of the cluster, or `audit`
    Logs {
        /// The process, as `status` names it
        process: String,
        /// Follow the log
        #[arg(short, long)]
        follow: bool,
    },
    /// Print shell commands that select the cluster: `eval "$(cargo xtask cluster env)"`
    Env,
    /// Become a program of the cluster
    #[command(hide = true)]
    Become(process::BecomeArguments),
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Action::Become(arguments) = &arguments.action {
        return process::become_program(arguments);
    }
    let place = Place::of(arguments.name.as_deref())?;
    match &arguments.action {
        Action::Up { node, kube_version } => {
            let up = Up { node: *node, kube_version: kube_version.clone(), unscheduled: false };
            up.run(&place)
        }
        Action::Down { delete } => down(&place, *delete),
        Action::Status => status(&place),
        Action::Logs { process, follow } => show::log(&place, process, *follow),
        Action::Env => show::env(&place),
        Action::Become(_) => Ok(()),
    }
}

/// What `up` is asked for.
#[derive(Clone, Debug, Default)]
pub struct Up {
    /// With a node. A cluster that has one keeps it.
    pub node: bool,
    /// The version of Kubernetes, when it matters.
    pub kube_version: Option<String>,
    /// Without a scheduler: pods stay as they were created.
    pub unscheduled: bool,
}

impl Up {
    /// Brings the cluster to life; does nothing when it lives.
    pub fn run(&self, place: &Place) -> anyhow::Result<()> {
        let begun = Instant::now();
        // An impossible request fails before anything is built for minutes.
        if self.node {
            node_possible().map_err(anyhow::Error::msg)?;
        }
        let asked = self.kube_version.as_deref().map(KubeVersion::parse).transpose()?;
        let _lock = place.lock()?;
        let record = self.decide(place, asked)?;
        let tools = match record.node {
            true => {
                let tools = packages::ensure()?;
                node::check_alone(place)?;
                Some(tools)
            }
            false => None,
        };
        record.write(place)?;
        pki::ensure(place, &record)?;
        control::configure(place, &record)?;
        if let Some(tools) = &tools {
            network::ensure(tools, &record)?;
            node::configure(place, &record, tools)?;
        }
        let kubectl = Kubectl::new(place, &record)?;
        let mut changed = start_control(place, &record, &kubectl, self.unscheduled)?;
        if let Some(tools) = &tools {
            changed |= start_node(place, &record, tools, &kubectl)?;
        }
        show::summary(place, &record, changed, begun.elapsed());
        Ok(())
    }

    /// What the cluster is: what it was when it was made, with what is asked for now.
    fn decide(&self, place: &Place, asked: Option<KubeVersion>) -> anyhow::Result<Record> {
        let known = Record::read(place)?;
        let version = match (&known, asked) {
            (None, asked) => asked.map_or_else(|| KubeVersion::parse(KUBE_VERSION), Ok)?,
            (Some(record), asked) => {
                let version = KubeVersion::parse(&record.kube_version)?;
                if asked.is_some_and(|asked| asked != version) {
                    bail!(
                        "the cluster `{}` is one of Kubernetes {version}: give another `--name`, or remove it with \
                         `cargo xtask cluster down --delete`",
                        place.name
                    );
                }
                version
            }
        };
        let node = self.node || known.as_ref().is_some_and(|record| record.node);
        let assets = assets::ensure(&version, node)?;
        let running = |name: &str| {
            let process = match name {
                "etcd-peer" => "etcd",
                "kubelet-healthz" => "kubelet",
                "kube-proxy-metrics" => "kube-proxy",
                name => name,
            };
            process::running(place, process).is_some()
        };
        let bridge = known.as_ref().map_or_else(|| network::bridge_name(place), |record| record.bridge.clone());
        let gateway = match &known {
            Some(record) => record.gateway,
            None => network::free_gateway(&bridge)?,
        };
        let known_ports = known.map(|record| record.ports).unwrap_or_default();
        let ports = ports::complete(&known_ports, running)?;
        Ok(Record { kube_version: version.to_string(), assets, node, ports, gateway, bridge })
    }
}

/// etcd and kube-apiserver alone, started anew for a measurement. They end when this is dropped.
pub struct ApiServer {
    place: Place,
    /// How long both took to start.
    pub start: Duration,
    pub processes: Vec<i32>,
}

impl ApiServer {
    /// Starts a new one under a name, in the place of an older one of that name.
    pub fn start(name: &str) -> anyhow::Result<ApiServer> {
        let place = Place::of(Some(name))?;
        down(&place, true)?;
        let lock = place.lock()?;
        let record = Up::default().decide(&place, None)?;
        record.write(&place)?;
        pki::ensure(&place, &record)?;
        control::configure(&place, &record)?;
        let kubectl = Kubectl::new(&place, &record)?;
        let programs = control::programs(&place, &record)?;
        // Its end takes the lock again, also when the start fails.
        drop(lock);
        let mut server = ApiServer { place, start: Duration::ZERO, processes: Vec::new() };
        let begun = Instant::now();
        for program in programs.iter().take(2) {
            ensure(&server.place, program)?;
        }
        ready::apiserver(&server.place, &kubectl)?;
        server.start = begun.elapsed();
        let running = programs.iter().filter_map(|program| process::running(&server.place, program.name));
        server.processes = running.map(|file| file.pid).collect();
        Ok(server)
    }

    pub fn kubeconfig(&self) -> std::path::PathBuf {
        self.place.kubeconfig()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Err(error) = down(&self.place, true) {
            eprintln!("warning: {error:#}");
        }
    }
}

/// Starts the control plane. Answers whether anything had to be started.
fn start_control(place: &Place, record: &Record, kubectl: &Kubectl, unscheduled: bool) -> anyhow::Result<bool> {
    let mut changed = false;
    let mut programs = control::programs(place, record)?;
    programs.retain(|program| !(unscheduled && program.name == "kube-scheduler"));
    for program in &programs {
        changed |= ensure(place, program)?;
        match program.name {
            "etcd" => ready::etcd(place, record)?,
            "kube-apiserver" => ready::apiserver(place, kubectl)?,
            _ => {}
        }
    }
    let names: Vec<&str> = programs.iter().map(|program| program.name).collect();
    ready::controllers(place, kubectl, &names)?;
    Ok(changed)
}

/// How often a kubelet that ends is started.
const KUBELET_ATTEMPTS: usize = 3;

/// Starts the node. Answers whether anything had to be started.
fn start_node(place: &Place, record: &Record, tools: &Tools, kubectl: &Kubectl) -> anyhow::Result<bool> {
    let since = ready::now()?;
    let mut changed = ensure(place, &node::containerd(place, tools))?;
    let runtime = Runtime { ctr: tools.containerd.ctr(), place: place.clone() };
    ready::until(place, "containerd", &["containerd"], Duration::from_secs(60), || Ok(runtime.answers()))?;
    if !runtime.has(node::PAUSE_IMAGE)? {
        let archive = place.path("config/pause.tar");
        crate::image::pause(node::PAUSE_IMAGE, &tools.busybox).write(&archive)?;
        runtime.import(&archive)?;
    }
    changed |= ensure(place, &node::proxy(place, record))?;
    let mut kubelet = ensure(place, &node::kubelet(place, record))?;
    // A kubelet ends when containerd answers but has not yet found all of its containers again, as after a crash.
    for left in (0..KUBELET_ATTEMPTS).rev() {
        // A kubelet that was not started now says so again only every few minutes when nothing changes.
        match ready::node(place, kubectl, if kubelet { &since } else { "" }) {
            Err(_) if left > 0 && process::running(place, "kubelet").is_none() => {
                kubelet |= ensure(place, &node::kubelet(place, record))?;
            }
            ready => {
                ready?;
                break;
            }
        }
    }
    Ok(changed || kubelet)
}

/// Makes a program run and says so. Answers whether it had to be started.
fn ensure(place: &Place, program: &process::Program) -> anyhow::Result<bool> {
    let ensured = process::ensure(place, program)?;
    match ensured {
        Ensured::Ran => {}
        Ensured::Started => println!("started    {}", program.name),
        Ensured::Restarted => println!("restarted  {}", program.name),
    }
    Ok(ensured != Ensured::Ran)
}

/// The containerd of a cluster's node.
pub struct Runtime {
    ctr: std::path::PathBuf,
    place: Place,
}

impl Runtime {
    /// The containerd of a cluster, if its node runs.
    pub fn of(place: &Place) -> anyhow::Result<Option<Runtime>> {
        if process::running(place, "containerd").is_none() {
            return Ok(None);
        }
        Ok(Some(Runtime { ctr: packages::find()?.containerd.ctr(), place: place.clone() }))
    }

    /// Loads the images of a docker archive.
    pub fn import(&self, archive: &std::path::Path) -> anyhow::Result<()> {
        let snapshotter = node::snapshotter(&self.place);
        let import = self.command(&["images", "import", "--snapshotter", snapshotter]).arg(archive).output();
        let import = import.context("cannot start ctr")?;
        if !import.status.success() {
            let message = String::from_utf8_lossy(&import.stderr);
            bail!("cannot load {} into the node: {}", archive.display(), message.trim());
        }
        Ok(())
    }

    fn has(&self, image: &str) -> anyhow::Result<bool> {
        let output = self.command(&["images", "list", "--quiet"]).output().context("cannot start ctr")?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().any(|line| line.ends_with(&format!("/{image}"))))
    }

    fn answers(&self) -> bool {
        self.command(&["version"]).output().is_ok_and(|output| output.status.success())
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.ctr);
        command.arg("--address").arg(self.place.containerd_socket()).args(["--namespace", "k8s.io"]).args(words);
        command
    }
}

pub fn down(place: &Place, delete: bool) -> anyhow::Result<()> {
    if !place.folder.is_dir() {
        println!("There is no cluster in {}", place.folder.display());
        return Ok(());
    }
    let lock = place.lock()?;
    let mut ended = 0;
    for name in node::NAMES.iter().rev().filter(|name| **name != "containerd") {
        ended += usize::from(stop(place, name)?);
    }
    let containerd_runs = process::running(place, "containerd").is_some();
    let pods = shims::end_all(&place.containerd_socket(), containerd_runs)?;
    if pods > 0 {
        println!("ended      {pods} pods");
    }
    for name in ["containerd"].iter().chain(control::NAMES.iter().rev()) {
        ended += usize::from(stop(place, name)?);
    }
    // A damaged record must not keep anybody from deleting the folder that it is in.
    let record = Record::read(place).or_else(|error| if delete { Ok(None) } else { Err(error) })?;
    if let Some(record) = record.filter(|record| record.node) {
        node::remove(place, &record, &packages::find()?)?;
    }
    if delete {
        fs::remove_dir_all(&place.folder).with_context(|| format!("cannot remove {}", place.folder.display()))?;
        println!("Deleted: the cluster in {}", place.folder.display());
    } else if ended == 0 && pods == 0 {
        println!("The cluster in {} does not run", place.folder.display());
    } else {
        println!("Stopped: the cluster in {}; its data is kept (`--delete` removes it)", place.folder.display());
    }
    drop(lock);
    Ok(())
}

fn stop(place: &Place, name: &str) -> anyhow::Result<bool> {
    let stopped = process::stop(place, name, Duration::from_secs(15))?;
    if stopped {
        println!("ended      {name}");
    }
    Ok(stopped)
}
