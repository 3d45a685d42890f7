#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::{Workspace, policy::Policy};
use serde_json::{Value, json};

use super::{AtomAccount, atom_account};
use crate::{
    frozen::{FrozenJob, PodTemplate},
    policy::{Effective, Labels, effective},
};

/// Policies `a`, `b`, ... with these specs.
fn policies(specs: &[Value]) -> Vec<Policy> {
    let names = ('a'..='z').map(String::from);
    let of = |(name, spec): (String, &Value)| {
        let policy =
            json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": {"name": name}, "spec": spec});
        serde_json::from_value(policy).unwrap()
    };
    names.zip(specs).map(of).collect()
}

fn of(defaults: &[Value]) -> Effective {
    let specs: Vec<Value> = defaults.iter().map(|defaults| json!({"defaults": defaults})).collect();
    // The order in which they come does not count.
    let policies: Vec<Policy> = policies(&specs).into_iter().rev().collect();
    effective(&policies, [], &Labels::new(), &Labels::new())
}

fn workspace(spec: &Value) -> Workspace {
    let workspace =
        json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Workspace", "metadata": {"name": "w"}, "spec": spec});
    serde_json::from_value(workspace).unwrap()
}

#[test]
fn what_a_workspace_says_itself_wins_and_the_first_policy_supplies_the_rest() {
    let literal = |name: &str, value: &str| json!({"name": name, "value": value});
    let rows = [
        ("nothing", json!([]), json!({}), json!({})),
        (
            "an account",
            json!([{"pod": {"serviceAccountName": "one"}}, {"pod": {"serviceAccountName": "two"}}]),
            json!({}),
            json!({"serviceAccountName": "one"}),
        ),
        (
            "an own account",
            json!([{"pod": {"serviceAccountName": "one", "plan": {"serviceAccountName": "reader"}}}]),
            json!({"serviceAccountName": "own"}),
            json!({"serviceAccountName": "own"}),
        ),
        (
            "an own account of a stage",
            json!([{"pod": {"serviceAccountName": "one", "plan": {"serviceAccountName": "reader"}}}]),
            json!({"apply": {"serviceAccountName": "own"}}),
            json!({"serviceAccountName": "one", "plan": {"serviceAccountName": "reader"}, "apply": {"serviceAccountName": "own"}}),
        ),
        (
            "maps by key",
            json!([{"pod": {"labels": {"x": "1", "y": "1"}}}, {"pod": {"labels": {"y": "2", "z": "2"}}}]),
            json!({"labels": {"x": "own"}}),
            json!({"labels": {"x": "own", "y": "1", "z": "2"}}),
        ),
        (
            "environment by name, and a proxy",
            json!([{"proxy": {"https": "http://p:1", "exclude": ["a", ".b"]}}]),
            json!({"env": [literal("HTTPS_PROXY", "own")]}),
            json!({"env": [literal("https_proxy", "http://p:1"), literal("NO_PROXY", "a,.b"), literal("no_proxy", "a,.b"), literal("HTTPS_PROXY", "own")]}),
        ),
        (
            "a token",
            json!([{"registry": {"tokens": [{"host": "my-registry.example.com", "secretKeyRef": {"name": "s", "key": "k"}}]}}]),
            json!({}),
            json!({"env": [{"name": "TF_TOKEN_my__registry_example_com", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}),
        ),
        (
            "no mount of another volume of the same name",
            json!([{"pod": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}], "volumeMounts": [{"name": "v", "mountPath": "/x"}]}}]),
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        ),
        (
            "whole values",
            json!([{"pod": {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "imagePullSecrets": [{"name": "p"}]}}]),
            json!({"resources": {"limits": {"cpu": "2"}}, "imagePullSecrets": [{"name": "own"}]}),
            json!({"resources": {"limits": {"cpu": "2"}}, "imagePullSecrets": [{"name": "p"}, {"name": "own"}]}),
        ),
    ];
    for (what, defaults, own, expect) in rows {
        let own = serde_json::from_value(own).unwrap();
        let found = of(defaults.as_array().unwrap()).pod(&own);
        assert_eq!(serde_json::to_value(found).unwrap(), expect, "{what}");
    }
}

#[test]
fn variables_and_files_are_supplied_where_the_workspace_has_none() {
    let registry = json!({"terraformrc": {"value": "x"}, "netrc": {"name": "s", "key": "k"}, "ssh": {"name": "s"}});
    let variable = |key: &str, category: &str| json!({"key": key, "value": "v", "category": category});
    let defaults = of(&[
        json!({"variables": [variable("a", "terraform"), variable("X", "env"), variable("Y", "env")]}),
        json!({"variables": [variable("a", "terraform"), variable("b", "terraform")], "registry": registry}),
        json!({"registry": registry}),
    ]);
    let check = |spec: Value, variables: &str, rest: (usize, bool, bool)| {
        let found = defaults.supplied(&workspace(&spec).spec);
        let names: Vec<String> =
            found.variables.iter().map(|(policy, variable)| format!("{policy}:{}", variable.key)).collect();
        assert_eq!(names.join(" "), variables, "{spec}");
        assert_eq!((found.terraformrc.len(), found.netrc.is_some(), found.ssh.is_some()), rest, "{spec}");
    };
    check(json!({}), "a:a a:X a:Y b:b", (2, true, true));
    check(
        json!({"variables": [variable("a", "terraform"), variable("TF_CLI_CONFIG_FILE", "env"), variable("NETRC", "env")], "pod": {"env": [{"name": "Y", "value": ""}, {"name": "GIT_SSH_COMMAND"}]}}),
        "a:X b:b",
        (0, false, false),
    );
    // A variable of the module is not one of the environment.
    check(json!({"variables": [variable("X", "terraform")]}), "a:a a:X a:Y b:b", (2, true, true));
    assert!(!of(&[json!({"atom": {"serviceAccountName": "x"}}), json!({"timeouts": {"plan": "1h"}})]).supplies());
}

