use super::*;
use serde_json::json;

const READY: &str = "ready";

fn budget() -> Budget {
    Budget::new(u64::MAX, std::sync::Arc::default())
}

/// How an object of this kind, spec and status is: `ready`, `waiting ...` or `failed ...`.
fn health_of(api_version: &str, kind: &str, annotations: Value, spec: Value, status: Value) -> String {
    let object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": "a", "generation": 2, "annotations": annotations}, "spec": spec, "status": status,
    });
    match health(&object, &mut budget()) {
        Health::Ready => READY.to_owned(),
        Health::Waiting(why) => format!("waiting {why}"),
        Health::Failed(why) => format!("failed {why}"),
    }
}

fn said(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message})
}

#[test]
fn built_in_kinds_have_their_own_signs() {
    let all = |updated: i64, all: i64, available: i64| json!({"observedGeneration": 2, "replicas": all, "updatedReplicas": updated, "readyReplicas": available, "availableReplicas": available});
    let with = |mut status: Value, conditions: Vec<Value>| {
        status["conditions"] = json!(conditions);
        status
    };
    let two = json!({"replicas": 2});
    let stateful = |current: &str| json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "currentRevision": current, "updateRevision": "b"});
    let rows: Vec<(&str, &str, Value, Value, &str)> = vec![
        ("apps/v1", "Deployment", two.clone(), json!({}), "waiting Its controller has not reconciled it yet."),
        (
            "apps/v1",
            "Deployment",
            two.clone(),
            json!({"observedGeneration": 1}),
            "waiting Its controller has observed generation 1, not 2 yet.",
        ),
        ("apps/v1", "Deployment", two.clone(), all(1, 2, 2), "waiting 1 of 2 pods are updated."),
        ("apps/v1", "Deployment", two.clone(), all(2, 3, 2), "waiting 1 old pods are still there."),
        ("apps/v1", "Deployment", two.clone(), all(2, 2, 1), "waiting 1 of 2 pods are available."),
        ("apps/v1", "Deployment", two.clone(), all(2, 2, 2), READY),
        ("apps/v1", "Deployment", json!({"replicas": 0}), all(0, 0, 0), READY),
        (
            "apps/v1",
            "Deployment",
            two.clone(),
            with(all(1, 2, 1), vec![said("Progressing", "False", "ProgressDeadlineExceeded", "It has timed out.")]),
            "failed Progressing is False (ProgressDeadlineExceeded): It has timed out.",
        ),
        (
            "apps/v1",
            "Deployment",
            two.clone(),
            with(all(0, 0, 0), vec![said("ReplicaFailure", "True", "FailedCreate", "exceeded quota")]),
            "waiting ReplicaFailure is True (FailedCreate): exceeded quota",
        ),
        ("apps/v1", "StatefulSet", two.clone(), stateful("b"), READY),
        ("apps/v1", "StatefulSet", two.clone(), stateful("a"), "waiting The new revision is not the current one yet."),
        (
            "apps/v1",
            "StatefulSet",
            two.clone(),
            json!({"observedGeneration": 2, "replicas": 2, "readyReplicas": 1}),
            "waiting 1 of 2 pods are ready.",
        ),
        (
            "apps/v1",
            "DaemonSet",
            json!({}),
            json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": 2, "numberReady": 3}),
            "waiting 2 of 3 pods are available.",
        ),
        (
            "apps/v1",
            "DaemonSet",
            json!({}),
            json!({"observedGeneration": 2, "desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1, "numberReady": 1}),
            READY,
        ),
        (
            "apps/v1",
            "ReplicaSet",
            two.clone(),
            json!({"observedGeneration": 2, "replicas": 2, "availableReplicas": 2}),
            READY,
        ),
        ("batch/v1", "Job", json!({}), json!({}), "waiting 0 of 1 completions have succeeded."),
        ("batch/v1", "Job", json!({}), json!({"conditions": [said("Complete", "True", "", "")]}), READY),
        (
            "batch/v1",
            "Job",
            json!({}),
            json!({"conditions": [said("Failed", "True", "BackoffLimitExceeded", "too often")]}),
            "failed Failed is True (BackoffLimitExceeded): too often",
        ),
        ("batch/v1", "Job", json!({"suspend": true}), json!({}), READY),
        ("v1", "Pod", json!({}), json!({"phase": "Pending"}), "waiting It is Pending."),
        ("v1", "Pod", json!({}), json!({"phase": "Running", "conditions": [said("Ready", "True", "", "")]}), READY),
        ("v1", "Pod", json!({}), json!({"phase": "Failed", "reason": "Evicted"}), "failed Evicted"),
        ("v1", "Pod", json!({}), json!({"phase": "Succeeded"}), READY),
        ("v1", "PersistentVolumeClaim", json!({}), json!({"phase": "Pending"}), "waiting It is Pending, not Bound."),
        ("v1", "PersistentVolumeClaim", json!({}), json!({"phase": "Bound"}), READY),
        ("v1", "Namespace", json!({}), json!({"phase": "Active"}), READY),
        ("v1", "Service", json!({"type": "ClusterIP"}), json!({}), READY),
        ("v1", "Service", json!({"type": "LoadBalancer"}), json!({}), "waiting It has no load balancer address yet."),
        (
            "v1",
            "Service",
            json!({"type": "LoadBalancer"}),
            json!({"loadBalancer": {"ingress": [{"ip": "::1"}]}}),
            READY,
        ),
        ("v1", "ConfigMap", json!({}), json!({}), READY),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            json!({}),
            json!({"conditions": [said("NamesAccepted", "False", "Taken", "widgets")]}),
            "failed NamesAccepted is False (Taken): widgets",
        ),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            json!({}),
            json!({"conditions": [said("Established", "True", "", "")]}),
            READY,
        ),
        ("apiregistration.k8s.io/v1", "APIService", json!({}), json!({}), "waiting It is not available yet."),
    ];
    for (api_version, kind, spec, status, expect) in rows {
        assert_eq!(health_of(api_version, kind, json!({}), spec, status.clone()), expect, "{kind} {status}");
    }
}

