//! Columns of pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, age, condition, count, list, or_none, text};

pub fn columns() -> Vec<Column> {
    vec![
        Column::name(),
        Column::text("Ready", "The aggregate readiness state of this pod for accepting traffic."),
        Column::text("Status", "The aggregate status of the containers in this pod."),
        Column::text("Restarts", "How often the containers in this pod were restarted, and when last."),
        Column::age(),
        Column::text("IP", "The address of the pod.").wide(),
        Column::text("Node", "The node that runs the pod.").wide(),
        Column::text("Nominated Node", "The node on which room is made for the pod.").wide(),
        Column::text("Readiness Gates", "How many of the conditions that readiness waits for are true.").wide(),
    ]
}

/// A finished pod says so in its row, so that it can be left out.
pub fn row_conditions(object: &Value) -> Option<Value> {
    if text(object, "/kind") != "Pod" || text(object, "/apiVersion") != "v1" {
        return None;
    }
    let (reason, message) = match text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

pub fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let state = State::of(pod);
    let restarts = match state.last_restart {
        Some(last) if state.restarts != 0 => {
            format!("{} ({} ago)", state.restarts, super::age::human(now.duration_since(last).as_secs()))
        }
        _ => state.restarts.to_string(),
    };
    let ip = match list(pod, "/status/podIPs") {
        [first, ..] => text(first, "/ip"),
        [] => text(pod, "/status/podIP"),
    };
    vec![
        json!(text(pod, "/metadata/name")),
        json!(format!("{}/{}", state.ready, state.total)),
        json!(state.reason),
        json!(restarts),
        age(pod, now),
        json!(or_none(ip)),
        json!(or_none(text(pod, "/spec/nodeName"))),
        json!(or_none(text(pod, "/status/nominatedNodeName"))),
        json!(readiness_gates(pod)),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    let open = gates.iter().filter(|gate| condition(pod, text(gate, "/conditionType")) == Some("True")).count();
    if gates.is_empty() { "<none>".to_owned() } else { format!("{open}/{}", gates.len()) }
}

/// What the containers of a pod say together.
struct State {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl State {
    fn of(pod: &Value) -> Self {
        let sidecars: Vec<_> = list(pod, "/spec/initContainers")
            .iter()
            .filter(|container| text(container, "/restartPolicy") == "Always")
            .map(|container| text(container, "/name"))
            .collect();
        let mut state = Self {
            reason: initial_reason(pod),
            ready: 0,
            total: list(pod, "/spec/containers").len() + sidecars.len(),
            restarts: 0,
            last_restart: None,
        };
        let initializing = state.init_containers(pod, &sidecars);
        if !initializing || condition(pod, "Initialized") == Some("True") {
            // From now on only the containers count that go on running, sidecars among them.
            (state.restarts, state.last_restart) = (0, None);
            let restarted = list(pod, "/status/initContainerStatuses")
                .iter()
                .filter(|status| sidecars.contains(&text(status, "/name")));
            restarted.for_each(|status| state.count_restarts(status));
            state.containers(pod);
        }
        let deleted = pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
        if deleted && text(pod, "/status/reason") == "NodeLost" {
            state.reason = "Unknown".to_owned();
        } else if deleted && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
            state.reason = "Terminating".to_owned();
        }
        state
    }

    /// Whether initialization is still going on, or failed.
    fn init_containers(&mut self, pod: &Value, sidecars: &[&str]) -> bool {
        for (at, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.count_restarts(status);
            let terminated = status.pointer("/state/terminated").filter(|state| state.is_object());
            if terminated.is_some_and(|terminated| count(terminated, "/exitCode") == 0) {
                continue;
            }
            let started = status.get("started") == Some(&Value::Bool(true));
            if sidecars.contains(&text(status, "/name")) && started {
                self.ready += usize::from(status.get("ready") == Some(&Value::Bool(true)));
                continue;
            }
            self.reason = match (terminated, text(status, "/state/waiting/reason")) {
                (Some(terminated), _) => format!("Init:{}", termination(terminated)),
                (None, "" | "PodInitializing") => {
                    format!("Init:{at}/{}", list(pod, "/spec/initContainers").len())
                }
                (None, reason) => format!("Init:{reason}"),
            };
            return true;
        }
        false
    }

    fn containers(&mut self, pod: &Value) {
        let mut running = false;
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.count_restarts(status);
            let terminated = status.pointer("/state/terminated").filter(|state| state.is_object());
            match (text(status, "/state/waiting/reason"), terminated) {
                ("", Some(terminated)) => self.reason = termination(terminated),
                ("", None) => {
                    let is_running = status.pointer("/state/running").is_some_and(Value::is_object);
                    if is_running && status.get("ready") == Some(&Value::Bool(true)) {
                        running = true;
                        self.ready += 1;
                    }
                }
                (waiting, _) => self.reason = waiting.to_owned(),
            }
        }
        // One container may be done while another goes on.
        if self.reason == "Completed" && running {
            self.reason = if condition(pod, "Ready") == Some("True") { "Running" } else { "NotReady" }.to_owned();
        }
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts = self.restarts.saturating_add(count(status, "/restartCount"));
        let finished = text(status, "/lastState/terminated/finishedAt").parse::<Timestamp>().ok();
        self.last_restart = self.last_restart.max(finished);
    }
}

fn initial_reason(pod: &Value) -> String {
    let conditions = list(pod, "/status/conditions");
    let gated = |condition: &Value| {
        text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
    };
    match text(pod, "/status/reason") {
        _ if conditions.iter().any(gated) => "SchedulingGated".to_owned(),
        "" => text(pod, "/status/phase").to_owned(),
        reason => reason.to_owned(),
    }
}

fn termination(terminated: &Value) -> String {
    match (text(terminated, "/reason"), count(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", count(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
