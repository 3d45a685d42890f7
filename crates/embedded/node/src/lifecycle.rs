//! What a pod's containers should do next: one pure function of where each of them is.

/// When a container that has ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    Always,
    /// After an exit code other than zero.
    OnFailure,
    Never,
}

impl Restart {
    /// The policy as a pod writes it; `Always` when it says nothing.
    pub fn parse(policy: Option<&str>) -> Self {
        match policy {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    fn again(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// A container's part in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the next one.
    Init,
    /// An init container that stays beside the main ones (`restartPolicy: Always`).
    Sidecar,
    /// One of the pod's own containers.
    Main,
}

/// Where a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has not been started. Next: `Active`.
    New,
    /// It starts, runs, or waits for something it needs. Next: `Ended`.
    Active { running: bool },
    /// It has ended. Next: `Active`, when it is to be started again.
    Ended { code: i32 },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// Start these for the first time, now.
    pub start: Vec<usize>,
    /// Start these again, when their back-off allows.
    pub restart: Vec<usize>,
    /// Ask these to end: the containers they stand beside are done.
    pub stop: Vec<usize>,
    /// Nothing will be started any more, and nothing runs.
    pub finished: bool,
}

/// Decides for a pod that is to run. `containers`: the init ones in order, then the main ones.
pub fn next(policy: Restart, containers: &[(Role, Progress)]) -> Next {
    let mut next = Next::default();
    let init_policy = if policy == Restart::Never { Restart::Never } else { Restart::OnFailure };
    let mut failed = false;
    for (index, (role, progress)) in containers.iter().enumerate() {
        match (role, progress) {
            (Role::Init, Progress::Ended { code: 0 }) | (Role::Sidecar, Progress::Active { running: true }) => {}
            (Role::Init | Role::Sidecar, Progress::New) => {
                next.start.push(index);
                return next;
            }
            (Role::Init | Role::Sidecar, Progress::Active { .. }) => return next,
            // A sidecar that ended is started again, but what comes after it does not wait a second time.
            (Role::Sidecar, Progress::Ended { .. }) => next.restart.push(index),
            (Role::Init, Progress::Ended { code }) => {
                if init_policy.again(*code) {
                    next.restart.push(index);
                    return next;
                }
                failed = true;
                break;
            }
            (Role::Main, _) => break,
        }
    }
    let mut done = true;
    if !failed {
        for (index, (role, progress)) in containers.iter().enumerate() {
            match (role, progress) {
                (Role::Main, Progress::New) => next.start.push(index),
                (Role::Main, Progress::Ended { code }) if policy.again(*code) => next.restart.push(index),
                (Role::Main, Progress::Active { .. }) => {}
                _ => continue,
            }
            done = false;
        }
    }
    if done {
        next.restart.clear();
        next.stop = active(containers).collect();
        next.finished = next.stop.is_empty();
    }
    next
}

/// Decides for a pod that is to end: main containers first, then those that stood beside them.
pub fn stop(containers: &[(Role, Progress)]) -> Next {
    let main: Vec<usize> = active(containers).filter(|index| containers[*index].0 != Role::Sidecar).collect();
    let stop: Vec<usize> = if main.is_empty() { active(containers).collect() } else { main };
    Next { finished: stop.is_empty(), stop, ..Next::default() }
}

fn active(containers: &[(Role, Progress)]) -> impl Iterator<Item = usize> {
    containers
        .iter()
        .enumerate()
        .filter(|(_, (_, progress))| matches!(progress, Progress::Active { .. }))
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Progress::{Active, Ended, New};
    use Restart::{Always, Never, OnFailure};
    use Role::{Init, Main, Sidecar};

    const RUNS: Progress = Active { running: true };
    const STARTS: Progress = Active { running: false };
    const OK: Progress = Ended { code: 0 };
    const BAD: Progress = Ended { code: 1 };

    fn start(start: &[usize]) -> Next {
        Next { start: start.into(), ..Next::default() }
    }

    fn restart(restart: &[usize]) -> Next {
        Next { restart: restart.into(), ..Next::default() }
    }

    fn finished() -> Next {
        Next { finished: true, ..Next::default() }
    }

    #[test]
    fn containers_go_on_as_a_kubelet_has_them() {
        for (policy, containers, expect) in [
            (Never, vec![(Main, New), (Main, New)], start(&[0, 1])),
            (Never, vec![(Init, New), (Init, New), (Main, New)], start(&[0])),
            (Never, vec![(Init, STARTS), (Init, New), (Main, New)], Next::default()),
            (Never, vec![(Init, RUNS), (Init, New), (Main, New)], Next::default()),
            (Never, vec![(Init, OK), (Init, New), (Main, New)], start(&[1])),
            (Never, vec![(Init, OK), (Init, OK), (Main, New)], start(&[2])),
            (Never, vec![(Init, BAD), (Main, New)], finished()),
            (OnFailure, vec![(Init, BAD), (Main, New)], restart(&[0])),
            (Always, vec![(Init, BAD), (Main, New)], restart(&[0])),
            (Always, vec![(Init, OK), (Main, RUNS)], Next::default()),
            (Never, vec![(Main, OK), (Main, RUNS)], Next::default()),
            (Never, vec![(Main, OK), (Main, BAD)], finished()),
            (OnFailure, vec![(Main, OK), (Main, BAD)], restart(&[1])),
            (OnFailure, vec![(Main, OK), (Main, OK)], finished()),
            (Always, vec![(Main, OK), (Main, RUNS)], restart(&[0])),
            (Never, vec![(Sidecar, New), (Main, New)], start(&[0])),
            (Never, vec![(Sidecar, STARTS), (Main, New)], Next::default()),
            (Never, vec![(Sidecar, RUNS), (Main, New)], start(&[1])),
            (Never, vec![(Sidecar, BAD), (Main, RUNS)], restart(&[0])),
            (Never, vec![(Sidecar, RUNS), (Main, OK)], Next { stop: vec![0], ..Next::default() }),
            (Never, vec![(Sidecar, OK), (Main, OK)], finished()),
            (Never, vec![(Sidecar, RUNS), (Init, BAD), (Main, New)], Next { stop: vec![0], ..Next::default() }),
        ] {
            assert_eq!(next(policy, &containers), expect, "{policy:?} {containers:?}");
        }
    }

    #[test]
    fn a_pod_that_ends_stops_its_main_containers_first() {
        for (containers, stopped) in [
            (vec![(Sidecar, RUNS), (Main, RUNS), (Main, OK)], vec![1]),
            (vec![(Sidecar, RUNS), (Main, OK)], vec![0]),
            (vec![(Init, RUNS), (Main, New)], vec![0]),
            (vec![(Init, OK), (Main, STARTS)], vec![1]),
            (vec![(Init, OK), (Main, BAD)], vec![]),
            (vec![(Main, New)], vec![]),
        ] {
            let expect = Next { finished: stopped.is_empty(), stop: stopped, ..Next::default() };
            assert_eq!(stop(&containers), expect, "{containers:?}");
        }
    }

    #[test]
    fn policies_are_read() {
        for (text, expect) in
            [(None, Always), (Some("Always"), Always), (Some("OnFailure"), OnFailure), (Some("Never"), Never)]
        {
            assert_eq!(Restart::parse(text), expect);
        }
    }
}
