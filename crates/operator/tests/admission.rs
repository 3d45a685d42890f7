//! What admission refuses at `kubectl apply`, compared with what the operator refuses: never more, and as much as one
//! object tells.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use cluster::{DEADLINE, World};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    core::v1::{ConfigMap, Namespace},
};
use knoll_api::{Policy, Run, Stack, Workspace};
use knoll_core::policy::{self, Effective, Violation};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

/// The username of an operator that no test acts as.
const OPERATOR: &str = "operator";

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// Admission refuses it, and names this field below `spec.allow`.
    Early(&'static str),
    /// Only the operator refuses it.
    Late,
}

use Verdict::{Allowed, Early, Late};

/// A cluster with Knoll's admission policies.
async fn world() -> World {
    let world = World::start().await;
    let (bindings, policies): (Vec<_>, Vec<_>) = knoll_deploy::rules(OPERATOR)
        .into_iter()
        .filter(|manifest| manifest.resource.group == "admissionregistration.k8s.io")
        .partition(|manifest| manifest.resource.kind.ends_with("Binding"));
    for manifest in bindings.iter().chain(&policies) {
        let api: Api<DynamicObject> = Api::all_with(world.client.clone(), &manifest.resource);
        let object = serde_json::from_value(manifest.value.clone()).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let api: Api<ValidatingAdmissionPolicy> = Api::all(world.client.clone());
    for manifest in &policies {
        let compiled = |policy: Option<&ValidatingAdmissionPolicy>| {
            policy.and_then(|policy| policy.status.as_ref()).is_some_and(|status| status.observed_generation.is_some())
        };
        let known = await_condition(api.clone(), manifest.name(), compiled);
        tokio::time::timeout(DEADLINE, known).await.unwrap().unwrap();
    }
    world
}

/// One Policy in a cluster.
struct Case<'a> {
    world: &'a World,
    policy: Policy,
}

impl<'a> Case<'a> {
    async fn new(world: &'a World, spec: Value) -> Self {
        let policy = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": {"name": "demands"}, "spec": spec});
        let policy: Policy = serde_json::from_value(policy).unwrap();
        let created = Api::<Policy>::all(world.client.clone()).create(&PostParams::default(), &policy).await;
        created.unwrap_or_else(|error| panic!("{spec}: {error}"));
        Self { world, policy }
    }

    async fn end(self) {
        let api: Api<Policy> = Api::all(self.world.client.clone());
        api.delete("demands", &DeleteParams::default()).await.unwrap();
    }

    /// The answer of the API server to an object that would be created, and the operator's violations.
    async fn ask(
        &self,
        kind: &str,
        labels: &Value,
        spec: &Value,
        of_workspace: &Value,
    ) -> (Option<String>, Vec<Violation>) {
        let object = json!({
            "apiVersion": "knoll.dev/v1alpha1", "kind": kind, "metadata": {"name": "x", "labels": labels}, "spec": spec,
        });
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let namespace = Api::<Namespace>::all(self.world.client.clone()).get("default").await.unwrap();
        let labels = |workspace: Option<&Workspace>, stack: Option<&Stack>| {
            policy::effective([&self.policy], [], namespace.labels(), &policy::labels(workspace, stack))
        };
        let (answer, violations) = match kind {
            "Workspace" => {
                let workspace: Workspace = serde_json::from_value(object).unwrap();
                let answer = self.world.api::<Workspace>().create(&dry, &workspace).await.map(drop);
                (answer, labels(Some(&workspace), None).check_workspace(&workspace.spec))
            }
            "Stack" => {
                let stack: Stack = serde_json::from_value(object).unwrap();
                let answer = self.world.api::<Stack>().create(&dry, &stack).await.map(drop);
                (answer, labels(None, Some(&stack)).check_stack(&stack))
            }
            _ => {
                let run: Run = serde_json::from_value(object).unwrap();
                let answer = self.world.api::<Run>().create(&dry, &run).await.map(drop);
                let mut workspace = Workspace::new("w", serde_json::from_value(json!({})).unwrap());
                workspace.metadata.labels = serde_json::from_value(of_workspace.clone()).unwrap();
                let effective: Effective = labels(Some(&workspace), None);
                (answer, policy::demands(&run, &workspace, None, None, &effective).violations)
            }
        };
        let refusal = match answer {
            Ok(()) => None,
            Err(kube::Error::Api(status)) => Some(status.message.clone()),
            Err(error) => panic!("{error}"),
        };
        (refusal, violations)
    }

