#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::{
    hooks::Hook,
    names::{annotation, label},
    run::{Operation, Run, RunApproval, RunSpec},
    stack::StackSpec,
    workspace::WorkspaceSpec,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

pub(crate) fn policy(name: &str, spec: Value) -> Policy {
    Policy::new(name, serde_json::from_value(spec).unwrap())
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The demands of one Policy that selects everything.
fn only(spec: Value) -> Effective {
    effective(&[policy("p", spec)], [], &Labels::new(), &Labels::new())
}

fn workspace(spec: Value) -> Workspace {
    Workspace::new("w", serde_json::from_value(spec).unwrap())
}

fn run(spec: Value) -> Run {
    let mut spec = spec;
    spec["workspace"] = json!("w");
    Run::new("r", serde_json::from_value(spec).unwrap())
}

#[track_caller]
fn check_match(spec: Value, namespace: &[(&str, &str)], workspace: &[(&str, &str)], expect: bool) {
    let mut spec = spec;
    spec["review"] = json!({"floor": "Manual"});
    let found = effective(&[policy("p", spec.clone())], [], &labels(namespace), &labels(workspace));
    assert_eq!(found.floor().0 == ReviewFloor::Manual, expect, "{spec}");
}

#[test]
fn a_policy_holds_for_what_both_selectors_select() {
    let production = json!({"namespaceSelector": {"matchLabels": {"env": "production"}}});
    check_match(json!({}), &[], &[], true);
    check_match(json!({"namespaceSelector": {}}), &[], &[], true);
    check_match(production.clone(), &[("env", "production")], &[], true);
    check_match(production.clone(), &[("env", "dev")], &[], false);
    check_match(production, &[], &[("env", "production")], false);
    let both = json!({
        "namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["dev"]}]},
        "workspaceSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    });
    check_match(both.clone(), &[], &[("tier", "1")], true);
    check_match(both.clone(), &[("env", "dev")], &[("tier", "1")], false);
    check_match(both, &[], &[], false);
}

#[test]
fn a_policy_that_cannot_be_read_blocks_what_it_might_match() {
    #[track_caller]
    fn check(spec: Value, namespace: &[(&str, &str)], field: Option<&str>) {
        let found = effective(&[policy("bad", spec)], [], &labels(namespace), &Labels::new());
        let blocking = found.blocking();
        assert_eq!(blocking.first().map(|violation| violation.field.as_str()), field, "{blocking:?}");
        assert!(blocking.iter().all(|violation| violation.from == "Policy `bad`"));
    }
    let operator = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "env", "operator": operator, "values": values}]});
    check(json!({"namespaceSelector": operator("Like", json!(["x"]))}), &[], Some("spec.namespaceSelector"));
    check(json!({"namespaceSelector": operator("In", json!([]))}), &[], Some("spec.namespaceSelector"));
    check(json!({"workspaceSelector": operator("Exists", json!(["x"]))}), &[], Some("spec.workspaceSelector"));
    // A label that nothing can have would select nothing, and nobody would notice.
    for (key, value) in
        [("a b", "c"), ("env", "a b"), ("", "c"), ("/env", "c"), ("Example.com/env", "c"), ("env.", "c")]
    {
        let labels = json!({"matchLabels": {key: value}});
        check(json!({"namespaceSelector": labels}), &[], Some("spec.namespaceSelector"));
    }
    check(json!({"workspaceSelector": operator("In", json!(["a b"]))}), &[], Some("spec.workspaceSelector"));
    check(json!({"namespaceSelector": {"matchLabels": {"app.example.com/env_1": "", "a.b": "c_d"}}}), &[], None);
    check(json!({"allow": {"images": ["r.io/*/x"]}}), &[], Some("spec.allow.images[0]"));
    // It is known not to match, whatever the rest of it means.
    let elsewhere = json!({"matchLabels": {"env": "production"}});
    check(json!({"namespaceSelector": elsewhere, "allow": {"images": ["*"]}}), &[("env", "dev")], None);

    let undecodable = effective(&[], ["gone"], &Labels::new(), &Labels::new());
    assert_eq!(undecodable.blocking().len(), 1);
    let demands = demands(&run(json!({"operation": "plan"})), &workspace(json!({})), None, None, &undecodable);
    assert!(message(&demands.violations).contains("Policy `gone`"));
}

