//! Where each setting of a Workspace's runs comes from, for its status.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};
use knoll_api::{
    pod::PodSettings,
    policy::PolicySetting,
    step::Timeouts,
    variables::{ValueFrom, Variable, VariableCategory},
    workspace::Workspace,
};
use kube::ResourceExt;
use serde::Serialize;

use super::{Effective, name_of, pod_of};

/// The number of settings that a status lists, so that it fits into an object.
const MOST: usize = 1000;
/// The longest name and value of a setting.
const LONGEST: usize = 256;
/// Where the settings of the installation come from.
const OPERATOR: &str = "operator";
/// What is shown of a value that may be confidential.
const HIDDEN: &str = "(set)";

/// A setting and its value.
type Entry = (String, String);

impl Effective {
    /// The settings that the Workspace's runs have, and the objects that they come from. `image` is the image of its pods.
    #[must_use]
    pub fn origins(&self, workspace: &Workspace, image: &str) -> Vec<PolicySetting> {
        let spec = &workspace.spec;
        let own = format!("Workspace/{}", workspace.name_any());
        let mut found = Vec::new();
        let mut note = |entry: Entry, from: &str| {
            let (setting, value) = (clip(entry.0), clip(entry.1));
            found.push(PolicySetting { setting, value, from: from.to_owned() });
        };
        let of_image = if spec.image.is_some() || spec.version.is_some() { own.as_str() } else { OPERATOR };
        note(("image".to_owned(), image.to_owned()), of_image);

        let own_pod = spec.pod.clone().unwrap_or_default();
        let own_entries = of_pod(&own_pod);
        let supplied: Vec<(&str, Vec<Entry>)> =
            self.defaults().map(|(policy, defaults)| (policy, of_pod(&pod_of(defaults)))).collect();
        for entry in of_pod(&self.pod(&own_pod)) {
            let supplier = supplied.iter().find(|(_, entries)| entries.contains(&entry)).map(|(policy, _)| *policy);
            match supplier.filter(|_| !own_entries.contains(&entry)) {
                Some(policy) => note(entry, &of_policy(policy)),
                None => note(entry, &own),
            }
        }
        for variable in &spec.variables {
            note(of_variable(variable), &own);
        }
        let supplied = self.supplied(spec);
        for (policy, variable) in &supplied.variables {
            note(of_variable(variable), &of_policy(policy));
        }
        for (policy, text) in &supplied.terraformrc {
            let value = text.value_from.as_ref().map_or_else(|| HIDDEN.to_owned(), reference);
            note(("registry.terraformrc".to_owned(), value), &of_policy(policy));
        }
        if let Some((policy, key)) = &supplied.netrc {
            let value = format!("Secret {}, key {}", key.name, key.key);
            note(("registry.netrc".to_owned(), value), &of_policy(policy));
        }
        if let Some((policy, secret)) = &supplied.ssh {
            note(("registry.ssh".to_owned(), format!("Secret {}", secret.name)), &of_policy(policy));
        }
        self.timeout_origins(spec.timeouts.as_ref(), &own, &mut note);
        found.sort();
        found.truncate(MOST);
        found
    }

    fn timeout_origins(&self, own: Option<&Timeouts>, workspace: &str, note: &mut impl FnMut(Entry, &str)) {
        let own = own.cloned().unwrap_or_default();
        let mut all = own.clone().or(&self.default_timeouts());
        all.pending.get_or_insert(Timeouts::DEFAULT_PENDING.into());
        all.answer.get_or_insert(Timeouts::DEFAULT_ANSWER.into());
        let all = self.shortened(all);
        let own = of_timeouts(&own);
        let of_limits = |rule: &&super::super::Matched, entry: &Entry| {
            rule.limits.timeouts.as_ref().is_some_and(|limits| of_timeouts(limits).contains(entry))
        };
        for entry in of_timeouts(&all) {
            let default = self.defaults().find(|(_, defaults)| {
                defaults.timeouts.as_ref().is_some_and(|timeouts| of_timeouts(timeouts).contains(&entry))
            });
            let limit = self.rules.iter().find(|rule| of_limits(rule, &entry)).map(|rule| rule.policy.as_str());
            let policy = default.map(|(policy, _)| policy).or(limit);
            match policy {
                _ if own.contains(&entry) => note(entry, workspace),
                Some(policy) => note(entry, &of_policy(policy)),
                None => note(entry, OPERATOR),
            }
        }
    }
}

fn of_policy(name: &str) -> String {
    format!("Policy/{name}")
}

