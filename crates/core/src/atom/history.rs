//! The history of an Atom: which AtomVersions are kept.

use std::cmp::Reverse;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
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

/// The version that was rolled back, and since when; none while an update is under way or runs.
#[must_use]
pub fn reverted(atom: &Atom) -> Option<(&str, &MicroTime)> {
    let is_undone = |phase| matches!(phase, AtomPhase::Reverted | AtomPhase::Failure);
    let status = atom.status.as_ref().filter(|status| is_undone(status.phase))?;
    Some((status.target_version.as_deref()?, status.started_at.as_ref()?))
}

/// Whether another Atom names the version in its spec or in its status.
#[must_use]
pub fn is_used_by_others(atom: &Atom, version: &str, atoms: &[Atom]) -> bool {
    let others = atoms.iter().filter(|other| other.metadata.name != atom.metadata.name);
    others.flat_map(named).any(|name| name == version)
}

/// The versions that an Atom names in its spec or in its status.
fn named(atom: &Atom) -> impl Iterator<Item = &String> {
    let of_status = atom.status.iter().flat_map(|status| [&status.current_version, &status.last_good_version]);
    std::iter::once(&atom.spec.version).chain(of_status.flatten())
}

/// The AtomVersions that are beyond `spec.historyLimit`, the oldest last.
///
/// Only versions that carry the Atom's label belong to its history. The versions that the Atom names in its spec or in
/// its status do not count, and are never deleted.
#[must_use]
pub fn expired<'a>(atom: &Atom, versions: impl IntoIterator<Item = &'a AtomVersion>) -> Vec<&'a AtomVersion> {
    let (namespace, name) = (atom.namespace(), atom.name_any());
    let used: Vec<&String> = named(atom).collect();
    let is_unused = |version: &&AtomVersion| {
        version.namespace() == namespace
            && version.labels().get(label::ATOM) == Some(&name)
            && !used.contains(&&version.name_any())
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
    fn a_version_that_another_atom_names_is_used() {
        let mut other = atom(10, "v2", "v1");
        other.metadata.name = Some("other".to_owned());
        other.spec.version = "v3".to_owned();
        let atoms = [atom(10, "v9", "v9"), other];
        let used: Vec<bool> = ["v1", "v2", "v3", "v9", "v4"]
            .map(|version| is_used_by_others(&atom(10, "v9", "v9"), version, &atoms))
            .to_vec();
        assert_eq!(used, [true, true, true, false, false]);
    }

    #[test]
    fn only_a_version_that_was_undone_is_reverted() {
        let since = MicroTime(Timestamp::UNIX_EPOCH);
        let mut atom = atom(10, "v8", "v8");
        let rows = [
            (AtomPhase::Reverted, Some("v9")),
            (AtomPhase::Failure, Some("v9")),
            (AtomPhase::Rollback, None),
            (AtomPhase::Running, None),
            (AtomPhase::Pending, None),
        ];
        for (phase, expect) in rows {
            let (target_version, started_at) = (Some("v9".to_owned()), Some(since.clone()));
            atom.status = Some(AtomStatus { phase, target_version, started_at, ..AtomStatus::default() });
            assert_eq!(reverted(&atom), expect.map(|version| (version, &since)), "{phase:?}");
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
