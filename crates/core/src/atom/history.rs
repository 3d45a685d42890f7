//! The history of an Atom: which AtomVersions are kept.

use std::cmp::Reverse;

use knoll_api::{
    AtomVersion,
    atom::{Atom, AtomPhase},
    names::label,
};
use kube::ResourceExt;

/// The version that has just reached `Running`; none when the Atom was rolled back.
#[must_use]
pub fn proven(atom: &Atom) -> Option<&str> {
    let status = atom.status.as_ref().filter(|status| status.phase == AtomPhase::Running)?;
    status.last_good_version.as_deref()
}

/// The AtomVersions that are beyond `spec.historyLimit`, the oldest last.
///
/// Only versions that carry the Atom's label belong to its history. The versions that the Atom names in its spec or in
/// its status do not count, and are never deleted.
#[must_use]
pub fn expired<'a>(atom: &Atom, versions: impl IntoIterator<Item = &'a AtomVersion>) -> Vec<&'a AtomVersion> {
    let (namespace, name) = (atom.namespace(), atom.name_any());
    let status = atom.status.as_ref();
    let used = [
        Some(&atom.spec.version),
        status.and_then(|status| status.current_version.as_ref()),
        status.and_then(|status| status.last_good_version.as_ref()),
    ];
    let is_unused = |version: &&AtomVersion| {
        version.namespace() == namespace
            && version.labels().get(label::ATOM) == Some(&name)
            && !used.contains(&version.metadata.name.as_ref())
    };
    let mut unused: Vec<&AtomVersion> = versions.into_iter().filter(is_unused).collect();
    unused.sort_by_key(|version| {
        let created = version.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Reverse(created), Reverse(version.name_any()))
    });
    let limit = usize::try_from(atom.spec.history_limit).unwrap_or(usize::MAX);
    unused.into_iter().skip(limit).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use knoll_api::{AtomSpec, AtomStatus, AtomVersionSpec};

    use super::*;

    fn atom(limit: u32, current: &str, good: &str) -> Atom {
        let spec = AtomSpec { version: "v9".to_owned(), history_limit: limit, ..AtomSpec::default() };
        let mut atom = Atom::new("web", spec);
        atom.metadata.namespace = Some("default".to_owned());
        atom.status = Some(AtomStatus {
            phase: AtomPhase::Running,
            current_version: Some(current.to_owned()),
            last_good_version: Some(good.to_owned()),
            ..AtomStatus::default()
        });
        atom
    }

    /// A version of this age, with the label of this Atom.
    fn version(name: &str, second: i64, namespace: &str, of: Option<&str>) -> AtomVersion {
        let mut version = AtomVersion::new(name, AtomVersionSpec::default());
        version.metadata.namespace = Some(namespace.to_owned());
        version.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap_or_default()));
        version.metadata.labels = of.map(|of| [(label::ATOM.to_owned(), of.to_owned())].into());
        version
    }

    #[test]
    fn the_oldest_versions_beyond_the_limit_expire() {
        let mut all: Vec<AtomVersion> =
            (1..=9).map(|number| version(&format!("v{number}"), number, "default", Some("web"))).collect();
        all.push(version("same-age", 5, "default", Some("web")));
        all.push(version("other-atom", 0, "default", Some("api")));
        all.push(version("other-namespace", 0, "shop", Some("web")));
        all.push(version("unlabelled", 0, "default", None));
        let rows: [(u32, &str, &str, &[&str]); 5] = [
            (10, "v9", "v9", &[]),
            (0, "v9", "v9", &["v8", "v7", "v6", "v5", "same-age", "v4", "v3", "v2", "v1"]),
            (7, "v9", "v9", &["v2", "v1"]),
            (6, "v9", "v1", &["v3", "v2"]),
            (6, "v3", "v1", &["v2"]),
        ];
        for (limit, current, good, expect) in rows {
            let atom = atom(limit, current, good);
            let names: Vec<String> = expired(&atom, &all).iter().map(|version| version.name_any()).collect();
            assert_eq!(names, expect, "{limit} {current} {good}");
        }
    }

    #[test]
    fn only_a_version_that_runs_is_proven() {
        let mut atom = atom(10, "v9", "v8");
        assert_eq!(proven(&atom), Some("v8"));
        for phase in [AtomPhase::Reverted, AtomPhase::Failure, AtomPhase::Pending] {
            atom.status = atom.status.map(|status| AtomStatus { phase, ..status });
            assert_eq!(proven(&atom), None, "{phase:?}");
        }
        atom.status = None;
        assert_eq!(proven(&atom), None);
    }
}
