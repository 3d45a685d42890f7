#![allow(clippy::unwrap_used, reason = "tests")]

mod isolated;
mod limits;
mod messages;
mod policies;
mod rules;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
        PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use knoll_api::{
    approval::{ApprovalSpec, Decision as Choice},
    pod::{PodSettings, StageSettings},
    run::{Operation, PlanSummary, RunApproval, StepName, StepState, StepStatus, Timeouts},
    stack::{LaunchIntent, Snapshot, StackStatus, StartedRun},
    wire::{EndReason, Exit, Progress},
    workspace::{WorkspaceSpec, WorkspaceStatus},
};
use proptest::prelude::*;

use super::*;
use crate::{
    conditions,
    frozen::{JobInputs, PodTemplate},
    machine::Next,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

mod frozen;

/// A cluster with one run in it, as far as the machine looks.
#[derive(Clone)]
struct World {
    run: Run,
    workspace: Option<Workspace>,
    pod: Option<Pod>,
    approvals: Vec<Approval>,
    /// A pod of an earlier run of the same name.
    leftover: Option<Pod>,
    pods_made: usize,
    stack: Option<Stack>,
    policy: Effective,
    frozen: Option<FrozenJob>,
}

impl World {
    fn new(spec: RunSpec) -> Self {
        let mut run = Run::new("r", RunSpec { workspace: "w".to_owned(), ..spec });
        run.metadata.namespace = Some("ns".to_owned());
        run.metadata.uid = Some("run-uid".to_owned());
        run.metadata.generation = Some(1);
        run.metadata.creation_timestamp = Some(Time(at(0)));
        run.metadata.finalizers = finalizers(&run.spec);
        let workspace = Some(Workspace::new("w", WorkspaceSpec::default()));
        Self {
            run,
            workspace,
            pod: None,
            approvals: Vec::new(),
            leftover: None,
            pods_made: 0,
            stack: None,
            policy: Effective::default(),
            frozen: None,
        }
    }

    fn apply(approval: RunApproval) -> Self {
        Self::new(RunSpec { operation: Operation::Apply, approval, ..RunSpec::default() }).placed(Some("r"), &[])
    }

    fn placed(mut self, active: Option<&str>, queue: &[&str]) -> Self {
        let status = WorkspaceStatus {
            active: active.map(str::to_owned),
            queue: queue.iter().map(ToString::to_string).collect(),
            ..WorkspaceStatus::default()
        };
        self.workspace.as_mut().unwrap().status = Some(status);
        self
    }

    /// A run of a Stack, whose status has what `record` writes.
    fn of_stack(record: impl FnOnce(&mut StackStatus)) -> Self {
        let snapshot = Snapshot { revision: "a".to_owned(), ..Snapshot::default() };
        let spec = RunSpec { operation: Operation::Apply, snapshot: Some(snapshot), ..RunSpec::default() };
        let mut world = Self::new(spec).placed(Some("r"), &[]);
        let mut stack = Stack::new("w", Default::default());
        record(stack.status.get_or_insert_default());
        world.stack = Some(stack);
        world
    }

    fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.run.spec.timeouts = Some(timeouts);
        self
    }

    fn cancel(&mut self) {
        self.run.metadata.annotations = Some(BTreeMap::from([(annotation::CANCEL.to_owned(), "yes".to_owned())]));
    }

    fn delete(&mut self) {
        self.run.metadata.deletion_timestamp = Some(Time(at(0)));
    }

    fn approve(&mut self, name: &str, digest: &str, decision: Choice) {
        let spec = ApprovalSpec {
            run: "r".to_owned(),
            digest: digest.to_owned(),
            decision,
            by: format!("user-of-{name}"),
            ..ApprovalSpec::default()
        };
        let mut approval = Approval::new(name, spec);
        approval.metadata.creation_timestamp = Some(Time(at(50)));
        self.approvals.push(approval);
    }

    fn with_facts<T>(&self, then: impl FnOnce(&RunFacts<'_>) -> T) -> T {
        let approvals: Vec<&Approval> = self.approvals.iter().collect();
        let pods: Vec<&Pod> = self.leftover.iter().collect();
        then(&RunFacts {
            run: &self.run,
            workspace: self.workspace.as_ref(),
            pod: self.pod.as_ref(),
            pods: &pods,
            approvals: &approvals,
            stack: self.stack.as_ref(),
            policy: &self.policy,
            frozen: self.frozen.as_ref(),
        })
    }

    fn decide(&self, second: i64) -> RunDecision {
        self.with_facts(|facts| decide(facts, at(second)))
    }

    fn settle(&mut self, outcome: RunOutcome, second: i64) {
        self.run.status = Some(self.with_facts(|facts| settle(facts, outcome, at(second))).status);
    }

    /// Does what the driver does: decides, then publishes, or acts and settles.
    fn step(&mut self, second: i64) -> RunDecision {
        let decision = self.decide(second);
        let outcome = match decision.next.clone() {
            Next::Status(status) => {
                self.run.status = Some(status);
                return decision;
            }
            Next::Act(action @ (RunAction::AddFinalizer | RunAction::RemoveFinalizer)) => {
                let held = action == RunAction::AddFinalizer;
                assert_ne!(is_held(&self.run), held, "nothing is done twice");
                self.run.metadata.finalizers = held.then(|| vec![finalizer::RUN.to_owned()]);
                // The run comes back changed.
                return self.step(second);
            }
            Next::Act(RunAction::CreatePod(stage, mut status)) => {
                self.pods_made += 1;
                if stage == Stage::Plan {
                    status.job.get_or_insert(self.freeze());
                }
                let (name, uid) = (crate::pod::name("r", stage), format!("pod-{}", self.pods_made));
                let mut pod = Pod::default();
                pod.metadata.name = Some(name.clone());
                pod.metadata.uid = Some(uid.clone());
                pod.metadata.creation_timestamp = Some(Time(at(second)));
                self.pod = Some(pod);
                RunOutcome::PodCreated { name, uid, status }
            }
            Next::Act(RunAction::DeletePod { status, .. }) => {
                self.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at(second + 300)));
                RunOutcome::PodDeleted(status)
            }
            Next::Act(RunAction::FreezeCommand(source)) => RunOutcome::CommandFrozen {
                bundle: source.map(|_| "sha256:files".to_owned()),
                job: Box::new(self.freeze()),
            },
            Next::Act(RunAction::DeleteRun) => RunOutcome::RunDeleted,
        };
        self.settle(outcome, second);
        decision
    }

    /// Freezes the job as the Workspace is now.
    fn freeze(&mut self) -> FrozenJobSummary {
        let WorkspaceSpec { image, pod, tool, version, .. } = self.workspace.as_ref().unwrap().spec.clone();
        let settings = pod.unwrap_or_default();
        let summary = frozen(&settings);
        let image_is_named = image.is_some();
        let pods = PodTemplate { image: image.unwrap_or_default(), image_is_named, settings, ..PodTemplate::default() };
        let inputs = JobInputs { tool, version, ..JobInputs::default() };
        self.frozen.get_or_insert(FrozenJob { pods, inputs, ..FrozenJob::default() });
        summary
    }

    /// Does what the hub does when the runner reports.
    fn report(&mut self, second: i64, progress: &Progress) {
        self.run.status = Some(progress::merge(&self.run, progress, at(second)));
    }

    fn container(&mut self, state: ContainerState) {
        let container = ContainerStatus { name: "runner".to_owned(), state: Some(state), ..ContainerStatus::default() };
        let status = PodStatus { container_statuses: Some(vec![container]), ..PodStatus::default() };
        self.pod.as_mut().unwrap().status = Some(status);
    }

    fn runs(&mut self) {
        self.container(ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() });
    }

    fn pulls_in_vain(&mut self) {
        let waiting = ContainerStateWaiting { reason: Some("ImagePullBackOff".to_owned()), message: None };
        self.container(ContainerState { waiting: Some(waiting), ..ContainerState::default() });
    }

    fn supersede(&mut self) {
        self.run.annotations_mut().insert(annotation::SUPERSEDED.to_owned(), "by its Stack".to_owned());
    }

    fn dies(&mut self, reason: &str, exit_code: i32) {
        let terminated = ContainerStateTerminated {
            reason: Some(reason.to_owned()),
            exit_code,
            ..ContainerStateTerminated::default()
        };
        self.container(ContainerState { terminated: Some(terminated), ..ContainerState::default() });
        self.pod.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Failed".to_owned());
    }

    fn status(&self) -> &RunStatus {
        self.run.status.as_ref().unwrap()
    }

    #[track_caller]
    fn expect(&self, phase: RunPhase, reason: &str) {
        let ready = conditions::find(&self.status().conditions, condition::READY).unwrap();
        assert_eq!((self.status().phase, ready.reason.as_str()), (phase, reason), "{}", ready.message);
        let holds = |type_| conditions::holds(&self.status().conditions, type_);
        assert_eq!(holds(condition::READY), phase == RunPhase::Succeeded);
        assert_eq!(holds(condition::EXITED), phase.is_finished());
        if phase.is_finished() {
            assert!(!holds(condition::RECONCILING) && !holds(condition::ACTIVE) && !holds(condition::QUEUED));
            assert!(self.status().finished_at.is_some());
            assert!(self.status().steps.iter().all(|step| step.state.is_finished()));
        }
    }
}