    async fn check(&self, kind: &str, labels: Value, spec: Value, of_workspace: Value, expect: Verdict) {
        let (refusal, violations) = self.ask(kind, &labels, &spec, &of_workspace).await;
        let context = format!("{kind} {labels} {spec}\nby {:?}\nsaid {refusal:?}, {violations:?}", self.policy.spec);
        let found = match (&refusal, violations.is_empty()) {
            (None, true) => Allowed,
            (None, false) => Late,
            (Some(message), _) => {
                let Early(field) = expect else { panic!("{context}") };
                let field = format!("spec.allow.{field}");
                assert!(
                    violations.iter().any(|violation| violation.field == field),
                    "the operator allows it: {context}"
                );
                assert!(
                    message.contains("Policy `demands` does not allow it") && message.contains(&field),
                    "{context}"
                );
                expect
            }
        };
        assert_eq!(found, expect, "{context}");
    }
}

#[tokio::test]
async fn what_one_object_tells_is_refused_early_and_the_rest_is_left_to_the_operator() {
    let world = world().await;
    let none = json!({});
    let inline = json!({"inline": {"main.tf": ""}});
    let hook = |image: Option<&str>| json!([{"name": "h", "step": "pre-plan", "script": "true", "image": image}]);
    let git = |url: &str| json!({"git": {"url": url}});
    let allow = |rules: Value| json!({"allow": rules});
    let everything = json!({
        "images": ["r.io/team/*"], "serviceAccounts": ["terraform"], "pod": {}, "hooks": "None",
        "sources": {"kinds": ["inline", "git"], "hosts": [{"host": "git.example.com", "paths": ["/platform"]}]},
        "tools": [{"name": "terraform", "versions": ["1.11.*"]}, {"name": "tofu"}],
    });
    let case = Case::new(&world, allow(everything)).await;
    let settings = [
        (json!({"version": "1.11.4"}), Allowed),
        (json!({"tool": "tofu"}), Allowed),
        (json!({"tool": "tofu", "image": "r.io/team/tofu:1"}), Allowed),
        (json!({"tool": "tofu", "image": "r.io.evil/team/tofu"}), Early("images")),
        (
            json!({"tool": "tofu", "pod": {"volumes": [{"name": "v", "image": {"reference": "r.io/x"}}]}}),
            Early("images"),
        ),
        (json!({"tool": "tofu", "pod": {"volumes": [{"name": "v", "image": {"reference": "r.io/team/x"}}]}}), Allowed),
        (json!({"tool": "tofu", "pod": {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": null}]}}), Allowed),
        (
            json!({"tool": "tofu", "pod": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
            Early("pod.hostPath"),
        ),
        (json!({"tool": "tofu", "pod": {"volumes": [{"name": "v", "emptyDir": 1}]}}), Late),
        (json!({"tool": "tofu", "pod": {"serviceAccountName": "terraform"}}), Allowed),
        (json!({"tool": "tofu", "pod": {"serviceAccountName": "admin"}}), Early("serviceAccounts")),
        (
            json!({"tool": "tofu", "pod": {"serviceAccountName": "terraform", "plan": {"serviceAccountName": "admin"}}}),
            Early("serviceAccounts"),
        ),
        // Neither stage uses the account of all pods.
        (
            json!({"tool": "tofu", "pod": {"serviceAccountName": "admin", "plan": {"serviceAccountName": "terraform"},
                "apply": {"serviceAccountName": "terraform"}}}),
            Allowed,
        ),
        (json!({}), Early("tools")),
        (json!({"version": "1.1.4"}), Early("tools")),
        (json!({"version": "1.110.4"}), Early("tools")),
    ];
    for (spec, expect) in settings {
        case.check("Workspace", none.clone(), spec.clone(), none.clone(), expect).await;
        case.check("Stack", none.clone(), json!({"source": inline, "workspace": spec}), none.clone(), expect).await;
    }
    let loose = [
        json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
        json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
        json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
        json!({"securityContext": {"seLinuxOptions": {"level": "s0"}}}),
        json!({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}),
        json!({"containerSecurityContext": {"privileged": true}}),
        json!({"containerSecurityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}),
        json!({"containerSecurityContext": {"procMount": "Unmasked"}}),
        json!({"containerSecurityContext": {"windowsOptions": {"hostProcess": true}}}),
        json!({"containerSecurityContext": {"seccompProfile": {"type": "Unconfined"}}}),
        json!({"containerSecurityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
        json!({"containerSecurityContext": {"seLinuxOptions": {}}}),
        json!({"annotations": {"container.apparmor.security.beta.kubernetes.io/terraform": "unconfined"}}),
    ];
    let strict = [
        json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}, "sysctls": []}}),
        json!({"containerSecurityContext": {"privileged": false, "capabilities": {"drop": ["ALL"]}, "procMount": "Default"}}),
        json!({"annotations": {"container.apparmor.security.beta.kubernetes.io/terraform": "runtime/default"}}),
    ];
    let rows = loose.iter().map(|pod| (pod, Early("pod.privileged"))).chain(strict.iter().map(|pod| (pod, Allowed)));
    for (pod, expect) in rows {
        let spec = json!({"tool": "tofu", "pod": pod});
        case.check("Workspace", none.clone(), spec.clone(), none.clone(), expect).await;
        case.check("Stack", none.clone(), json!({"source": inline, "workspace": spec}), none.clone(), expect).await;
    }
    let bundle = json!({"bundle": {"digest": cluster::digest('0')}});
    let sources = [
        (inline.clone(), json!([]), Allowed),
        (git("https://git.example.com/platform/net"), json!([]), Allowed),
        (git("https://git.example.com/other"), json!([]), Early("sources.hosts")),
        (json!({"configMap": {"name": "c"}}), json!([]), Early("sources.kinds")),
        (bundle, json!([]), Early("sources.kinds")),
        (inline.clone(), hook(None), Early("hooks")),
    ];
    for (source, hooks, expect) in sources {
        let stack = json!({"source": source, "workspace": {"tool": "tofu"}, "hooks": hooks});
        case.check("Stack", none.clone(), stack, none.clone(), expect).await;
        // The Workspace of the Run breaks a rule, too, which only the operator sees.
        let run = json!({"workspace": "w", "operation": "apply", "source": source, "hooks": hooks});
        let expect = if expect == Allowed { Late } else { expect };
        case.check("Run", none.clone(), run, none.clone(), expect).await;
    }
    case.end().await;

    let case = Case::new(&world, allow(json!({"images": ["r.io/team/*"], "hooks": "Stack"}))).await;
    let run = |hooks: Value| json!({"workspace": "w", "operation": "plan", "source": inline, "hooks": hooks});
    case.check("Run", none.clone(), run(json!([])), none.clone(), Allowed).await;
    case.check("Run", none.clone(), run(hook(None)), none.clone(), Late).await;
    case.check("Run", none.clone(), run(hook(Some("evil"))), none.clone(), Early("images")).await;
    let stack = |image| json!({"source": inline, "hooks": hook(Some(image))});
    case.check("Stack", none.clone(), stack("r.io/team/x"), none.clone(), Allowed).await;
    case.check("Stack", none.clone(), stack("evil"), none.clone(), Early("images")).await;
    case.end().await;

    let case = Case::new(&world, allow(json!({"pod": {"hostPath": true, "privileged": true}}))).await;
    let pod = json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}], "containerSecurityContext": {"privileged": true}});
    case.check("Workspace", none.clone(), json!({"pod": pod}), none.clone(), Allowed).await;
    case.end().await;
    for spec in [json!({}), allow(json!({})), json!({"review": {"floor": "Manual"}})] {
        let case = Case::new(&world, spec).await;
        case.check("Workspace", none.clone(), json!({"pod": pod}), none.clone(), Allowed).await;
        case.end().await;
    }
}

#[tokio::test]
async fn a_policy_refuses_early_only_where_its_selectors_are_known_to_match() {
    let world = world().await;
    let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "env", "operator": operator, "values": values}]});
    let bare = |operator: &str| json!({"matchExpressions": [{"key": "env", "operator": operator}]});
    let prod = json!({"matchLabels": {"env": "prod"}});
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    let early = Early("tools");
    // The selector, the labels, what becomes of a Workspace and of a Stack with them, and of a Run on such a Workspace.
    let rows = [
        (json!({}), json!({}), early, early, early),
        (prod.clone(), json!({"env": "prod"}), early, early, Late),
        (prod.clone(), json!({"env": "dev"}), Allowed, Allowed, Allowed),
        (prod.clone(), json!({}), Allowed, Allowed, Allowed),
        (expression("In", &["prod", "test"]), json!({"env": "test"}), early, early, Late),
        (expression("In", &["prod"]), json!({"env": "test"}), Allowed, Allowed, Allowed),
        (expression("NotIn", &["dev"]), json!({"env": "prod"}), early, early, Late),
        (expression("NotIn", &["dev"]), json!({"env": "dev"}), Allowed, Allowed, Allowed),
        // The Workspace of a Stack may have labels of its own.
        (expression("NotIn", &["dev"]), json!({}), early, Late, Late),
        (bare("Exists"), json!({"env": ""}), early, early, Late),
        (bare("Exists"), json!({"other": "x"}), Allowed, Allowed, Allowed),
        (bare("DoesNotExist"), json!({"env": "x"}), Allowed, Allowed, Allowed),
        (bare("DoesNotExist"), json!({}), early, Late, Late),
        // The labels of a Stack go before those of its Workspace.
        (prod.clone(), json!({"env": "prod", "knoll.dev/stack": "x"}), Late, early, Late),
        (bare("DoesNotExist"), json!({"knoll.dev/stack": "x"}), Late, Late, Late),
        // What the operator cannot read blocks everything.
        (bare("Like"), json!({"env": "x"}), Late, Late, Late),
        (bare("In"), json!({"env": "x"}), Late, Late, Late),
    ];
    for (selector, labels, workspace, stack, run) in rows {
        let tools = json!({"tools": [{"name": "tofu"}], "sources": {"kinds": ["git"]}});
        let spec = json!({"namespaceSelector": here, "workspaceSelector": selector, "allow": tools});
        let case = Case::new(&world, spec).await;
        case.check("Workspace", labels.clone(), json!({}), json!({}), workspace).await;
        case.check("Stack", labels.clone(), json!({"source": {"git": {"url": "https://a/b"}}}), json!({}), stack).await;
        let source = json!({"inline": {"main.tf": ""}});
        let run = if run == early { Early("sources.kinds") } else { run };
        case.check("Run", json!({}), json!({"workspace": "w", "operation": "plan", "source": source}), labels, run)
            .await;
        case.end().await;
    }
    let name = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": operator, "values": values}]});
    let namespaces = [
        (here, early),
        (json!({"matchLabels": {"kubernetes.io/metadata.name": "other"}}), Allowed),
        (name("In", &["default"]), early),
        (name("NotIn", &["default"]), Allowed),
        (bare("DoesNotExist"), early),
        (expression("NotIn", &["prod"]), early),
    ];
    for (selector, expect) in namespaces {
        let spec = json!({"namespaceSelector": selector, "allow": {"tools": [{"name": "tofu"}]}});
        let case = Case::new(&world, spec).await;
        case.check("Workspace", json!({}), json!({}), json!({}), expect).await;
        case.end().await;
    }
}

