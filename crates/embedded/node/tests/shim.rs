//! The shim by itself: real processes, without a node.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::{Duration, Instant};

use knoll_kube_node::shim_files::{self as files, Cause, Exit, Spec, Started};
use knoll_kube_node::shim_wire::{Attach, Frame, Size};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

const SHIM: &str = env!("CARGO_BIN_EXE_knoll-shim");

/// A container's folder with a shim at work in it.
struct Shim {
    folder: TempDir,
    child: Child,
    node: UnixStream,
}

fn spec(script: &str) -> Spec {
    Spec {
        argv: ["sh", "-c", script].map(String::from).to_vec(),
        env: [("PATH", "/usr/bin:/bin"), ("GREETING", "hello")].map(|(k, v)| (k.into(), v.into())).into(),
        cwd: "/".into(),
        ..Spec::default()
    }
}

fn spawn(args: &[&std::ffi::OsStr]) -> (Child, UnixStream) {
    let (node, shim) = std::os::unix::net::UnixStream::pair().unwrap();
    let child = Command::new(SHIM)
        .args(args)
        .stdin(std::os::fd::OwnedFd::from(shim))
        .stdout(std::process::Stdio::null())
        .env_clear()
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    node.set_nonblocking(true).unwrap();
    (child, UnixStream::from_std(node).unwrap())
}

impl Shim {
    async fn start(spec: &Spec) -> Self {
        let folder = tempfile::tempdir().unwrap();
        files::write(folder.path(), files::SPEC, spec).unwrap();
        let (child, mut node) = spawn(&["container".as_ref(), folder.path().as_ref()]);
        Frame::Start.write(&mut node).await.unwrap();
        Self { folder, child, node }
    }

    async fn next(&mut self) -> Option<Frame> {
        next(&mut self.node).await
    }

    async fn started(&mut self) -> Started {
        let Some(Frame::Started(started)) = self.next().await else { panic!("not started") };
        started
    }

    async fn exit(&mut self) -> Exit {
        let Some(Frame::Exited(exit)) = self.next().await else { panic!("not ended") };
        assert_eq!(files::read::<Exit>(self.folder.path(), files::EXIT).unwrap().as_ref(), Some(&exit));
        exit
    }

    async fn connect(&self, first: Frame) -> UnixStream {
        let mut stream = UnixStream::connect(self.folder.path().join(files::SOCKET)).await.unwrap();
        first.write(&mut stream).await.unwrap();
        stream
    }

    fn log(&self) -> Vec<(String, char, String)> {
        let text = std::fs::read_to_string(self.folder.path().join(files::LOG)).unwrap();
        text.lines()
            .map(|line| {
                let mut parts = line.splitn(4, ' ').skip(1);
                let mut part = || parts.next().unwrap().to_owned();
                (part(), part().chars().next().unwrap(), part())
            })
            .collect()
    }
}

async fn next(stream: &mut UnixStream) -> Option<Frame> {
    tokio::time::timeout(Duration::from_secs(20), Frame::read(stream)).await.unwrap().unwrap()
}

/// Reads output until it holds `text`.
async fn until(stream: &mut UnixStream, text: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(text) {
        match next(stream).await {
            Some(Frame::Stdout(bytes) | Frame::Stderr(bytes)) => seen.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?} after {seen:?}"),
        }
    }
    seen
}

/// Waits until a process is gone, or a zombie of somebody else.
async fn gone(pid: i32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < deadline, "{pid} still runs");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_process_runs_with_its_environment_and_its_log_and_end_are_kept() {
    let mut shim = Shim::start(&spec("echo $GREETING $HOME; echo oops >&2; printf end; exit 3")).await;
    let started = shim.started().await;
    let exit = shim.exit().await;
    assert_eq!((exit.code, exit.signal, &exit.cause), (3, None, &Cause::Exited));
    assert_eq!(exit.started_at, Some(started.at));
    let mut log = shim.log();
    log.sort();
    let row = |stream: &str, tag, text: &str| (stream.to_owned(), tag, text.to_owned());
    assert_eq!(log, [row("stderr", 'F', "oops"), row("stdout", 'F', "hello"), row("stdout", 'P', "end")]);
    assert!(shim.child.wait().await.unwrap().success());
}