fn frozen(settings: &PodSettings) -> FrozenJobSummary {
    FrozenJobSummary {
        digest: "sha256:job".to_owned(),
        plan_service_account: settings.plan_account().map(str::to_owned),
        apply_service_account: settings.apply_account().map(str::to_owned),
        ..FrozenJobSummary::default()
    }
}

/// The digest that an Approval of this plan names.
fn reviewed(plan: &str) -> String {
    let Progress { plan, bundle, .. } = plans(plan, true);
    let (job, bundle) = (Some(frozen(&PodSettings::default())), bundle.map(String::from));
    crate::approval::plan_digest(&RunStatus { plan, bundle, job, ..RunStatus::default() }).unwrap()
}

/// The action of a decision.
fn action(decision: &RunDecision) -> Option<&RunAction> {
    match &decision.next {
        Next::Status(_) => None,
        Next::Act(action) => Some(action),
    }
}

/// The stage of the pod that a decision creates.
fn creates(decision: &RunDecision) -> Option<Stage> {
    match action(decision)? {
        RunAction::CreatePod(stage, _) => Some(*stage),
        _ => None,
    }
}

fn steps(names: &[(StepName, StepState)]) -> Progress {
    let steps = names
        .iter()
        .map(|(name, state)| StepStatus { state: *state, ..StepStatus::started(*name, MicroTime(at(10)), 0) });
    Progress { sequence: 1, steps: steps.collect(), ..Progress::default() }
}

