//! The slots of Runs where Policies limit how many have a pod at the same time. `knoll-core` decides who is next.
//!
//! *Guarantees.* Only the leader hands out slots, and a slot is taken before the pod is created. After a restart, the Runs
//! that have a pod have their slots again before the first new one is handed out.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use knoll_api::{
    Run,
    names::{condition, reason},
    run::RunPhase,
};
use knoll_core::{
    conditions,
    identity::ObjectId,
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

/// Asks for a slot for the next pod of a Run.
///
/// # Errors
/// When the Run has to wait.
pub fn take(context: &Context, run: &ObjectId, demands: &Effective) -> Result<(), Full> {
    let key: RunKey = (run.namespace.clone(), run.name.clone());
    let pools: Pools = demands.run_limits().map(|(policy, limits)| (policy.to_owned(), limits.clone())).collect();
    let mut state = context.slots.lock();
    if !pools.is_empty() {
        state.learn(context);
        state.forget_silent();
    }
    let State { slots, asked, current, .. } = &mut *state;
    current.insert(key.clone());
    let answer = slots.ask(&key, pools);
    match &answer {
        Ok(()) => drop(asked.remove(&key)),
        Err(_) => drop(asked.insert(key, Instant::now())),
    }
    answer
}

/// Takes in the event of a Run, and asks for the Runs that may start after it.
pub fn on_run(context: &Context, ask: &Triggers, id: &ObjectId, run: Option<&Run>) {
    let key: RunKey = (id.namespace.clone(), id.name.clone());
    let status = run.map(|run| run.status.clone().unwrap_or_default());
    let mut state = context.slots.lock();
    let has_changed = match status.as_ref().map(|status| status.phase) {
        None => state.release(&key),
        Some(phase) if phase.is_finished() => state.release(&key),
        Some(RunPhase::Starting | RunPhase::Running) => {
            if state.started.insert(key.clone()) {
                let pools = state.slots.pools(&key);
                state.slots.runs(&key, pools);
            }
            false
        }
        // The pod that planned is done. The one that applies takes a slot of its own.
        Some(RunPhase::Review) if state.started.contains(&key) => state.release(&key),
        Some(_) => {
            let ready = status.as_ref().and_then(|status| conditions::find(&status.conditions, condition::READY));
            let other = ready.is_some_and(|ready| ready.reason == reason::WAITING_FOR_WINDOW);
            other && state.asked.contains_key(&key) && state.release(&key)
        }
    };
    if has_changed {
        for (namespace, name) in state.slots.next() {
            ask.run(&namespace, &name);
        }
    }
}

impl State {
    fn release(&mut self, key: &RunKey) -> bool {
        self.asked.remove(key);
        self.started.remove(key);
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
