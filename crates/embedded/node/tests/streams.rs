//! `pods/log`, `pods/attach` and `pods/exec` with the clients that people use.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../tests/cluster/mod.rs"]
mod cluster;
mod node;

use std::process::Stdio;

use futures::{AsyncReadExt as _, SinkExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, LogParams, TerminalSize};
use node::{TestNode, phase};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Pods through a client over TLS: streams need a real connection.
async fn remote(test: &TestNode) -> Api<Pod> {
    Api::default_namespaced(test.cluster.remote().await)
}

async fn running(test: &TestNode, name: &str, script: &str, stdin: bool, tty: bool) {
    test.create(name, script, |pod| {
        let main = &mut pod["spec"]["containers"][0];
        main["stdin"] = json!(stdin);
        main["tty"] = json!(tty);
        main["env"] = json!([{"name": "GREETING", "value": "hello"}]);
    })
    .await;
    test.until(name, |pod| phase(pod) == "Running").await;
}

async fn until(from: &mut (impl tokio::io::AsyncRead + Unpin), text: &str) -> String {
    let mut seen = String::new();
    let mut buffer = [0; 1024];
    while !seen.contains(text) {
        let length = from.read(&mut buffer).await.unwrap();
        assert!(length > 0, "{seen:?} ended before {text:?}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    seen
}

#[test]
fn a_log_is_followed_to_its_end() {
    TestNode::run(|test| async move {
        running(&test, "p", "echo one; read line; echo $line; printf end", true, false).await;
        let pods = remote(&test).await;
        let follow = LogParams { follow: true, ..LogParams::default() };
        let mut log = pods.log_stream("p", &follow).await.unwrap();
        let mut attached =
            pods.attach("p", &AttachParams::default().stdin(true).stdout(false).stderr(false)).await.unwrap();
        let mut first = [0; 4];
        log.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"one\n");
        attached.stdin().unwrap().write_all(b"two\n").await.unwrap();
        let mut rest = String::new();
        log.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "two\nend");
        let last = LogParams { tail_lines: Some(2), limit_bytes: Some(5), ..LogParams::default() };
        assert_eq!(pods.logs("p", &last).await.unwrap(), "two\ne");
    });
}