fn ends(code: i32) -> Progress {
    Progress { exit: Some(Exit { code, ..Exit::default() }), ..steps(&[(StepName::Init, StepState::Succeeded)]) }
}

fn plans(digest: &str, changes: bool) -> Progress {
    let (digest, text_digest) = (Some(digest.to_owned()), Some("text".to_owned()));
    let plan = PlanSummary { digest, text_digest, add: 1, changes, ..PlanSummary::default() };
    Progress { plan: Some(plan), bundle: Some(knoll_api::Digest::of("files")), ..ends(0) }
}

#[test]
fn a_free_workspace_gives_the_pod_and_the_first_write_says_starting() {
    let mut world = World::apply(RunApproval::Auto);
    assert_eq!(creates(&world.decide(1)), Some(Stage::Whole));
    world.step(1);
    world.expect(RunPhase::Starting, reason::POD_CREATED);
    assert_eq!(world.status().pod_uid.as_deref(), Some("pod-1"));
    assert!(conditions::holds(&world.status().conditions, condition::ACTIVE));
    world.runs();
    world.report(3, &steps(&[(StepName::Init, StepState::Running)]));
    world.expect(RunPhase::Running, reason::PROGRESSING);
    world.report(4, &ends(0));
    world.expect(RunPhase::Succeeded, reason::SUCCEEDED);
    assert_eq!(world.status().exit_code, Some(0));
}

