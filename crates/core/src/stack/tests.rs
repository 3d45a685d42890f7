#![allow(clippy::unwrap_used, reason = "tests")]

mod fetches;
mod leftovers;
mod obstacles;
mod properties;
mod states;
mod tables;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use knoll_api::{
    Purpose,
    names::{condition, finalizer, reason},
    run::{PlanSummary, RunStatus, StepName, StepState, StepStatus},
    stack::{Fetched, OnFailure, StackPhase, StackSpec},
    workspace::WorkspaceStatus,
};

use super::*;
use crate::{
    conditions,
    status::{self, Cause},
};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// A cluster with one Stack in it, as far as the machine looks.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub stack: Stack,
    pub inputs: Inputs,
    pub workspace: Option<Workspace>,
    pub runs: Vec<Run>,
    pub others: Vec<Stack>,
    /// What a run has made and none has destroyed, by revision.
    pub exists: Option<String>,
    pub state: u32,
    /// The Run that wrote the state; unknown for a state of an earlier version.
    pub writer: Option<String>,
    pub second: i64,
    pub gone: bool,
    pub cleaned: bool,
    pub requeue_at: Option<Timestamp>,
    pub remote: Option<RemoteSource>,
    pub atom: Option<Atom>,
    pub secrets: Vec<OwnedObject>,
    pub policy: Effective,
    /// The nonces that the operator has chosen and not used, by commitment. A killed operator forgets them.
    pub nonces: BTreeMap<String, String>,
    /// How many Runs were created.
    pub created: u32,
    /// The revisions of all Runs that were created, by the names of the Runs.
    pub revisions: BTreeMap<String, String>,
}

pub(super) fn snapshot(revision: &str) -> Snapshot {
    Snapshot {
        revision: revision.to_owned(),
        bundle: format!("bundle-{revision}"),
        variables: format!("variables-{revision}"),
    }
}

pub(super) fn resolved(revision: &str) -> Inputs {
    Inputs::Resolved { snapshot: snapshot(revision), source: None }
}

pub(super) fn named(name: &str) -> Stack {
    let mut stack = Stack::new(name, StackSpec::default());
    stack.metadata.namespace = Some("ns".to_owned());
    stack.metadata.uid = Some(format!("uid-of-{name}"));
    stack.metadata.generation = Some(1);
    stack
}

/// The purpose that a Run's label shows.
fn purpose(run: &Run) -> Purpose {
    run.labels().get(label::PURPOSE).and_then(|value| Purpose::parse(value)).unwrap_or_default()
}

impl World {
    pub fn new(spec: StackSpec) -> Self {
        let mut stack = named("net");
        stack.spec = spec;
        Self {
            stack,
            inputs: resolved("a"),
            workspace: None,
            runs: Vec::new(),
            others: Vec::new(),
            exists: None,
            state: 0,
            writer: None,
            second: 0,
            gone: false,
            cleaned: false,
            requeue_at: None,
            remote: None,
            atom: None,
            secrets: Vec::new(),
            policy: Effective::default(),
            nonces: BTreeMap::new(),
            created: 0,
            revisions: BTreeMap::new(),
        }
    }

    pub fn now(&self) -> Timestamp {
        at(self.second)
    }