#[track_caller]
fn check_approval(own: &str, floor: &str, of_stack: &str, expect: RunApproval) {
    let run = run(json!({"operation": "destroy", "approval": own, "attach": own == "Prompt"}));
    let stack = Stack::new(
        "w",
        StackSpec { approval: serde_json::from_value(json!(of_stack)).unwrap(), ..StackSpec::default() },
    );
    let policy = only(json!({"review": {"floor": floor}}));
    let found = demands(&run, &workspace(json!({})), None, Some(&stack), &policy);
    assert_eq!(found.approval, expect, "{own} {floor} {of_stack}");
}

#[test]
fn a_run_may_ask_for_more_than_the_floor_and_never_for_less() {
    use RunApproval::{Auto, Manual, ManualOnDestroy, Prompt};
    check_approval("Auto", "Auto", "Auto", Auto);
    check_approval("Prompt", "Auto", "Auto", Prompt);
    check_approval("Manual", "Auto", "Auto", Manual);
    check_approval("Auto", "Manual", "Auto", Manual);
    check_approval("Prompt", "Manual", "Auto", Manual);
    check_approval("ManualOnDestroy", "Manual", "Auto", Manual);
    check_approval("Auto", "ManualOnDestroy", "Auto", ManualOnDestroy);
    check_approval("Prompt", "ManualOnDestroy", "Auto", ManualOnDestroy);
    check_approval("Manual", "ManualOnDestroy", "Auto", Manual);
    // The approval of a Stack is a floor for every Run on its Workspace, also without a Policy.
    check_approval("Auto", "Auto", "Manual", Manual);
    check_approval("Prompt", "Auto", "ManualOnDestroy", ManualOnDestroy);
    check_approval("Auto", "ManualOnDestroy", "Manual", Manual);
}

/// The sentence that says why a Run is reviewed.
#[track_caller]
fn check_reason(spec: Value, of_stack: &str, privileged: &[&str], policy: Value, expect: Option<&str>) {
    let stack = Stack::new(
        "w",
        StackSpec { approval: serde_json::from_value(json!(of_stack)).unwrap(), ..StackSpec::default() },
    );
    let workspace = workspace(json!({"privilegedCommands": privileged}));
    let found = demands(&run(spec.clone()), &workspace, None, Some(&stack), &only(policy));
    assert_eq!(found.review_reason.as_deref(), expect, "{spec}");
}

#[test]
fn a_review_names_the_object_and_the_field_that_demand_it() {
    let (apply, free) = (json!({"operation": "apply"}), json!({}));
    let floor = |floor: &str| json!({"review": {"floor": floor}});
    check_reason(apply.clone(), "Auto", &[], free.clone(), None);
    // Nobody but the Run itself asks for it.
    check_reason(json!({"operation": "apply", "approval": "Manual"}), "Auto", &[], free.clone(), None);
    let of_policy = "Policy `p` demands a review (spec.review.floor).";
    check_reason(apply.clone(), "Auto", &[], floor("Manual"), Some(of_policy));
    check_reason(apply.clone(), "Manual", &["apply"], floor("Manual"), Some(of_policy));
    let destroys = "Policy `p` demands a review of plans that destroy (spec.review.floor).";
    check_reason(apply.clone(), "Auto", &[], floor("ManualOnDestroy"), Some(destroys));
    let of_stack = "Stack `w` demands a review (spec.approval).";
    check_reason(apply.clone(), "Manual", &[], floor("ManualOnDestroy"), Some(of_stack));
    check_reason(apply, "Auto", &["apply"], free.clone(), Some("`apply` needs an Approval by Workspace `w`."));
    let shell = json!({"operation": "command", "command": "sh"});
    check_reason(shell, "Auto", &["sh"], free, Some("The command `sh` needs an Approval by Workspace `w`."));
}

