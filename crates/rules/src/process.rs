//! Starts the process that evaluates rules, and waits for it within limits.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::request::{Finding, Report, RuleSet};

/// The memory of one process: the JSON of the largest plan and what rules make of it.
pub(crate) const MEMORY: u64 = 448 << 20;
/// The processor time of one process.
pub(crate) const CPU_TIME: Duration = Duration::from_secs(10);
/// How long one process may take, also on a machine that is busy.
const TIME: Duration = Duration::from_secs(40);
/// How many processes exist at a time: they share the memory of the operator.
const PROCESSES: usize = 2;
/// How many of them one Policy has at a time, so that its endless rules hold up no other Policy; and one namespace, so
/// that its large plans do not.
const SHARE: usize = 1;
/// The largest output: all results of all rules fit into it.
const LARGEST_OUTPUT: u64 = 8 << 20;
/// The largest part of the standard error that is searched for the reason of an end.
const LARGEST_ERROR: u64 = 64 << 10;
/// This process, even when its file has been replaced.
const SELF: &str = "/proc/self/exe";

/// Evaluates rules in processes of their own. Clones share the number of processes.
#[derive(Clone, Debug)]
pub struct Evaluator {
    program: PathBuf,
    processes: Arc<Semaphore>,
    /// The places of each Policy and of each namespace.
    shares: Arc<Mutex<HashMap<Owner, Arc<Semaphore>>>>,
}

/// Who has a share of the places.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Namespace(String),
    Policy(String),
}

/// A place of one process, until it is dropped.
#[derive(Debug)]
pub struct Place {
    _shares: [Option<OwnedSemaphorePermit>; 2],
    _all: Option<OwnedSemaphorePermit>,
}

impl Default for Evaluator {
    /// The process is this program, with [`crate::CHILD`] as its argument.
    fn default() -> Self {
        Self::of(SELF)
    }
}

impl Evaluator {
    /// The process is this program, with [`crate::CHILD`] as its argument.
    #[must_use]
    pub fn of(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), processes: Arc::new(Semaphore::new(PROCESSES)), shares: Arc::default() }
    }

    /// The same program with one process of its own at a time, whatever others evaluate.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self { program: self.program.clone(), processes: Arc::new(Semaphore::new(1)), shares: Arc::default() }
    }

    /// Waits for a place to evaluate the rules of this Policy on a plan of this namespace. One plan of each namespace is in
    /// the line, so whoever waits does so for at most one evaluation of each namespace before it.
    pub async fn place(&self, namespace: &str, policy: &str) -> Place {
        // The semaphores are never closed, so there always is a place in the end.
        let of_namespace = self.share(Owner::Namespace(namespace.to_owned())).acquire_owned().await.ok();
        let of_policy = self.share(Owner::Policy(policy.to_owned())).acquire_owned().await.ok();
        let all = Arc::clone(&self.processes).acquire_owned().await.ok();
        Place { _shares: [of_namespace, of_policy], _all: all }
    }

    fn share(&self, owner: Owner) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever waits for a share or has one holds it, too.
        shares.retain(|_, share| Arc::strong_count(share) > 1);
        shares.entry(owner).or_insert_with(|| Arc::new(Semaphore::new(SHARE))).clone()
    }

    /// The objections of rules to a plan, evaluated in this place. A rule without a result is among them, as failed.
    pub async fn findings(&self, _place: &Place, set: &RuleSet, plan: Bytes) -> Vec<Finding> {
        let Ok(mut rules) = serde_json::to_vec(set) else {
            return vec![Finding::failure("", "its rules cannot be written as JSON. Correct them")];
        };
        rules.push(b'\n');
        let mut child = match self.start() {
            Ok(child) => child,
            Err(error) => {
                tracing::warn!(%error, "the process that evaluates rules cannot be started");
                return vec![Finding::failure("", "the process that evaluates rules cannot be started. Run it again")];
            }
        };
        let (mut output, mut error) = (Vec::new(), Vec::new());
        let work = exchange(&mut child, &rules, &plan, &mut output, &mut error);
        let status = match tokio::time::timeout(TIME, work).await {
            Ok(Ok(status)) => Some(status),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the process that evaluates rules cannot be read");
                None
            }
            Err(_) => None,
        };
        if status.is_none() {
            let _ = child.kill().await;
        }
        read(&output, &error, status)
    }

    fn start(&self) -> std::io::Result<Child> {
        Command::new(&self.program)
            .arg(crate::CHILD)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }
}

/// Sends the rules and the plan, and reads the output and the standard error until the end. What was read until then is
/// there also when nobody waits for the end.
async fn exchange(
    child: &mut Child,
    rules: &[u8],
    plan: &[u8],
    output: &mut Vec<u8>,
    error: &mut Vec<u8>,
) -> std::io::Result<ExitStatus> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let send = async {
        if let Some(mut stdin) = stdin {
            // A process that has ended reads no more; its end says why.
            let _ = stdin.write_all(rules).await;
            let _ = stdin.write_all(plan).await;
            let _ = stdin.shutdown().await;
        }
    };
    let receive = async {
        match stdout {
            Some(stdout) => stdout.take(LARGEST_OUTPUT).read_to_end(output).await,
            None => Ok(0),
        }
    };
    let complain = async {
        match stderr {
            Some(stderr) => stderr.take(LARGEST_ERROR).read_to_end(error).await,
            None => Ok(0),
        }
    };
    let ((), received, complained) = tokio::join!(send, receive, complain);
    received?;
    complained?;
    child.wait().await
}

