#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2025-01-01T00:10:00Z".parse().unwrap()
}

/// One row: a pod's metadata and status, and the word for its fate.
#[track_caller]
fn check(metadata: Value, status: Value, expect: &str) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": metadata, "spec": {"containers": [], "nodeName": "n1"}, "status": status,
    }))
    .unwrap();
    let got = match of(&pod, now()) {
        PodOutcome::Waiting { why: None } => "waiting".to_owned(),
        PodOutcome::Waiting { why: Some(cause) } => {
            format!("waiting: {} | {}", cause.reason, cause.message)
        }
        PodOutcome::Running => "running".to_owned(),
        PodOutcome::Hopeless(cause) => format!("hopeless: {} | {}", cause.reason, cause.message),
        PodOutcome::Ended(cause) => format!("{} | {}", cause.reason, cause.message),
    };
    assert_eq!(got, expect);
}

fn runner(state: Value) -> Value {
    json!([{"name": "runner", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
}

#[test]
fn a_pod_on_its_way() {
    check(json!({}), json!({}), "waiting");
    check(
        json!({}),
        json!({"containerStatuses": runner(json!({"waiting": {"reason": "ContainerCreating"}}))}),
        "waiting",
    );
    check(
        json!({}),
        json!({"containerStatuses": runner(json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}))}),
        "waiting: ImagePullBackOff | Container `runner` waits: ImagePullBackOff no such image",
    );
    check(
        json!({}),
        json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]}),
        "waiting: Unschedulable | The pod waits for a node: 0/1 nodes are available",
    );
    check(json!({}), json!({"phase": "Running", "containerStatuses": runner(json!({"running": {}}))}), "running");
}

#[test]
fn a_runner_runs_when_it_is_installed() {
    let pod = |install: Value| {
        let mut containers = runner(json!({"running": {}}));
        let mut first = containers[0].clone();
        first["name"] = "knoll".into();
        first["state"] = install;
        containers.as_array_mut().unwrap().insert(0, first);
        json!({"phase": "Running", "containerStatuses": containers})
    };
    check(json!({}), pod(json!({"waiting": {"reason": "ContainerCreating"}})), "waiting");
    check(json!({}), pod(json!({"running": {}})), "waiting");
    check(json!({}), pod(json!({"terminated": {"exitCode": 0}})), "running");
    check(
        json!({}),
        pod(json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})),
        "waiting: ImagePullBackOff | Container `knoll` waits: ImagePullBackOff no such image",
    );
    check(
        json!({}),
        pod(json!({"terminated": {"exitCode": 2, "message": "disk full"}})),
        "hopeless: PodFailed | Container `knoll` failed: exit code 2, disk full",
    );
}

#[test]
fn a_pod_that_ended_names_why() {
    let dead = |reason: &str, code: i32, message: &str| {
        let terminated = json!({"reason": reason, "exitCode": code, "message": message});
        json!({"phase": "Failed", "containerStatuses": runner(json!({"terminated": terminated}))})
    };
    check(
        json!({}),
        dead("OOMKilled", 137, ""),
        "OOMKilled | The runner was killed because it used more memory than its limit; raise `pod.resources` of the Workspace.",
    );
    check(
        json!({}),
        dead("StartError", 128, "exec: no such file"),
        "PodFailed | The runner could not be started: exit code 128, exec: no such file",
    );
    check(
        json!({}),
        dead("Error", 1, "panicked\n"),
        "RunnerLost | The runner ended before it had reported its end: exit code 1, panicked",
    );
    check(
        json!({"deletionTimestamp": "2025-01-01T00:10:30Z"}),
        dead("Error", 143, ""),
        "PodDeleted | The pod was deleted before its runner had reported its end: exit code 143 (signal 15).",
    );
    check(
        json!({}),
        json!({"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}),
        "Evicted | The pod was evicted: the node was low on memory.",
    );
    check(
        json!({}),
        json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]}),
        "NodeLost | Node `n1` does not answer any more; the run is lost with it.",
    );
    check(
        json!({}),
        json!({"phase": "Failed", "initContainerStatuses": [{
            "name": "mesh", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 2, "message": "disk full"}},
        }]}),
        "PodFailed | Container `mesh` failed: exit code 2, disk full",
    );
}

#[test]
fn a_pod_that_stays_after_its_grace_is_lost() {
    let running = json!({"phase": "Running", "containerStatuses": runner(json!({"running": {}}))});
    check(json!({"deletionTimestamp": "2025-01-01T00:09:30Z"}), running.clone(), "running");
    check(
        json!({"deletionTimestamp": "2025-01-01T00:09:00Z"}),
        running,
        "NodeLost | Node `n1` does not answer any more; the run is lost with it.",
    );
}

#[test]
fn last_words_are_cut_at_a_character() {
    let text = "ä".repeat(2000);
    assert!(last_words(&text).len() <= 1024);
    assert!(last_words(&text).chars().all(|c| c == 'ä'));
}

#[test]
fn a_container_that_will_not_come_says_why() {
    let pod = |state: Value| -> Pod {
        let status =
            json!([{"name": "hook-a", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]);
        serde_json::from_value(
            json!({"spec": {"containers": [{"name": "hook-a"}]}, "status": {"containerStatuses": status}}),
        )
        .unwrap()
    };
    let why = |state: Value| will_not_come(&pod(state), "hook-a").map(|cause| cause.message);
    assert_eq!(why(json!({"waiting": {"reason": "ContainerCreating"}})), None);
    assert_eq!(why(json!({"waiting": {"reason": "ErrImagePull"}})), None, "it is tried again");
    assert_eq!(why(json!({"running": {}})), None);
    let waits = why(json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}));
    assert_eq!(waits.as_deref(), Some("Container `hook-a` waits: ImagePullBackOff no such image"));
    let ended = why(json!({"terminated": {"exitCode": 2}}));
    assert_eq!(ended.as_deref(), Some("Container `hook-a` ended before its turn: exit code 2."));
    let other = will_not_come(&pod(json!({})), "hook-b").map(|cause| cause.message);
    assert_eq!(other.as_deref(), Some("The pod has no container `hook-b`."));
}

#[test]
fn a_pod_that_was_told_to_stop_says_by_whom() {
    let pod = |metadata: Value, status: Value| -> Pod {
        serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": []}, "status": status})).unwrap()
    };
    let why = |metadata, status| told_to_stop(&pod(metadata, status)).map(|(reason, _)| reason.as_str());
    let going = json!({"deletionTimestamp": "2025-01-01T00:10:00Z"});
    let target =
        |reason: &str| json!({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]});
    assert_eq!(why(json!({}), json!({})), None);
    assert_eq!(why(going.clone(), json!({})), Some(reason::POD_DELETED));
    assert_eq!(why(going.clone(), target("EvictionByEvictionAPI")), Some(reason::EVICTED));
    assert_eq!(why(going, target("DeletionByTaintManager")), Some(reason::NODE_LOST));
}