#[tokio::test]
async fn images_and_addresses_are_read_as_the_operator_reads_them() {
    let world = world().await;
    let digest = cluster::digest('a');
    let pinned = format!("r.io/x@{digest}");
    let patterns = [
        "r.io/team/*",
        "r.io/*",
        "r.io:5000/*",
        "docker.io/*",
        "docker.io/hashicorp/*",
        "hashicorp/*",
        "localhost/*",
        "hashicorp/terraform",
        "busybox",
        "docker.io/busybox",
        "index.docker.io/library/busybox",
        "r.io/x",
        "r.io/x:1",
        "R.io/team/x",
        pinned.as_str(),
    ];
    let images = [
        "r.io/team/x".to_owned(),
        "R.IO/team/x:1".to_owned(),
        "r.io/Team/x".to_owned(),
        "r.io/team/sub/x".to_owned(),
        "r.io/team".to_owned(),
        "r.io/team-evil/x".to_owned(),
        "r.io.evil/team/x".to_owned(),
        "r.io:5000/x".to_owned(),
        "r.io:5000/team/x:1".to_owned(),
        "evil.com/r.io/team/x".to_owned(),
        "r.io/x".to_owned(),
        "r.io/x:1".to_owned(),
        "r.io/x:2".to_owned(),
        format!("r.io/x@{digest}"),
        format!("r.io/x:1@{digest}"),
        format!("r.io/x@{}", cluster::digest('b')),
        "busybox".to_owned(),
        "busybox:1".to_owned(),
        "library/busybox".to_owned(),
        "docker.io/busybox".to_owned(),
        "docker.io/library/busybox:1".to_owned(),
        "registry-1.docker.io/busybox".to_owned(),
        "Index.Docker.io/hashicorp/terraform".to_owned(),
        "hashicorp/terraform:1.9".to_owned(),
        "hashicorp.evil/terraform".to_owned(),
        "localhost/x".to_owned(),
        "docker.io/localhost/x".to_owned(),
        "terraform".to_owned(),
        "host:5000".to_owned(),
    ];
    let (mut refused, mut allowed) = (0, 0);
    for pattern in patterns {
        let case = Case::new(&world, json!({"allow": {"images": [pattern]}})).await;
        for image in &images {
            let (refusal, violations) = case.ask("Workspace", &json!({}), &json!({"image": image}), &json!({})).await;
            assert_eq!(refusal.is_some(), !violations.is_empty(), "{pattern} {image}: {refusal:?}, {violations:?}");
            *(if refusal.is_some() { &mut refused } else { &mut allowed }) += 1;
        }
        // What can be read in two ways is refused by the operator, if not before.
        for image in [
            "r.io/team/../evil/x",
            "r.io/team//x",
            "r.io/team/",
            "r.io@evil.com/team/x",
            "r.io/team/x\ny",
            ":",
            "@",
            "/",
        ] {
            let (_, violations) = case.ask("Workspace", &json!({}), &json!({"image": image}), &json!({})).await;
            assert!(!violations.is_empty(), "{pattern} {image}");
        }
        case.end().await;
    }
    assert!(refused > 200 && allowed > 40, "{refused} {allowed}");

    let hosts = [
        json!([{"host": "git.example.com", "paths": ["/platform", "/shared/"]}]),
        json!([{"host": "git.example.com"}]),
        json!([{"host": "git.example.com:8443"}, {"host": "files.example.com", "paths": ["/x"]}]),
        json!([]),
    ];
    let urls = [
        "https://git.example.com/platform/net.git",
        "https://git.example.com/platform",
        "https://GIT.example.com/shared/x?ref=1",
        "https://git.example.com:443/platform/net",
        "http://git.example.com:80/platform/",
        "http://git.example.com:443/platform",
        "ssh://git@git.example.com/platform/net",
        "ssh://git@git.example.com:22/shared",
        "git://git.example.com:9418/platform/x",
        "git@git.example.com:platform/net.git",
        "git@git.example.com:/platform/net.git",
        "git@git.example.com:other",
        "https://git.example.com:8443/platform/net",
        "https://git.example.com/platform-evil/net",
        "https://git.example.com",
        "https://git.example.com?a//b",
        "https://git.example.com#/../x",
        "https://git.example.com/platform?a=/../b//c",
        "https://git.example.com.evil/platform/net",
        "https://evil/git.example.com/platform",
        "file:///git.example.com/platform",
        "https://git.example.com@evil.com/platform/net",
        "https://git.example.com/platform/../secret",
        "https://git.example.com/platform/%2e%2e/secret",
        "https://git.example.com/platform//net",
        "https://files.example.com/x;y",
        "https://evil.com#@git.example.com/platform/net",
        "https://evil.com?@git.example.com/platform/net",
        "https://a",
    ];
    for hosts in hosts {
        let case = Case::new(&world, json!({"allow": {"sources": {"hosts": hosts}}})).await;
        for url in urls {
            let run = json!({"workspace": "w", "operation": "plan", "source": {"git": {"url": url}}});
            let (refusal, violations) = case.ask("Run", &json!({}), &run, &json!({})).await;
            assert_eq!(refusal.is_some(), !violations.is_empty(), "{hosts} {url}: {refusal:?}, {violations:?}");
        }
        case.end().await;
    }
}

