#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::{
    hooks::Hook,
    pod::StageSettings,
    run::{Operation, RunSpec},
};
use serde_json::json;

use super::*;

fn platform() -> Platform {
    let image = |repository: &str, version: &str| ToolImage { repository: repository.into(), version: version.into() };
    Platform {
        knoll_image: "knoll:1".to_owned(),
        runner: Runner::Container("knoll-runner"),
        terraform: image("terraform", "1.11.4"),
        tofu: image("tofu", "1.10.0"),
        hub_url: "https://hub:8443".to_owned(),
        hub_ca: "PEM".to_owned(),
        plugin_cache: None,
        pulls_images: true,
    }
}

fn run(spec: RunSpec) -> Run {
    let mut run = Run::new("r", RunSpec { workspace: "w".to_owned(), operation: Operation::Apply, ..spec });
    run.metadata.namespace = Some("ns".to_owned());
    run.metadata.uid = Some("uid".to_owned());
    run
}

fn of(workspace: WorkspaceSpec) -> PodTemplate {
    template(&workspace, &Effective::default(), &platform())
}

#[test]
fn plan_and_apply_have_the_accounts_that_are_theirs() {
    let account = |name: &str| Some(StageSettings { service_account_name: Some(name.to_owned()) });
    let common = PodSettings { service_account_name: Some("both".to_owned()), ..PodSettings::default() };
    let rows = [
        (PodSettings::default(), ["default", "default", "default"]),
        (common.clone(), ["both", "both", "both"]),
        (PodSettings { plan: account("reader"), ..common.clone() }, ["reader", "both", "both"]),
        (PodSettings { apply: account("writer"), ..common }, ["both", "writer", "writer"]),
        (PodSettings { plan: account("reader"), ..PodSettings::default() }, ["reader", "default", "default"]),
    ];
    for (settings, expect) in rows {
        let template = of(WorkspaceSpec { pod: Some(settings), ..WorkspaceSpec::default() });
        let found = [Stage::Plan, Stage::Apply, Stage::Whole].map(|stage| {
            let spec = build(&run(RunSpec::default()), &template, stage, &platform()).unwrap().spec.unwrap();
            let name = spec.service_account_name.unwrap();
            assert_eq!(spec.automount_service_account_token, Some(name != "default"), "{name}");
            name
        });
        assert_eq!(found, expect);
    }
}

#[test]
fn the_images_of_the_plan_take_the_place_of_those_that_were_written() {
    let hook = Hook { name: "scan".into(), image: Some("scanner:2".into()), ..Hook::default() };
    let run = run(RunSpec { hooks: vec![hook], ..RunSpec::default() });
    let pinned = [("runner".to_owned(), "terraform@sha256:1".to_owned())].into();
    let template = PodTemplate { pinned, ..of(WorkspaceSpec::default()) };
    let spec = build(&run, &template, Stage::Apply, &platform()).unwrap().spec.unwrap();
    let images: Vec<_> = spec.containers.iter().filter_map(|container| container.image.as_deref()).collect();
    assert_eq!(images, ["knoll:1", "terraform@sha256:1", "scanner:2"]);
}

#[test]
fn an_image_that_the_embedded_cluster_does_not_use_was_ignored_without_a_word() {
    let told = |pulls_images: bool, image: Option<&str>| {
        let platform = Platform { pulls_images, ..platform() };
        let workspace = WorkspaceSpec { image: image.map(str::to_owned), ..WorkspaceSpec::default() };
        let pod = build(
            &run(RunSpec::default()),
            &template(&workspace, &Effective::default(), &platform),
            Stage::Whole,
            &platform,
        )
        .unwrap();
        let env = pod.spec.unwrap().containers.into_iter().filter_map(|container| container.env).flatten();
        env.filter(|variable| variable.name == wire::env::UNUSED_IMAGE).find_map(|variable| variable.value)
    };
    assert_eq!(told(true, Some("mine:1")), None);
    assert_eq!(told(false, Some("mine:1")).as_deref(), Some("mine:1"));
    assert_eq!(told(false, None).as_deref(), Some(""));
}