#[test]
fn a_run_without_a_place_is_not_written() {
    let mut world = World::new(RunSpec { operation: Operation::Apply, ..RunSpec::default() });
    assert_eq!(world.decide(1), Decision::status(RunStatus::default()));
    world = world.placed(Some("other"), &["first", "r"]);
    world.step(1);
    world.expect(RunPhase::Queued, reason::QUEUED);
    assert_eq!(world.status().position, Some(2));
    world = world.placed(Some("r"), &[]);
    world.step(2);
    world.expect(RunPhase::Starting, reason::POD_CREATED);
    assert_eq!(world.status().position, None);
}

#[test]
fn a_plan_starts_beside_the_active_run() {
    let world = World::new(RunSpec::default()).placed(Some("other"), &[]);
    assert_eq!(creates(&world.decide(1)), Some(Stage::Whole));
}

#[test]
fn a_missing_workspace_is_told_and_waited_for() {
    let mut world = World::apply(RunApproval::Auto);
    let workspace = world.workspace.take();
    world.step(1);
    world.expect(RunPhase::Pending, reason::WORKSPACE_NOT_FOUND);
    assert!(conditions::holds(&world.status().conditions, condition::STALLED));
    world.workspace = workspace;
    world.step(2);
    world.expect(RunPhase::Starting, reason::POD_CREATED);
    assert!(!conditions::holds(&world.status().conditions, condition::STALLED));
}

#[test]
fn a_lost_pod_fails_the_run_with_a_reason_that_names_it() {
    let rows = [
        ("OOMKilled", 137, reason::OOM_KILLED),
        ("StartError", 128, reason::POD_FAILED),
        ("Error", 1, reason::RUNNER_LOST),
    ];
    for (why, code, expect) in rows {
        let mut world = World::apply(RunApproval::Auto);
        world.step(1);
        world.dies(why, code);
        world.step(2);
        world.expect(RunPhase::Failed, expect);
    }
    let mut world = World::apply(RunApproval::Auto);
    world.step(1);
    world.report(2, &steps(&[(StepName::Apply, StepState::Running)]));
    world.pod = None;
    world.step(3);
    world.expect(RunPhase::Failed, reason::POD_DELETED);
    assert_eq!(world.status().steps[0].state, StepState::Failed);
}

#[test]
fn a_runner_that_cannot_be_brought_ends_the_run_and_then_its_pod() {
    let mut world = World::apply(RunApproval::Auto);
    world.step(1);
    world.dies("Error", 2);
    let status = world.pod.as_mut().unwrap().status.as_mut().unwrap();
    status.phase = Some("Running".to_owned());
    status.container_statuses.as_mut().unwrap()[0].name = knoll_api::names::pod::INSTALL_CONTAINER.to_owned();
    world.step(2);
    world.expect(RunPhase::Failed, reason::POD_FAILED);
    world.step(3);
    let pod = world.pod.as_ref().unwrap();
    assert!(pod.metadata.deletion_timestamp.is_some(), "nobody else ends the shell that waits for it");
}

#[test]
fn a_runner_that_has_reported_is_asked_to_stop_before_its_node_tells_of_it() {
    let mut world = World::apply(RunApproval::Auto);
    world.step(1);
    world.report(2, &steps(&[(StepName::Apply, StepState::Running)]));
    world.cancel();
    for second in 3..5 {
        assert_eq!(action(&world.step(second)), None);
    }
    world.runs();
    assert_eq!(action(&world.step(5)), None);
}

#[test]
fn a_pod_that_its_node_never_lets_go_is_lost() {
    let mut world = World::apply(RunApproval::Auto);
    world.step(1);
    world.runs();
    // An operator that was away sees the deletion late. The runner may have been told by nobody until then.
    world.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at(30)));
    assert!(!must_stop(&world.run));
    let decision = world.step(1000);
    assert!(must_stop(&world.run), "the hub tells its runner");
    assert_eq!(decision.requeue_at, Some(at(1360)));
    world.step(1359);
    assert!(!world.status().phase.is_finished());
    world.step(1360);
    world.expect(RunPhase::Failed, reason::NODE_LOST);
}

