//! A pod's status, from where its containers are: pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, HostIP,
    Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::downward::ADDRESS;
use super::lifecycle::Role;
use super::shim::files::{Cause, Exit};

/// A container of the pod.
#[derive(Clone, Debug)]
pub struct Container {
    pub name: String,
    /// Its image, which is only a word here.
    pub image: String,
    /// Its part in the pod.
    pub role: Role,
    pub state: State,
    /// How its instance before this one ended.
    pub last: Option<Ended>,
    /// How often it was started again.
    pub restarts: u32,
}

/// Where a container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Waiting {
        /// For what, in a word.
        reason: &'static str,
        /// And in a sentence.
        message: Option<String>,
    },
    Running {
        pid: i32,
        at: Timestamp,
    },
    Ended(Ended),
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The process, if there was one.
    pub pid: Option<i32>,
    /// What its shim says.
    pub exit: Exit,
    pub message: Option<String>,
}

/// What is known of a pod.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub pod: &'a Pod,
    /// Its containers: the init ones in order, then the main ones.
    pub containers: &'a [Container],
    /// When the node first saw it.
    pub start_time: Timestamp,
    /// Its volumes are there.
    pub volumes: bool,
    /// Nothing runs and nothing will.
    pub finished: bool,
    /// Why the node ended it: a reason and a sentence.
    pub verdict: Option<(&'static str, &'static str)>,
}

/// The status to report. `before` is the one reported before; what did not change keeps its time.
pub fn status(view: View<'_>, before: &PodStatus, now: Timestamp) -> PodStatus {
    let of = |wanted: fn(Role) -> bool| {
        let list: Vec<_> = view.containers.iter().filter(|c| wanted(c.role)).map(container_status).collect();
        if list.is_empty() { None } else { Some(list) }
    };
    let (reason, message) = view.verdict.map(|(reason, message)| (reason.to_owned(), message.to_owned())).unzip();
    PodStatus {
        phase: Some(phase(view).to_owned()),
        conditions: Some(conditions(view, before, now)),
        init_container_statuses: of(|role| role != Role::Main),
        container_statuses: of(|role| role == Role::Main),
        start_time: Some(Time(view.start_time)),
        host_ip: Some(ADDRESS.to_owned()),
        host_ips: Some(vec![HostIP { ip: ADDRESS.to_owned() }]),
        pod_ip: Some(ADDRESS.to_owned()),
        pod_ips: Some(vec![PodIP { ip: ADDRESS.to_owned() }]),
        reason,
        message,
        ..PodStatus::default()
    }
}

pub fn phase(view: View<'_>) -> &'static str {
    let mut main = view.containers.iter().filter(|container| container.role == Role::Main);
    if view.finished {
        let succeeded = view.verdict.is_none()
            && main.all(|container| matches!(&container.state, State::Ended(ended) if ended.exit.code == 0));
        return if succeeded { "Succeeded" } else { "Failed" };
    }
    let begun = |container: &Container| !matches!(container.state, State::Waiting { .. }) || container.last.is_some();
    if main.any(begun) { "Running" } else { "Pending" }
}

fn container_status(container: &Container) -> ContainerStatus {
    let running = matches!(container.state, State::Running { .. });
    let completed = matches!(&container.state, State::Ended(ended) if ended.exit.code == 0);
    let pid = match &container.state {
        State::Running { pid, .. } => Some(*pid),
        State::Ended(ended) => ended.pid,
        State::Waiting { .. } => container.last.as_ref().and_then(|last| last.pid),
    };
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        image_id: String::new(),
        container_id: pid.map(container_id),
        ready: running || (container.role == Role::Init && completed),
        started: Some(running),
        restart_count: i32::try_from(container.restarts).unwrap_or(i32::MAX),
        state: Some(match &container.state {
            State::Waiting { reason, message } => ContainerState {
                waiting: Some(ContainerStateWaiting { reason: Some((*reason).to_owned()), message: message.clone() }),
                ..ContainerState::default()
            },
            State::Running { at, .. } => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(Time(*at)) }),
                ..ContainerState::default()
            },
            State::Ended(ended) => terminated(ended),
        }),
        last_state: container.last.as_ref().map(terminated),
        ..ContainerStatus::default()
    }
}

fn container_id(pid: i32) -> String {
    format!("process://{pid}")
}