#[test]
fn the_pod_is_the_one_that_the_runner_expects() {
    let pod = build(&run(RunSpec::default()), &of(WorkspaceSpec::default()), Stage::Whole, &platform()).unwrap();
    let expect = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "r",
            "namespace": "ns",
            "labels": {"knoll.dev/run": "r", "knoll.dev/workspace": "w", "app.kubernetes.io/managed-by": "knoll"},
            "annotations": {"kubectl.kubernetes.io/default-container": "runner"},
            "ownerReferences": [{
                "apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "name": "r", "uid": "uid",
                "controller": true, "blockOwnerDeletion": false,
            }],
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "serviceAccountName": "default",
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 300,
            "containers": [{
                "name": "knoll",
                "image": "knoll:1",
                "command": ["knoll-runner", "runner", "install", "/knoll/bin"],
                "volumeMounts": [{"name": "knoll", "mountPath": "/knoll"}],
            }, {
                "name": "runner",
                "image": "terraform:1.11.4",
                "command": ["/bin/sh", "-c", ONCE_INSTALLED, "/knoll/bin/knoll", "runner"],
                "env": [
                    {"name": "KNOLL_HUB_URL", "value": "https://hub:8443"},
                    {"name": "KNOLL_HUB_CA", "value": "PEM"},
                    {"name": "KNOLL_TOKEN_FILE", "value": "/var/run/knoll/token"},
                    {"name": "KNOLL_WORK_DIR", "value": "/knoll/work"},
                ],
                "volumeMounts": [
                    {"name": "knoll", "mountPath": "/knoll"},
                    {"name": "knoll-token", "mountPath": "/var/run/knoll", "readOnly": true},
                ],
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }],
            "volumes": [
                {"name": "knoll", "emptyDir": {}},
                {"name": "knoll-token", "projected": {"sources": [
                    {"serviceAccountToken": {"audience": "knoll-hub", "expirationSeconds": 3600, "path": "token"}},
                ]}},
            ],
        },
    });
    assert_eq!(serde_json::to_value(pod).unwrap(), expect);
}

#[test]
fn where_there_are_image_volumes_no_container_brings_the_runner() {
    let platform = Platform { runner: Runner::Volume("/bin/knoll-runner"), ..platform() };
    let hook = Hook { name: "scan".into(), image: Some("scanner:2".into()), ..Hook::default() };
    let run = run(RunSpec { hooks: vec![hook], ..RunSpec::default() });
    let pod = build(&run, &of(WorkspaceSpec::default()), Stage::Whole, &platform).unwrap();
    let value = serde_json::to_value(&pod).unwrap();
    let spec = &value["spec"];
    let names: Vec<&str> =
        spec["containers"].as_array().unwrap().iter().filter_map(|container| container["name"].as_str()).collect();
    assert_eq!(names, ["runner", "hook-scan"]);
    assert_eq!(spec["volumes"][2], json!({"name": "knoll-image", "image": {"reference": "knoll:1"}}));
    let program = "/knoll-image/bin/knoll-runner";
    let mount = json!({"name": "knoll-image", "mountPath": "/knoll-image", "readOnly": true});
    for (index, copy, words) in [(0, "runner", &["runner"][..]), (1, "hook-scan", &["runner", "hook", "scan"])] {
        let container = &spec["containers"][index];
        let start = ["/bin/sh", "-c", FROM_VOLUME, &format!("/knoll/bin/{copy}"), program, "/knoll-image"];
        assert_eq!(container["command"], json!([&start[..], words].concat()));
        assert_eq!(container["volumeMounts"][2], mount);
    }
}

