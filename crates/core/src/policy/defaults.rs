//! What Policies supply to Workspaces and Atoms that do not say it themselves.
//!
//! *Guarantees.* What a Workspace says itself is never replaced. Of several Policies, the first by name that has a setting
//! supplies it; lists and maps are joined by their keys. All names of Secrets and ConfigMaps are those of the Workspace's
//! own namespace: a Policy reaches no other one.

mod origins;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};
use knoll_api::{
    pod::PodSettings,
    policy::{DefaultSettings, Policy, ProxySettings, RegistrySettings, TextSource},
    source::LocalRef,
    step::Timeouts,
    variables::{KeyRef, Variable, VariableCategory},
    workspace::WorkspaceSpec,
};
use serde_json::Value;

use super::{Effective, Labels, might_hold_in};
use kube::ResourceExt;

/// The variable by which a Workspace names a CLI configuration of its own.
const CLI_CONFIG: &str = "TF_CLI_CONFIG_FILE";
/// The variables by which a Workspace says itself how git uses ssh.
const GIT_SSH: [&str; 2] = ["GIT_SSH_COMMAND", "GIT_SSH"];
/// The variable by which a Workspace names a netrc file of its own.
const NETRC: &str = "NETRC";

/// What Policies supply beside the settings of pods. Each comes with the name of its Policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Supplied {
    /// The variables that the Workspace does not have.
    pub variables: Vec<(String, Variable)>,
    /// The fragments of terraform's CLI configuration, in the order of the Policies.
    pub terraformrc: Vec<(String, TextSource)>,
    pub netrc: Option<(String, KeyRef)>,
    pub ssh: Option<(String, LocalRef)>,
}

/// What Policies say of the account of Atoms that name none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtomAccount {
    pub account: Option<String>,
    /// A Policy that cannot be read and might name another account.
    pub unreadable: Option<String>,
}

/// The account of the Atoms of a namespace with these labels. `undecodable` are the names of Policies of which nothing is
/// known but the name.
#[must_use]
pub fn atom_account<'a>(
    policies: impl IntoIterator<Item = &'a Policy>,
    undecodable: impl IntoIterator<Item = &'a str>,
    namespace: &Labels,
) -> AtomAccount {
    let account = |policy: &'a Policy| policy.spec.defaults.as_ref()?.atom.as_ref()?.service_account_name.as_deref();
    let naming = policies.into_iter().filter(|policy| might_hold_in(policy, namespace));
    let mut naming: Vec<(String, &Policy, &str)> =
        naming.filter_map(|policy| Some((policy.name_any(), policy, account(policy)?))).collect();
    naming.sort_by(|a, b| a.0.cmp(&b.0));
    let first = naming.first();
    let is_readable = |policy: &Policy| super::selector::matches(policy.spec.namespace_selector.as_ref(), namespace);
    let unreadable = first.filter(|(_, policy, _)| is_readable(policy).is_err()).map(|(name, _, _)| name.clone());
    let mut undecodable: Vec<&str> = undecodable.into_iter().collect();
    undecodable.sort_unstable();
    AtomAccount {
        account: first.map(|(_, _, account)| (*account).to_owned()),
        unreadable: undecodable.first().map(|name| (*name).to_owned()).or(unreadable),
    }
}

impl Effective {
    /// Whether a Policy supplies anything to the runs, so that their pods do not follow from the Workspace alone.
    #[must_use]
    pub fn supplies(&self) -> bool {
        self.defaults().any(|(_, defaults)| {
            let DefaultSettings { pod, variables, timeouts: _, proxy, registry, atom: _ } = defaults;
            pod.is_some() || !variables.is_empty() || proxy.is_some() || registry.is_some()
        })
    }

    /// The settings of the pods of a Workspace that has these by itself.
    #[must_use]
    pub fn pod(&self, own: &PodSettings) -> PodSettings {
        let supplied = self.defaults().map(|(_, defaults)| pod_of(defaults));
        supplied.fold(own.clone(), fill)
    }