#[test]
fn a_deleted_run_is_a_cancelled_one_that_goes_when_its_pod_has_ended() {
    // Whoever creates it need not know of that.
    let mut world = World::apply(RunApproval::Auto);
    world.run.metadata.finalizers = None;
    assert_eq!(action(&world.decide(1)), Some(&RunAction::AddFinalizer));
    world.step(1);
    assert!(is_held(&world.run) && world.pods_made == 1);
    world.runs();
    world.delete();
    assert_eq!(action(&world.step(2)), None, "terraform is asked to stop, and its pod lives");
    world.expect(RunPhase::Starting, reason::CANCELLED);
    let exit = Exit { code: 130, reason: Some(EndReason::Cancelled), message: None };
    world.report(3, &Progress { sequence: 2, exit: Some(exit), ..Progress::default() });
    world.step(4);
    world.expect(RunPhase::Cancelled, reason::CANCELLED);
    assert!(!is_held(&world.run));

    // What was deleted in the queue, or while it waited for a decision, is not started.
    let mut world = World::apply(RunApproval::Auto).placed(Some("other"), &["r"]);
    world.delete();
    world.step(1);
    world.step(2);
    world.expect(RunPhase::Cancelled, reason::CANCELLED);
    assert!(!is_held(&world.run) && world.pods_made == 0);
    let mut world = World::apply(RunApproval::Manual);
    world.step(1);
    world.report(10, &plans("sha256:a", true));
    world.delete();
    world.step(11);
    world.step(12);
    world.expect(RunPhase::Cancelled, reason::CANCELLED);
    assert!(!is_held(&world.run));

    // What cannot change the state holds nothing.
    assert_eq!(finalizers(&RunSpec { operation: Operation::Plan, ..RunSpec::default() }), None);
}

#[test]
fn timeouts_fire_when_they_say() {
    let limit = Some(knoll_api::Duration::from_secs(60));
    let queue = Timeouts { queue: limit.clone(), ..Timeouts::default() };
    let mut world = World::apply(RunApproval::Auto).placed(Some("other"), &["r"]).timeouts(queue);
    assert_eq!(world.step(1).requeue_at, Some(at(60)));
    world.step(60);
    world.expect(RunPhase::Cancelled, reason::TIMED_OUT);

    let pending = Timeouts { pending: limit.clone(), ..Timeouts::default() };
    let mut world = World::apply(RunApproval::Auto).timeouts(pending);
    world.step(1);
    assert_eq!(world.step(2).requeue_at, Some(at(61)));
    assert!(matches!(action(&world.step(61)), Some(RunAction::DeletePod { .. })));
    let mut on_its_way = world.clone();
    let mut unknown = world.clone();
    world.pod = None;
    world.step(62);
    world.expect(RunPhase::Failed, reason::TIMED_OUT);
    // A node that shows how the pod ends says that it was deleted, which is not why the run failed.
    let pod = on_its_way.pod.as_mut().unwrap();
    pod.metadata.deletion_timestamp = Some(Time(at(61)));
    pod.status = Some(PodStatus { phase: Some("Failed".to_owned()), ..PodStatus::default() });
    on_its_way.step(62);
    on_its_way.expect(RunPhase::Failed, reason::TIMED_OUT);
    unknown.dies("ContainerStatusUnknown", 137);
    unknown.step(62);
    unknown.expect(RunPhase::Failed, reason::TIMED_OUT);

    let review = Timeouts { review: limit, ..Timeouts::default() };
    let mut world = World::apply(RunApproval::Manual).timeouts(review);
    world.step(1);
    world.report(10, &plans("sha256:a", true));
    assert_eq!(world.step(11).requeue_at, Some(at(70)));
    world.step(70);
    world.expect(RunPhase::Discarded, reason::TIMED_OUT);
}

