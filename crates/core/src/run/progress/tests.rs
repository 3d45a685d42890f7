#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::run::{FrozenJobSummary, Operation, PlanSummary, RunApproval, RunSpec};
use proptest::prelude::*;

use super::*;
use crate::conditions;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn running(approval: RunApproval) -> Run {
    let spec = RunSpec { workspace: "w".to_owned(), operation: Operation::Apply, approval, ..RunSpec::default() };
    let mut run = Run::new("r", spec);
    run.metadata.namespace = Some("n".to_owned());
    let job = Some(FrozenJobSummary { digest: "job".to_owned(), ..FrozenJobSummary::default() });
    let bundle = Some("files".to_owned());
    run.status = Some(RunStatus { phase: RunPhase::Starting, job, bundle, ..RunStatus::default() });
    run
}

fn step(name: StepName, state: StepState, attempts: u32, started: i64) -> StepStatus {
    let finished_at = state.is_finished().then(|| MicroTime(at(started + 1)));
    StepStatus { state, attempts, finished_at, ..StepStatus::started(name, MicroTime(at(started)), 0) }
}

#[test]
fn a_late_report_never_undoes_a_newer_one() {
    let mut run = running(RunApproval::Auto);
    let newer = Progress { steps: vec![step(StepName::Init, StepState::Succeeded, 2, 5)], ..Progress::default() };
    let older = Progress { steps: vec![step(StepName::Init, StepState::Running, 2, 5)], ..Progress::default() };
    run.status = Some(merge(&run, &newer, at(10)));
    let merged = merge(&run, &older, at(11));
    assert_eq!(merged.steps[0].state, StepState::Succeeded);
}

#[test]
fn a_prompt_is_in_the_status_as_long_as_terraform_waits() {
    let mut run = running(RunApproval::Prompt);
    let ready = |status: &RunStatus| {
        let ready = conditions::find(&status.conditions, condition::READY).unwrap();
        (ready.reason.clone(), ready.message.clone())
    };
    let prompted_at = Some(MicroTime(at(0)));
    let steps = vec![step(StepName::Apply, StepState::Running, 1, 5)];
    let asks = Progress { steps: steps.clone(), prompted_at, ..Progress::default() };
    run.status = Some(merge(&run, &asks, at(10)));
    let message = "Waiting for an answer in a terminal since 1970-01-01T00:00:00Z: knoll attach r -n n";
    assert_eq!(ready(run.status.as_ref().unwrap()), (reason::WAITING_FOR_ANSWER.to_owned(), message.to_owned()));
    let answered = merge(&run, &Progress { steps, sequence: 1, ..Progress::default() }, at(11));
    assert_eq!(ready(&answered).0, reason::PROGRESSING);
}

#[test]
fn a_second_pod_does_its_steps_again_and_keeps_the_others() {
    let mut run = running(RunApproval::Auto);
    let first = [step(StepName::Init, StepState::Succeeded, 1, 5), step(StepName::Plan, StepState::Succeeded, 1, 6)];
    run.status = Some(merge(&run, &Progress { steps: first.to_vec(), ..Progress::default() }, at(10)));
    let second = Progress { steps: vec![step(StepName::Init, StepState::Running, 1, 20)], ..Progress::default() };
    let merged = merge(&run, &second, at(21));
    let states: Vec<_> = merged.steps.iter().map(|step| (step.name, step.state)).collect();
    assert_eq!(states, [(StepName::Init, StepState::Running), (StepName::Plan, StepState::Succeeded)]);
}

#[test]
fn steps_stand_in_their_order() {
    let run = running(RunApproval::Auto);
    let steps = [StepName::Apply, StepName::Setup, StepName::Plan].map(|name| step(name, StepState::Running, 1, 1));
    let merged = merge(&run, &Progress { steps: steps.to_vec(), ..Progress::default() }, at(2));
    let names: Vec<_> = merged.steps.iter().map(|step| step.name).collect();
    assert_eq!(names, [StepName::Setup, StepName::Plan, StepName::Apply]);
}