/// The approval of a Run, and whether it needs one before it starts.
#[track_caller]
fn check_privileged(spec: Value, privileged: &[&str], expect: (RunApproval, bool)) {
    let of_workspace = workspace(json!({"privilegedCommands": privileged}));
    let found = demands(&run(spec.clone()), &of_workspace, None, None, &Effective::default());
    assert_eq!((found.approval, found.before_start.is_some()), expect, "{spec} of a Workspace");

    let operations: Vec<&str> =
        privileged.iter().copied().filter(|word| ["plan", "apply", "destroy", "refresh"].contains(word)).collect();
    let of_policy = only(json!({"allow": {"privileged": {"operations": operations, "commands": privileged}}}));
    let found = demands(&run(spec.clone()), &workspace(json!({})), None, None, &of_policy);
    assert_eq!((found.approval, found.before_start.is_some()), expect, "{spec} of a Policy");
}

#[test]
fn privileged_operations_and_commands_need_an_approval() {
    use RunApproval::{Auto, Manual};
    let command = |command: &str, args: &[&str]| json!({"operation": "command", "command": command, "args": args});
    let list = ["apply", "destroy"];
    check_privileged(json!({"operation": "apply"}), &list, (Manual, false));
    check_privileged(json!({"operation": "destroy"}), &list, (Manual, false));
    check_privileged(json!({"operation": "refresh"}), &list, (Auto, false));
    check_privileged(json!({"operation": "refresh"}), &["refresh"], (Manual, false));
    check_privileged(json!({"operation": "plan"}), &list, (Auto, false));
    check_privileged(json!({"operation": "plan"}), &["plan"], (Auto, true));
    // Flags make another operation of it.
    check_privileged(json!({"operation": "apply", "args": ["-destroy"]}), &["destroy"], (Manual, false));
    check_privileged(json!({"operation": "apply", "args": ["--destroy=true"]}), &["destroy"], (Manual, false));
    check_privileged(json!({"operation": "apply", "args": ["-refresh-only"]}), &["refresh"], (Manual, false));
    check_privileged(json!({"operation": "apply", "args": ["-target=destroy"]}), &["destroy"], (Auto, false));

    // An operation is what it is called, and a saved plan is no command.
    check_privileged(json!({"operation": "apply", "args": ["-destroy=false"]}), &["destroy"], (Auto, false));
    check_privileged(json!({"operation": "destroy", "args": ["-destroy=false"]}), &["destroy"], (Manual, false));
    check_privileged(command("apply x", &[]), &["state rm"], (Auto, true));
    check_privileged(command("", &["destroy"]), &["state rm"], (Auto, true));

    let list = ["state rm", "sh"];
    check_privileged(command("state rm", &["a.b"]), &list, (Auto, true));
    check_privileged(command("state", &["rm", "a.b"]), &list, (Auto, true));
    check_privileged(command("state", &["list"]), &list, (Auto, false));
    // The rest of the command comes from a variable such as `TF_CLI_ARGS_state`.
    check_privileged(command("state", &[]), &list, (Auto, true));
    check_privileged(command("sh", &[]), &list, (Auto, true));
    check_privileged(command("show", &[]), &list, (Auto, false));
    // Terraform joins its words before it looks for a subcommand.
    check_privileged(command("state", &["rm x", "a.b"]), &list, (Auto, true));
    check_privileged(command("apply x", &[]), &["apply"], (Auto, true));
    check_privileged(command("plan", &[]), &["plan"], (Auto, true));
    // A shell runs all of them.
    check_privileged(command("sh", &["-c", "terraform destroy -auto-approve"]), &["destroy"], (Auto, true));
    check_privileged(command("sh", &[]), &["state rm"], (Auto, true));
    check_privileged(command("sh", &[]), &[], (Auto, false));
    check_privileged(command("state mv", &[]), &["destroy"], (Auto, false));
}

