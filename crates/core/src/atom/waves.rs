//! The order in which the objects of an Atom are written: objects that others need come first.

use knoll_api::atom::ObjectKey;

/// A set of objects that are written at the same time, before those of the next wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wave {
    Namespaces,
    /// CustomResourceDefinitions. The next wave waits until they are established.
    Definitions,
    /// Service accounts and RBAC.
    Access,
    /// Objects that workloads read or mount, and Services.
    Config,
    /// Pods and the controllers of pods.
    Workloads,
    /// All others, such as objects of kinds from [`Wave::Definitions`].
    Rest,
}

impl Wave {
    /// All waves in order.
    pub const ALL: [Self; 6] =
        [Self::Namespaces, Self::Definitions, Self::Access, Self::Config, Self::Workloads, Self::Rest];

    /// The wave of an object.
    #[must_use]
    pub fn of(key: &ObjectKey) -> Self {
        let group = key.api_version.split_once('/').map_or("", |(group, _)| group);
        match (group, key.kind.as_str()) {
            ("", "Namespace") => Self::Namespaces,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Definitions,
            ("", "ServiceAccount") | ("rbac.authorization.k8s.io", _) => Self::Access,
            (
                "",
                "ConfigMap"
                | "Secret"
                | "Service"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "LimitRange"
                | "ResourceQuota"
                | "Endpoints",
            )
            | ("networking.k8s.io", "NetworkPolicy")
            | ("policy" | "storage.k8s.io" | "scheduling.k8s.io", _) => Self::Config,
            ("", "Pod" | "ReplicationController") | ("apps" | "batch", _) => Self::Workloads,
            _ => Self::Rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_need_comes_first() {
        let key = |api_version: &str, kind: &str| ObjectKey {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            ..ObjectKey::default()
        };
        let order = [
            ("v1", "Namespace"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("rbac.authorization.k8s.io/v1", "Role"),
            ("v1", "ConfigMap"),
            ("apps/v1", "Deployment"),
            ("example.com/v1", "Widget"),
        ];
        let found: Vec<Wave> = order.iter().map(|(api_version, kind)| Wave::of(&key(api_version, kind))).collect();
        assert_eq!(found, Wave::ALL);
        assert_eq!(Wave::of(&key("example.com/v1", "Namespace")), Wave::Rest);
        assert_eq!(Wave::of(&key("v1", "ServiceAccount")), Wave::Access);
        assert_eq!(Wave::of(&key("batch/v1", "Job")), Wave::Workloads);
    }
}