#[track_caller]
fn check_end(approval: RunApproval, exit: Exit, plan: Option<PlanSummary>, phase: RunPhase, reason: &str) -> RunStatus {
    let run = running(approval);
    let steps = vec![step(StepName::Plan, StepState::Failed, 1, 1), step(StepName::Apply, StepState::Running, 1, 2)];
    let merged = merge(&run, &Progress { steps, plan, exit: Some(exit), ..Progress::default() }, at(9));
    let ready = conditions::find(&merged.conditions, condition::READY).unwrap();
    assert_eq!((merged.phase, ready.reason.as_str()), (phase, reason), "{}", ready.message);
    merged
}

#[test]
fn the_last_report_ends_the_run() {
    let exit = |code, reason| Exit { code, reason, message: None };
    let plan = |digest: Option<&str>| PlanSummary {
        digest: digest.map(str::to_owned),
        text_digest: Some("text".to_owned()),
        changes: true,
        ..PlanSummary::default()
    };
    let auto = RunApproval::Auto;
    let manual = RunApproval::Manual;
    check_end(auto, exit(0, None), None, RunPhase::Succeeded, reason::SUCCEEDED);
    check_end(auto, exit(1, None), None, RunPhase::Failed, reason::STEP_FAILED);
    check_end(auto, exit(1, Some(EndReason::TimedOut)), None, RunPhase::Failed, reason::TIMED_OUT);
    check_end(auto, exit(130, Some(EndReason::Cancelled)), None, RunPhase::Cancelled, reason::CANCELLED);
    check_end(manual, exit(1, None), Some(plan(Some("d"))), RunPhase::Failed, reason::STEP_FAILED);
    check_end(manual, exit(0, None), Some(plan(None)), RunPhase::Failed, reason::RUNNER_LOST);
    let unread = PlanSummary { text_digest: None, ..plan(Some("d")) };
    check_end(manual, exit(0, None), Some(unread), RunPhase::Failed, reason::RUNNER_LOST);
    let review =
        check_end(manual, exit(0, None), Some(plan(Some("d"))), RunPhase::Review, reason::WAITING_FOR_APPROVAL);
    assert_eq!(review.review_digest, approval::plan_digest(&review));
    assert!(review.review_digest.is_some());
    assert_eq!(status::step(&review, StepName::Review).unwrap().state, StepState::Waiting);
    assert_eq!(review.exit_code, None);
}

/// Pictures of one run in the order in which a runner takes them.
fn pictures() -> Vec<Progress> {
    let names = [StepName::Setup, StepName::Init, StepName::Plan, StepName::Apply];
    let mut steps = Vec::new();
    let mut pictures = Vec::new();
    for (name, second) in names.into_iter().zip(1..) {
        steps.push(step(name, StepState::Running, 1, second * 10));
        pictures.push(steps.clone());
        steps.pop();
        steps.push(step(name, StepState::Succeeded, 1, second * 10));
        pictures.push(steps.clone());
    }
    let numbered = pictures.into_iter().zip(1..);
    numbered.map(|(steps, sequence)| Progress { sequence, steps, ..Progress::default() }).collect()
}

proptest! {
    #[test]
    fn reports_in_any_order_come_to_the_newest(order in prop::collection::vec(0usize..8, 1..30)) {
        let pictures = pictures();
        let mut run = running(RunApproval::Auto);
        for index in &order {
            run.status = Some(merge(&run, &pictures[*index], at(100)));
        }
        let newest = order.iter().max().unwrap();
        prop_assert_eq!(&run.status.unwrap().steps, &pictures[*newest].steps);
    }
}

#[test]
fn a_pod_that_was_stopped_fails_its_run_unless_that_was_asked_for() {
    let stopped = Progress {
        exit: Some(Exit { code: 130, reason: Some(EndReason::PodDeleted), message: None }),
        ..Progress::default()
    };
    let mut run = running(RunApproval::Auto);
    assert_eq!(merge(&run, &stopped, at(9)).phase, RunPhase::Failed);
    run.metadata.annotations = Some([(knoll_api::names::annotation::CANCEL.to_owned(), String::new())].into());
    assert_eq!(merge(&run, &stopped, at(9)).phase, RunPhase::Cancelled);
}
