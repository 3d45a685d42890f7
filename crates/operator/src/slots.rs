//! The slots of Runs where Policies limit how many have a pod at the same time. `knoll-core` decides who is next.
//!
//! *Guarantees.* Only the leader hands out slots, and a slot is taken before the pod is created. After a restart, the Runs
//! that have a pod have their slots again before the first new one is handed out.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use knoll_api::{
    Run,
    names::{condition, reason},
    run::{RunPhase, RunStatus},
};
use knoll_core::{
    conditions,
    identity::{ObjectId, Subject},
    policy::Effective,
    slots::{Full, Pools, RunKey, Slots},
};
use tokio::time::Instant;

use crate::{context::Context, policy, watch::Triggers};

/// How often a waiting Run asks again. A free slot asks it earlier.
pub const ASK_AGAIN: Duration = Duration::from_secs(30);

/// After this time without a question, a Run does not wait any more: something else keeps it from starting.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(75);

/// Who has a slot, and who waits for one.
#[derive(Debug, Default)]
pub struct SlotKeeper {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    slots: Slots,
    /// When each waiting Run last asked.
    asked: HashMap<RunKey, Instant>,
    /// The Runs whose pods the watch has shown.
    started: BTreeSet<RunKey>,
    /// The Runs that have taken a slot for a pod which the watch has not shown yet, with the pod that their status named
    /// at that time. An event that names that pod is of the time before.
    taken: BTreeMap<RunKey, Option<String>>,
    /// The Runs whose pools are those of the Policies as they are now.
    current: BTreeSet<RunKey>,
}

impl SlotKeeper {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The Policies have changed, or what they select by.
    pub fn policies_changed(&self) {
        self.lock().current.clear();
    }
}

/// Asks for a slot for the next pod of a Run, whose status names the pod `before` it.
///
/// # Errors
/// When the Run has to wait.
pub fn take(context: &Context, run: &Subject<Run>, before: Option<&str>, demands: &Effective) -> Result<(), Full> {
    let key: RunKey = (run.namespace().to_owned(), run.name().to_owned());
    let priority = demands.priority(run.spec.operation);
    let pools: Pools = demands.run_limits().map(|(policy, limits)| (policy.to_owned(), limits.clone())).collect();
    let mut state = context.slots.lock();
    if !pools.is_empty() {
        state.learn(context);
        state.forget_silent();
    }
    state.ask(&key, before, priority, pools)
}

/// Takes in the event of a Run, and asks for the Runs that may start after it.
pub fn on_run(context: &Context, ask: &Triggers, id: &ObjectId, run: Option<&Run>) {
    let key: RunKey = (id.namespace.clone(), id.name.clone());
    let status = run.map(|run| run.status.clone().unwrap_or_default());
    let mut state = context.slots.lock();
    if state.note(&key, status.as_ref()) {
        for (namespace, name) in state.slots.next() {
            ask.run(&namespace, &name);
        }
    }
}

impl State {
    fn ask(&mut self, key: &RunKey, before: Option<&str>, priority: i32, pools: Pools) -> Result<(), Full> {
        self.current.insert(key.clone());
        let answer = self.slots.ask(key, priority, pools);
        match &answer {
            Ok(()) => {
                self.asked.remove(key);
                self.taken.insert(key.clone(), before.map(str::to_owned));
            }
            Err(_) => drop(self.asked.insert(key.clone(), Instant::now())),
        }
        answer
    }

    /// Takes in the status of a Run; `None` when the Run is gone. Returns whether a slot may have become free.
    fn note(&mut self, key: &RunKey, status: Option<&RunStatus>) -> bool {
        let Some(status) = status else { return self.release(key) };
        if status.phase.is_finished() {
            return self.release(key);
        }
        // A Run that was approved at once has its second pod before the watch shows the review.
        if self.taken.get(key).is_some_and(|before| *before == status.pod_uid) {
            return false;
        }
        match status.phase {
            RunPhase::Starting | RunPhase::Running => {
                self.taken.remove(key);
                if self.started.insert(key.clone()) {
                    let pools = self.slots.pools(key);
                    self.slots.runs(key, pools);
                }
                false
            }
            // The pod that planned is done. The one that applies takes a slot of its own.
            RunPhase::Review if self.started.contains(key) => self.release(key),
            _ => {
                let ready = conditions::find(&status.conditions, condition::READY);
                let other = ready.is_some_and(|ready| ready.reason == reason::WAITING_FOR_WINDOW);
                other && self.asked.contains_key(key) && self.release(key)
            }
        }
    }