#[test]
fn the_operations_of_a_policy_are_not_got_around_by_commands_and_hooks() {
    let policy = only(json!({"allow": {"privileged": {"operations": ["plan", "destroy"]}}}));
    let check = |spec: Value, expect: (bool, bool)| {
        let found = demands(&run(spec.clone()), &workspace(json!({})), None, None, &policy);
        assert_eq!((found.before_start.is_some(), found.violations.is_empty()), expect, "{spec}");
    };
    let command = |command: &str| json!({"operation": "command", "command": command});
    let hook = json!([{"name": "a", "step": "pre-init", "script": "terraform destroy -auto-approve"}]);
    check(command("plan"), (true, true));
    check(command("destroy x"), (true, true));
    check(command("sh"), (true, true));
    check(command("show"), (false, true));
    check(json!({"operation": "refresh"}), (false, true));
    check(json!({"operation": "refresh", "hooks": hook}), (false, false));
}

#[test]
fn a_command_that_may_change_something_does_not_get_around_a_floor() {
    #[track_caller]
    fn check(command: &str, args: &[&str], expect: bool) {
        let run = run(json!({"operation": "command", "command": command, "args": args}));
        for floor in ["Manual", "ManualOnDestroy"] {
            let policy = only(json!({"review": {"floor": floor}}));
            let found = demands(&run, &workspace(json!({})), None, None, &policy);
            assert_eq!(found.before_start.is_some(), expect, "{command} {args:?}");
        }
        let free = demands(&run, &workspace(json!({})), None, None, &Effective::default());
        // A saved plan is never applied without anybody's decision.
        assert_eq!(free.before_start.is_some(), command.starts_with("apply"));
    }
    check("sh", &[], true);
    check("state rm", &["a.b"], true);
    check("import", &["a.b", "id"], true);
    check("test", &[], true);
    check("apply x", &[], true);
    check("init", &["-migrate-state"], true);
    check("init", &["-backend-config=x"], true);
    check("init", &[], false);
    check("init", &["-upgrade", "-input=false"], false);
    check("state list", &[], false);
    check("output", &[], false);
    check("show", &["-json"], false);
}

/// `allow.sources` was no obstacle for `sh -c "echo ... > main.tf; terraform apply"`, nor for a hook that wrote a file.
#[test]
fn a_shell_and_a_hook_do_not_get_around_what_may_run() {
    #[track_caller]
    fn check(allow: Value, spec: Value, expect: (bool, bool)) {
        let found = demands(&run(spec), &workspace(json!({})), None, None, &only(json!({"allow": allow})));
        assert_eq!((found.before_start.is_some(), found.violations.is_empty()), expect, "{allow} {found:?}");
    }
    let command = |command: &str| json!({"operation": "command", "command": command});
    let sources = json!({"sources": {"kinds": ["inline"]}});
    for allow in [
        sources.clone(),
        json!({"tools": [{"name": "terraform"}]}),
        json!({"hooks": "None"}),
        json!({"stackOverride": false}),
    ] {
        check(allow, command("sh"), (true, true));
    }
    for allow in [json!({}), json!({"hooks": "Any"}), json!({"stackOverride": true}), json!({"images": []})] {
        check(allow, command("sh"), (false, true));
    }
    check(sources.clone(), command("state rm"), (false, true));
    let hook = json!({"operation": "apply", "source": {"inline": {"main.tf": ""}}, "hooks": [{"name": "a", "step": "pre-plan"}]});
    check(sources.clone(), hook.clone(), (false, false));
    check(json!({"sources": {"kinds": ["inline"]}, "hooks": "Any"}), hook.clone(), (false, true));
    check(json!({}), hook, (false, true));
}

fn hooks(names: &[&str]) -> Vec<Hook> {
    names.iter().map(|name| Hook { name: (*name).to_owned(), ..Hook::default() }).collect()
}

/// A Stack with these hooks, and the Workspace that it owns.
fn owned(names: &[&str], spec: Value) -> (Stack, Workspace) {
    let mut stack = Stack::new("w", StackSpec { hooks: hooks(names), ..StackSpec::default() });
    stack.metadata.uid = Some("uid".to_owned());
    let mut workspace = workspace(spec);
    workspace.metadata.labels = Some(labels(&[(label::STACK, "w")]));
    workspace.metadata.annotations = Some(labels(&[(annotation::STACK_UID, "uid")]));
    (stack, workspace)
}