#[test]
fn a_cancelled_run_stops_wherever_it_is() {
    let mut queued = World::apply(RunApproval::Auto).placed(Some("other"), &["r"]);
    queued.cancel();
    queued.step(1);
    queued.expect(RunPhase::Cancelled, reason::CANCELLED);

    let mut starting = World::apply(RunApproval::Auto);
    starting.step(1);
    starting.cancel();
    assert!(matches!(action(&starting.step(2)), Some(RunAction::DeletePod { .. })));
    assert_eq!(starting.status().phase, RunPhase::Starting, "its pod may still be at work");
    starting.pod = None;
    starting.step(3);
    starting.expect(RunPhase::Cancelled, reason::CANCELLED);

    let mut running = World::apply(RunApproval::Auto);
    running.step(1);
    running.runs();
    running.report(2, &steps(&[(StepName::Apply, StepState::Running)]));
    running.cancel();
    let decision = running.step(3);
    assert_eq!((action(&decision), decision.requeue_at), (None, Some(at(303))), "the hub tells the runner first");
    assert!(matches!(action(&running.step(303)), Some(RunAction::DeletePod { .. })));
    running.report(
        304,
        &Progress {
            exit: Some(Exit { code: 130, reason: Some(EndReason::Cancelled), message: None }),
            ..steps(&[(StepName::Apply, StepState::Cancelled)])
        },
    );
    running.expect(RunPhase::Cancelled, reason::CANCELLED);

    let mut review = World::apply(RunApproval::Manual);
    review.step(1);
    review.report(2, &plans("sha256:a", true));
    review.cancel();
    review.step(3);
    review.expect(RunPhase::Cancelled, reason::CANCELLED);
}

#[test]
fn only_the_exact_digest_is_applied() {
    let mut world = World::apply(RunApproval::Manual);
    assert_eq!(creates(&world.step(1)), Some(Stage::Plan));
    world.report(2, &plans("sha256:a", true));
    world.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);
    assert!(conditions::holds(&world.status().conditions, condition::ACTIVE), "it keeps its place");

    world.approve("other", &reviewed("sha256:b"), Choice::Approve);
    assert_eq!(action(&world.step(3)), None);
    assert_eq!(
        conditions::find(&world.status().conditions, condition::APPROVED).unwrap().reason,
        reason::DIGEST_MISMATCH
    );

    world.approve("right", &reviewed("sha256:a"), Choice::Approve);
    assert_eq!(creates(&world.step(4)), Some(Stage::Apply));
    world.expect(RunPhase::Running, reason::POD_CREATED);
    assert_eq!(world.status().pod_name.as_deref(), Some("r-apply"));
    assert_eq!(world.status().decision.as_ref().unwrap().by, "user-of-right");
    assert!(conditions::holds(&world.status().conditions, condition::APPROVED));
    world.report(5, &ends(0));
    world.expect(RunPhase::Succeeded, reason::SUCCEEDED);
}

#[test]
fn a_discarded_plan_is_not_applied_and_an_empty_one_needs_nobody() {
    let mut world = World::apply(RunApproval::Manual);
    world.step(1);
    world.report(2, &plans("sha256:a", true));
    world.approve("no", &reviewed("sha256:a"), Choice::Discard);
    world.approve("yes", &reviewed("sha256:a"), Choice::Approve);
    world.step(3);
    world.expect(RunPhase::Discarded, reason::DISCARDED);

    let mut world = World::apply(RunApproval::Manual);
    world.step(1);
    world.report(2, &plans("sha256:a", false));
    world.expect(RunPhase::Succeeded, reason::SUCCEEDED);
}

#[test]
fn a_privileged_command_is_approved_before_it_queues() {
    let spec = RunSpec {
        operation: Operation::Command,
        command: Some("state".to_owned()),
        args: vec!["rm".to_owned(), "a.b".to_owned()],
        ..RunSpec::default()
    };
    let mut world = World::new(spec);
    world.workspace.as_mut().unwrap().spec.privileged_commands = vec!["state rm".to_owned()];
    world.step(1);
    world.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);
    let digest = world.status().review_digest.clone().unwrap();
    world.approve("yes", &digest, Choice::Approve);
    world.step(2);
    world.expect(RunPhase::Pending, reason::APPROVED);
    world = world.placed(Some("r"), &[]);
    assert_eq!(creates(&world.step(3)), Some(Stage::Whole));
    world.expect(RunPhase::Starting, reason::POD_CREATED);
}

