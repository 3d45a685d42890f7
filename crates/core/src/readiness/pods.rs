//! Why the pods of a workload are not ready.

use serde_json::Value;

/// The longest part of a container's last message that is shown, in bytes.
const LONGEST: usize = 300;

/// A problem of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodProblem {
    pub message: String,
    /// The pod and the container whose log says more.
    pub log_of: Option<(String, String)>,
}

/// The worst problem of these pods; none when there is none.
#[must_use]
pub fn pod_problem(pods: &[Value]) -> Option<PodProblem> {
    let living = pods.iter().filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
    // The newest pods belong to the version that is being rolled out.
    let mut living: Vec<&Value> = living.collect();
    living.sort_by_key(|pod| std::cmp::Reverse(text(pod, "/metadata/creationTimestamp").to_owned()));
    living.iter().find_map(|pod| of_containers(pod)).or_else(|| living.iter().find_map(|pod| unscheduled(pod)))
}

fn of_containers(pod: &Value) -> Option<PodProblem> {
    let name = text(pod, "/metadata/name");
    let all = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let containers = all.iter().filter_map(|list| pod.pointer(list)?.as_array()).flatten();
    containers.filter(|container| container["ready"] != true).find_map(|container| {
        let called = text(container, "/name");
        let log_of = || Some((name.to_owned(), called.to_owned()));
        let reason = text(container, "/state/waiting/reason");
        let message = text(container, "/state/waiting/message");
        let ended = ["/lastState/terminated", "/state/terminated"].iter().find_map(|at| container.pointer(at));
        let exit = ended.and_then(|ended| ended.get("exitCode")).and_then(Value::as_i64);
        let said = ended.map(last_line).unwrap_or_default();
        let exited = |code: i64| match said.as_str() {
            "" => format!("it exited with code {code}"),
            said => format!("it exited with code {code}: {said}"),
        };
        let text = match (reason, exit) {
            ("ContainerCreating" | "PodInitializing" | "", None | Some(0)) => return None,
            ("CrashLoopBackOff", Some(code)) => format!("CrashLoopBackOff, {}", exited(code)),
            ("ContainerCreating" | "PodInitializing" | "", Some(code)) => exited(code),
            (reason, _) if message.is_empty() => reason.to_owned(),
            (reason, _) => format!("{reason}: {message}"),
        };
        let crashed = exit.is_some() && said.is_empty();
        let message = format!("Pod {name}, container {called}: {}", sentence(&text));
        Some(PodProblem { message, log_of: if crashed { log_of() } else { None } })
    })
}

/// The end of what a container, or the runtime that could not start it, left as its last message.
fn last_line(ended: &Value) -> String {
    let line = text(ended, "/message").lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    line[..line.floor_char_boundary(LONGEST)].to_owned()
}

fn unscheduled(pod: &Value) -> Option<PodProblem> {
    let scheduled = super::condition(pod, "PodScheduled").filter(|scheduled| scheduled.status == "False")?;
    let message = format!("Pod {}: {}", text(pod, "/metadata/name"), sentence(&scheduled.describe()));
    Some(PodProblem { message, log_of: None })
}

fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