#[test]
fn the_origin_of_each_setting_is_shown_and_no_value_that_may_be_confidential() {
    let mut policies = policies(&[
        json!({"defaults": {"pod": {"serviceAccountName": "one", "env": [{"name": "T", "value": "s3cret"}]}, "timeouts": {"plan": "1h"}}}),
        json!({"defaults": {"variables": [{"key": "v", "value": "s3cret"}]}, "limits": {"timeouts": {"apply": "2h"}}}),
    ]);
    policies.reverse();
    let effective = effective(&policies, [], &Labels::new(), &Labels::new());
    let workspace = workspace(&json!({"pod": {"labels": {"team": "x"}}, "timeouts": {"init": "5m"}}));
    let shown = effective.origins(&workspace, "hashicorp/terraform:1.2.3");
    let shown: Vec<String> = shown.iter().map(|row| format!("{}={} {}", row.setting, row.value, row.from)).collect();
    let expect = [
        "image=hashicorp/terraform:1.2.3 operator",
        "pod.env.T=(set) Policy/a",
        "pod.labels.team=x Workspace/w",
        "pod.serviceAccountName=one Policy/a",
        "timeouts.answer=30m operator",
        "timeouts.apply=2h Policy/b",
        "timeouts.init=5m Workspace/w",
        "timeouts.pending=15m operator",
        "timeouts.plan=1h Policy/a",
        "variables.v=(set) Policy/b",
    ];
    assert_eq!(shown, expect);
}

#[test]
fn what_a_policy_supplies_is_trusted_and_what_a_workspace_says_is_judged() {
    let allow = json!({"serviceAccounts": ["own"], "pod": {}});
    let host = json!({"name": "cache", "hostPath": {"path": "/cache"}});
    let defaults = json!({"pod": {"serviceAccountName": "deployer", "volumes": [host], "volumeMounts": [{"name": "cache", "mountPath": "/cache", "readOnly": true}]}});
    let policies = policies(&[json!({"allow": allow, "defaults": defaults})]);
    let effective = effective(&policies, [], &Labels::new(), &Labels::new());
    let rows = [
        (json!({}), ""),
        (json!({"pod": {"serviceAccountName": "own"}}), ""),
        (json!({"pod": {"serviceAccountName": "other"}}), "spec.allow.serviceAccounts"),
        (json!({"pod": {"apply": {"serviceAccountName": "other"}}}), "spec.allow.serviceAccounts"),
        (json!({"pod": {"volumes": [{"name": "mine", "hostPath": {"path": "/"}}]}}), "spec.allow.pod.hostPath"),
        // The volume of a Policy, mounted as the Workspace likes: writable.
        (json!({"pod": {"volumeMounts": [{"name": "cache", "mountPath": "/mine"}]}}), "spec.allow.pod.hostPath"),
        (json!({"pod": {"containerSecurityContext": {"privileged": true}}}), "spec.allow.pod.privileged"),
    ];
    for (spec, expect) in rows {
        let own = workspace(&spec).spec.pod.unwrap_or_default();
        let template = PodTemplate { settings: effective.pod(&own), own: Some(own), ..PodTemplate::default() };
        let job = FrozenJob { pods: template, ..FrozenJob::default() };
        let fields = |violations: Vec<crate::policy::Violation>| {
            violations.into_iter().map(|violation| violation.field).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(fields(effective.check_workspace(&workspace(&spec).spec)), expect, "{spec}");
        assert_eq!(fields(effective.check_frozen(&job)), expect, "{spec}, frozen");
    }
}

#[test]
fn what_a_policy_does_not_supply_any_more_is_judged() {
    let defaults = json!({"pod": {"serviceAccountName": "deployer"}});
    let before = of(&[defaults]);
    let template =
        PodTemplate { settings: before.pod(&Default::default()), own: Some(Default::default()), ..Default::default() };
    let job = FrozenJob { pods: template, ..FrozenJob::default() };
    let now = policies(&[json!({"allow": {"serviceAccounts": ["other"]}})]);
    let now = effective(&now, [], &Labels::new(), &Labels::new());
    assert_eq!(now.check_frozen(&job).len(), 1);
    assert!(before.check_frozen(&job).is_empty());
}

#[test]
fn the_account_of_atoms_is_that_of_the_first_policy_of_their_namespace() {
    let naming = |account: &str, env: &str| json!({"namespaceSelector": {"matchLabels": {"env": env}}, "workspaceSelector": {"matchLabels": {"no": "matter"}}, "defaults": {"atom": {"serviceAccountName": account}}});
    let all = policies(&[naming("test", "test"), naming("one", "prod"), naming("two", "prod")]);
    let account = |policies: &[Policy], undecodable: &[&str], env: &str| {
        let labels = Labels::from([("env".to_owned(), env.to_owned())]);
        atom_account(policies, undecodable.iter().copied(), &labels)
    };
    let named = |account: &str| AtomAccount { account: Some(account.to_owned()), unreadable: None };
    assert_eq!(account(&all, &[], "prod"), named("one"));
    assert_eq!(account(&all, &[], "test"), named("test"));
    assert_eq!(account(&all, &[], "other"), AtomAccount::default());
    assert_eq!(account(&all, &["x"], "other").unreadable.as_deref(), Some("x"));
    let bad = policies(&[
        json!({"namespaceSelector": {"matchLabels": {"a b": "c"}}, "defaults": {"atom": {"serviceAccountName": "x"}}}),
    ]);
    assert_eq!(account(&bad, &[], "other").unreadable.as_deref(), Some("a"));
}