fn terminated(ended: &Ended) -> ContainerState {
    let Exit { code, signal, cause, started_at, finished_at } = &ended.exit;
    let (reason, why) = match cause {
        Cause::NotStarted(why) => ("StartError", Some(why.clone())),
        Cause::OutOfMemory => ("OOMKilled", None),
        Cause::Lost => (
            "ContainerStatusUnknown",
            Some(
                "The container's process was gone when the node looked for it, and nothing tells how it ended"
                    .to_owned(),
            ),
        ),
        Cause::Exited if *code == 0 => ("Completed", None),
        Cause::Exited => ("Error", None),
    };
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: ended.pid.map(container_id),
            exit_code: *code,
            signal: *signal,
            reason: Some(reason.to_owned()),
            message: why.or_else(|| ended.message.clone()),
            started_at: started_at.map(Time),
            finished_at: Some(Time(*finished_at)),
        }),
        ..ContainerState::default()
    }
}

fn conditions(view: View<'_>, before: &PodStatus, now: Timestamp) -> Vec<PodCondition> {
    let names = |wanted: &dyn Fn(&Container) -> bool| -> Vec<&str> {
        view.containers.iter().filter(|c| wanted(c)).map(|c| c.name.as_str()).collect()
    };
    let started = |container: &Container| match (&container.role, &container.state) {
        (Role::Main, _) | (Role::Sidecar, State::Running { .. } | State::Ended(_)) => true,
        (Role::Init, State::Ended(ended)) => ended.exit.code == 0,
        _ => false,
    };
    let uninitialized = names(&|container| !started(container));
    let unready = names(&|container| container.role != Role::Init && !matches!(container.state, State::Running { .. }));
    let initialized = if uninitialized.is_empty() {
        Verdict::yes(if view.finished && phase(view) == "Succeeded" { Some("PodCompleted") } else { None })
    } else {
        Verdict::no(
            "ContainersNotInitialized",
            format!("containers with incomplete status: [{}]", uninitialized.join(" ")),
        )
    };
    let ready = if view.finished && phase(view) == "Succeeded" {
        Verdict { value: false, reason: Some("PodCompleted"), message: None }
    } else if view.finished {
        Verdict { value: false, reason: Some("PodFailed"), message: None }
    } else if unready.is_empty() {
        Verdict::yes(None)
    } else {
        Verdict::no("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))
    };
    let own = [
        ("PodReadyToStartContainers", Verdict { value: view.volumes && !view.finished, reason: None, message: None }),
        ("Initialized", initialized),
        ("Ready", ready.clone()),
        ("ContainersReady", ready),
        ("PodScheduled", Verdict::yes(None)),
    ];
    // Conditions of others, a readiness gate's for example, stay as the pod has them.
    let foreign = view.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let foreign = foreign.filter(|condition| own.iter().all(|(name, _)| *name != condition.type_)).cloned();
    own.iter().map(|(name, verdict)| verdict.condition(name, before, now)).chain(foreign).collect()
}

#[derive(Clone)]
struct Verdict {
    value: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Verdict {
    fn yes(reason: Option<&'static str>) -> Self {
        Self { value: true, reason, message: None }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self { value: false, reason: Some(reason), message: Some(message) }
    }

    fn condition(&self, name: &str, before: &PodStatus, now: Timestamp) -> PodCondition {
        let status = if self.value { "True" } else { "False" };
        let since = before
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == name && condition.status == status)
            .and_then(|condition| condition.last_transition_time.clone());
        PodCondition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: self.reason.map(str::to_owned),
            message: self.message.clone(),
            last_transition_time: Some(since.unwrap_or(Time(now))),
            ..PodCondition::default()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const THEN: Timestamp = Timestamp::UNIX_EPOCH;

    fn waiting() -> State {
        State::Waiting { reason: "PodInitializing", message: None }
    }

    fn running() -> State {
        State::Running { pid: 7, at: THEN }
    }

    fn exit(code: i32, cause: Cause) -> Ended {
        let exit = Exit { code, signal: None, cause, started_at: Some(THEN), finished_at: THEN };
        Ended { pid: Some(7), exit, message: Some("last words".into()) }
    }

    fn ended(code: i32) -> State {
        State::Ended(exit(code, Cause::Exited))
    }

    fn container(name: &str, role: Role, state: State) -> Container {
        Container { name: name.into(), image: "i".into(), role, state, last: None, restarts: 0 }
    }

    /// Phase, and the status of Initialized, ContainersReady and Ready.
    fn check(finished: bool, containers: &[(Role, State)], expect: (&str, [bool; 3])) {
        let containers: Vec<_> = containers.iter().map(|(role, state)| container("c", *role, state.clone())).collect();
        let pod = Pod::default();
        let view =
            View { pod: &pod, containers: &containers, start_time: THEN, volumes: true, finished, verdict: None };
        let status = status(view, &PodStatus::default(), THEN);
        let conditions = status.conditions.unwrap();
        let is = |name: &str| conditions.iter().find(|condition| condition.type_ == name).unwrap().status == "True";
        let seen = (status.phase.unwrap(), [is("Initialized"), is("ContainersReady"), is("Ready")]);
        assert_eq!((seen.0.as_str(), seen.1), expect, "{containers:?}");
    }

    #[test]
    fn phases_and_conditions_follow_the_containers() {
        use Role::{Init, Main, Sidecar};
        check(false, &[(Main, waiting())], ("Pending", [true, false, false]));
        check(false, &[(Init, running()), (Main, waiting())], ("Pending", [false, false, false]));
        check(false, &[(Init, ended(0)), (Main, waiting())], ("Pending", [true, false, false]));
        check(false, &[(Init, ended(0)), (Main, running())], ("Running", [true, true, true]));
        check(false, &[(Main, running()), (Main, waiting())], ("Running", [true, false, false]));
        check(false, &[(Main, running()), (Main, ended(1))], ("Running", [true, false, false]));
        check(false, &[(Sidecar, running()), (Main, running())], ("Running", [true, true, true]));
        check(true, &[(Init, ended(0)), (Main, ended(0))], ("Succeeded", [true, false, false]));
        check(true, &[(Main, ended(0)), (Main, ended(2))], ("Failed", [true, false, false]));
        check(true, &[(Init, ended(1)), (Main, waiting())], ("Failed", [false, false, false]));
        check(true, &[(Main, waiting())], ("Failed", [true, false, false]));
        check(true, &[(Sidecar, ended(137)), (Main, ended(0))], ("Succeeded", [true, false, false]));
    }

    #[test]
    fn an_end_has_its_reason() {
        for (code, cause, reason, message) in [
            (0, Cause::Exited, "Completed", "last words"),
            (3, Cause::Exited, "Error", "last words"),
            (137, Cause::OutOfMemory, "OOMKilled", "last words"),
            (128, Cause::NotStarted("no such program".into()), "StartError", "no such program"),
            (137, Cause::Lost, "ContainerStatusUnknown", "was gone"),
        ] {
            let terminated = terminated(&exit(code, cause)).terminated.unwrap();
            assert_eq!((terminated.exit_code, terminated.reason.as_deref()), (code, Some(reason)));
            assert!(terminated.message.as_ref().unwrap().contains(message), "{terminated:?}");
            assert_eq!(terminated.container_id.as_deref(), Some("process://7"));
        }
    }

    #[test]
    fn a_condition_keeps_its_time_and_others_keep_theirs() {
        let mut pod = Pod::default();
        let gate = PodCondition { type_: "example.com/gate".into(), status: "True".into(), ..PodCondition::default() };
        pod.status = Some(PodStatus { conditions: Some(vec![gate.clone()]), ..PodStatus::default() });
        let at = |containers: &[Container], before: &PodStatus, now| {
            let view = View { pod: &pod, containers, start_time: THEN, volumes: true, finished: false, verdict: None };
            status(view, before, now)
        };
        let later = Timestamp::from_second(60).unwrap();
        let first = at(&[container("c", Role::Main, waiting())], &PodStatus::default(), THEN);
        assert_eq!(at(&[container("c", Role::Main, waiting())], &first, later), first);
        let second = at(&[container("c", Role::Main, running())], &first, later);
        let time = |name: &str| {
            second.conditions.iter().flatten().find(|c| c.type_ == name).unwrap().last_transition_time.clone()
        };
        assert_eq!((time("Ready"), time("Initialized")), (Some(Time(later)), Some(Time(THEN))));
        assert_eq!(second.conditions.unwrap().last(), Some(&gate));
    }
}
