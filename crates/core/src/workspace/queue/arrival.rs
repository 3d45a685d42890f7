//! The order in which Runs were created, also within one second.
//!
//! *Guarantee.* The order of two Runs that the operator has written to does not change any more, whoever writes to them
//! and however often the operator is restarted.
//!
//! *Assumption.* The `resourceVersion`s of one kind are integers that grow, as Kubernetes declares since 1.35. Where one
//! cannot be read as such, names decide.

use jiff::Timestamp;
use knoll_api::run::{Run, RunStatus};

/// The place of a Run in the order of creation. Names break ties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// Kubernetes records whole seconds.
    created: Timestamp,
    /// The `resourceVersion` with which the Run was created; none if it is not known.
    version: Option<u64>,
}

impl Arrival {
    /// The place of a Run that was created at this time, by a write with this `resourceVersion`.
    #[must_use]
    pub fn new(created: Timestamp, version: Option<u64>) -> Self {
        Self { created, version }
    }

    /// The place of a Run. Nobody but users has written to a Run without a status, so its own `resourceVersion` counts.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        let created = run.metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or_default();
        let version = match &run.status {
            Some(status) => status.created_version.as_deref(),
            None => run.metadata.resource_version.as_deref(),
        };
        Self { created, version: version.and_then(|version| version.parse().ok()) }
    }
}

/// Records the place of a Run with the first write to its status: every later write has another `resourceVersion`.
pub(crate) fn record(status: &mut RunStatus, run: &Run) {
    if run.status.is_none() {
        status.created_version.clone_from(&run.metadata.resource_version);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use knoll_api::run::{Operation, RunPhase, RunSpec};
    use kube::ResourceExt;
    use proptest::prelude::*;

    use super::*;
    use crate::run::status::{self, Cause};

    fn run(name: &str, second: i64, version: u64) -> Run {
        let mut run = Run::new(name, RunSpec { operation: Operation::Apply, ..RunSpec::default() });
        run.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        run.metadata.resource_version = Some(version.to_string());
        run.metadata.generation = Some(1);
        run
    }

    /// Writes the status of a Run, as the operator does.
    fn write(run: &mut Run, version: u64, phase: RunPhase) {
        let mut next = status::of(run);
        status::enter(&mut next, run, phase, &Cause::new("Test", "It was written."), Timestamp::UNIX_EPOCH);
        run.status = Some(next);
        run.metadata.resource_version = Some(version.to_string());
    }

    fn names(runs: &[Run]) -> Vec<String> {
        let mut runs: Vec<&Run> = runs.iter().collect();
        runs.sort_by_key(|run| (Arrival::of(run), run.name_any()));
        runs.iter().map(|run| run.name_any()).collect()
    }

    proptest! {
        /// Runs are created in some order, many in one second, under any names, and the operator writes to any of them in
        /// between, in any order.
        #[test]
        fn the_order_is_that_of_creation_whoever_is_written_to(
            steps in prop::collection::vec((0u8..3, any::<prop::sample::Index>(), any::<u16>()), 1..120),
        ) {
            let (mut second, mut version) = (0, 90);
            let (mut runs, mut created): (Vec<Run>, Vec<String>) = (Vec::new(), Vec::new());
            for (step, index, salt) in steps {
                version += 7;
                if step == 0 || runs.is_empty() {
                    second += i64::from(salt % 5 == 0);
                    let name = format!("{salt}-{version}");
                    runs.push(run(&name, second, version));
                    created.push(name);
                } else {
                    let at = index.index(runs.len());
                    write(&mut runs[at], version, if step == 1 { RunPhase::Queued } else { RunPhase::Pending });
                }
                prop_assert_eq!(&names(&runs), &created);
            }
        }
    }

    #[test]
    fn versions_are_compared_as_numbers_and_names_decide_where_there_are_none() {
        let mut opaque = run("c", 1, 0);
        opaque.metadata.resource_version = Some("W/3f".to_owned());
        let mut earlier = run("b", 1, 0);
        earlier.status = Some(RunStatus { phase: RunPhase::Queued, ..RunStatus::default() });
        let runs = [run("z", 1, 99), run("y", 1, 100), run("a", 2, 5), opaque, earlier];
        assert_eq!(names(&runs), ["b", "c", "z", "y", "a"]);
    }
}
