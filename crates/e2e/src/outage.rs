//! Parts of a cluster that do not answer any more, until the test is done with it.

use std::process::Command;

use k8s_openapi::api::core::v1::Pod;

use crate::CommandResult;
use crate::processes::{Process, processes, shims};

/// Halves of all addresses: a route to each is more precise than the one to everywhere.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/1", "128.0.0.0/1"];

/// Something that does not answer. It answers again when the value is dropped.
#[derive(Debug)]
pub enum Outage {
    /// Processes that stand still.
    Frozen(Vec<Process>),
    /// The network of the pod of this process loses what is sent.
    Network(i32),
}

impl Outage {
    /// A node that neither stops the containers of a pod nor says anything of them, while they go on.
    ///
    /// # Panics
    /// If the pod has no containers on this machine.
    #[must_use]
    pub fn of_node(pod: &Pod) -> Self {
        let shims = shims(pod);
        assert!(!shims.is_empty(), "the pod has no containers here: {:?}", processes(pod));
        Self::frozen(shims)
    }

    pub(crate) fn frozen(processes: Vec<Process>) -> Self {
        processes.iter().for_each(Process::freeze);
        Outage::Frozen(processes)
    }

    /// A pod with a network of its own whose packets reach nobody.
    pub(crate) fn of_network(pod: &Pod) -> Self {
        let runner = processes(pod).into_iter().find(Process::is_runner);
        let pid = runner.unwrap_or_else(|| panic!("the pod has no runner here: {:?}", processes(pod))).pid;
        for range in EVERYWHERE {
            let _ = route(pid, "add", range).ok();
        }
        Outage::Network(pid)
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        match self {
            Outage::Frozen(processes) => processes.iter().for_each(Process::thaw),
            // The process may have ended, and its network with it.
            Outage::Network(pid) => EVERYWHERE.iter().for_each(|range| drop(route(*pid, "del", range))),
        }
    }
}

fn route(pid: i32, verb: &str, range: &str) -> CommandResult {
    let mut nsenter = Command::new("nsenter");
    nsenter.arg(format!("--net=/proc/{pid}/ns/net")).args(["ip", "route", verb, "blackhole", range]);
    CommandResult::by(&mut nsenter, "")
}