#[test]
fn a_hook_does_not_run_what_is_privileged() {
    #[track_caller]
    fn check(privileged: Value, of_run: &[&str], of_stack: Option<&[&str]>, expect: bool) {
        let (stack, mut workspace) = owned(of_stack.unwrap_or_default(), json!({"privilegedCommands": privileged}));
        if of_stack.is_none() {
            workspace.metadata.labels = None;
        }
        let spec = RunSpec { operation: Operation::Refresh, hooks: hooks(of_run), ..RunSpec::default() };
        let stack = of_stack.map(|_| &stack);
        let found = demands(&Run::new("r", spec), &workspace, None, stack, &Effective::default());
        assert_eq!(found.violations.is_empty(), expect, "{:?}", found.violations);
    }
    check(json!([]), &["a"], None, true);
    check(json!(["state rm"]), &[], None, true);
    check(json!(["state rm"]), &["a"], None, false);
    check(json!(["state rm"]), &["a"], Some(&[]), false);
    check(json!(["state rm"]), &["a"], Some(&["b"]), false);
    check(json!(["state rm"]), &["a"], Some(&["a"]), true);
    check(json!(["state rm"]), &["a", "b"], Some(&["a"]), false);
}

#[test]
fn hooks_are_those_that_the_policy_allows() {
    #[track_caller]
    fn check(allowed: &str, of_run: &[&str], of_stack: &[&str], expect: bool) {
        let (stack, workspace) = owned(of_stack, json!({}));
        let spec = RunSpec { operation: Operation::Plan, hooks: hooks(of_run), ..RunSpec::default() };
        let policy = only(json!({"allow": {"hooks": allowed}}));
        let found = demands(&Run::new("r", spec), &workspace, None, Some(&stack), &policy);
        assert_eq!(found.violations.is_empty(), expect, "{allowed} {of_run:?} {of_stack:?}");
    }
    check("Any", &["a"], &[], true);
    check("Stack", &[], &["a"], true);
    check("Stack", &["a"], &["a"], true);
    check("Stack", &["a"], &[], false);
    check("None", &[], &[], true);
    check("None", &["a"], &["a"], false);
}

#[track_caller]
fn check_workspace(allow: Value, spec: Value, expect: &[&str]) {
    let spec: WorkspaceSpec = serde_json::from_value(spec).unwrap();
    let found = only(json!({"allow": allow})).check_workspace(&spec);
    let fields: Vec<&str> = found.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(fields, expect, "{found:?}");
    assert!(
        found.iter().all(|violation| violation.to_string().starts_with("Policy `p` does not allow it (spec.allow."))
    );
}

#[test]
fn a_workspace_has_what_the_policy_allows() {
    let images = json!({"images": ["registry.example.com/team/*"]});
    check_workspace(images.clone(), json!({}), &[]);
    check_workspace(images.clone(), json!({"image": "registry.example.com/team/tf:1"}), &[]);
    check_workspace(images.clone(), json!({"image": "registry.example.com.evil/team/tf"}), &["spec.allow.images"]);
    let volume = json!([{"name": "v", "image": {"reference": "evil.com/x"}}]);
    check_workspace(images, json!({"pod": {"volumes": volume}}), &["spec.allow.images"]);
    check_workspace(json!({"images": []}), json!({"image": "x"}), &["spec.allow.images"]);

    let accounts = json!({"serviceAccounts": ["terraform"]});
    check_workspace(accounts.clone(), json!({}), &[]);
    check_workspace(accounts.clone(), json!({"pod": {"serviceAccountName": "terraform"}}), &[]);
    for stage in ["plan", "apply"] {
        let pod = json!({"pod": {"serviceAccountName": "terraform", stage: {"serviceAccountName": "admin"}}});
        check_workspace(accounts.clone(), pod, &["spec.allow.serviceAccounts"]);
    }
    check_workspace(accounts.clone(), json!({"pod": {"serviceAccountName": "admin"}}), &["spec.allow.serviceAccounts"]);
    // A volume with a token gives the account to pods that name none.
    let token = json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]);
    let refused = &["spec.allow.serviceAccounts"];
    check_workspace(accounts.clone(), json!({"pod": {"volumes": token}}), refused);
    check_workspace(accounts.clone(), json!({"pod": {"serviceAccountName": "terraform", "volumes": token}}), &[]);
    let only_apply = json!({"apply": {"serviceAccountName": "terraform"}, "volumes": token});
    check_workspace(accounts, json!({"pod": only_apply}), refused);
    check_workspace(json!({"serviceAccounts": ["default"]}), json!({"pod": {"volumes": token}}), &[]);
    check_workspace(json!({}), json!({"pod": {"volumes": token}}), &[]);

    let tools = json!({"tools": [{"name": "terraform", "versions": ["1.11.*", "1.9.8"]}]});
    check_workspace(tools.clone(), json!({"version": "1.11.4"}), &[]);
    check_workspace(tools.clone(), json!({"version": "1.9.8"}), &[]);
    check_workspace(tools.clone(), json!({"version": "1.1.0"}), &["spec.allow.tools"]);
    check_workspace(tools.clone(), json!({"version": "1.9.80"}), &["spec.allow.tools"]);
    check_workspace(tools.clone(), json!({}), &["spec.allow.tools"]);
    check_workspace(tools, json!({"tool": "tofu", "version": "1.11.4"}), &["spec.allow.tools"]);
    check_workspace(json!({"tools": [{"name": "tofu"}]}), json!({"tool": "tofu"}), &[]);
}

