//! The copies of what the pods of a frozen job take by name.
//!
//! A kubelet reads a Secret or a ConfigMap when it starts a container, some time after the pod was created, and reads a
//! mounted one again while the container runs. So a pod of a frozen job refers to immutable Secrets of its Run that have
//! the frozen content, and to nothing that a user of the namespace can change.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, SecretEnvSource, SecretKeySelector, SecretProjection, SecretVolumeSource, Volume,
    VolumeProjection,
};
use knoll_api::names;

use super::{Reference, ReferenceKind, Usage};

/// A Secret or a ConfigMap that is copied, and the use that its copy is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CopyOf {
    pub kind: ReferenceKind,
    pub name: String,
    pub usage: Usage,
}

/// The names of the Secrets with the copies. Empty for a pod that takes everything from where it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Copies(BTreeMap<CopyOf, String>);

/// The objects that these references need, each with the keys that are used; all of them when absent.
#[must_use]
pub fn copied<'a>(references: impl Iterator<Item = &'a Reference>) -> BTreeMap<CopyOf, Option<BTreeSet<String>>> {
    let mut objects = BTreeMap::new();
    for Reference { kind, name, key, usage, optional: _ } in references {
        let keys = objects
            .entry(CopyOf { kind: *kind, name: name.clone(), usage: *usage })
            .or_insert_with(|| Some(BTreeSet::new()));
        match (key, keys.as_mut()) {
            (Some(key), Some(keys)) => {
                keys.insert(key.clone());
            }
            _ => *keys = None,
        }
    }
    objects
}

impl Copies {
    /// The names of the copies for the frozen job of this digest. That is salted, so the names tell nothing of the content.
    #[must_use]
    pub fn of(run: &str, digest: &str, objects: impl Iterator<Item = CopyOf>) -> Self {
        let job = names::job_secret(run, digest);
        Self(objects.enumerate().map(|(number, object)| (object, format!("{job}-{number}"))).collect())
    }

    /// The objects, each with the name of its copy.
    pub fn iter(&self) -> impl Iterator<Item = (&CopyOf, &str)> {
        self.0.iter().map(|(object, name)| (object, name.as_str()))
    }

    fn name(&self, kind: ReferenceKind, name: &str, usage: Usage) -> Option<String> {
        self.0.get(&CopyOf { kind, name: name.to_owned(), usage: usage.of(kind) }).cloned()
    }

    /// The variable with the copy in place of the object that it refers to.
    #[must_use]
    pub fn in_env(&self, mut variable: EnvVar) -> EnvVar {
        let Some(from) = variable.value_from.as_mut() else { return variable };
        if let Some(key) = from.secret_key_ref.as_mut()
            && let Some(copy) = self.name(ReferenceKind::Secret, &key.name, Usage::Values)
        {
            key.name = copy;
        }
        let map = from.config_map_key_ref.take_if(|key| self.has_map(&key.name, Usage::Values));
        if let Some(key) = map
            && let Some(name) = self.name(ReferenceKind::ConfigMap, &key.name, Usage::Values)
        {
            from.secret_key_ref = Some(SecretKeySelector { name, key: key.key, optional: key.optional });
        }
        variable
    }

    /// The same of all variables of an object.
    #[must_use]
    pub fn in_env_from(&self, mut from: EnvFromSource) -> EnvFromSource {
        if let Some(secret) = from.secret_ref.as_mut()
            && let Some(copy) = self.name(ReferenceKind::Secret, &secret.name, Usage::Values)
        {
            secret.name = copy;
        }
        let map = from.config_map_ref.take_if(|map| self.has_map(&map.name, Usage::Values));
        if let Some(map) = map
            && let Some(name) = self.name(ReferenceKind::ConfigMap, &map.name, Usage::Values)
        {
            from.secret_ref = Some(SecretEnvSource { name, optional: map.optional });
        }
        from
    }

    /// The same of the files of a volume.
    #[must_use]
    pub fn in_volume(&self, mut volume: Volume) -> Volume {
        if let Some(secret) = volume.secret.as_mut()
            && let Some(name) = secret.secret_name.as_deref()
            && let Some(copy) = self.name(ReferenceKind::Secret, name, Usage::Files)
        {
            secret.secret_name = Some(copy);
        }
        let map = volume.config_map.take_if(|map| self.has_map(&map.name, Usage::Files));
        if let Some(map) = map {
            volume.secret = Some(SecretVolumeSource {
                secret_name: self.name(ReferenceKind::ConfigMap, &map.name, Usage::Files),
                default_mode: map.default_mode,
                items: map.items,
                optional: map.optional,
            });
        }
        let projected = volume.projected.iter_mut().flat_map(|projected| projected.sources.iter_mut().flatten());
        projected.for_each(|source| self.in_projection(source));
        volume
    }

