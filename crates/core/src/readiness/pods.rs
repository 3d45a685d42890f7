//! What the pods of a workload say about why it is not ready.

use serde_json::Value;

/// What is wrong with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// A sentence.
    pub message: String,
    /// The pod and the container whose last words say more.
    pub log_of: Option<(String, String)>,
}

/// What is wrong with these pods: the worst of it.
#[must_use]
pub fn trouble(pods: &[Value]) -> Option<Trouble> {
    let living = pods.iter().filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
    // The newest are those of the version that is waited for.
    let mut living: Vec<&Value> = living.collect();
    living.sort_by_key(|pod| std::cmp::Reverse(text(pod, "/metadata/creationTimestamp").to_owned()));
    living.iter().find_map(|pod| of_containers(pod)).or_else(|| living.iter().find_map(|pod| unscheduled(pod)))
}

fn of_containers(pod: &Value) -> Option<Trouble> {
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
        let said = match (reason, exit) {
            ("ContainerCreating" | "PodInitializing" | "", None | Some(0)) => return None,
            ("CrashLoopBackOff", Some(code)) => format!("CrashLoopBackOff, it ended with {code}"),
            ("ContainerCreating" | "PodInitializing" | "", Some(code)) => format!("it ended with {code}"),
            (reason, _) if message.is_empty() => reason.to_owned(),
            (reason, _) => format!("{reason}: {message}"),
        };
        let crashed = exit.is_some();
        let message = format!("Pod {name}, container {called}: {}", sentence(&said));
        Some(Trouble { message, log_of: if crashed { log_of() } else { None } })
    })
}

fn unscheduled(pod: &Value) -> Option<Trouble> {
    let said = super::condition(pod, "PodScheduled").filter(|said| said.status == "False")?;
    let message = format!("Pod {}: {}", text(pod, "/metadata/name"), sentence(&said.tell()));
    Some(Trouble { message, log_of: None })
}

fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