#[test]
fn any_other_object_has_its_conditions() {
    let rows = [
        (json!([]), READY),
        (json!([said("Ready", "True", "", "")]), READY),
        (json!([said("Ready", "False", "Broken", "no disk")]), "waiting Ready is False (Broken): no disk"),
        (json!([said("Ready", "Unknown", "", "")]), "waiting Ready is Unknown."),
        (json!([said("Ready", "True", "", ""), said("Reconciling", "True", "", "")]), "waiting Reconciling is True."),
        (json!([said("Stalled", "True", "Bad", "")]), "failed Stalled is True (Bad)."),
    ];
    for (conditions, expect) in rows {
        let status = json!({"conditions": conditions});
        assert_eq!(health_of("example.com/v1", "Widget", json!({}), json!({}), status), expect, "{conditions}");
    }
    let knolls = health_of("knoll.dev/v1alpha1", "Stack", json!({}), json!({}), json!({}));
    assert_eq!(knolls, "waiting Its controller has not reconciled it yet.");
}

#[test]
fn an_object_can_say_itself_what_makes_it_ready() {
    let status = |phase: &str| json!({"phase": phase, "count": 3, "conditions": [said("Synced", "True", "Fine", "")]});
    let conditions = |text: &str| json!({"knoll.dev/conditions": text});
    let when = |text: &str| json!({"knoll.dev/ready-when": text});
    let rows = [
        (conditions("Synced=True"), READY),
        (conditions("Synced=True/Fine"), READY),
        (conditions("Synced=True/Other"), "waiting Synced is True (Fine)."),
        (conditions("Synced=True, Healthy=True"), "waiting It has no condition Healthy yet."),
        (when("self.status.phase == 'Done'"), READY),
        (when("self.status.count >= 3 && self.metadata.name.startsWith('a')"), READY),
        (when("self.status.count > 3"), "waiting `self.status.count > 3` is not true yet."),
        (
            when("has(self.status.none) && self.status.none"),
            "waiting `has(self.status.none) && self.status.none` is not true yet.",
        ),
        (when("self.status.count"), "failed `self.status.count` is neither true nor false."),
    ];
    for (annotations, expect) in rows {
        assert_eq!(
            health_of("example.com/v1", "Widget", annotations.clone(), json!({}), status("Done")),
            expect,
            "{annotations}"
        );
    }
    let missing = health_of("example.com/v1", "Widget", when("self.status.none == 1"), json!({}), status("Done"));
    assert!(missing.starts_with("waiting `self.status.none == 1` cannot be evaluated yet"), "{missing}");
    let both = json!({"knoll.dev/ready-when": "self.status.phase == 'Done'", "knoll.dev/conditions": "Synced=False"});
    assert_eq!(
        health_of("example.com/v1", "Widget", both, json!({}), status("Done")),
        "waiting Synced is True (Fine)."
    );
}