/// What the script prints that takes the runner from a volume where this is the runner, mounted with these options.
fn from_volume(runner: Option<&str>, options: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let [from, target, mounts] = ["image/bin/first", "a/bin/copy", "mounts"].map(|path| folder.path().join(path));
    let volume = folder.path().join("image");
    let table = format!("proc /proc proc rw,noexec 0 0\noverlay {} overlay {options} 0 0\n", volume.display());
    std::fs::write(&mounts, table).unwrap();
    std::fs::create_dir_all(volume.join("bin")).unwrap();
    if let Some(script) = runner {
        std::fs::write(&from, script).unwrap();
        std::fs::set_permissions(&from, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut shell = std::process::Command::new("/bin/sh");
    let script = FROM_VOLUME.replace("/proc/mounts", &mounts.to_string_lossy());
    shell.args(["-c", &script]).args([&target, &from, &volume]).args(["runner", "a b"]);
    let output = shell.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn the_runner_of_a_volume_is_called_with_its_words_and_a_volume_without_one_is_told_of() {
    let script = "#!/bin/sh\nprintf '%s,' \"${0##*/}\" \"$@\"; exit 7";
    for (options, called) in [("ro,relatime", "first"), ("ro,nosuid,noexec,relatime", "copy"), ("noexec", "copy")] {
        assert_eq!(from_volume(Some(script), options), (Some(7), format!("{called},runner,a b,")), "{options}");
    }
    let (code, said) = from_volume(None, "ro");
    assert_eq!(code, Some(127));
    assert!(said.contains("this node did not mount Knoll's image"), "{said}");
}

#[test]
fn what_the_user_asked_for_is_in_it() {
    let settings = serde_json::from_value(json!({
        "serviceAccountName": "deployer",
        "env": [{"name": "KNOLL_HUB_URL", "value": "https://evil"}, {"name": "AWS_REGION", "value": "eu"}],
        "volumes": [{"name": "certs", "secret": {"secretName": "certs"}}],
        "volumeMounts": [{"name": "certs", "mountPath": "/certs"}],
        "labels": {"knoll.dev/run": "another", "team": "net"},
    }))
    .unwrap();
    let spec = WorkspaceSpec {
        pod: Some(settings),
        tool: Tool::Tofu,
        version: Some("1.9.0".into()),
        ..WorkspaceSpec::default()
    };
    let hook =
        Hook { name: "scan".into(), image: Some("scanner:2".into()), script: Some("scan".into()), ..Hook::default() };
    let run = run(RunSpec { attach: true, hooks: vec![hook], ..RunSpec::default() });
    let mut platform = platform();
    platform.plugin_cache =
        Some(PluginCache { path: "/cache".into(), volume: Some(Volume { name: "cache".into(), ..Volume::default() }) });
    let pod = build(&run, &template(&spec, &Effective::default(), &platform), Stage::Apply, &platform).unwrap();
    let value = serde_json::to_value(&pod).unwrap();

    assert_eq!(value["metadata"]["name"], "r-apply");
    assert_eq!(value["metadata"]["labels"]["knoll.dev/run"], "r", "our own labels cannot be taken over");
    assert_eq!(value["metadata"]["labels"]["team"], "net");
    let spec = &value["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["automountServiceAccountToken"]),
        (&json!("deployer"), &json!(true))
    );
    let runner = &spec["containers"][1];
    assert_eq!(runner["image"], "tofu:1.9.0");
    assert_eq!((&runner["stdin"], &runner["tty"]), (&json!(true), &json!(true)));
    let env = runner["env"].as_array().unwrap();
    let last = env.iter().rfind(|variable| variable["name"] == "KNOLL_HUB_URL").unwrap();
    assert_eq!(last["value"], "https://hub:8443", "our own variables cannot be taken over");
    assert!(env.contains(&json!({"name": "KNOLL_PLUGIN_CACHE", "value": "/cache"})));
    assert_eq!(runner["volumeMounts"].as_array().unwrap().len(), 4);
    let hook = &spec["containers"][2];
    assert_eq!(hook["name"], "hook-scan");
    assert_eq!(hook["command"], json!(["/bin/sh", "-c", ONCE_INSTALLED, "/knoll/bin/knoll", "runner", "hook", "scan"]));
    assert!(is_of(&pod, &run));
}

#[test]
fn what_cannot_be_a_pod_is_refused_with_a_sentence() {
    let mut long = run(RunSpec::default());
    long.metadata.name = Some("r".repeat(64));
    let plain = of(WorkspaceSpec::default());
    assert!(build(&long, &plain, Stage::Whole, &platform()).unwrap_err().to_string().contains("at most 63"));

    let settings = PodSettings { volumes: vec![json!({"name": 7})], ..PodSettings::default() };
    let broken = of(WorkspaceSpec { pod: Some(settings), ..WorkspaceSpec::default() });
    let error = build(&run(RunSpec::default()), &broken, Stage::Whole, &platform()).unwrap_err();
    assert!(error.to_string().starts_with("`pod.volumes` is invalid"), "{error}");
}