#[tokio::test]
async fn signals_reach_the_main_process_and_its_end_names_them() {
    let mut shim = Shim::start(&spec("exec sleep 100")).await;
    shim.started().await;
    Frame::Signal(15).write(&mut shim.node).await.unwrap();
    let exit = shim.exit().await;
    assert_eq!((exit.code, exit.signal), (143, Some(15)));
}

#[tokio::test]
async fn nothing_outlives_the_main_process() {
    let mut shim = Shim::start(&spec("sleep 100 & echo $!; setsid sleep 100 & echo $!; echo done")).await;
    shim.started().await;
    assert_eq!(shim.exit().await.code, 0);
    for (_, _, text) in shim.log() {
        if let Ok(pid) = text.parse() {
            gone(pid).await;
        }
    }
}

#[tokio::test]
async fn the_main_process_dies_with_its_shim() {
    let mut shim = Shim::start(&spec("exec sleep 100")).await;
    let started = shim.started().await;
    assert!(files::try_lock(shim.folder.path()).unwrap().is_none());
    shim.child.kill().await.unwrap();
    gone(started.pid).await;
    assert!(files::try_lock(shim.folder.path()).unwrap().is_some());
    assert!(!shim.folder.path().join(files::EXIT).exists());
}

#[tokio::test]
async fn a_shim_outlives_its_node_and_is_found_again() {
    let mut shim = Shim::start(&spec("read line; echo got $line; exit 7")).await;
    shim.started().await;
    // With no input the read ends at once, so only the file tells how it went.
    let Shim { folder, node, mut child } = shim;
    drop(node);
    child.wait().await.unwrap();
    assert_eq!(files::read::<Exit>(folder.path(), files::EXIT).unwrap().unwrap().code, 7);

    let mut with_input = spec("read line; exit 7");
    with_input.stdin = true;
    let mut shim = Shim::start(&with_input).await;
    let started = shim.started().await;
    let (closed, _) = UnixStream::pair().unwrap();
    drop(std::mem::replace(&mut shim.node, closed));
    let mut watch = shim.connect(Frame::Watch).await;
    assert_eq!(next(&mut watch).await, Some(Frame::Started(started)));
    Frame::Signal(9).write(&mut watch).await.unwrap();
    let Some(Frame::Exited(exit)) = next(&mut watch).await else { panic!() };
    assert_eq!((exit.code, exit.signal, exit.cause), (137, Some(9), Cause::Exited));
}

#[tokio::test]
async fn a_shim_that_was_never_told_to_start_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    files::write(folder.path(), files::SPEC, &spec("echo no")).unwrap();
    let (mut child, node) = spawn(&["container".as_ref(), folder.path().as_ref()]);
    drop(node);
    assert!(child.wait().await.unwrap().success());
    for name in [files::SPEC, files::STARTED, files::EXIT, files::LOG] {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken");
    files::write_bytes(&broken, b"#!/no/such/interpreter\n", 0o755).unwrap();
    let rows = [
        (vec!["no-such-program"], Path::new("/"), "`no-such-program` is not on `PATH`"),
        (vec!["/no/such/program"], Path::new("/"), "`/no/such/program` cannot be run"),
        (vec![], Path::new("/"), "no `command`"),
        (vec!["sh"], Path::new("/no/such/folder"), "working directory `/no/such/folder`"),
        (vec![broken.to_str().unwrap()], Path::new("/"), "cannot be executed: No such file"),
    ];
    for (argv, cwd, says) in rows {
        let argv = argv.into_iter().map(String::from).collect();
        let mut shim = Shim::start(&Spec { argv, cwd: cwd.into(), ..spec("") }).await;
        let exit = match shim.next().await {
            Some(Frame::Exited(exit)) => exit,
            Some(Frame::Started(_)) => shim.exit().await,
            other => panic!("{other:?}"),
        };
        let Cause::NotStarted(why) = exit.cause else { panic!("{exit:?}") };
        assert!(why.contains(says), "{why}");
        assert_eq!(exit.code, 128);
    }
}

