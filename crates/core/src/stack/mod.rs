//! The Stack machine: from the facts about a Stack to its next status or its next action.
//!
//! A Stack is always in one [`StackState`]. [`StackState::read`] derives it from the status and the other facts, and [`decide`] is
//! one total function over it. These are the transitions that the machine and its Runs cause:
//!
//! ```text
//! Unclaimed -> Outdated
//! Outdated -> Running
//! Running -> Applied | Outdated | Held | Retrying | RollbackDue | Reverted | RollbackFailed
//! Applied -> Running | Checking
//! Checking -> Applied | Outdated
//! Retrying -> Outdated
//! RollbackDue -> RollingBack
//! RollingBack -> Reverted | RollbackFailed | RollbackDue | Applied | Outdated
//! Stopping -> DestroyDue | Destroyed
//! DestroyDue -> Destroying
//! Destroying -> Destroyed | DestroyRetrying | DestroyHeld | DestroyDue
//! DestroyRetrying -> DestroyDue
//! Destroyed -> Released
//! ```
//!
//! A change from outside (new inputs, an edited spec, a dependency, a deletion) can lead from any state to any other. A
//! test compares the picture with [`TRANSITIONS`], and another one compares that table with what the machine does.
//!
//! *Guarantees.* A Run is a Stack's if the Stack's status names it with its UID, whatever the Run says of itself. The
//! status has the intent to create a Run before the Run exists, so an interrupted launch is found again, and nobody else's
//! Run is taken for it. A Stack has one unfinished Run at a time. An applied revision gives no further Run, whichever operator
//! decides. The end of each Run is accounted for once. A Stack is not released while infrastructure of it may exist, unless
//! a person asks for that. The same facts give the same decision.

mod account;
mod backoff;
mod conditions;
mod deletion;
mod drift;
mod graph;
mod inputs;
mod requester;
mod retention;
mod revision;
mod rollback_with_atom;
mod runs;
mod source;
mod state;
mod step;
mod wording;

use jiff::Timestamp;
use knoll_api::{
    Atom, Purpose,
    names::{annotation, label},
    run::{Run, RunPhase},
    stack::{LaunchIntent, Snapshot, Stack, StackStatus, StartedRun},
    workspace::{StateSummary, Workspace},
};
use kube::{Resource, ResourceExt};

pub(crate) use graph::wait_for;
pub use graph::{Waits, cycle, dependencies, dependents, needs, unready};
pub use inputs::{Inputs, References, credentials};
pub use retention::{OwnedObject, Prune, deleted_with};
pub(crate) use revision::digest;
pub use revision::{outputs_digest, revision, selected, variables_digest};
pub use runs::{
    IntendedRun, Launched, OwnRun, changed_by, commitment, is_launched, launched, owner_annotations, owner_labels,
    requested_by, started_purpose, workspace,
};
pub use source::{FetchRecord, FetchRequest, KnownFetch, RemoteSource, StartedFetch};
pub use state::{StackState, StackStateName, TRANSITIONS};

use crate::{
    machine::{Decision, Next, Settled},
    outputs::{self, Shown},
    policy::Effective,
};

/// Everything that a Stack's next status depends on.
#[derive(Clone, Copy, Debug)]
pub struct StackFacts<'a> {
    pub stack: &'a Stack,
    /// The revision that the source and the variables make now.
    pub inputs: &'a Inputs,
    /// The Workspace that has the Stack's name, whoever created it.
    pub workspace: Option<&'a Workspace>,
    /// The Runs that the Stack has started, in any order.
    pub runs: &'a [OwnRun<'a>],
    /// The Run of `status.launching`.
    pub intended: IntendedRun<'a>,
    /// The API no longer has the newest of the Runs that the Stack has started.
    pub last_run_is_gone: bool,
    /// The state of the Workspace.
    pub state: Option<&'a StateSummary>,
    /// The Secret that `spec.outputs` names exists.
    pub has_outputs_secret: bool,
    /// The Secrets that the Stack owns: variables of its revisions, and its outputs.
    pub secrets: &'a [OwnedObject],
    /// The Stacks that this one needs, directly or through others, and those that need it.
    pub related: &'a [&'a Stack],
    /// The Atom that `spec.rollbackWith` names.
    pub atom: Option<&'a Atom>,
    /// The known state of a source outside of the cluster; `None` for any other source.
    pub remote: Option<&'a RemoteSource>,
    /// The demands of the Policies on the Stack's Workspace.
    pub policy: &'a Effective,
}

/// An action. Each is safe to repeat.
#[derive(Clone, Debug, PartialEq)]
pub enum StackAction {
    AddFinalizer,
    /// Choose a nonce for this Run, which is created once the status has its commitment.
    Intend(Box<Intent>),
    /// Create a Run, and before it what the Run needs.
    Launch(Box<Launch>),
    /// Mark a Run that has not started, or that waits for a decision, as superseded by a newer revision.
    Supersede(String),
    Cancel(String),
    /// Read the outputs from the state, and write the Secret that `spec.outputs` names.
    ReadOutputs,
    /// Make the Workspace what [`workspace`] returns.
    ApplyWorkspace,
    /// Delete Runs and Secrets that are no longer needed.
    Prune(Prune),
    /// Delete everything that the Stack has created in the cluster, then remove the finalizer.
    CleanUp,
    /// Remove the finalizer, and leave everything as it is.
    RemoveFinalizer,
}

/// A Run to be created after its intent is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    pub number: u32,
    pub purpose: Purpose,
    pub run: Run,
}

/// A Run to create.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The files and the variables of the revision are stored first, because they exist nowhere else yet.
    pub store: Option<Snapshot>,
    /// The Workspace is applied first, because it is not what the Stack asks for.
    pub apply_workspace: bool,
    pub run: Run,
    pub intent: LaunchIntent,
}

