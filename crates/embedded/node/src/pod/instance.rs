//! A container of a pod, and its present instance.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};
use nix::sys::signal::Signal;
use tokio::time::Instant;

use super::message;
use crate::container::{Event, Shim};
use crate::lifecycle::{Progress, Role};
use crate::shim::files::Exit;
use crate::status::{self, Ended};

/// A container's first restart is immediate, the second waits that long, each further one twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// No restart waits longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// A container that ran that long starts over.
const LONG_RUN: Duration = Duration::from_secs(600);

/// Where an instance is.
#[derive(Clone, Debug)]
pub enum Stage {
    /// Its turn has not come. Next: `Preparing`.
    New,
    /// What it needs is gathered, then its process is started. Next: `Running` or `Ended`.
    Preparing {
        /// What stands in the way.
        trouble: Option<String>,
    },
    /// Its process runs. Next: `Ended`.
    Running { pid: i32, at: Timestamp },
    /// It has ended. Next: a new instance, if its policy says so.
    Ended(Ended),
}

pub struct Instance {
    /// What the pod says about it.
    pub spec: Container,
    /// Its part in the pod.
    pub role: Role,
    /// The number of the instance.
    pub attempt: u32,
    pub stage: Stage,
    /// How the instance before ended.
    pub last: Option<Ended>,
    pub shim: Option<Shim>,
    /// When it is started again.
    pub restart_at: Option<Instant>,
    /// How long restarts wait.
    pub back_off: BackOff,
    /// It has had its SIGTERM.
    pub told_to_end: bool,
}

impl Instance {
    /// The containers of a pod: the init ones in order, then the main ones.
    pub fn all(pod: &Pod) -> Vec<Self> {
        let Some(spec) = &pod.spec else {
            return Vec::new();
        };
        let init = spec.init_containers.iter().flatten().map(|container| {
            let stays = container.restart_policy.as_deref() == Some("Always");
            (container, if stays { Role::Sidecar } else { Role::Init })
        });
        let main = spec.containers.iter().map(|container| (container, Role::Main));
        init.chain(main)
            .map(|(spec, role)| Self {
                spec: spec.clone(),
                role,
                attempt: 0,
                stage: Stage::New,
                last: None,
                shim: None,
                restart_at: None,
                back_off: BackOff::default(),
                told_to_end: false,
            })
            .collect()
    }

    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Where it is, for deciding.
    pub fn progress(&self) -> Progress {
        match &self.stage {
            Stage::New => Progress::New,
            Stage::Preparing { .. } => Progress::Active { running: false },
            Stage::Running { .. } => Progress::Active { running: true },
            Stage::Ended(ended) => Progress::Ended { code: ended.exit.code },
        }
    }

    /// Notes what stands in its way, if it is on its way.
    pub fn wait(&mut self, message: &str) {
        if let Stage::Preparing { trouble } = &mut self.stage {
            *trouble = Some(message.to_owned());
        }
    }

    /// Whether the pause before its next instance is over; asked for the first time, the pause begins.
    pub fn restart_due(&mut self, now: Instant) -> bool {
        let ran = self.ran_for();
        *self.restart_at.get_or_insert_with(|| now + self.back_off.next(ran)) <= now
    }

    /// It could not even be tried.
    pub fn fail(&mut self, why: String) {
        self.stage = Stage::Ended(Ended { pid: None, exit: Exit::not_started(why), message: None });
    }

    pub fn begin_again(&mut self) {
        if let Stage::Ended(ended) = &self.stage {
            self.last = Some(ended.clone());
        }
        self.stage = Stage::New;
        self.attempt += 1;
        self.shim = None;
        self.restart_at = None;
        self.told_to_end = false;
    }

    /// How long the instance ran that has ended.
    pub fn ran_for(&self) -> Duration {
        let Stage::Ended(Ended { exit: Exit { started_at: Some(start), finished_at, .. }, .. }) = &self.stage else {
            return Duration::ZERO;
        };
        finished_at.duration_since(*start).try_into().unwrap_or_default()
    }

    /// Sends its process a signal, if there is one or may be soon.
    pub fn signal(&self, signal: Signal) {
        if let (Some(shim), Progress::Active { .. }) = (&self.shim, self.progress()) {
            shim.signal(signal);
        }
    }

    /// Takes in what its shim says.
    pub fn hear(&mut self, event: Event, folder: &Path, stopping: bool) {
        match event {
            Event::Started(started) => self.stage = Stage::Running { pid: started.pid, at: started.at },
            Event::Exited(exit) => {
                let ended = message::ended(folder, &self.spec);
                self.stage = Stage::Ended(ended.unwrap_or(Ended { pid: None, exit, message: None }));
                self.shim = None;
            }
            Event::Abandoned => {
                self.shim = None;
                if stopping {
                    self.stage = Stage::New;
                } else {
                    self.fail(message::shim_error(folder));
                }
            }
        }
    }

