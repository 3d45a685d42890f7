//! Gathering what a pod and its containers need. What is missing is waited for, for as long as the pod waits.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all, try_join_all};
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::sync::mpsc;

use super::Event;
use crate::container::Shim;
use crate::environment::EnvironmentError;
use crate::expand::expand;
use crate::folder::PodFolder;
use crate::objects::{Missing, Objects};
use crate::shim::files::{self, Spec};
use crate::volumes::{Content, Token, VolumeError};
use crate::{Context, environment, token, volumes};

/// Where a termination message is expected when the pod does not say.
const TERMINATION_MESSAGE_PATH: &str = "/dev/termination-log";
/// The pause after an error of the API server; it doubles up to the other.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why something cannot be prepared.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error("{0}")]
    Missing(Missing),
    /// It may work later.
    #[error("{0}")]
    Later(String),
    /// It never will: the pod itself is wrong.
    #[error("{0}")]
    Never(String),
}

impl From<kube::Error> for PrepareError {
    fn from(error: kube::Error) -> Self {
        Self::Later(error.to_string())
    }
}

impl From<VolumeError> for PrepareError {
    fn from(error: VolumeError) -> Self {
        match error {
            VolumeError::Missing(missing) => Self::Missing(missing),
            VolumeError::Io { .. } => Self::Later(error.to_string()),
            VolumeError::Invalid { .. } => Self::Never(error.to_string()),
        }
    }
}

impl From<EnvironmentError> for PrepareError {
    fn from(error: EnvironmentError) -> Self {
        match error {
            EnvironmentError::Missing(missing) => Self::Missing(missing),
            EnvironmentError::Invalid(why) => Self::Never(why),
        }
    }
}

/// Makes a pod's volumes, says so, and keeps their tokens fresh.
pub async fn volumes(context: Arc<Context>, pod: Arc<Pod>, folder: PodFolder, events: mpsc::UnboundedSender<Event>) {
    let trouble = |message| {
        let _ = events.send(Event::VolumesWait(message));
    };
    let Some((roots, tokens)) = insist(&context, &pod, trouble, || make_volumes(&context, &pod, &folder).boxed()).await
    else {
        return;
    };
    let _ = events.send(Event::Volumes(roots));
    drop(events);
    join_all(tokens.into_iter().map(|(token, first)| token.keep(context.client.clone(), pod.clone(), first))).await;
}

/// The container to prepare.
pub struct Target {
    /// Its place in the pod.
    pub index: usize,
    /// The number of its instance.
    pub attempt: u32,
    /// What the pod says about it.
    pub spec: Container,
    /// Its shim, which waits.
    pub shim: Shim,
}

/// Writes down what a container's shim is to run, and lets it.
pub async fn container(
    context: Arc<Context>,
    pod: Arc<Pod>,
    folder: PodFolder,
    roots: BTreeMap<String, PathBuf>,
    target: Target,
    events: mpsc::UnboundedSender<Event>,
) {
    let Target { index, attempt, spec: container, shim } = target;
    let own = folder.container(&container.name, attempt);
    let trouble = |message| {
        let _ = events.send(Event::Wait(index, attempt, message));
    };
    let make = || make_spec(&context, &pod, &folder, &roots, &container, &own).boxed();
    if insist(&context, &pod, trouble, make).await.is_some() {
        shim.start();
    }
}

/// Tries until it works; `None` when it never will.
async fn insist<'a, T>(
    context: &'a Context,
    pod: &'a Pod,
    trouble: impl Fn(String),
    attempt: impl Fn() -> BoxFuture<'a, Result<T, PrepareError>>,
) -> Option<T> {
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match attempt().await {
            Ok(done) => return Some(done),
            Err(error) => error,
        };
        trouble(error.to_string());
        let wait = match error {
            PrepareError::Never(_) => return None,
            PrepareError::Missing(missing) => missing.appears(&context.client, namespace(pod)).await.is_err(),
            PrepareError::Later(_) => true,
        };
        if wait {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

type Volumes = (BTreeMap<String, PathBuf>, Vec<(token::TokenVolume, Duration)>);

async fn make_volumes(context: &Context, pod: &Pod, folder: &PodFolder) -> Result<Volumes, PrepareError> {
    let objects = Objects::fetch(&context.client, namespace(pod), &volumes::needs(pod)).await?;
    let mut roots = BTreeMap::new();
    let mut tokens = Vec::new();
    for volume in volumes::volumes(pod) {
        let content = volumes::content(pod, volume, &objects)?;
        let root = match &content {
            Content::Host(path) => path.clone(),
            _ => folder.volume(&volume.name),
        };
        volumes::write(&root, &volume.name, &content)?;
        if let Content::Files(_, asked) = content {
            tokens.extend(asked.into_iter().map(|token: Token| token::TokenVolume { root: root.clone(), token }));
        }
        roots.insert(volume.name.clone(), root);
    }
    let tokens: Vec<_> = tokens.into_iter().map(|token| first_token(context, pod, token).boxed()).collect();
    Ok((roots, try_join_all(tokens).await?))
}

async fn first_token(
    context: &Context,
    pod: &Pod,
    token: token::TokenVolume,
) -> Result<(token::TokenVolume, Duration), PrepareError> {
    let next = token.refresh(&context.client, pod).await.map_err(|error| PrepareError::Later(error.to_string()))?;
    Ok((token, next))
}

async fn make_spec(
    context: &Context,
    pod: &Pod,
    folder: &PodFolder,
    roots: &BTreeMap<String, PathBuf>,
    container: &Container,
    own: &Path,
) -> Result<(), PrepareError> {
    let objects = Objects::fetch(&context.client, namespace(pod), &environment::needs(container)).await?;
    let spec = spec(context, pod, folder, roots, container, own, &objects)?;
    files::write(own, files::SPEC, &spec).map_err(|error: io::Error| PrepareError::Later(error.to_string()))
}

fn spec(
    context: &Context,
    pod: &Pod,
    folder: &PodFolder,
    roots: &BTreeMap<String, PathBuf>,
    container: &Container,
    own: &Path,
    objects: &Objects,
) -> Result<Spec, PrepareError> {
    let variables = environment::variables(pod, container, objects)?;
    let mut mounts = volumes::mounts(container, roots, |text| expand(text, &variables))?;
    let message_path = container.termination_message_path.as_deref().unwrap_or(TERMINATION_MESSAGE_PATH);
    if mounts.locate(message_path) == Path::new(message_path) {
        mounts.add(message_path, own.join(files::TERMINATION_MESSAGE));
    }
    let mut base = context.environment.clone();
    let mut set = |name: &str, value: &str| base.insert(name.to_owned(), value.to_owned());
    set("HOME", &folder.home().to_string_lossy());
    set("TMPDIR", &folder.temporary().to_string_lossy());
    let hostname = pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref()).or(pod.metadata.name.as_deref());
    set("HOSTNAME", hostname.unwrap_or_default());
    let tty = container.tty.unwrap_or(false);
    if tty {
        set("TERM", "xterm");
    }
    Ok(Spec {
        argv: environment::command_line(container, &variables, &mounts),
        env: environment::complete(base, &variables, &mounts),
        cwd: match container.working_dir.as_deref() {
            None | Some("") => folder.home(),
            Some(path) => mounts.locate(path),
        },
        tty,
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        shim_args: context.shim.args.clone(),
        termination_message: mounts.locate(message_path),
    })
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}