#[test]
fn a_log_that_is_not_there_is_an_error() {
    TestNode::run(|test| async move {
        test.create("p", "", |pod| pod["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "no"}}]))
            .await;
        test.until("p", |pod| node::waiting(pod, "main").is_some_and(|(reason, _)| reason.starts_with("Create"))).await;
        let error = test.pods().logs("p", &LogParams::default()).await.unwrap_err().to_string();
        assert!(
            error.contains("container \"main\" in pod \"p\" is waiting to start: CreateContainerConfigError"),
            "{error}"
        );
        let previous = LogParams { previous: true, ..LogParams::default() };
        let error = test.pods().logs("p", &previous).await.unwrap_err().to_string();
        assert!(error.contains("previous terminated container \"main\" in pod \"p\" not found"), "{error}");
    });
}

#[test]
fn an_attached_client_has_the_streams() {
    TestNode::run(|test| async move {
        running(
            &test,
            "p",
            "while read line; do echo got $line; echo err $line >&2; test $line = end && exit 3; done",
            true,
            false,
        )
        .await;
        let pods = remote(&test).await;
        let params = AttachParams::default().stdin(true).stdout(true).stderr(true);
        let mut attached = pods.attach("p", &params).await.unwrap();
        let (mut stdin, mut stdout, mut stderr) =
            (attached.stdin().unwrap(), attached.stdout().unwrap(), attached.stderr().unwrap());
        stdin.write_all(b"one\n").await.unwrap();
        assert_eq!(until(&mut stdout, "\n").await, "got one\n");
        assert_eq!(until(&mut stderr, "\n").await, "err one\n");
        let status = attached.take_status().unwrap();
        stdin.write_all(b"end\n").await.unwrap();
        assert_eq!(until(&mut stdout, "\n").await, "got end\n");
        assert_eq!(status.await.unwrap().status.as_deref(), Some("Success"));
        assert_eq!(node::terminated(&test.end("p").await, "main").exit_code, 3);
    });
}

#[test]
fn a_terminal_is_attached_and_resized() {
    TestNode::run(|test| async move {
        running(&test, "p", "while read line && test $line != end; do stty size; done; exit 1", true, true).await;
        let pods = remote(&test).await;
        let params = AttachParams::default().stdin(true).stdout(true).stderr(false).tty(true);
        let mut attached = pods.attach("p", &params).await.unwrap();
        let mut sizes = attached.terminal_size().unwrap();
        sizes.send(TerminalSize { width: 111, height: 22 }).await.unwrap();
        let (mut stdin, mut stdout) = (attached.stdin().unwrap(), attached.stdout().unwrap());
        // The client sends sizes and input in no particular order.
        let mut seen = String::new();
        while !seen.contains("22 111\r\n") {
            stdin.write_all(b"go\n").await.unwrap();
            seen.push_str(&until(&mut stdout, "\n").await);
        }
        // Detached, it goes on.
        drop((stdin, stdout, sizes));
        attached.abort();
        let mut attached = pods.attach("p", &params).await.unwrap();
        attached.stdin().unwrap().write_all(b"end\n").await.unwrap();
        assert_eq!(node::terminated(&test.end("p").await, "main").exit_code, 1);
    });
}

#[test]
fn a_process_is_executed_beside_the_container() {
    TestNode::run(|test| async move {
        running(&test, "p", "sleep 100", false, false).await;
        let pods = remote(&test).await;
        let params = AttachParams::default().stdin(true).stdout(true).stderr(true);
        let mut process = pods.exec("p", ["sh", "-c", "cat; echo $GREETING >&2; exit 7"], &params).await.unwrap();
        let (mut stdin, mut stdout, mut stderr) =
            (process.stdin().unwrap(), process.stdout().unwrap(), process.stderr().unwrap());
        let status = process.take_status().unwrap();
        stdin.write_all(b"text").await.unwrap();
        stdin.shutdown().await.unwrap();
        drop(stdin);
        let (mut out, mut err) = (String::new(), String::new());
        stdout.read_to_string(&mut out).await.unwrap();
        stderr.read_to_string(&mut err).await.unwrap();
        assert_eq!((out.as_str(), err.as_str()), ("text", "hello\n"));
        let status = status.await.unwrap();
        assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"));
        assert_eq!(status.details.unwrap().causes.unwrap()[0].message.as_deref(), Some("7"));

        let error = pods.exec("p", ["no-such-program"], &AttachParams::default()).await.err().unwrap().to_string();
        assert!(error.contains("500"), "{error}");
    });
}

#[test]
fn an_executed_process_ends_with_its_client() {
    TestNode::run(|test| async move {
        running(&test, "p", "sleep 100", false, false).await;
        let pods = remote(&test).await;
        let mut process = pods
            .exec("p", ["sh", "-c", "echo $$; exec sleep 1000"], &AttachParams::default().stderr(false))
            .await
            .unwrap();
        let pid: i32 = until(&mut process.stdout().unwrap(), "\n").await.trim().parse().unwrap();
        assert!(knoll_kube_node::shim_files::start_time(pid).is_some());
        process.abort();
        node::process_gone(pid).await;
    });
}

/// `kubectl`, when the machine has one.
fn kubectl(test: &TestNode, args: &[&str]) -> Option<Command> {
    let found =
        std::process::Command::new("kubectl").args(["version", "--client"]).stdout(Stdio::null()).status().is_ok();
    found.then(|| {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(test.cluster.kubeconfig()).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    })
}

#[test]
fn kubectl_executes_attaches_and_reads_logs() {
    TestNode::run(|test| async move {
        running(&test, "p", "read line; echo got $line; exit 2", true, false).await;
        let Some(mut exec) = kubectl(&test, &["exec", "-i", "p", "--", "sh", "-c", "cat; exit 3"]) else { return };
        let mut child = exec.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"input").await.unwrap();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
            (Some(3), "input"),
            "{output:?}"
        );

        let mut child = kubectl(&test, &["attach", "-i", "p"]).unwrap().spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"there\n").await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
            (Some(0), "got there\n"),
            "{output:?}"
        );
        drop(stdin);

        let output = kubectl(&test, &["logs", "-f", "p"]).unwrap().output().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "got there\n", "{output:?}");
    });
}