    /// The proxy that Policies supply, as variables of a pod that has nothing of its Workspace's.
    #[must_use]
    pub fn proxy(&self) -> Vec<EnvVar> {
        let supplied = self.defaults().filter_map(|(_, defaults)| defaults.proxy.as_ref()).map(of_proxy);
        supplied.fold(Vec::new(), |all, next| joined(all, next, |env| env.name.clone()))
    }

    /// What the Policies supply to the runs of a Workspace beside the settings of its pods.
    #[must_use]
    pub fn supplied(&self, spec: &WorkspaceSpec) -> Supplied {
        let mut found = Supplied::default();
        let says = |name: &str| {
            let in_pod = spec.pod.iter().flat_map(|pod| &pod.env).any(|env| env.name == name);
            in_pod || spec.variables.iter().any(|own| own.category == VariableCategory::Env && own.key == name)
        };
        for (policy, defaults) in self.defaults() {
            for variable in &defaults.variables {
                let is_same = |own: &Variable| (&own.key, own.category) == (&variable.key, variable.category);
                let in_pod = variable.category == VariableCategory::Env && says(&variable.key);
                let is_known = found.variables.iter().any(|(_, known)| is_same(known));
                if !in_pod && !is_known && !spec.variables.iter().any(is_same) {
                    found.variables.push((policy.to_owned(), variable.clone()));
                }
            }
            let Some(RegistrySettings { terraformrc, tokens: _, netrc, ssh }) = &defaults.registry else { continue };
            if let Some(text) = terraformrc.as_ref().filter(|_| !says(CLI_CONFIG)) {
                found.terraformrc.push((policy.to_owned(), text.clone()));
            }
            if let (None, Some(key), false) = (&found.netrc, netrc, says(NETRC)) {
                found.netrc = Some((policy.to_owned(), key.clone()));
            }
            if let (None, Some(secret), false) = (&found.ssh, ssh, GIT_SSH.iter().any(|name| says(name))) {
                found.ssh = Some((policy.to_owned(), secret.clone()));
            }
        }
        found
    }

    /// The timeouts of the Workspaces and Runs that have none.
    #[must_use]
    pub fn default_timeouts(&self) -> Timeouts {
        let supplied = self.defaults().filter_map(|(_, defaults)| defaults.timeouts.as_ref());
        supplied.fold(Timeouts::default(), Timeouts::or)
    }

    /// The part of a Workspace's settings that is judged: its own, and the volumes of Policies that it mounts itself.
    pub(super) fn own_part(own: &PodSettings, all: &PodSettings) -> PodSettings {
        let mut judged = own.clone();
        let is_own = |name: &str| own.volumes.iter().any(|volume| name_of(volume) == Some(name));
        let borrowed = all.volumes.iter().filter(|volume| {
            let mounted = |name: &str| own.volume_mounts.iter().any(|mount| mount.name == name);
            name_of(volume).is_some_and(|name| mounted(name) && !is_own(name))
        });
        judged.volumes.extend(borrowed.cloned());
        judged
    }

    /// The defaults of the Policies, in the order of their names.
    fn defaults(&self) -> impl Iterator<Item = (&str, &DefaultSettings)> {
        self.rules.iter().filter_map(|rule| Some((rule.policy.as_str(), rule.defaults.as_ref()?)))
    }
}

/// The settings of pods that one Policy supplies: its `pod`, and the environment that follows from its other settings.
fn pod_of(defaults: &DefaultSettings) -> PodSettings {
    let mut pod = defaults.pod.clone().unwrap_or_default();
    let proxy = defaults.proxy.iter().flat_map(of_proxy);
    let tokens = defaults.registry.iter().flat_map(|registry| &registry.tokens).map(|token| {
        let KeyRef { name, key } = token.secret_key_ref.clone();
        let secret_key_ref = Some(SecretKeySelector { name, key, optional: None });
        let value_from = Some(EnvVarSource { secret_key_ref, ..EnvVarSource::default() });
        EnvVar { name: token.variable(), value: None, value_from }
    });
    let derived: Vec<EnvVar> = proxy.chain(tokens).collect();
    pod.env = joined(pod.env, derived, |env| env.name.clone());
    pod
}

