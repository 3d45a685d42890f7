//! Pods on the embedded node: real processes, a real API server.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../tests/cluster/mod.rs"]
mod cluster;
mod node;

use std::os::unix::fs::PermissionsExt;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use node::{TestNode, phase, terminated, waiting};
use serde_json::json;

#[test]
fn the_pod_of_a_run_runs() {
    TestNode::run(|test| async move {
        let script =
            "test -x /knoll/bin/tool && cat /var/run/knoll/token && echo && echo \"$TOKEN_FILE\" && env && exit 3";
        let pod = test
            .create("run", script, |pod| {
                pod["spec"]["volumes"] = json!([
                    {"name": "knoll", "emptyDir": {}},
                    {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"audience": "knoll-hub", "expirationSeconds": 3600, "path": "token"}}]}},
                ]);
                pod["spec"]["initContainers"] = json!([{
                    "name": "install", "image": "none", "command": ["sh", "-c", "mkdir $0 && cp /bin/true $0/tool", "/knoll/bin"],
                    "volumeMounts": [{"name": "knoll", "mountPath": "/knoll"}],
                }]);
                let main = &mut pod["spec"]["containers"][0];
                main["volumeMounts"] = json!([{"name": "knoll", "mountPath": "/knoll"}, {"name": "token", "mountPath": "/var/run/knoll"}]);
                main["env"] = json!([{"name": "TOKEN_FILE", "value": "/var/run/knoll/token"}]);
                main["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
            })
            .await;
        let end = test.end("run").await;
        let root = test.dir().canonicalize().unwrap().join(pod.metadata.uid.as_ref().unwrap());
        let log = test.logs("run").await;
        let mut lines = log.lines();
        assert_eq!(lines.next().unwrap().split('.').count(), 3, "a token: {log}");
        assert_eq!(lines.next().unwrap(), root.join("volumes/token/token").to_str().unwrap());
        assert!(log.contains("\nHOSTNAME=run\n") && !log.contains("CARGO"), "{log}");
        let (init, main) = (terminated(&end, "install"), terminated(&end, "main"));
        assert_eq!((init.exit_code, init.reason.as_deref()), (0, Some("Completed")));
        assert_eq!((phase(&end), main.exit_code, main.reason.as_deref()), ("Failed", 3, Some("Error")));
        assert!(log.ends_with(&main.message.unwrap()));
        assert!(main.container_id.unwrap().starts_with("process://"));
        for (path, mode) in [
            ("", 0o700),
            ("volumes/knoll", 0o700),
            ("volumes/token/token", 0o600),
            ("containers/main/0/spec.json", 0o600),
            ("containers/main/0/log", 0o600),
        ] {
            assert_eq!(std::fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777, mode, "{path}");
        }
        // One status when it runs, one when it ended; no others, unless the machine was too slow for one of them.
        let history = test.history("run", pod.metadata.resource_version.as_ref().unwrap()).await;
        assert!(history.len() <= 3 && history.last().unwrap() == "Failed", "{history:?}");
    });
}

