//! `pods/log`, `pods/attach` and `pods/exec`: what the API server asks of the node.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use super::Node;
use super::container::{connect, spawn_exec};
use super::folder::PodFolder;
use super::logs;
use super::shim::files::{self, Cause, Exit, Spec};
use super::shim::wire::{Attach, Frame, Size};
use knoll_kube_apiserver::{LogOptions, PodRuntime, RuntimeError, StreamOptions, Streams};

/// How much of a stream may be on its way between the shim and the client.
const BUFFER: usize = 64 << 10;

impl PodRuntime for Node {
    fn logs<'a>(
        &'a self,
        pod: &'a Pod,
        container: &'a str,
        options: LogOptions,
    ) -> BoxFuture<'a, Result<BoxStream<'static, io::Result<Bytes>>, RuntimeError>> {
        async move {
            let (newest, before) = self.folder(pod).newest(container);
            let folder = if options.previous {
                let why =
                    || format!("previous terminated container \"{container}\" in pod \"{}\" not found", name(pod));
                before.ok_or_else(|| RuntimeError::NotRunning(why()))?
            } else {
                let newest = newest.ok_or_else(|| not_started(pod, container))?;
                // Nobody could be followed yet, and nothing is not all that it will say.
                if !begun(&newest) && !ended(&newest) {
                    return Err(not_started(pod, container));
                }
                newest
            };
            logs::stream(&folder, options).await.map_err(failed("read the log"))
        }
        .boxed()
    }

    fn attach<'a>(
        &'a self,
        pod: &'a Pod,
        container: &'a str,
        options: StreamOptions,
    ) -> BoxFuture<'a, Result<Streams, RuntimeError>> {
        async move {
            let (folder, spec) = self.running(pod, container)?;
            let wants = Attach {
                stdin: options.stdin && spec.stdin,
                stdout: options.stdout,
                stderr: options.stderr && !spec.tty,
            };
            let gone = |_| RuntimeError::NotRunning(format!("container {container} is not running"));
            let mut shim = connect(&folder, &Frame::Attach(wants)).await.map_err(gone)?;
            // Its answer means that the client misses nothing from here on.
            match Frame::read(&mut shim).await {
                Ok(Some(Frame::Started(_))) => {}
                _ => return Err(gone(io::ErrorKind::NotConnected.into())),
            }
            Ok(carry(shim, options, spec.tty, End::Attached))
        }
        .boxed()
    }

    fn exec<'a>(
        &'a self,
        pod: &'a Pod,
        container: &'a str,
        command: Vec<String>,
        options: StreamOptions,
    ) -> BoxFuture<'a, Result<Streams, RuntimeError>> {
        async move {
            let (_, mut spec) = self.running(pod, container)?;
            spec.argv = command;
            spec.tty = options.tty;
            spec.stdin = options.stdin;
            spec.stdin_once = true;
            if options.tty {
                spec.env.entry("TERM".to_owned()).or_insert_with(|| "xterm".to_owned());
            }
            let (mut child, mut shim) = spawn_exec(&self.context.shim).map_err(failed("start a process"))?;
            tokio::spawn(async move { child.wait().await });
            Frame::Exec(Box::new(spec)).write(&mut shim).await.map_err(failed("start a process"))?;
            match Frame::read(&mut shim).await {
                Ok(Some(Frame::Started(_))) => Ok(carry(shim, options, options.tty, End::Executed)),
                Ok(Some(Frame::Exited(Exit { cause: Cause::NotStarted(why), .. }))) => Err(RuntimeError::Failed(why)),
                _ => Err(failed("start a process")(io::Error::other("its shim is gone"))),
            }
        }
        .boxed()
    }
}

impl Node {
    fn folder(&self, pod: &Pod) -> PodFolder {
        PodFolder::new(&self.context.pods, pod.metadata.uid.as_deref().unwrap_or_default())
    }

    /// The folder and the spec of a container's instance that runs.
    fn running(&self, pod: &Pod, container: &str) -> Result<(PathBuf, Spec), RuntimeError> {
        let folder = self.folder(pod).newest(container).0.ok_or_else(|| not_started(pod, container))?;
        if !begun(&folder) && !ended(&folder) {
            return Err(not_started(pod, container));
        }
        if ended(&folder) {
            let why =
                format!("cannot attach to or execute in container {container} of pod {}: it has ended", name(pod));
            return Err(RuntimeError::NotRunning(why));
        }
        let spec = files::read(&folder, files::SPEC).map_err(failed("read the container's spec"))?;
        Ok((folder, spec.unwrap_or_default()))
    }
}

fn begun(folder: &Path) -> bool {
    folder.join(files::STARTED).exists()
}

