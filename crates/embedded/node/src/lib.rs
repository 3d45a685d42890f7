#![doc = include_str!("../README.md")]
//!
//! # Inside
//! The node watches the pods that name it, runs their containers as processes of the host, each under a `shim` that
//! outlives the node, and reports how they go: a kubelet without images, namespaces or a network of its own.
//!
//! # What a container sees
//! - **Programs**: there are no images. A command's first word is looked up on `PATH`, which starts with [`Config::path`].
//! - **Files**: containers share the host's. Volumes lie in the pod's folder; a path at or under a `mountPath` is
//!   replaced by where the volume lies wherever it stands as a whole path in the command, the arguments, a value of the
//!   environment or the working directory (`paths`). The same holds for `terminationMessagePath`.
//! - **Environment**: what the pod says, and little else (`environment`).
//! - **Network**: the host's; every pod has the address 127.0.0.1.
//! - **Its end**: SIGTERM goes to the main process alone, as a kubelet sends it to a container's first process, so that a
//!   program that hands signals on to its children does not have them hear two. After the grace period, and when the main
//!   process has ended, every process of the container is killed.

mod container;
mod downward;
mod environment;
mod expand;
mod folder;
mod lifecycle;
mod logs;
mod objects;
mod paths;
mod pod;
mod report;
mod shim;
mod status;
mod streams;
mod sweep;
mod token;
mod volumes;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use container::Executable;
use pod::{Update, Worker};

pub use shim::shim_main;
#[doc(hidden)]
pub use shim::{files as shim_files, wire as shim_wire};

/// What a node is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name: it runs the pods whose `spec.nodeName` this is.
    pub name: String,
    /// Where pods lie on disk.
    pub dir: PathBuf,
    /// Folders in front of the host's `PATH`; that of our own executable first.
    pub path: Vec<PathBuf>,
    /// The executable that runs [`shim_main`] when it is given `shim_args`.
    pub shim: PathBuf,
    /// The arguments that make it a shim.
    pub shim_args: Vec<String>,
}

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its folder cannot be used.
    #[error(
        "the node cannot use its folder `{path}`: {source}; choose another, or make it writable for this user only"
    )]
    Folder {
        path: PathBuf,
        /// What the host said.
        source: std::io::Error,
    },
}

/// A running node. It stops with its shutdown token; containers go on and are found again by the next one.
pub struct Node {
    context: Arc<Context>,
    tasks: TaskTracker,
}

/// What all of a node's tasks share.
struct Context {
    client: Client,
    /// Where pods lie on disk, absolute.
    pods: PathBuf,
    shim: Executable,
    /// What every container's environment starts from.
    environment: BTreeMap<String, String>,
}

impl Node {
    /// Starts a node. It takes up its pods, those that ran before it too, as soon as the API server answers.
    pub async fn start(client: Client, config: Config, shutdown: CancellationToken) -> Result<Arc<Self>, Error> {
        let Config { name, dir, path, shim, shim_args } = config;
        let folder = |source| Error::Folder { path: dir.clone(), source };
        shim::files::create_folder(&dir).map_err(folder)?;
        let pods = dir.canonicalize().map_err(folder)?;
        let host = std::env::var("PATH").unwrap_or_default();
        let search: Vec<String> = path.iter().map(|path| path.to_string_lossy().into_owned()).chain([host]).collect();
        let environment = environment::from_host(&search.join(":"), |name| std::env::var(name).ok());
        let context = Arc::new(Context { client, pods, shim: Executable { path: shim, args: shim_args }, environment });
        let tasks = TaskTracker::new();
        tasks.spawn(run(context.clone(), name, shutdown, tasks.clone()));
        tasks.close();
        Ok(Arc::new(Self { context, tasks }))
    }

    /// Returns when the node has stopped.
    pub async fn stopped(&self) {
        self.tasks.wait().await;
    }
}

/// Keeps one task a pod, as the API server has them.
async fn run(context: Arc<Context>, name: String, shutdown: CancellationToken, tasks: TaskTracker) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={name}"));
    let mut events = watcher(Api::<Pod>::all(context.client.clone()), config).default_backoff().boxed();
    let mut pods = Pods { context, shutdown: shutdown.clone(), tasks, workers: HashMap::new() };
    let mut listed = HashSet::new();
    let mut swept = false;
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            Some(Ok(watcher::Event::Init)) => listed.clear(),
            Some(Ok(watcher::Event::InitApply(pod))) => {
                listed.extend(pod.metadata.uid.clone());
                pods.apply(pod);
            }
            Some(Ok(watcher::Event::InitDone)) => {
                pods.keep(&listed);
                if !std::mem::replace(&mut swept, true) {
                    let strays = sweep::strays(&pods.context, &std::mem::take(&mut listed));
                    pods.tasks.spawn(sweep::sweep(pods.context.clone(), strays));
                }
            }
            Some(Ok(watcher::Event::Apply(pod))) => pods.apply(pod),
            Some(Ok(watcher::Event::Delete(pod))) => pods.gone(pod.metadata.uid.as_deref().unwrap_or_default()),
            Some(Err(error)) => {
                tracing::warn!(%error, "the node cannot watch its pods, trying again")
            }
            None => return,
        }
    }
}

/// The pods' tasks by the pods' uids.
struct Pods {
    context: Arc<Context>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
    workers: HashMap<String, mpsc::UnboundedSender<Update>>,
}

impl Pods {
    fn apply(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else {
            return;
        };
        let pod = Arc::new(pod);
        if let Some(worker) = self.workers.get(&uid) {
            let _ = worker.send(Update::Changed(pod));
            return;
        }
        let (sender, updates) = mpsc::unbounded_channel();
        self.tasks.spawn(Worker::run(self.context.clone(), pod, updates, self.shutdown.clone()));
        self.workers.insert(uid, sender);
    }

    fn gone(&mut self, uid: &str) {
        if let Some(worker) = self.workers.remove(uid) {
            let _ = worker.send(Update::Gone);
        }
    }

    fn keep(&mut self, listed: &HashSet<String>) {
        let gone: Vec<String> = self.workers.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
        gone.iter().for_each(|uid| self.gone(uid));
    }
}
