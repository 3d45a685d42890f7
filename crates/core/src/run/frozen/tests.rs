#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::run::RunSpec;
use serde_json::json;

use super::*;

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn everything_that_a_pod_takes_by_name_is_a_reference() {
    let settings: PodSettings = serde_json::from_value(json!({
        "env": [
            {"name": "PLAIN", "value": "1"},
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "m1", "key": "k"}}},
        ],
        "envFrom": [{"secretRef": {"name": "s2"}}, {"configMapRef": {"name": "m2"}}],
        "volumes": [
            {"name": "a", "secret": {"secretName": "s3"}},
            {"name": "b", "configMap": {"name": "m3"}},
            {"name": "c", "projected": {"sources": [{"secret": {"name": "s4"}}, {"configMap": {"name": "m4"}}]}},
            {"name": "d", "emptyDir": {}},
        ],
    }))
    .unwrap();
    let hook: Hook = serde_json::from_value(json!({
        "name": "h", "step": "pre-plan", "script": "true",
        "env": [{"name": "C", "valueFrom": {"secretKeyRef": {"name": "s5", "key": "k"}}}],
    }))
    .unwrap();
    let found: Vec<String> = references(&settings, &[hook]).unwrap().iter().map(ToString::to_string).collect();
    let expect = [
        "ConfigMap/m1/k",
        "ConfigMap/m2",
        "ConfigMap/m3",
        "ConfigMap/m4",
        "Secret/s1/k",
        "Secret/s2",
        "Secret/s3",
        "Secret/s4",
        "Secret/s5/k",
    ];
    assert_eq!(found, expect);
}

#[test]
fn content_that_changes_comes_or_goes_is_noticed() {
    let reference = Reference::new(ReferenceKind::Secret, "s", None, Usage::Values).unwrap();
    let known =
        |content: Option<&str>| vec![ReferenceDigest { reference: reference.clone(), digest: content.map(Digest::of) }];
    let job = |content| FrozenJob { references: known(content), ..FrozenJob::default() };
    for (then, now, expect) in [
        (Some("a"), Some("a"), false),
        (Some("a"), Some("b"), true),
        (Some("a"), None, true),
        (None, Some("a"), true),
        (None, None, false),
    ] {
        assert_eq!(job(then).changed(&known(now)).is_some(), expect, "{then:?} {now:?}");
    }
    assert!(job(Some("a")).changed(&[]).is_some());
}

fn pod(images: &[(&str, &str)]) -> Pod {
    let containers: Vec<_> = images.iter().map(|(name, _)| json!({"name": name})).collect();
    let statuses: Vec<_> = images
        .iter()
        .map(|(name, image)| json!({"name": name, "image": "", "imageID": image, "ready": false, "restartCount": 0}))
        .collect();
    let pod = json!({"metadata": {}, "spec": {"containers": containers}, "status": {"containerStatuses": statuses}});
    serde_json::from_value(pod).unwrap()
}

#[test]
fn images_are_known_by_what_nodes_report() {
    for (reported, expect) in [
        (format!("docker.io/hashicorp/terraform@sha256:{HASH}"), true),
        (format!("docker-pullable://terraform@sha256:{HASH}"), true),
        (format!("sha256:{HASH}"), true),
        (String::new(), false),
        ("terraform:1".to_owned(), false),
        ("x@sha256:1".to_owned(), false),
    ] {
        let found = image_digests(&pod(&[("runner", &reported), ("knoll", &reported)]));
        assert_eq!(found.len(), usize::from(expect), "{reported}: {found:?}");
    }
    assert!(!has_reported_images(&pod(&[("runner", "")])));
    assert!(has_reported_images(&pod(&[("runner", &format!("sha256:{HASH}")), ("knoll", "")])));
}

#[test]
fn the_images_of_the_apply_are_those_of_the_plan() {
    let planned = format!("docker.io/hashicorp/terraform@sha256:{HASH}");
    let summary = |image: &str| FrozenJobSummary {
        image: image.to_owned(),
        image_digests: [("runner".to_owned(), planned.clone())].into(),
        ..FrozenJobSummary::default()
    };
    let run = Run::new("r", RunSpec::default());
    for (written, expect) in [
        ("hashicorp/terraform:1.11.4", true),
        ("docker.io/hashicorp/terraform:1.11.4", true),
        ("hashicorp/terraform", true),
        // It was loaded into the node under another name.
        ("example.test:5000/terraform:1", false),
        ("terraform:1", false),
    ] {
        let found = pinned(&run, &summary(written));
        assert_eq!(found.get("runner").map(String::as_str), expect.then_some(planned.as_str()), "{written}");
    }
    let summary = summary("x");
    assert_eq!(other_image(&summary, &pod(&[("runner", &planned)])), Ok(None));
    assert_eq!(other_image(&summary, &pod(&[("runner", &format!("sha256:{HASH}"))])), Ok(None));
    let other = format!("x@sha256:{}", HASH.replace('b', "c"));
    assert_eq!(other_image(&summary, &pod(&[("runner", &other)])), Ok(Some("runner".to_owned())));
    assert_eq!(other_image(&summary, &pod(&[("runner", "")])), Err("runner".to_owned()));
}