/// Each setting of pods by a name of its own.
fn of_pod(pod: &PodSettings) -> Vec<Entry> {
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
    } = pod;
    let mut found = Vec::new();
    let mut note = |setting: String, value: String| found.push((format!("pod.{setting}"), value));
    let of_stage = |stage: &Option<knoll_api::pod::StageSettings>| stage.clone().and_then(|it| it.service_account_name);
    let texts = [
        ("serviceAccountName", service_account_name.clone()),
        ("plan.serviceAccountName", of_stage(plan)),
        ("apply.serviceAccountName", of_stage(apply)),
        ("priorityClassName", priority_class_name.clone()),
        ("resources", resources.as_ref().map(json)),
        ("affinity", affinity.as_ref().map(json)),
        ("securityContext", security_context.as_ref().map(json)),
        ("containerSecurityContext", container_security_context.as_ref().map(json)),
    ];
    for (field, value) in texts {
        if let Some(value) = value {
            note(field.to_owned(), value);
        }
    }
    for (field, map) in [("nodeSelector", node_selector), ("labels", labels), ("annotations", annotations)] {
        map.iter().for_each(|(key, value)| note(format!("{field}.{key}"), value.clone()));
    }
    tolerations.iter().for_each(|toleration| {
        let key = toleration.key.as_deref().unwrap_or("*");
        note(format!("tolerations.{key}"), json(toleration));
    });
    env.iter().for_each(|env| note(format!("env.{}", env.name), of_env(env)));
    env_from.iter().for_each(|from| note("envFrom".to_owned(), of_env_from(from)));
    volumes.iter().for_each(|volume| {
        let kinds = volume.as_object().into_iter().flat_map(|fields| fields.keys()).filter(|key| *key != "name");
        let kinds: Vec<&str> = kinds.map(String::as_str).collect();
        note(format!("volumes.{}", name_of(volume).unwrap_or_default()), kinds.join(", "));
    });
    volume_mounts.iter().for_each(|mount| note(format!("volumeMounts.{}", mount.mount_path), mount.name.clone()));
    image_pull_secrets.iter().for_each(|secret| note("imagePullSecrets".to_owned(), secret.name.clone()));
    found
}

fn of_env(env: &EnvVar) -> String {
    let from = env.value_from.as_ref();
    let secret = from.and_then(|from| from.secret_key_ref.as_ref());
    let map = from.and_then(|from| from.config_map_key_ref.as_ref());
    match (secret, map) {
        (Some(secret), _) => format!("Secret {}, key {}", secret.name, secret.key),
        (None, Some(map)) => format!("ConfigMap {}, key {}", map.name, map.key),
        (None, None) => HIDDEN.to_owned(),
    }
}

fn of_env_from(from: &EnvFromSource) -> String {
    match (&from.secret_ref, &from.config_map_ref) {
        (Some(secret), _) => format!("Secret {}", secret.name),
        (None, Some(map)) => format!("ConfigMap {}", map.name),
        (None, None) => HIDDEN.to_owned(),
    }
}

fn of_variable(variable: &Variable) -> Entry {
    let category = if variable.category == VariableCategory::Env { "env." } else { "" };
    let value = variable.value_from.as_ref().map_or_else(|| HIDDEN.to_owned(), reference);
    (format!("variables.{category}{}", variable.key), value)
}

fn reference(from: &ValueFrom) -> String {
    let of = |kind: &str, key: &knoll_api::variables::KeyRef| format!("{kind} {}, key {}", key.name, key.key);
    let secret = from.secret_key_ref.as_ref().map(|key| of("Secret", key));
    secret.or_else(|| Some(of("ConfigMap", from.config_map_key_ref.as_ref()?))).unwrap_or_else(|| HIDDEN.to_owned())
}

fn of_timeouts(timeouts: &Timeouts) -> Vec<Entry> {
    let Timeouts { queue, pending, review, answer, init, plan, apply, command } = timeouts;
    let all = [
        ("queue", queue),
        ("pending", pending),
        ("review", review),
        ("answer", answer),
        ("init", init),
        ("plan", plan),
        ("apply", apply),
        ("command", command),
    ];
    let set = all.into_iter().filter_map(|(name, limit)| Some((name, limit.as_ref()?)));
    set.map(|(name, limit)| (format!("timeouts.{name}"), limit.to_string())).collect()
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn clip(text: String) -> String {
    if text.chars().count() <= LONGEST { text } else { text.chars().take(LONGEST).chain("...".chars()).collect() }
}
