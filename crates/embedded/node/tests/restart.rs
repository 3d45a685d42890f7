//! What becomes of pods when the node goes away and comes back.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../tests/cluster/mod.rs"]
mod cluster;
mod node;

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use knoll_kube_node::shim_files::{self as files, Started};
use kube::api::DeleteParams;
use node::{TestNode, phase, terminated};
use serde_json::json;

fn instance(test: &TestNode, pod: &Pod) -> PathBuf {
    test.dir().join(pod.metadata.uid.as_ref().unwrap()).join("containers/main/0")
}

async fn running(test: &TestNode, name: &str, script: &str) -> (Pod, Started) {
    let pod = test
        .create(name, script, |pod| {
            pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
            pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        })
        .await;
    test.until(name, |pod| phase(pod) == "Running").await;
    let started = files::read(&instance(test, &pod), files::STARTED).unwrap().unwrap();
    (pod, started)
}

/// Lets the container's script go on.
fn signal(test: &TestNode, pod: &Pod) {
    let volume = test.dir().join(pod.metadata.uid.as_ref().unwrap()).join("volumes/v");
    std::fs::write(volume.join("go"), "").unwrap();
}

const SCRIPT: &str = "echo before; while ! test -e /v/go; do sleep 0.01; done; echo after; exit 4";

#[test]
fn a_container_that_still_runs_is_found_again() {
    TestNode::run(|test| async move {
        let (pod, started) = running(&test, "p", SCRIPT).await;
        test.down().await;
        test.up().await;
        signal(&test, &pod);
        let end = test.end("p").await;
        let main = terminated(&end, "main");
        assert_eq!((main.exit_code, main.container_id), (4, Some(format!("process://{}", started.pid))));
        assert_eq!(test.logs("p").await, "before\nafter\n");
    });
}

#[test]
fn a_container_that_ended_meanwhile_is_reported_as_it_ended() {
    TestNode::run(|test| async move {
        let (pod, _) = running(&test, "p", SCRIPT).await;
        test.down().await;
        signal(&test, &pod);
        while !instance(&test, &pod).join(files::EXIT).exists() {
            tokio::task::yield_now().await;
        }
        test.up().await;
        assert_eq!(terminated(&test.end("p").await, "main").exit_code, 4);
    });
}

fn kill(pid: i32) {
    use nix::sys::signal::{Signal, kill};
    kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_container_whose_shim_was_killed_is_lost_and_ends() {
    for away in [false, true] {
        TestNode::run(|test| async move {
            // `timeout` makes itself a process group of its own.
            let (_, started) = running(&test, "p", "timeout 1000 sleep 1000 & echo $!; wait").await;
            let child = loop {
                if let Ok(pid) = test.logs("p").await.trim().parse() {
                    break pid;
                }
            };
            if away {
                test.down().await;
            }
            kill(parent(started.pid));
            if away {
                test.up().await;
            }
            let end = test.end("p").await;
            let main = terminated(&end, "main");
            assert_eq!(
                (phase(&end), main.exit_code, main.reason.as_deref()),
                ("Failed", 137, Some("ContainerStatusUnknown"))
            );
            node::process_gone(started.pid).await;
            node::process_gone(child).await;
        });
    }
}

#[test]
fn a_pod_whose_folder_is_gone_does_not_run_twice() {
    TestNode::run(|test| async move {
        let (pod, started) = running(&test, "p", SCRIPT).await;
        test.down().await;
        kill(parent(started.pid));
        std::fs::remove_dir_all(test.dir().join(pod.metadata.uid.as_ref().unwrap())).unwrap();
        test.up().await;
        let end = test.end("p").await;
        assert_eq!(terminated(&end, "main").reason.as_deref(), Some("ContainerStatusUnknown"));
    });
}

#[test]
fn a_pod_that_was_deleted_meanwhile_is_cleared_away() {
    TestNode::run(|test| async move {
        let (pod, started) = running(&test, "p", "sleep 1000").await;
        test.down().await;
        test.pods().delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
        test.gone("p").await;
        assert!(files::start_time(started.pid).is_some());
        test.up().await;
        test.folder_gone(&pod).await;
        node::process_gone(started.pid).await;
    });
}

#[test]
fn a_deletion_goes_on_where_it_was() {
    TestNode::run(|test| async move {
        let (pod, _) = running(&test, "p", "sleep 1000").await;
        test.down().await;
        test.pods().delete("p", &DeleteParams::default()).await.unwrap();
        test.up().await;
        test.gone("p").await;
        test.folder_gone(&pod).await;
    });
}

#[test]
fn a_pod_that_is_over_stays_as_it_is() {
    TestNode::run(|test| async move {
        let (pod, _) = running(&test, "p", SCRIPT).await;
        signal(&test, &pod);
        let end = test.end("p").await;
        test.down().await;
        test.up().await;
        // Another pod's end shows that the node is through with what it found.
        test.create("q", "true", |_| {}).await;
        test.end("q").await;
        assert_eq!(test.pods().get("p").await.unwrap(), end);
        test.pods().delete("p", &DeleteParams::default()).await.unwrap();
        test.gone("p").await;
    });
}