#[test]
fn what_cannot_be_understood_is_refused() {
    let object = |name: &str, text: &str| json!({"metadata": {"annotations": {name: text}}});
    for text in ["", "Ready", "Ready=Yes", "=True", "Ready=True/"] {
        assert!(check(&object("knoll.dev/conditions", text)).is_err(), "{text}");
    }
    for text in ["self.", "1 +", ")"] {
        assert!(check(&object("knoll.dev/ready-when", text)).is_err(), "{text}");
    }
    assert_eq!(check(&object("knoll.dev/conditions", "A=True/B,C=False")), Ok(()));
    assert_eq!(check(&object("knoll.dev/ready-when", "self.status.a.exists(x, x.b == 1)")), Ok(()));
}

#[test]
fn the_pods_of_a_workload_say_what_is_wrong() {
    let pod = |name: &str, created: &str, container: Value| json!({"metadata": {"name": name, "creationTimestamp": created}, "status": {"containerStatuses": [container]}});
    let waiting = |reason: &str, message: &str| json!({"name": "c", "ready": false, "state": {"waiting": {"reason": reason, "message": message}}});
    let crashed = json!({
        "name": "c", "ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": {"exitCode": 3}},
    });
    let pulls = pod("new", "2", waiting("ImagePullBackOff", "no such image"));
    let expect = |message: &str, log_of: Option<(&str, &str)>| {
        let log_of = log_of.map(|(pod, container)| (pod.to_owned(), container.to_owned()));
        Some(PodProblem { message: message.to_owned(), log_of })
    };
    assert_eq!(
        pod_problem(std::slice::from_ref(&pulls)),
        expect("Pod new, container c: ImagePullBackOff: no such image.", None)
    );
    let mut unstartable = crashed.clone();
    unstartable["lastState"]["terminated"]["message"] = json!("starting\n`webb` is not on `PATH`\n");
    assert_eq!(
        pod_problem(&[pod("typo", "1", unstartable)]),
        expect("Pod typo, container c: CrashLoopBackOff, it exited with code 3: `webb` is not on `PATH`.", None)
    );
    let old = pod("old", "1", crashed);
    assert_eq!(
        pod_problem(std::slice::from_ref(&old)),
        expect("Pod old, container c: CrashLoopBackOff, it exited with code 3.", Some(("old", "c")))
    );
    assert_eq!(pod_problem(&[old, pulls]).map(|problem| problem.log_of), Some(None), "the newest counts");
    assert_eq!(pod_problem(&[pod("new", "1", waiting("ContainerCreating", ""))]), None);
    let unplaced = json!({"metadata": {"name": "p"}, "status": {"conditions": [said("PodScheduled", "False", "Unschedulable", "no room")]}});
    assert_eq!(pod_problem(&[unplaced]), expect("Pod p: PodScheduled is False (Unschedulable): no room.", None));
}

#[test]
fn an_expression_that_takes_too_long_is_a_failure_that_says_so() {
    let digits = "[0,1,2,3,4,5,6,7,8,9]";
    let opened: String = (0..9).map(|level| format!("{digits}.all(v{level},")).collect();
    let endless = format!("{opened}true{}", ")".repeat(9));
    assert!(endless.len() < 338);
    let told = health_of("v1", "ConfigMap", json!({"knoll.dev/ready-when": endless}), json!({}), json!({}));
    assert!(told.starts_with("failed `[0,1,2") && told.contains("too expensive"), "{told}");
    // Objects share what an Atom has.
    let object = json!({"metadata": {"annotations": {"knoll.dev/ready-when": format!("{digits}.all(x, true)")}}});
    let mut few = Budget::new(100, std::sync::Arc::default());
    assert_eq!(health(&object, &mut few), Health::Ready);
    let second = (0..10).map(|_| health(&object, &mut few)).find(|health| *health != Health::Ready);
    assert!(matches!(second, Some(Health::Failed(_))), "{second:?}");
}
