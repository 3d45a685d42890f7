//! Collects diagnostics for a test that timed out.

use crate::World;

/// Runs, Workspaces, pods, events and logs of a namespace, and the end of the operator's log.
pub fn of(world: &World, namespace: &str) -> String {
    let ask = |words: &[&str]| {
        let said = world.kubectl(&[&["--namespace", namespace], words].concat());
        format!("$ {}\n{}{}\n", said.words, said.stdout, said.stderr)
    };
    let mut text = String::new();
    text += &ask(&["get", "runs,workspaces,approvals,pods", "-o", "wide"]);
    text += &ask(&["get", "runs", "-o", "jsonpath={range .items[*]}{.metadata.name}: {.status}{\"\\n\"}{end}"]);
    text += &ask(&["get", "events", "--sort-by", ".metadata.creationTimestamp"]);
    let pods = world.kubectl(&["--namespace", namespace, "get", "pods", "-o", "name"]).stdout;
    for pod in pods.lines() {
        text += &ask(&["logs", pod, "--all-containers", "--tail", "40"]);
    }
    text + "the operator:\n" + &world.operator_log()
}