    fn in_projection(&self, source: &mut VolumeProjection) {
        if let Some(secret) = source.secret.as_mut()
            && let Some(copy) = self.name(ReferenceKind::Secret, &secret.name, Usage::Files)
        {
            secret.name = copy;
        }
        let map = source.config_map.take_if(|map| self.has_map(&map.name, Usage::Files));
        if let Some(map) = map
            && let Some(name) = self.name(ReferenceKind::ConfigMap, &map.name, Usage::Files)
        {
            source.secret = Some(SecretProjection { name, items: map.items, optional: map.optional });
        }
    }

    fn has_map(&self, name: &str, usage: Usage) -> bool {
        self.name(ReferenceKind::ConfigMap, name, usage).is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeSet;

    use knoll_api::pod::PodSettings;
    use serde_json::{Value, json};

    use super::*;
    use crate::run::frozen::references;

    /// The settings of a pod in every form in which it takes something by name.
    fn settings() -> PodSettings {
        serde_json::from_value(json!({
            "env": [
                {"name": "PLAIN", "value": "1"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": true}}},
            ],
            "envFrom": [
                {"prefix": "P_", "configMapRef": {"name": "m", "optional": true}},
                {"secretRef": {"name": "t"}},
            ],
            "volumes": [
                {"name": "a", "secret": {"secretName": "s", "defaultMode": 256}},
                {"name": "b", "configMap": {"name": "m", "items": [{"key": "k", "path": "p"}], "defaultMode": 292}},
                {"name": "c", "projected": {"sources": [
                    {"secret": {"name": "s"}},
                    {"configMap": {"name": "n", "optional": true, "items": [{"key": "k", "path": "p", "mode": 256}]}},
                    {"serviceAccountToken": {"path": "token"}},
                ]}},
                {"name": "d", "emptyDir": {}},
            ],
        }))
        .unwrap()
    }

    #[test]
    fn a_copy_has_what_is_used_and_no_more() {
        let found = references(&settings(), &[]).unwrap();
        let keys = |keys: Option<BTreeSet<String>>| keys.map(|keys| keys.into_iter().collect::<Vec<_>>().join(","));
        let found: Vec<_> = copied(found.iter())
            .into_iter()
            .map(|(CopyOf { kind, name, usage }, wanted)| (format!("{kind:?}/{name} {usage:?}"), keys(wanted)))
            .collect();
        let all = |name: &str| (name.to_owned(), None);
        assert_eq!(
            found,
            [
                all("ConfigMap/m Values"),
                all("ConfigMap/m Files"),
                all("ConfigMap/n Files"),
                all("Secret/s Files"),
                all("Secret/t Files"),
            ]
        );
        // Only keys are used of this one.
        let env = json!({"env": [
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "l"}}},
        ]});
        let found = references(&serde_json::from_value(env).unwrap(), &[]).unwrap();
        let wanted: Vec<_> = copied(found.iter()).into_values().map(keys).collect();
        assert_eq!(wanted, [Some("k,l".to_owned())]);
    }

    /// A user could change a ConfigMap between the creation of the apply pod and the start of its container.
    #[test]
    fn a_pod_refers_to_copies_alone() {
        let settings = settings();
        let found = references(&settings, &[]).unwrap();
        let copies = Copies::of("r", "sha256:0123456789abcdef0", copied(found.iter()).into_keys());
        let name = |number: usize| format!("knoll-job-r-0123456789abcdef-{number}");
        assert_eq!(copies.iter().map(|(_, name)| name).collect::<Vec<_>>(), (0..5).map(name).collect::<Vec<_>>());
        let json = |value: Vec<Value>| Value::Array(value);
        let env = settings.env.iter().map(|it| serde_json::to_value(copies.in_env(it.clone())).unwrap()).collect();
        assert_eq!(
            json(env),
            json!([
                {"name": "PLAIN", "value": "1"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": name(3), "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": name(0), "key": "k", "optional": true}}},
            ])
        );
        let from = settings.env_from.iter();
        let from = from.map(|it| serde_json::to_value(copies.in_env_from(it.clone())).unwrap()).collect();
        assert_eq!(
            json(from),
            json!([
                {"prefix": "P_", "secretRef": {"name": name(0), "optional": true}},
                {"secretRef": {"name": name(4)}},
            ])
        );
        let volumes = settings.volumes().unwrap().into_iter();
        let volumes = volumes.map(|it| serde_json::to_value(copies.in_volume(it)).unwrap()).collect();
        assert_eq!(
            json(volumes),
            json!([
                {"name": "a", "secret": {"secretName": name(3), "defaultMode": 256}},
                {"name": "b", "secret": {"secretName": name(1), "items": [{"key": "k", "path": "p"}], "defaultMode": 292}},
                {"name": "c", "projected": {"sources": [
                    {"secret": {"name": name(3)}},
                    {"secret": {"name": name(2), "optional": true, "items": [{"key": "k", "path": "p", "mode": 256}]}},
                    {"serviceAccountToken": {"path": "token"}},
                ]}},
                {"name": "d", "emptyDir": {}},
            ])
        );
        // Without copies, everything stays where it is.
        for volume in settings.volumes().unwrap() {
            assert_eq!(Copies::default().in_volume(volume.clone()), volume);
        }
    }
}