#[tokio::test]
async fn an_object_that_breaks_a_rule_is_still_suspended_labelled_and_deleted() {
    let world = world().await;
    let workspaces = world.api::<Workspace>();
    let stacks = world.api::<Stack>();
    let merge = PatchParams::default();
    let workspace = json!({"metadata": {"name": "w", "finalizers": ["example.com/wait"]}, "spec": {"image": "evil", "version": "1.0.0"}});
    let workspace: Workspace = serde_json::from_value(with_type("Workspace", workspace)).unwrap();
    workspaces.create(&PostParams::default(), &workspace).await.unwrap();
    let stack = json!({"metadata": {"name": "s"}, "spec": {"source": {"inline": {"main.tf": ""}}, "workspace": {"image": "evil"}}});
    let stack: Stack = serde_json::from_value(with_type("Stack", stack)).unwrap();
    stacks.create(&PostParams::default(), &stack).await.unwrap();
    let case = Case::new(&world, json!({"allow": {"images": ["r.io/*"], "tools": [{"name": "terraform"}]}})).await;

    let patches = [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"spec": {"stateHistory": 3}}),
        json!({"spec": {"version": "1.1.0"}}),
        json!({"spec": {"pod": {"env": [{"name": "A", "value": "b"}]}}}),
    ];
    for patch in patches {
        workspaces.patch("w", &merge, &Patch::Merge(&patch)).await.unwrap_or_else(|error| panic!("{patch}: {error}"));
    }
    workspaces.patch_status("w", &merge, &Patch::Merge(json!({"status": {"phase": "Idle"}}))).await.unwrap();
    stacks.patch("s", &merge, &Patch::Merge(json!({"spec": {"suspend": true}}))).await.unwrap();
    let refused = |error: kube::Error| assert!(error.to_string().contains("spec.allow.images"), "{error}");
    refused(workspaces.patch("w", &merge, &Patch::Merge(json!({"spec": {"image": "worse"}}))).await.unwrap_err());
    refused(
        stacks.patch("s", &merge, &Patch::Merge(json!({"spec": {"workspace": {"image": "worse"}}}))).await.unwrap_err(),
    );
    let unchanged = workspaces.get("w").await.unwrap();
    assert_eq!(unchanged.spec.image.as_deref(), Some("evil"));
    // The operator decides about its own objects itself.
    let image = json!({"spec": {"image": "worse"}});
    let mut request = kube::api::Request::new(Workspace::url_path(&(), Some("default")))
        .patch("w", &merge, &Patch::Merge(image))
        .unwrap();
    request.headers_mut().insert("impersonate-user", OPERATOR.parse().unwrap());
    request.headers_mut().insert("impersonate-group", "system:masters".parse().unwrap());
    let changed: Workspace = world.client.request(request).await.unwrap();
    assert_eq!(changed.spec.image.as_deref(), Some("worse"));

    workspaces.delete("w", &DeleteParams::default()).await.unwrap();
    workspaces.patch("w", &merge, &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await.unwrap();
    assert!(workspaces.get_opt("w").await.unwrap().is_none());
    stacks.delete("s", &DeleteParams::default()).await.unwrap();
    // Other kinds are none of its business.
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "c"}})).unwrap();
    world.api::<ConfigMap>().create(&PostParams::default(), &map).await.unwrap();
    case.end().await;
}

fn with_type(kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = "knoll.dev/v1alpha1".into();
    object["kind"] = kind.into();
    object
}