/// The findings that a process has reported, and the rule that ended it. Its standard error is shown nowhere: it could have
/// values of the plan.
fn read(output: &[u8], error: &[u8], status: Option<ExitStatus>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut begun = String::new();
    for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(Report::Begun(rule)) => begun = rule,
            Ok(Report::Found(finding)) => found.push(finding),
            Ok(Report::Done) => return found,
            Err(_) => break,
        }
    }
    found.push(Finding::failure(&begun, reason(error, status)));
    found
}

/// Why a process ended before its work was done.
fn reason(error: &[u8], status: Option<ExitStatus>) -> String {
    let error = String::from_utf8_lossy(error);
    let of_time = || format!("it takes longer than {} s. Make it do less work", CPU_TIME.as_secs());
    if error.contains("memory allocation of") || error.contains("failed to spawn thread") {
        return format!("it needs more than {} MiB of memory. Make it do less work", MEMORY >> 20);
    }
    if error.contains("overflowed its stack") {
        return "it nests too deep. Make it flatter".to_owned();
    }
    match status {
        None => of_time(),
        Some(status) if is_killed(status) => of_time(),
        Some(status) => format!("its evaluation broke off ({status}). Change the rule"),
    }
}

/// Whether the process was killed as its processor time was used up.
fn is_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    const SIGXCPU: i32 = 24;
    const SIGKILL: i32 = 9;
    matches!(status.signal(), Some(SIGXCPU | SIGKILL))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::PermissionsExt;

    use knoll_api::policy::PlanRule;

    use super::*;

    /// An evaluator whose rules named `endless` never end.
    fn evaluator() -> Evaluator {
        let program = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o700)).tempfile().unwrap();
        let script = "#!/bin/sh\nread -r rules\ncase $rules in *endless*) exec tail -f /dev/null ;; esac\ncat > /dev/null\necho '\"done\"'\n";
        std::fs::write(program.path(), script).unwrap();
        Evaluator::of(program.into_temp_path().keep().unwrap())
    }

    fn set(name: &str) -> RuleSet {
        RuleSet { rules: vec![PlanRule { name: name.to_owned(), ..PlanRule::default() }], ..RuleSet::default() }
    }

    async fn evaluate(evaluator: &Evaluator, namespace: &str, policy: &str, rule: &str) -> Vec<Finding> {
        let place = evaluator.place(namespace, policy).await;
        evaluator.findings(&place, &set(rule), Bytes::new()).await
    }

    /// Runs of one Policy with endless rules took all places, and the plans of all others were denied for want of time.
    #[tokio::test(flavor = "multi_thread")]
    async fn endless_rules_of_one_policy_held_up_all_others() {
        let evaluator = evaluator();
        let namespaces = ["a", "b", "c", "d"];
        let endless = namespaces.map(|namespace| evaluate(&evaluator, namespace, "bad", "endless"));
        let others = async {
            for _ in 0..3 {
                assert_eq!(evaluate(&evaluator, "e", "good", "quick").await, []);
            }
        };
        tokio::select! {
            biased;
            _ = futures::future::join_all(endless) => panic!("an endless rule has ended"),
            () = others => {}
        }
        let _ = std::fs::remove_file(&evaluator.program);
    }

    /// Many slow plans of one namespace, judged by several Policies, took all places.
    #[tokio::test(flavor = "multi_thread")]
    async fn slow_plans_of_one_namespace_held_up_all_others() {
        let evaluator = evaluator();
        let policies = ["p", "q", "r", "s"];
        let endless = policies.map(|policy| evaluate(&evaluator, "slow", policy, "endless"));
        let others = async {
            for _ in 0..3 {
                assert_eq!(evaluate(&evaluator, "other", "s", "quick").await, []);
            }
        };
        tokio::select! {
            biased;
            _ = futures::future::join_all(endless) => panic!("an endless rule has ended"),
            () = others => {}
        }
        let _ = std::fs::remove_file(&evaluator.program);
    }

    /// They stood in one line, so that a namespace with many plans went first with all of them.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_plan_waited_for_every_plan_of_another_namespace_before_it() {
        let evaluator = evaluator();
        let first = evaluator.place("many", "p").await;
        let mut many: Vec<_> = (0..3).map(|_| Box::pin(evaluator.place("many", "p"))).collect();
        let mut other = Box::pin(evaluator.place("other", "p"));
        for waiting in &mut many {
            assert!(futures::poll!(waiting).is_pending());
        }
        assert!(futures::poll!(&mut other).is_pending());
        drop(first);
        assert!(futures::poll!(&mut many[0]).is_pending(), "another namespace is next");
        let place = tokio::time::timeout(TIME, other).await.unwrap();
        drop(place);
        let _ = tokio::time::timeout(TIME, &mut many[0]).await.unwrap();
    }

    #[test]
    fn the_rule_that_ends_the_process_has_failed() {
        let output = b"{\"begun\":\"a\"}\n{\"begun\":\"b\"}\n{\"found\":{\"rule\":\"b\",\"action\":\"Warn\",\"message\":\"m\",\"addresses\":[],\"omitted\":0,\"failed\":false}}\n{\"begun\":\"c\"}\n";
        let found = read(output, b"memory allocation of 8 bytes failed", None);
        assert_eq!(found.len(), 2);
        assert!(found[1].failed && found[1].rule == "c" && found[1].message.contains("448 MiB"), "{found:?}");
        assert!(read(b"nonsense", b"", None)[0].message.contains("longer than 10 s"));
        assert_eq!(read(b"\"done\"\n", b"", None), []);
    }
}