#[test]
fn the_files_of_a_privileged_command_are_stored_before_it_is_reviewed() {
    let source = Source { inline: Some([("main.tf".to_owned(), String::new())].into()), ..Source::default() };
    let spec = RunSpec {
        operation: Operation::Command,
        command: Some("state rm".to_owned()),
        source: Some(source.clone()),
        ..RunSpec::default()
    };
    let mut world = World::new(spec);
    world.workspace.as_mut().unwrap().spec.privileged_commands = vec!["state rm".to_owned()];
    let mut refused = world.clone();
    assert_eq!(action(&world.step(1)), Some(&RunAction::FreezeCommand(Some(Box::new(source)))));
    world.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);
    assert_eq!(world.status().bundle.as_deref(), Some("sha256:files"));
    let digest = crate::approval::command_digest(&world.run.spec, world.status());
    assert_eq!(world.status().review_digest.as_ref(), Some(&digest));
    assert_eq!(action(&world.step(2)), None, "the files are stored once");

    refused.settle(RunOutcome::CommandRejected { reason: reason::SOURCE_FAILED, message: "no".to_owned() }, 2);
    refused.expect(RunPhase::Failed, reason::SOURCE_FAILED);
}

#[test]
fn a_pod_that_cannot_be_created_is_told_from_one_that_cannot_be_created_yet() {
    let mut world = World::apply(RunApproval::Auto);
    let mut earlier = Pod::default();
    earlier.metadata.name = Some("r-apply".to_owned());
    world.leftover = Some(earlier);
    assert_eq!(world.step(1).requeue_at, Some(at(6)), "the pod of an earlier run is still at work");
    world.expect(RunPhase::Pending, reason::POD_FAILED);
    world.leftover = None;
    let decided = Box::new(world.status().clone());
    let blocked = |reason, job| RunOutcome::PodBlocked { reason, message: "quota".to_owned(), job };
    world.settle(blocked(reason::POD_FAILED, None), 7);
    world.expect(RunPhase::Pending, reason::POD_FAILED);
    assert!(!reports_foreign_pod(&world.run));
    world.settle(blocked(reason::FOREIGN_POD, Some(Box::new(frozen(&PodSettings::default())))), 7);
    world.expect(RunPhase::Pending, reason::FOREIGN_POD);
    assert!(reports_foreign_pod(&world.run));
    assert_eq!(world.status().job.as_ref().unwrap().digest, "sha256:job", "it is frozen once");
    let rejected = RunOutcome::PodRejected { reason: reason::INVALID_SPEC, message: "no".to_owned(), status: decided };
    world.settle(rejected, 8);
    world.expect(RunPhase::Failed, reason::INVALID_SPEC);
}

#[test]
fn a_run_is_kept_as_long_as_it_says() {
    let mut world = World::apply(RunApproval::Auto);
    world.run.spec.ttl_after_finished = Some(knoll_api::Duration::from_secs(100));
    world.step(1);
    world.report(10, &ends(1));
    world.expect(RunPhase::Failed, reason::STEP_FAILED);
    world.pod = None;
    assert_eq!(world.step(11).requeue_at, Some(at(110)));
    assert_eq!(action(&world.step(110)), None, "its Workspace has not taken note of its end");
    world = world.placed(None, &[]);
    assert_eq!(action(&world.step(111)), Some(&RunAction::DeleteRun));
}

/// What can happen to a run, in any order.
#[derive(Clone, Debug)]
enum Happens {
    Controller,
    Placed(u8),
    WorkspaceGone,
    Runs,
    Dies,
    PodGone,
    Reports(Box<Progress>),
    Cancelled,
    Approved(bool),
}