#[tokio::test]
async fn attached_clients_have_the_streams() {
    let mut with_input = spec("while read line; do echo got $line; echo err $line >&2; done; exit 4");
    with_input.stdin = true;
    let mut shim = Shim::start(&with_input).await;
    shim.started().await;
    let everything = Attach { stdin: true, stdout: true, stderr: true };
    let mut client = shim.connect(Frame::Attach(everything)).await;
    let mut silent = shim.connect(Frame::Attach(Attach { stdout: true, ..Attach::default() })).await;
    assert!(matches!(next(&mut client).await, Some(Frame::Started(_))));
    assert!(matches!(next(&mut silent).await, Some(Frame::Started(_))));
    Frame::Stdin("one\n".into()).write(&mut client).await.unwrap();
    let seen = until(&mut client, "err one\n").await;
    assert!(seen.contains("got one\n"), "{seen}");
    assert_eq!(until(&mut silent, "\n").await, "got one\n");
    // A container that may be attached to again keeps its input open.
    Frame::StdinClosed.write(&mut client).await.unwrap();
    Frame::Stdin("two\n".into()).write(&mut client).await.unwrap();
    until(&mut client, "err two\n").await;
    drop(client);
    let mut client = shim.connect(Frame::Attach(everything)).await;
    assert!(matches!(next(&mut client).await, Some(Frame::Started(_))));
    Frame::Signal(9).write(&mut shim.node).await.unwrap();
    let Some(Frame::Exited(exit)) = next(&mut client).await else { panic!() };
    assert_eq!(exit.code, 137);
}

#[tokio::test]
async fn input_that_is_had_once_ends_with_its_client() {
    let mut once = spec("while read line; do echo got $line; done; exit 4");
    (once.stdin, once.stdin_once) = (true, true);
    let mut shim = Shim::start(&once).await;
    shim.started().await;
    let client = shim.connect(Frame::Attach(Attach { stdin: true, ..Attach::default() })).await;
    drop(client);
    assert_eq!(shim.exit().await.code, 4);
}

#[tokio::test]
async fn a_terminal_is_a_terminal() {
    let mut terminal = spec("test -t 0 && test -t 1 && test -t 2 && read line </dev/tty && stty size && exit 5");
    (terminal.tty, terminal.stdin) = (true, true);
    let mut shim = Shim::start(&terminal).await;
    shim.started().await;
    let mut client = shim.connect(Frame::Attach(Attach { stdin: true, stdout: true, stderr: false })).await;
    assert!(matches!(next(&mut client).await, Some(Frame::Started(_))));
    Frame::Resize(Size { columns: 100, rows: 30 }).write(&mut client).await.unwrap();
    Frame::Stdin("go\n".into()).write(&mut client).await.unwrap();
    until(&mut client, "30 100\r\n").await;
    assert_eq!(shim.exit().await.code, 5);
}

#[tokio::test]
async fn a_follower_is_woken_and_let_go() {
    let mut with_input = spec("read line; echo got $line");
    with_input.stdin = true;
    let mut shim = Shim::start(&with_input).await;
    shim.started().await;
    let mut follower = shim.connect(Frame::Follow).await;
    assert_eq!(next(&mut follower).await, Some(Frame::Grown));
    let mut client = shim.connect(Frame::Attach(Attach { stdin: true, ..Attach::default() })).await;
    Frame::Stdin("x\n".into()).write(&mut client).await.unwrap();
    while let Some(frame) = next(&mut follower).await {
        assert_eq!(frame, Frame::Grown);
    }
    assert_eq!(shim.log()[0].2, "got x");
}

#[tokio::test]
async fn an_exec_lives_as_long_as_its_client() {
    let (mut child, mut node) = spawn(&["exec".as_ref()]);
    let mut cat = spec("echo $$; cat; exit 6");
    (cat.stdin, cat.stdin_once) = (true, true);
    Frame::Exec(Box::new(cat.clone())).write(&mut node).await.unwrap();
    assert!(matches!(next(&mut node).await, Some(Frame::Started(_))));
    Frame::Stdin("text".into()).write(&mut node).await.unwrap();
    until(&mut node, "text").await;
    Frame::StdinClosed.write(&mut node).await.unwrap();
    let Some(Frame::Exited(exit)) = next(&mut node).await else { panic!() };
    assert_eq!(exit.code, 6);
    child.wait().await.unwrap();

    let (mut child, mut node) = spawn(&["exec".as_ref()]);
    Frame::Exec(Box::new(cat)).write(&mut node).await.unwrap();
    let Some(Frame::Started(started)) = next(&mut node).await else { panic!() };
    drop(node);
    child.wait().await.unwrap();
    gone(started.pid).await;
}