#[test]
fn a_pod_has_nothing_of_its_node_unless_the_policy_says_so() {
    let host_path = json!({"pod": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}});
    check_workspace(json!({}), host_path.clone(), &[]);
    check_workspace(json!({"pod": {}}), json!({}), &[]);
    check_workspace(json!({"pod": {}}), host_path.clone(), &["spec.allow.pod.hostPath"]);
    check_workspace(json!({"pod": {"privileged": true}}), host_path.clone(), &["spec.allow.pod.hostPath"]);
    check_workspace(json!({"pod": {"hostPath": true}}), host_path, &[]);
    let contexts = [
        json!({"containerSecurityContext": {"privileged": true}}),
        json!({"containerSecurityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
        json!({"containerSecurityContext": {"procMount": "Unmasked"}}),
        json!({"containerSecurityContext": {"windowsOptions": {"hostProcess": true}}}),
        json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
        json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
        json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
        json!({"annotations": {"container.apparmor.security.beta.kubernetes.io/runner": "unconfined"}}),
    ];
    for context in contexts {
        check_workspace(json!({"pod": {}}), json!({"pod": context}), &["spec.allow.pod.privileged"]);
        check_workspace(json!({"pod": {"privileged": true}}), json!({"pod": context}), &[]);
    }
    let harmless =
        json!({"pod": {"securityContext": {"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}}});
    check_workspace(json!({"pod": {}}), harmless, &[]);
    // Nobody knows what it would be.
    check_workspace(
        json!({"pod": {}}),
        json!({"pod": {"volumes": [{"name": "v", "hostPath": 7}]}}),
        &["spec.allow.pod"],
    );
}

#[test]
fn a_source_is_of_an_allowed_kind_and_host() {
    #[track_caller]
    fn check(allow: Value, source: Value, expect: &[&str]) {
        let found = only(json!({"allow": {"sources": allow}})).check_source(&serde_json::from_value(source).unwrap());
        assert_eq!(found.iter().map(|violation| violation.field.as_str()).collect::<Vec<_>>(), expect, "{found:?}");
    }
    let git = |url: &str| json!({"git": {"url": url}});
    let hosts = json!({"hosts": [{"host": "git.example.com", "paths": ["/platform"]}]});
    check(json!({}), git("https://anywhere/x"), &[]);
    check(json!({"kinds": ["git"]}), git("https://anywhere/x"), &[]);
    check(json!({"kinds": ["git"]}), json!({"inline": {"main.tf": ""}}), &["spec.allow.sources.kinds"]);
    check(json!({"kinds": []}), json!({"configMap": {"name": "x"}}), &["spec.allow.sources.kinds"]);
    check(hosts.clone(), git("https://git.example.com/platform/net"), &[]);
    check(hosts.clone(), git("https://git.example.com/other/net"), &["spec.allow.sources.hosts"]);
    check(
        hosts.clone(),
        json!({"archive": {"url": "https://evil/x.tgz", "sha256": ""}}),
        &["spec.allow.sources.hosts"],
    );
    check(hosts.clone(), json!({"inline": {"main.tf": ""}}), &[]);
    check(hosts, json!({}), &["spec.allow.sources"]);
}

#[test]
fn a_snapshot_counts_only_of_a_run_that_the_stack_has_started() {
    let (stack, workspace) = owned(&[], json!({}));
    let policy = only(json!({"allow": {"sources": {"kinds": ["git"]}}}));
    let snapshot = json!({"revision": "a", "bundle": "sha256:1", "variables": "v"});
    let mut run = run(json!({"operation": "apply", "snapshot": snapshot}));
    let is_allowed =
        |run: &Run, policy: &Effective| demands(run, &workspace, None, Some(&stack), policy).violations.is_empty();
    assert!(!is_allowed(&run, &policy));
    assert!(is_allowed(&run, &Effective::default()));
    run.metadata.labels.clone_from(&workspace.metadata.labels);
    run.metadata.annotations.clone_from(&workspace.metadata.annotations);
    assert!(is_allowed(&run, &policy));
}

#[test]
fn the_status_of_a_workspace_says_what_holds_and_from_where() {
    let policies = [
        policy("a", json!({"review": {"floor": "Manual", "fourEyes": true}, "allow": {"images": ["r.io/*"]}})),
        policy("b", json!({"review": {"approvers": 2}})),
    ];
    let (mut stack, workspace) = owned(&[], json!({"privilegedCommands": ["sh"]}));
    stack.spec.approval = StackApproval::ManualOnDestroy;
    let found = effective(&policies, [], &Labels::new(), &Labels::new()).settings(&workspace, Some(&stack));
    let lines: Vec<String> =
        found.iter().map(|setting| format!("{} {} {}", setting.setting, setting.value, setting.from)).collect();
    let expect = [
        "allow.images r.io/* Policy/a",
        "allow.privileged sh Workspace/w",
        "review.approvers 2 Policy/b",
        "review.floor Manual Policy/a",
        "review.floor ManualOnDestroy Stack/w",
        "review.fourEyes true Policy/a",
    ];
    assert_eq!(lines, expect);
}

#[test]
fn the_labels_of_a_stack_are_labels_of_its_workspace() {
    let (mut stack, workspace) = owned(&[], json!({}));
    stack.metadata.labels = Some(labels(&[("env", "production")]));
    let has = |found: Labels| found.get("env").map(String::as_str) == Some("production");
    assert!(has(super::labels(Some(&workspace), Some(&stack))));
    assert!(has(super::labels(None, Some(&stack))));
    let foreign = Workspace::new("w", WorkspaceSpec::default());
    assert!(!has(super::labels(Some(&foreign), Some(&stack))), "a Stack that does not own the Workspace");
}

/// A Policy of the kind that the properties try.
fn any_policy() -> impl Strategy<Value = Value> {
    let floors = prop::sample::select(vec!["Auto", "ManualOnDestroy", "Manual"]);
    let groups = prop::sample::subsequence(vec!["a", "b"], 0..=2);
    let list = |items: Vec<&'static str>| prop::option::of(prop::sample::subsequence(items, 0..=2));
    let hooks = prop::option::of(prop::sample::select(vec!["Any", "Stack", "None"]));
    let pod = prop::option::of((any::<bool>(), any::<bool>()));
    let env = prop::option::of(prop::sample::select(vec!["production", "dev"]));
    let review = (floors, 1u32..4, groups, any::<bool>());
    let allow = (list(vec!["r.io/*", "x"]), list(vec!["tf", "admin"]), list(vec!["git", "inline"]), hooks, pod);
    let privileged = prop::sample::subsequence(vec!["sh", "state rm", "destroy"], 0..=3);
    (env, review, allow, privileged).prop_map(|(env, review, allow, privileged)| {
        let (floor, approvers, groups, four_eyes) = review;
        let (images, accounts, kinds, hooks, pod) = allow;
        let mut spec = json!({
            "review": {"floor": floor, "approvers": approvers, "groups": groups, "fourEyes": four_eyes},
            "allow": {"images": images, "serviceAccounts": accounts, "hooks": hooks, "privileged": {"commands": privileged}},
        });
        if let Some(env) = env {
            spec["namespaceSelector"] = json!({"matchLabels": {"env": env}});
        }
        if let Some(kinds) = kinds {
            spec["allow"]["sources"] = json!({"kinds": kinds});
        }
        if let Some((host_path, privileged)) = pod {
            spec["allow"]["pod"] = json!({"hostPath": host_path, "privileged": privileged});
        }
        spec
    })
}

/// A Run and its Workspace, of the kind that the properties try.
fn any_run() -> impl Strategy<Value = (Value, Value)> {
    let operation = prop::sample::select(vec![
        json!({"operation": "plan"}),
        json!({"operation": "apply"}),
        json!({"operation": "destroy", "approval": "ManualOnDestroy"}),
        json!({"operation": "command", "command": "sh"}),
        json!({"operation": "command", "command": "state", "args": ["rm", "x"]}),
        json!({"operation": "refresh", "hooks": [{"name": "h", "step": "pre-plan", "script": "x"}]}),
        json!({"operation": "apply", "source": {"inline": {"main.tf": ""}}}),
    ]);
    let workspace = prop::sample::select(vec![
        json!({}),
        json!({"image": "r.io/x"}),
        json!({"image": "x", "pod": {"serviceAccountName": "admin"}}),
        json!({"pod": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
        json!({"pod": {"containerSecurityContext": {"privileged": true}}}),
    ]);
    (operation, workspace)
}

/// How strict an approval is.
fn rank(approval: RunApproval) -> u8 {
    match approval {
        RunApproval::Auto | RunApproval::Prompt => 0,
        RunApproval::ManualOnDestroy => 1,
        RunApproval::Manual => 2,
    }
}

proptest! {
    #[test]
    fn the_order_of_the_policies_does_not_matter(
        (specs, order) in prop::collection::vec(any_policy(), 0..4)
            .prop_flat_map(|specs| {
                let order: Vec<usize> = (0..specs.len()).collect();
                (Just(specs), Just(order).prop_shuffle())
            }),
    ) {
        let policies: Vec<Policy> =
            specs.into_iter().enumerate().map(|(index, spec)| policy(&format!("p{index}"), spec)).collect();
        let shuffled: Vec<&Policy> = order.iter().map(|index| &policies[*index]).collect();
        let namespace = labels(&[("env", "production")]);
        let straight = effective(&policies, [], &namespace, &Labels::new());
        prop_assert_eq!(straight, effective(shuffled, [], &namespace, &Labels::new()));
    }

    #[test]
    fn another_policy_never_allows_more(
        specs in prop::collection::vec(any_policy(), 0..3),
        further in any_policy(),
        (run_spec, workspace_spec) in any_run(),
    ) {
        let mut policies: Vec<Policy> =
            specs.into_iter().enumerate().map(|(index, spec)| policy(&format!("p{index}"), spec)).collect();
        let (run, workspace) = (run(run_spec), workspace(workspace_spec));
        let namespace = labels(&[("env", "production")]);
        let before = demands(&run, &workspace, None, None, &effective(&policies, [], &namespace, &Labels::new()));
        policies.push(policy("further", further));
        let after = demands(&run, &workspace, None, None, &effective(&policies, [], &namespace, &Labels::new()));

        prop_assert!(rank(after.approval) >= rank(before.approval));
        prop_assert!(after.before_start.is_some() || before.before_start.is_none());
        prop_assert!(after.violations.len() >= before.violations.len());
        prop_assert!(after.reviewers.needed(None) >= before.reviewers.needed(None));
        prop_assert!(after.reviewers.needed(Some("ann")) >= before.reviewers.needed(Some("ann")));
        prop_assert!(before.reviewers.groups.iter().all(|groups| after.reviewers.groups.contains(groups)));
        prop_assert!(before.reviewers.four_eyes.iter().all(|policy| after.reviewers.four_eyes.contains(policy)));
    }
}