#[test]
fn containers_run_beside_each_other_and_a_pod_succeeds() {
    TestNode::run(|test| async move {
        // Each waits for the other.
        let script = "touch /v/$0; while ! test -e /v/$1; do sleep 0.01; done; echo met";
        test.create("pair", "", |pod| {
            pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
            let container = |name: &str, other: &str| {
                json!({"name": name, "image": "none", "command": ["sh", "-c", script, name, other], "volumeMounts": [{"name": "v", "mountPath": "/v"}]})
            };
            pod["spec"]["containers"] = json!([container("a", "b"), container("b", "a")]);
        })
        .await;
        let end = test.end("pair").await;
        assert_eq!(phase(&end), "Succeeded");
        let status = end.status.unwrap();
        assert!(status.start_time.is_some());
        assert_eq!((status.pod_ip.as_deref(), status.host_ip.as_deref()), (Some("127.0.0.1"), Some("127.0.0.1")));
        let ready = status.conditions.unwrap().into_iter().find(|condition| condition.type_ == "Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("PodCompleted")));
    });
}

#[test]
fn a_failed_init_container_fails_the_pod() {
    TestNode::run(|test| async move {
        test.create("init", "echo never", |pod| {
            pod["spec"]["initContainers"] =
                json!([{"name": "first", "image": "none", "command": ["sh", "-c", "exit 9"]}]);
        })
        .await;
        let end = test.end("init").await;
        assert_eq!((phase(&end), terminated(&end, "first").exit_code), ("Failed", 9));
        assert_eq!(waiting(&end, "main").unwrap().0, "PodInitializing");
    });
}

#[test]
fn a_program_that_is_not_there_is_named() {
    TestNode::run(|test| async move {
        test.create("missing", "", |pod| pod["spec"]["containers"][0]["command"] = json!(["no-such-program", "x"]))
            .await;
        let end = test.end("missing").await;
        let main = terminated(&end, "main");
        assert_eq!((phase(&end), main.exit_code, main.reason.as_deref()), ("Failed", 128, Some("StartError")));
        assert!(main.message.unwrap().contains("install `no-such-program` on this machine"));
    });
}

#[test]
fn what_is_missing_is_waited_for() {
    TestNode::run(|test| async move {
        test.create("waits", "echo $A $(cat /etc/cm/key)", |pod| {
            pod["spec"]["volumes"] = json!([{"name": "cm", "configMap": {"name": "cm"}}]);
            let main = &mut pod["spec"]["containers"][0];
            main["volumeMounts"] = json!([{"name": "cm", "mountPath": "/etc/cm"}]);
            main["env"] = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a"}}}]);
        })
        .await;
        let says = |what: &'static str| {
            move |pod: &k8s_openapi::api::core::v1::Pod| {
                waiting(pod, "main")
                    .is_some_and(|(reason, message)| reason == "CreateContainerConfigError" && message == what)
            }
        };
        test.until("waits", says("configmap \"cm\" not found")).await;
        let client = test.cluster.cluster().client();
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let map = serde_json::from_value(json!({"metadata": {"name": "cm"}, "data": {"key": "value"}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
        test.until("waits", says("secret \"s\" not found")).await;
        let secrets: Api<Secret> = Api::default_namespaced(client);
        let mut secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": "s"}, "stringData": {"b": "2"}})).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        test.until("waits", says("couldn't find key a in Secret s")).await;
        secret.string_data = Some([("a".to_owned(), "1".to_owned())].into());
        secrets.replace("s", &PostParams::default(), &secret).await.unwrap();
        assert_eq!(phase(&test.end("waits").await), "Succeeded");
        assert_eq!(test.logs("waits").await, "1 value\n");
    });
}

#[test]
fn containers_are_started_again_as_their_policy_says() {
    TestNode::run(|test| async move {
        let pod = test
            .create("again", "echo try; test -e /v/x || { touch /v/x; exit 1; }", |pod| {
                pod["spec"]["restartPolicy"] = json!("OnFailure");
                pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
                pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
            })
            .await;
        let end = test.end("again").await;
        assert_eq!(phase(&end), "Succeeded");
        let status = end.status.unwrap().container_statuses.unwrap().remove(0);
        assert_eq!(status.restart_count, 1);
        assert_eq!(status.last_state.unwrap().terminated.unwrap().exit_code, 1);
        let previous = kube::api::LogParams { previous: true, ..Default::default() };
        assert_eq!(test.pods().logs("again", &previous).await.unwrap(), "try\n");
        test.pods().delete("again", &DeleteParams::default()).await.unwrap();
        test.gone("again").await;
        test.folder_gone(&pod).await;

        // A second failure in a row has to wait.
        test.create("loops", "exit 1", |pod| pod["spec"]["restartPolicy"] = json!("Always")).await;
        let pod = test
            .until("loops", |pod| waiting(pod, "main").is_some_and(|(reason, _)| reason == "CrashLoopBackOff"))
            .await;
        assert_eq!(phase(&pod), "Running");
        test.pods().delete("loops", &DeleteParams::default()).await.unwrap();
        test.gone("loops").await;
    });
}

#[test]
fn a_deleted_pod_has_its_grace() {
    TestNode::run(|test| async move {
        let script = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
        let pod = test.create("polite", script, |_| {}).await;
        test.until("polite", |pod| phase(pod) == "Running").await;
        while test.logs("polite").await != "ready\n" {}
        let history = test.history("polite", pod.metadata.resource_version.as_ref().unwrap());
        test.pods().delete("polite", &DeleteParams::default()).await.unwrap();
        assert_eq!(history.await.last().unwrap(), "Failed", "its end is reported before it goes");
        test.gone("polite").await;
        test.folder_gone(&pod).await;

        let pod = test.create("stubborn", "trap '' TERM; echo ready; while :; do sleep 0.01; done", |_| {}).await;
        while test.pods().logs("stubborn", &Default::default()).await.unwrap_or_default() != "ready\n" {}
        test.pods().delete("stubborn", &DeleteParams::default().grace_period(1)).await.unwrap();
        test.gone("stubborn").await;
        test.folder_gone(&pod).await;

        let pod = test.create("forced", "sleep 100", |_| {}).await;
        test.until("forced", |pod| phase(pod) == "Running").await;
        test.pods().delete("forced", &DeleteParams::default().grace_period(0)).await.unwrap();
        test.gone("forced").await;
        test.folder_gone(&pod).await;
    });
}

#[test]
fn a_pod_that_waits_can_be_deleted() {
    TestNode::run(|test| async move {
        let pod = test
            .create("stuck", "echo no", |pod| {
                pod["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "no"}}])
            })
            .await;
        test.until("stuck", |pod| {
            waiting(pod, "main").is_some_and(|(reason, _)| reason == "CreateContainerConfigError")
        })
        .await;
        test.pods().delete("stuck", &DeleteParams::default()).await.unwrap();
        test.gone("stuck").await;
        test.folder_gone(&pod).await;
    });
}

#[test]
fn a_pod_that_is_active_for_too_long_is_ended() {
    TestNode::run(|test| async move {
        test.create("slow", "sleep 100", |pod| pod["spec"]["activeDeadlineSeconds"] = json!(1)).await;
        let end = test.end("slow").await;
        let status = end.status.as_ref().unwrap();
        assert_eq!((phase(&end), status.reason.as_deref()), ("Failed", Some("DeadlineExceeded")));
        assert_eq!(terminated(&end, "main").exit_code, 143);
    });
}

#[test]
fn a_container_may_leave_a_message() {
    TestNode::run(|test| async move {
        test.create("said", "echo log; printf 'last words' > /dev/termination-log; exit 1", |pod| {
            pod["spec"]["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        })
        .await;
        assert_eq!(terminated(&test.end("said").await, "main").message.as_deref(), Some("last words"));
        test.create("silent", "echo log; exit 1", |_| {}).await;
        assert_eq!(terminated(&test.end("silent").await, "main").message, None);
    });
}

#[test]
fn a_sidecar_stays_until_the_others_are_done() {
    TestNode::run(|test| async move {
        test.create("side", "echo main", |pod| {
            pod["spec"]["initContainers"] =
                json!([{"name": "beside", "image": "none", "restartPolicy": "Always", "command": ["sleep", "100"]}]);
        })
        .await;
        let end = test.end("side").await;
        assert_eq!((phase(&end), terminated(&end, "beside").exit_code), ("Succeeded", 143));
    });
}