/// Programs read one or the other spelling.
fn of_proxy(proxy: &ProxySettings) -> Vec<EnvVar> {
    let ProxySettings { http, https, exclude } = proxy;
    let none = (!exclude.is_empty()).then(|| exclude.join(","));
    let names = [("HTTP_PROXY", http), ("HTTPS_PROXY", https), ("NO_PROXY", &none)];
    let spelled = names.into_iter().flat_map(|(name, value)| [(name.to_owned(), value), (name.to_lowercase(), value)]);
    spelled.filter_map(|(name, value)| Some(EnvVar { name, value: Some(value.clone()?), value_from: None })).collect()
}

/// `own`, with what it does not say from `default`.
fn fill(own: PodSettings, default: PodSettings) -> PodSettings {
    let PodSettings {
        service_account_name,
        plan,
        apply,
        resources,
        node_selector,
        tolerations,
        affinity,
        env,
        env_from,
        volumes,
        volume_mounts,
        image_pull_secrets,
        priority_class_name,
        security_context,
        container_security_context,
        labels,
        annotations,
    } = own;
    // A Workspace that names an account for all of its pods has no other one for a stage.
    let stages = service_account_name.is_none();
    // A mount of a Policy is one of its own volume, not of another one that has the same name.
    let is_own = |name: &str| volumes.iter().any(|volume| name_of(volume) == Some(name));
    let mounts = default.volume_mounts.into_iter().filter(|mount| !is_own(&mount.name)).collect();
    let mut all_tolerations = tolerations;
    for toleration in default.tolerations {
        if !all_tolerations.contains(&toleration) {
            all_tolerations.push(toleration);
        }
    }
    // Of two sources with one name, the later one counts.
    let earlier = default.env_from.into_iter().filter(|from| !env_from.contains(from));
    let env_from = earlier.chain(env_from.clone()).collect();
    PodSettings {
        service_account_name: service_account_name.or(default.service_account_name),
        plan: plan.or(default.plan.filter(|_| stages)),
        apply: apply.or(default.apply.filter(|_| stages)),
        resources: resources.or(default.resources),
        node_selector: default.node_selector.into_iter().chain(node_selector).collect(),
        tolerations: all_tolerations,
        affinity: affinity.or(default.affinity),
        env: joined(env, default.env, |env| env.name.clone()),
        env_from,
        volume_mounts: joined(volume_mounts, mounts, |mount| mount.mount_path.trim_end_matches('/').to_owned()),
        volumes: joined(volumes, default.volumes, |volume| name_of(volume).unwrap_or_default().to_owned()),
        image_pull_secrets: joined(image_pull_secrets, default.image_pull_secrets, |secret| secret.name.clone()),
        priority_class_name: priority_class_name.or(default.priority_class_name),
        security_context: security_context.or(default.security_context),
        container_security_context: container_security_context.or(default.container_security_context),
        labels: default.labels.into_iter().chain(labels).collect(),
        annotations: default.annotations.into_iter().chain(annotations).collect(),
    }
}

/// The items of `own`, after those of `default` whose keys it does not have.
fn joined<T>(own: Vec<T>, default: Vec<T>, key: impl Fn(&T) -> String) -> Vec<T> {
    let has = |item: &T| own.iter().any(|known| key(known) == key(item));
    let mut all: Vec<T> = default.into_iter().filter(|item| !has(item)).collect();
    all.extend(own);
    all
}

fn name_of(volume: &Value) -> Option<&str> {
    volume.get("name").and_then(Value::as_str)
}

#[cfg(test)]
mod tests;