fn ended(folder: &Path) -> bool {
    folder.join(files::EXIT).exists()
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The words that Kubernetes has for it, with the reason that the pod's status gives.
fn not_started(pod: &Pod, container: &str) -> RuntimeError {
    let status = pod.status.as_ref();
    let statuses = status
        .iter()
        .flat_map(|status| status.container_statuses.iter().chain(status.init_container_statuses.iter()).flatten());
    let reason = statuses
        .filter(|status| status.name == container)
        .filter_map(|status| status.state.as_ref()?.waiting.as_ref()?.reason.as_deref())
        .next()
        .unwrap_or("ContainerCreating");
    RuntimeError::NotRunning(format!(
        "container \"{container}\" in pod \"{}\" is waiting to start: {reason}",
        name(pod)
    ))
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> RuntimeError {
    move |error| RuntimeError::Failed(format!("the node could not {what}: {error}"))
}

/// What the end of the streams says.
#[derive(Clone, Copy)]
enum End {
    /// An attached client learns that it is over; the exit code is the pod's status's to tell, as everywhere in Kubernetes.
    Attached,
    /// The client of an exec gets the exit code.
    Executed,
}

/// Carries a shim's frames to and from the client's streams. When the client drops them all, the shim is left.
fn carry(shim: UnixStream, options: StreamOptions, tty: bool, end: End) -> Streams {
    let (mut from, mut to) = shim.into_split();
    let (stdin, input) = pipe(options.stdin);
    let (output, stdout) = pipe(options.stdout);
    let (errors, stderr) = pipe(options.stderr && !tty);
    let (resize, mut sizes) = mpsc::channel::<(u16, u16)>(4);
    let (ended, exit) = oneshot::channel();

    tokio::spawn(async move {
        let (mut output, mut errors, mut ended) = (output, errors, ended);
        let reading = async {
            loop {
                match Frame::read(&mut from).await {
                    // A stream that the client has let go is read on, so that the others are not held up.
                    Ok(Some(Frame::Stdout(bytes))) => pass_on(&mut output, &bytes).await,
                    Ok(Some(Frame::Stderr(bytes))) => pass_on(&mut errors, &bytes).await,
                    Ok(Some(Frame::Exited(exit))) => return Ok(exit),
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        return Err(RuntimeError::Failed("the container's shim is gone".to_owned()));
                    }
                    Err(error) => return Err(failed("read from the container's shim")(error)),
                }
            }
        };
        let writing = async {
            let (mut input, mut resizable) = (input, tty);
            let mut buffer = vec![0; BUFFER / 2];
            loop {
                let frame = tokio::select! {
                    // A size that was sent before some input is there before it.
                    biased;
                    size = sizes.recv(), if resizable => match size {
                        Some((columns, rows)) => Frame::Resize(Size { columns, rows }),
                        None => {
                            resizable = false;
                            continue;
                        }
                    },
                    read = read_some(&mut input, &mut buffer), if input.is_some() => match read {
                        Some(bytes) => Frame::Stdin(bytes),
                        None => {
                            input = None;
                            Frame::StdinClosed
                        }
                    },
                    else => return,
                };
                if frame.write(&mut to).await.is_err() {
                    return;
                }
            }
        };
        let result = tokio::select! {
            result = reading => result,
            () = async { writing.await; std::future::pending().await } => return,
            // Whoever waits for the end holds the streams.
            () = ended.closed() => return,
        };
        // The client sees the end of the output before it learns of the exit.
        drop((output, errors));
        let _ = ended.send(result);
    });

    let exit = async move {
        let exit = exit.await.map_err(|_| RuntimeError::Failed("the streams were closed".to_owned()))??;
        match (end, exit.cause) {
            (_, Cause::NotStarted(why)) => Err(RuntimeError::Failed(why)),
            (End::Attached, _) => Ok(0),
            (End::Executed, _) => Ok(exit.code),
        }
    };
    Streams {
        stdin: stdin.map(|stream| Box::new(stream) as _),
        stdout: stdout.map(|stream| Box::new(stream) as _),
        stderr: stderr.map(|stream| Box::new(stream) as _),
        resize: tty.then_some(resize),
        exit: exit.boxed(),
    }
}

fn pipe(wanted: bool) -> (Option<DuplexStream>, Option<DuplexStream>) {
    wanted.then(|| tokio::io::duplex(BUFFER)).unzip()
}

async fn pass_on(to: &mut Option<DuplexStream>, bytes: &Bytes) {
    if let Some(stream) = to
        && stream.write_all(bytes).await.is_err()
    {
        *to = None;
    }
}

/// The next bytes, or `None` at the end.
async fn read_some(from: &mut Option<DuplexStream>, buffer: &mut [u8]) -> Option<Bytes> {
    let length = from.as_mut()?.read(buffer).await.ok()?;
    (length > 0).then(|| Bytes::copy_from_slice(&buffer[..length]))
}