/// The outcome of an action that changed something other than the Stack itself.
#[derive(Clone, Debug, PartialEq)]
pub enum StackOutcome {
    /// The action was carried out. It adds nothing to the status.
    Done,
    /// The nonce of the Run is chosen.
    Intended(LaunchIntent),
    Launched(Box<Run>),
    /// A Run of somebody else has its name.
    NameTaken,
    /// An operator that has ended chose the nonce, and the Run does not exist.
    NonceLost,
    /// These objects are deleted.
    Pruned(Prune),
    /// The outputs of the state with this digest.
    OutputsRead {
        state: Option<String>,
        outputs: Shown,
    },
    /// The namespace is being deleted, so the API refuses new objects in it.
    NamespaceTerminating,
}

/// A status, and the action that comes before it is published.
#[derive(Clone, Debug, PartialEq)]
struct Plan {
    /// The status, as far as it does not depend on the outcome of the action.
    status: StackStatus,
    action: Option<StackAction>,
    requeue_at: Option<Timestamp>,
}

impl Plan {
    fn publish(status: StackStatus) -> Self {
        Self { status, action: None, requeue_at: None }
    }

    fn then(mut self, action: StackAction) -> Self {
        self.action = Some(action);
        self
    }

    /// The earlier of this time and the one that is set already.
    fn at(mut self, time: Option<Timestamp>) -> Self {
        self.requeue_at = [self.requeue_at, time].into_iter().flatten().min();
        self
    }
}

/// Decides what follows from the facts.
#[must_use]
pub fn decide(facts: &StackFacts<'_>, now: Timestamp) -> Decision<StackStatus, StackAction> {
    let Plan { status, action, requeue_at } = plan(facts, now);
    let next = match action {
        Some(action) => Next::Act(action),
        None => Next::Status(status),
    };
    Decision { next, requeue_at }
}

/// The status after an action.
#[must_use]
pub fn settle(facts: &StackFacts<'_>, outcome: StackOutcome, now: Timestamp) -> Settled<StackStatus> {
    match outcome {
        StackOutcome::Done => plan(facts, now).status.into(),
        StackOutcome::Intended(intent) => {
            let Plan { mut status, action, .. } = plan(facts, now);
            status.launching = Some(intent);
            match action {
                Some(StackAction::Intend(intent)) => {
                    step::launching(facts.stack, status, intent.purpose, &intent.run, now).into()
                }
                _ => status.into(),
            }
        }
        StackOutcome::Launched(run) => {
            let mut status = plan(facts, now).status;
            match account::launched(&mut status, &run) {
                Some(record) => step::launched(facts.stack, status, &record, &run, now).into(),
                None => status.into(),
            }
        }
        StackOutcome::NameTaken => step::name_taken(facts.stack, plan(facts, now).status, now).into(),
        StackOutcome::NonceLost => {
            let mut status = plan(facts, now).status;
            status.launching = None;
            status.into()
        }
        StackOutcome::Pruned(prune) => {
            let mut status = plan(facts, now).status;
            let is_deleted = |record: &StartedRun| prune.runs.iter().any(|run| run.uid.as_ref() == Some(&record.uid));
            status.started_runs.retain(|record| !is_deleted(record));
            status.into()
        }
        StackOutcome::OutputsRead { state, outputs } => {
            let mut status = plan(facts, now).status;
            status.outputs = outputs.values;
            outputs::tell(&mut status.conditions, facts.stack.metadata.generation, &outputs.hidden, now);
            status.outputs_digest = Some(outputs_digest(state.as_deref(), &facts.stack.spec));
            status.into()
        }
        StackOutcome::NamespaceTerminating => deletion::without_namespace(facts.stack, now).into(),
    }
}

fn plan(facts: &StackFacts<'_>, now: Timestamp) -> Plan {
    let mut status = account::all(facts, now);
    // A Run of an interrupted launch is recorded before anything else is decided.
    match (status.launching.is_some(), facts.intended) {
        (true, IntendedRun::Created(run)) => {
            return Plan::publish(match account::launched(&mut status, run) {
                Some(record) => step::launched(facts.stack, status, &record, run, now),
                None => status,
            });
        }
        (true, IntendedRun::Taken) => return Plan::publish(step::name_taken(facts.stack, status, now)),
        (_, IntendedRun::Absent) | (false, _) => {}
    }
    let state = StackState::read(facts, &status, now);
    let mut plan = step::step(facts, status, state, now);
    if !matches!(plan.action, Some(StackAction::Launch(_))) {
        plan.status.launching = None;
    }
    plan
}

/// Whether an object was created by this Stack.
#[must_use]
pub fn is_owned<K: Resource>(object: &K, stack: &Stack) -> bool {
    object.labels().get(label::STACK) == stack.metadata.name.as_ref()
        && object.annotations().get(annotation::STACK_UID) == stack.metadata.uid.as_ref()
}

/// The Stack's Runs in the order of their numbers.
fn ordered<'a>(facts: &StackFacts<'a>) -> Vec<OwnRun<'a>> {
    let mut runs = facts.runs.to_vec();
    runs.sort_by_key(|run| run.number);
    runs
}

/// The unfinished Run. There is one at most, as none is launched while another is unfinished.
fn unfinished<'a>(facts: &StackFacts<'a>) -> Option<OwnRun<'a>> {
    ordered(facts).into_iter().rev().find(|run| !phase(run).is_finished())
}

fn phase(run: &Run) -> RunPhase {
    run.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

fn is_deleted(stack: &Stack) -> bool {
    stack.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests;