    /// Takes over what the pod's status says about an instance of which nothing is left on disk.
    pub fn recall(&mut self, status: &PodStatus) {
        let statuses = status.container_statuses.iter().chain(status.init_container_statuses.iter()).flatten();
        let Some(known) = statuses.into_iter().find(|status| status.name == self.name()) else {
            return;
        };
        let ContainerStatus { state: Some(state), restart_count, .. } = known else {
            return;
        };
        self.attempt = u32::try_from(*restart_count).unwrap_or(0);
        let exit = if let Some(ended) = &state.terminated {
            Exit {
                code: ended.exit_code,
                started_at: ended.started_at.as_ref().map(|time| time.0),
                finished_at: ended.finished_at.as_ref().map_or_else(Timestamp::now, |time| time.0),
                cause: crate::shim::files::Cause::Exited,
                signal: ended.signal,
            }
        } else if let Some(running) = &state.running {
            Exit::lost(running.started_at.as_ref().map(|time| time.0))
        } else {
            return;
        };
        self.stage = Stage::Ended(Ended { pid: None, exit, message: None });
    }

    /// The containers as the status shows them.
    pub fn describe(instances: &[Self], trouble: Option<&str>, pod: &str) -> Vec<status::Container> {
        let initializing = instances.iter().any(|instance| match instance.role {
            Role::Init => !matches!(instance.progress(), Progress::Ended { code: 0 }),
            Role::Sidecar => matches!(instance.progress(), Progress::New | Progress::Active { running: false }),
            Role::Main => false,
        });
        instances.iter().map(|instance| instance.description(initializing, trouble, pod)).collect()
    }

    fn description(&self, initializing: bool, pod_trouble: Option<&str>, pod: &str) -> status::Container {
        let waiting = |reason, message| status::State::Waiting { reason, message };
        let mut last = self.last.clone();
        let state = match &self.stage {
            Stage::Preparing { trouble: Some(trouble) } => waiting("CreateContainerConfigError", Some(trouble.clone())),
            Stage::New if pod_trouble.is_some() => {
                waiting("CreateContainerConfigError", pod_trouble.map(str::to_owned))
            }
            Stage::New | Stage::Preparing { trouble: None } => {
                waiting(if initializing { "PodInitializing" } else { "ContainerCreating" }, None)
            }
            Stage::Running { pid, at } => status::State::Running { pid: *pid, at: *at },
            Stage::Ended(ended) if self.restart_at.is_some() => {
                last = Some(ended.clone());
                let pause = self.back_off.pause.as_secs();
                let message = format!("back-off {pause}s restarting failed container={} pod={pod}", self.name());
                waiting("CrashLoopBackOff", Some(message))
            }
            Stage::Ended(ended) => status::State::Ended(ended.clone()),
        };
        status::Container {
            name: self.name().to_owned(),
            image: self.spec.image.clone().unwrap_or_default(),
            role: self.role,
            state,
            last,
            restarts: self.attempt,
        }
    }

    /// Somebody may wait for this: every main container runs or has ended, or something stands in the way.
    pub fn settled(instances: &[Self]) -> bool {
        let trouble = |instance: &Self| {
            matches!(instance.stage, Stage::Preparing { trouble: Some(_) }) || instance.restart_at.is_some()
        };
        let begun = |instance: &Self| matches!(instance.stage, Stage::Running { .. } | Stage::Ended(_));
        instances.iter().any(trouble) || instances.iter().filter(|instance| instance.role == Role::Main).all(begun)
    }
}

/// How long a container's restarts wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackOff {
    pub pause: Duration,
    restarts: u32,
}

impl BackOff {
    /// The wait before the next restart of a container that ran that long.
    pub fn next(&mut self, ran: Duration) -> Duration {
        if ran >= LONG_RUN {
            *self = Self::default();
        }
        self.pause = match self.restarts {
            0 => Duration::ZERO,
            n => FIRST_PAUSE.saturating_mul(1 << (n - 1).min(10)).min(LONGEST_PAUSE),
        };
        self.restarts += 1;
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_wait_longer_and_longer_until_one_runs_long() {
        let mut back_off = BackOff::default();
        let short = Duration::from_secs(1);
        let seconds: Vec<u64> = (0..8).map(|_| back_off.next(short).as_secs()).collect();
        assert_eq!(seconds, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(back_off.next(LONG_RUN).as_secs(), 0);
        assert_eq!(back_off.next(short).as_secs(), 10);
    }
}