fn happens() -> impl Strategy<Value = Happens> {
    let report = prop_oneof![
        Just(steps(&[(StepName::Init, StepState::Running)])),
        Just(steps(&[(StepName::Init, StepState::Succeeded), (StepName::Plan, StepState::Running)])),
        Just(plans("sha256:a", true)),
        Just(plans("sha256:a", false)),
        Just(ends(0)),
        Just(ends(1)),
    ];
    prop_oneof![
        6 => Just(Happens::Controller),
        2 => (0u8..3).prop_map(Happens::Placed),
        1 => Just(Happens::WorkspaceGone),
        1 => Just(Happens::Runs),
        1 => Just(Happens::Dies),
        1 => Just(Happens::PodGone),
        3 => report.prop_map(|progress| Happens::Reports(Box::new(progress))),
        1 => Just(Happens::Cancelled),
        2 => any::<bool>().prop_map(Happens::Approved),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_the_machine_keeps_its_promises(
        manual in any::<bool>(),
        events in prop::collection::vec(happens(), 0..40),
    ) {
        let approval = if manual { RunApproval::Manual } else { RunApproval::Auto };
        let mut world = World::apply(approval);
        let mut approved = false;
        for (second, event) in events.into_iter().enumerate() {
            let second = i64::try_from(second).unwrap() + 1;
            let before = world.run.status.clone().unwrap_or_default();
            let workspace = || Some(Workspace::new("w", WorkspaceSpec::default()));
            match event {
                Happens::Controller => {
                    let decision = world.decide(second);
                    prop_assert_eq!(&world.decide(second), &decision, "deciding twice is deciding once");
                    if let Some(stage) = creates(&decision) {
                        let active = world.workspace.as_ref().and_then(|w| w.status.as_ref()?.active.clone());
                        prop_assert!(active.as_deref() == Some("r") || stage == Stage::Apply, "a pod without the lock");
                        prop_assert!(stage != Stage::Apply || approved, "a plan that nobody approved");
                        prop_assert!(stage != Stage::Whole || !manual);
                    }
                    world.step(second);
                    let settled = world.decide(second);
                    if let Next::Status(status) = &settled.next {
                        prop_assert_eq!(status, world.status(), "a second look writes nothing");
                    }
                }
                Happens::Placed(0) => { world.workspace = workspace(); world = world.placed(Some("r"), &[]); }
                Happens::Placed(1) => { world.workspace = workspace(); world = world.placed(Some("x"), &["r"]); }
                Happens::Placed(_) => { world.workspace = workspace(); world = world.placed(None, &[]); }
                Happens::WorkspaceGone => world.workspace = None,
                Happens::Runs if world.pod.is_some() => world.runs(),
                Happens::Dies if world.pod.is_some() => world.dies("Error", 1),
                Happens::Runs | Happens::Dies => {}
                Happens::PodGone => world.pod = None,
                // The hub hears only of the pod that the status names.
                Happens::Reports(progress) if world.run.status.as_ref().is_some_and(|s| s.pod_uid.is_some()) => {
                    world.report(second, &progress);
                    let once = world.run.status.clone();
                    world.report(second, &progress);
                    prop_assert_eq!(&world.run.status, &once, "a report twice is a report once");
                }
                Happens::Reports(_) => {}
                Happens::Cancelled => world.cancel(),
                Happens::Approved(right) => {
                    approved |= right;
                    let name = format!("approval-{second}");
                    world.approve(&name, &reviewed(if right { "sha256:a" } else { "sha256:b" }), Choice::Approve);
                }
            }
            let after = world.run.status.clone().unwrap_or_default();
            if before.phase.is_finished() {
                prop_assert_eq!(before, after, "after an end nothing changes");
            } else {
                prop_assert!(may_follow(before.phase, after.phase), "{:?} -> {:?}", before.phase, after.phase);
            }
        }
        prop_assert!(world.pods_made <= if manual { 2 } else { 1 }, "one pod a stage");
    }
}

/// The transitions of the machine, as its module says.
fn may_follow(from: RunPhase, to: RunPhase) -> bool {
    use RunPhase::{Cancelled, Discarded, Failed, Pending, Queued, Review, Running, Starting, Succeeded};
    from == to
        || match from {
            Pending => matches!(to, Queued | Starting | Review | Cancelled | Failed),
            Queued => matches!(to, Pending | Starting | Cancelled | Failed),
            Starting => matches!(to, Running | Review | Succeeded | Failed | Cancelled),
            Running => matches!(to, Review | Succeeded | Failed | Cancelled),
            Review => matches!(to, Pending | Queued | Starting | Running | Discarded | Cancelled),
            Succeeded | Failed | Cancelled | Discarded => false,
        }
}