    fn with_facts<T>(&self, use_them: impl FnOnce(&StackFacts<'_>) -> T) -> T {
        let status = self.status();
        let own = |record: &StartedRun| self.runs.iter().find_map(|run| OwnRun::of(record, run));
        let runs: Vec<OwnRun<'_>> = status.started_runs.iter().filter_map(own).collect();
        let related: Vec<&Stack> = self.others.iter().collect();
        let intended = match &status.launching {
            Some(intent) => IntendedRun::of(intent, self.runs.iter().find(|run| run.name_any() == intent.name)),
            None => IntendedRun::Absent,
        };
        let summary = StateSummary {
            digest: self.digest(),
            resources: u32::from(self.exists.is_some()),
            run: self.writer.clone(),
            updated_at: Some(MicroTime(at(0))),
            ..StateSummary::default()
        };
        use_them(&StackFacts {
            stack: &self.stack,
            inputs: &self.inputs,
            workspace: self.workspace.as_ref(),
            runs: &runs,
            intended,
            last_run_is_gone: status.started_runs.last().is_some_and(|last| own(last).is_none()),
            state: (self.state > 0).then_some(&summary),
            has_outputs_secret: true,
            secrets: &self.secrets,
            related: &related,
            atom: self.atom.as_ref(),
            remote: self.remote.as_ref(),
            policy: &self.policy,
        })
    }

    fn digest(&self) -> String {
        format!("state-{}", self.state)
    }

    pub fn decide(&self) -> Decision<StackStatus, StackAction> {
        self.with_facts(|facts| decide(facts, self.now()))
    }

    /// The state in which the machine decides next.
    pub fn state_name(&self) -> StackStateName {
        if self.with_facts(|facts| facts.intended != IntendedRun::Absent) {
            // The machine records the Run of an interrupted launch before it decides anything.
            let mut recorded = self.clone();
            recorded.step(usize::MAX);
            return recorded.state_name();
        }
        self.with_facts(|facts| StackState::read(facts, &account::all(facts, self.now()), self.now()).name())
    }

    /// The state before the end of any Run that is not accounted for in the status.
    fn state_before_ends(&self) -> StackStateName {
        let mut world = self.clone();
        let settled = self.status().settled;
        let accounted: Vec<String> =
            self.status().started_runs.into_iter().filter(|run| run.number <= settled).map(|run| run.uid).collect();
        for run in world.runs.iter_mut().filter(|run| !run.uid().is_some_and(|uid| accounted.contains(&uid))) {
            run.status = None;
        }
        world.state_name()
    }

    /// Decides, and carries out the first `count` writes of what follows; the status is the last of them.
    pub fn step(&mut self, count: usize) -> Decision<StackStatus, StackAction> {
        let decision = self.decide();
        let status = match decision.next.clone() {
            Next::Status(status) => (count > 0).then_some(status),
            Next::Act(action) => self.act(action, count),
        };
        if count != usize::MAX {
            self.nonces.clear();
        }
        if let Some(status) = status {
            self.stack.status = Some(status);
            self.requeue_at = decision.requeue_at;
        }
        decision
    }

    /// The status after the action, unless the operator is killed before that.
    fn act(&mut self, action: StackAction, count: usize) -> Option<StackStatus> {
        let mut left = count;
        let mut killed = || {
            left = left.saturating_sub(1);
            left == 0
        };
        if count == 0 {
            return None;
        }
        // The facts are those of the decision: the operator has no others when the action is done.
        let before = self.clone();
        let outcome = match action {
            StackAction::AddFinalizer => {
                self.stack.finalizers_mut().push(finalizer::STACK.to_owned());
                return None;
            }
            StackAction::ApplyWorkspace => {
                self.apply_workspace();
                StackOutcome::Done
            }
            StackAction::Intend(intent) => {
                let Intent { number, purpose, run } = *intent;
                let nonce = format!("nonce-{}-{}", self.created, self.nonces.len());
                let commitment = commitment(&run, &nonce);
                self.nonces.insert(commitment.clone(), nonce);
                StackOutcome::Intended(LaunchIntent { name: run.name_any(), number, purpose, commitment })
            }
            StackAction::Launch(launch) => {
                let Launch { store, apply_workspace, mut run, intent } = *launch;
                if let Some(snapshot) = store {
                    self.secrets.retain(|secret| secret.name != snapshot.variables);
                    self.secrets.push(OwnedObject { name: snapshot.variables, uid: None });
                    if killed() {
                        return None;
                    }
                }
                if apply_workspace {
                    self.apply_workspace();
                    if killed() {
                        return None;
                    }
                }
                let taken = self.runs.iter().any(|known| known.metadata.name == run.metadata.name);
                match self.nonces.remove(&intent.commitment) {
                    None => StackOutcome::NonceLost,
                    Some(_) if taken => StackOutcome::NameTaken,
                    Some(nonce) => {
                        self.created += 1;
                        let revision = run.spec.snapshot.as_ref().map(|snapshot| snapshot.revision.clone());
                        self.revisions.insert(run.name_any(), revision.unwrap_or_default());
                        run.metadata.uid = Some(format!("uid-{}", self.created));
                        run.annotations_mut().insert(annotation::NONCE.to_owned(), nonce);
                        self.runs.push(run.clone());
                        StackOutcome::Launched(Box::new(run))
                    }
                }
            }
            StackAction::Supersede(name) => {
                let run = self.runs.iter_mut().find(|run| run.name_any() == name).unwrap();
                run.annotations_mut().insert(annotation::SUPERSEDED.to_owned(), "by its Stack".to_owned());
                self.finish(&name, RunPhase::Discarded, reason::SUPERSEDED, false);
                StackOutcome::Done
            }
            StackAction::Cancel(name) => {
                self.finish(&name, RunPhase::Cancelled, reason::CANCELLED, false);
                StackOutcome::Done
            }
            StackAction::ReadOutputs => {
                let state = (self.state > 0).then(|| self.digest());
                StackOutcome::OutputsRead { state, outputs: Shown::default() }
            }
            StackAction::Prune(prune) => {
                self.runs.retain(|run| !prune.runs.iter().any(|old| old.uid == run.uid()));
                self.secrets.retain(|secret| !prune.secrets.contains(secret));
                StackOutcome::Pruned(prune)
            }
            StackAction::CleanUp => {
                self.cleaned = true;
                let deleted = deleted_with(&self.status());
                self.runs.retain(|run| !deleted.contains(&OwnedObject::of(run)));
                self.workspace = None;
                self.gone = !killed();
                return None;
            }
            StackAction::RemoveFinalizer => {
                self.gone = true;
                return None;
            }
        };
        if killed() {
            return None;
        }
        Some(before.with_facts(|facts| settle(facts, outcome, before.now())).status)
    }

    fn apply_workspace(&mut self) {
        let status = self.workspace.take().and_then(|workspace| workspace.status);
        self.workspace = Some(Workspace { status, ..workspace(&self.stack) });
    }

    /// Decides until nothing changes any more.
    pub fn settle(&mut self) -> &mut Self {
        for _ in 0..40 {
            let before = self.stack.clone();
            let runs = self.runs.clone();
            let decision = self.step(usize::MAX);
            if self.gone || (self.stack == before && self.runs == runs && matches!(decision.next, Next::Status(_))) {
                return self;
            }
        }
        panic!("it never settles: {:#?}", self.decide());
    }

    pub fn current(&self) -> Option<&Run> {
        self.runs.iter().rev().find(|run| !phase(run).is_finished())
    }

    pub fn at_phase(&mut self, phase: RunPhase) -> &mut Self {
        if let Some(run) = self.runs.iter_mut().rev().find(|run| !super::phase(run).is_finished()) {
            let mut next = status::of(run);
            let of = run.clone();
            status::enter(&mut next, &of, phase, &Cause::new("Test", "A test moved it."), at(self.second));
            run.status = Some(next);
        }
        self.settle()
    }

    /// Ends the Run that goes on, with the step that it came to.
    pub fn end(&mut self, phase: RunPhase, why: &str, applied: bool) -> &mut Self {
        let name = self.current().unwrap().name_any();
        self.finish(&name, phase, why, applied);
        self.settle()
    }

    pub fn succeed(&mut self) -> &mut Self {
        self.end(RunPhase::Succeeded, reason::SUCCEEDED, true)
    }

    pub fn fail(&mut self) -> &mut Self {
        self.end(RunPhase::Failed, reason::STEP_FAILED, true)
    }

    pub fn finish(&mut self, name: &str, phase: RunPhase, why: &str, applied: bool) {
        let now = self.now();
        let run = self.runs.iter_mut().find(|run| run.name_any() == name).unwrap();
        let mut next = status::of(run);
        if applied && run.spec.operation != knoll_api::run::Operation::Plan {
            self.state += 1;
            let step =
                StepStatus { state: StepState::Succeeded, ..StepStatus::started(StepName::Apply, MicroTime(now), 0) };
            next.steps.push(step);
            let revision = run.spec.snapshot.as_ref().map(|snapshot| snapshot.revision.clone());
            self.exists = match (purpose(run), phase) {
                (Purpose::Destroy, RunPhase::Succeeded) => None,
                (Purpose::Destroy, _) => self.exists.take(),
                _ => revision,
            };
        }
        status::finish(&mut next, &run.clone(), phase, &Cause::new(why, format!("{why} in a test.")), now);
        run.status = Some(next);
    }

    pub fn plan(&mut self, plan: PlanSummary) -> &mut Self {
        let run = self.runs.last_mut().unwrap();
        run.status = Some(RunStatus { plan: Some(plan), ..status::of(run) });
        self
    }

    pub fn change(&mut self, revision: &str) -> &mut Self {
        self.inputs = resolved(revision);
        self.settle()
    }

    pub fn delete(&mut self) -> &mut Self {
        self.stack.metadata.deletion_timestamp = Some(Time(self.now()));
        self.settle()
    }

    pub fn later(&mut self, seconds: i64) -> &mut Self {
        self.second += seconds;
        self.settle()
    }

    pub fn annotate(&mut self, key: &str, value: &str) -> &mut Self {
        self.stack.annotations_mut().insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn status(&self) -> StackStatus {
        self.stack.status.clone().unwrap_or_default()
    }

    pub fn message(&self) -> String {
        conditions::find(&self.status().conditions, condition::READY).unwrap().message.clone()
    }

    pub fn busy_with(&mut self, run: Option<&str>) -> &mut Self {
        let status = WorkspaceStatus { active: run.map(str::to_owned), ..WorkspaceStatus::default() };
        self.workspace.as_mut().unwrap().status = Some(status);
        self
    }

    /// The phase, ready, working, stuck or paused, and the Runs by purpose and phase.
    pub fn shown(&self) -> String {
        let status = self.status();
        let holds = |kind: &str| conditions::holds(&status.conditions, kind);
        let mood = match (holds(condition::READY), holds(condition::RECONCILING), holds(condition::STALLED)) {
            (true, false, false) => "ready",
            (false, true, false) => "working",
            (false, false, true) => "stuck",
            (false, false, false) => "paused",
            _ => "contradictory",
        };
        let runs: Vec<String> = self
            .runs
            .iter()
            .map(|run| {
                let revision = run.spec.snapshot.as_ref().map(|snapshot| snapshot.revision.clone()).unwrap_or_default();
                format!("{}({revision}) {}", purpose(run), phase(run).as_str())
            })
            .collect();
        format!("{} {mood} | {}", status.phase.as_str(), runs.join(", "))
    }
}