    fn release(&mut self, key: &RunKey) -> bool {
        self.asked.remove(key);
        self.started.remove(key);
        self.taken.remove(key);
        self.current.remove(key);
        self.slots.release(key)
    }

    /// Finds the pools of the Runs that started before this process, or before the Policies were as they are.
    fn learn(&mut self, context: &Context) {
        for key in self.slots.running() {
            if self.current.contains(&key) {
                continue;
            }
            let (namespace, name) = &key;
            let Some(run) = context.caches.runs.named(namespace, name) else { continue };
            let workspace = context.caches.workspaces.named(namespace, &run.spec.workspace);
            let stack = context.caches.stacks.named(namespace, &run.spec.workspace);
            let demands = policy::known_demands_on(context, namespace, workspace.as_deref(), stack.as_deref());
            let pools = demands.run_limits().map(|(policy, _)| policy.to_owned()).collect();
            self.slots.runs(&key, pools);
            self.current.insert(key);
        }
    }

    fn forget_silent(&mut self) {
        let silent: Vec<RunKey> =
            self.asked.iter().filter(|(_, at)| at.elapsed() > FORGOTTEN_AFTER).map(|(key, _)| key.clone()).collect();
        for key in silent {
            self.release(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use knoll_api::policy::RunLimits;

    use super::*;

    fn key(name: &str) -> RunKey {
        ("team".to_owned(), name.to_owned())
    }

    fn status(phase: RunPhase, pod: Option<&str>) -> RunStatus {
        RunStatus { phase, pod_uid: pod.map(str::to_owned), ..RunStatus::default() }
    }

    fn one_slot() -> Pools {
        [("p".to_owned(), RunLimits { namespace: Some(1), cluster: None })].into()
    }

    #[test]
    fn a_slot_that_an_approved_run_has_is_not_handed_out_by_a_late_event_of_its_review() {
        let (mut state, a, b) = (State::default(), key("a"), key("b"));
        assert!(state.ask(&a, None, 0, one_slot()).is_ok());
        assert!(!state.note(&a, Some(&status(RunPhase::Pending, None))));
        assert!(!state.note(&a, Some(&status(RunPhase::Running, Some("plan")))));
        // It is approved at once, and takes its second slot before the watch shows the review.
        assert!(state.ask(&a, Some("plan"), 0, one_slot()).is_ok());
        assert!(!state.note(&a, Some(&status(RunPhase::Running, Some("plan")))));
        assert!(!state.note(&a, Some(&status(RunPhase::Review, Some("plan")))));
        assert!(state.ask(&b, None, 0, one_slot()).is_err(), "the pod that applies has the slot");
        assert!(!state.note(&a, Some(&status(RunPhase::Running, Some("apply")))));
        assert!(state.ask(&b, None, 0, one_slot()).is_err());
        assert!(state.note(&a, Some(&status(RunPhase::Succeeded, Some("apply")))));
        assert!(state.ask(&b, None, 0, one_slot()).is_ok());
    }

    #[test]
    fn a_run_in_review_has_no_slot() {
        let (mut state, a, b) = (State::default(), key("a"), key("b"));
        assert!(state.ask(&a, None, 0, one_slot()).is_ok());
        assert!(!state.note(&a, Some(&status(RunPhase::Starting, Some("plan")))));
        assert!(state.ask(&b, None, 0, one_slot()).is_err());
        assert!(state.note(&a, Some(&status(RunPhase::Review, Some("plan")))));
        assert!(state.ask(&b, None, 0, one_slot()).is_ok());
        assert!(state.ask(&a, Some("plan"), 0, one_slot()).is_err());
    }
}
