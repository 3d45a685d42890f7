//! Which steps a run has, and which of them each of its pods does.

use std::collections::BTreeMap;

use knoll_api::{
    hooks::Hook,
    pod::PodSettings,
    run::{FrozenJobSummary, Operation, Run, RunApproval, RunSpec, RunStatus, StepName, Timeouts},
    workspace::Workspace,
};

use crate::queue::{self, Lane};

pub use knoll_api::wire::Stage;

/// The approval that holds for the run: the one that its status names, or its own before it has a pod.
#[must_use]
pub fn approval(spec: &RunSpec, status: &RunStatus) -> RunApproval {
    status.approval.unwrap_or(spec.approval)
}

/// Whether the plan of the run is reviewed before it is applied.
#[must_use]
pub fn is_reviewed(spec: &RunSpec, status: &RunStatus) -> bool {
    plans_and_applies(spec) && matches!(approval(spec, status), RunApproval::Manual | RunApproval::ManualOnDestroy)
}

/// Whether one pod plans and another one applies: because of a review, because the rules of Policies judge the plan in
/// between, or because they have different service accounts.
#[must_use]
pub fn is_split(spec: &RunSpec, status: &RunStatus) -> bool {
    let differ = |job: &FrozenJobSummary| job.plan_service_account != job.apply_service_account;
    let is_judged = status.plan_verdict.is_some();
    is_reviewed(spec, status) || (plans_and_applies(spec) && (is_judged || status.job.as_ref().is_some_and(differ)))
}

/// Whether the run would plan and apply with different service accounts of these settings.
#[must_use]
pub fn has_two_accounts(spec: &RunSpec, settings: &PodSettings) -> bool {
    plans_and_applies(spec) && settings.plan_account() != settings.apply_account()
}

/// The service account of a pod of this stage, if the user named one. A command that cannot change the state has the
/// one of the plan.
#[must_use]
pub fn account<'a>(settings: &'a PodSettings, spec: &RunSpec, stage: Stage) -> Option<&'a str> {
    match stage {
        Stage::Plan => settings.plan_account(),
        Stage::Judge => None,
        Stage::Apply => settings.apply_account(),
        Stage::Whole if queue::lane(spec) == Lane::AtOnce => settings.plan_account(),
        Stage::Whole => settings.apply_account(),
    }
}

pub(crate) fn plans_and_applies(spec: &RunSpec) -> bool {
    matches!(spec.operation, Operation::Apply | Operation::Destroy | Operation::Refresh)
}

/// The stage of the run's current pod, or of the one to be created next.
#[must_use]
pub fn stage(spec: &RunSpec, status: &RunStatus) -> Stage {
    match (is_split(spec, status), &status.decision) {
        (false, _) => Stage::Whole,
        (true, None) if is_handed_over(status) => Stage::Judge,
        (true, None) => Stage::Plan,
        (true, Some(_)) => Stage::Apply,
    }
}

/// Whether the pod that plans has done its work, and another one describes the stored plan for the rules of Policies.
fn is_handed_over(status: &RunStatus) -> bool {
    let is_isolated = status.plan_verdict.as_ref().is_some_and(|verdict| verdict.isolated.is_some());
    is_isolated && status.steps.iter().any(|step| step.name == StepName::Judge)
}

/// Whether the run has a plan and no pod: the one that describes the plan has to be created.
#[must_use]
pub fn awaits_judge(spec: &RunSpec, status: &RunStatus) -> bool {
    status.pod_uid.is_none() && stage(spec, status) == Stage::Judge
}

/// The steps that a pod of this stage does, in order. Hooks that the run does not have make no step.
#[must_use]
pub fn of_stage(spec: &RunSpec, status: &RunStatus, stage: Stage) -> Vec<StepName> {
    // Where terraform asks, it plans and applies in one process.
    let asks = approval(spec, status) == RunApproval::Prompt && spec.operation != Operation::Plan;
    StepName::ALL
        .into_iter()
        .filter(|step| belongs(spec, asks, stage, *step))
        .filter(|step| !is_hook(*step) || hooks_of(&spec.hooks, *step).next().is_some())
        .collect()
}

/// The hooks of one step, in their order.
pub fn hooks_of(hooks: &[Hook], step: StepName) -> impl Iterator<Item = &Hook> {
    hooks.iter().filter(move |hook| StepName::from(hook.step) == step)
}

/// How often the run's steps may be tried, for those that may be tried more than once.
#[must_use]
pub fn attempts(spec: &RunSpec) -> BTreeMap<StepName, u32> {
    let retry = spec.retry.clone().unwrap_or_default();
    StepName::ALL.into_iter().map(|step| (step, retry.attempts(step))).filter(|(_, attempts)| *attempts > 1).collect()
}

/// The limits of a run: its own, its Workspace's where it has none, those that Policies supply where neither has one, and
/// the defaults.
#[must_use]
pub fn timeouts(spec: &RunSpec, workspace: Option<&Workspace>, supplied: &Timeouts) -> Timeouts {
    let own = spec.timeouts.clone().unwrap_or_default();
    let inherited = workspace.and_then(|workspace| workspace.spec.timeouts.clone()).unwrap_or_default();
    let mut timeouts = own.or(&inherited).or(supplied);
    timeouts.pending.get_or_insert(Timeouts::DEFAULT_PENDING.into());
    timeouts
}

/// The limits of a run that has a pod: those that its status names, if Policies have a part in them.
#[must_use]
pub fn timeouts_in_force(run: &Run, workspace: &Workspace) -> Timeouts {
    let of_policies = run.status.as_ref().and_then(|status| status.timeouts.clone());
    of_policies.unwrap_or_else(|| timeouts(&run.spec, Some(workspace), &Timeouts::default()))
}

/// The timeouts of the steps that run in a pod, in whole seconds.
#[must_use]
pub fn in_seconds(timeouts: &Timeouts) -> BTreeMap<StepName, u64> {
    let limits = StepName::ALL.into_iter().filter_map(|step| Some((step, timeouts.of_step(step)?)));
    limits.map(|(step, limit)| (step, limit.get().as_secs().max(1))).collect()
}

/// Whether a step runs hooks and nothing else.
pub(crate) fn is_hook(step: StepName) -> bool {
    use StepName::{PostApply, PostInit, PostPlan, PreApply, PreInit, PrePlan};
    matches!(step, PreInit | PostInit | PrePlan | PostPlan | PreApply | PostApply)
}

/// Whether a pod of this stage does the step. A second pod sets up and initialises again: it has a new disk.
fn belongs(spec: &RunSpec, asks: bool, stage: Stage, step: StepName) -> bool {
    if stage == Stage::Judge {
        return matches!(step, StepName::Setup | StepName::Init | StepName::Judge);
    }
    let operation = spec.operation;
    let plans = stage != Stage::Apply && operation != Operation::Command && !asks;
    let applies = stage != Stage::Plan && !matches!(operation, Operation::Plan | Operation::Command);
    match step {
        StepName::Setup => true,
        StepName::PreInit | StepName::Init | StepName::PostInit => !initialises_itself(spec),
        StepName::PrePlan | StepName::Plan | StepName::PostPlan => plans,
        StepName::PreApply | StepName::Apply | StepName::PostApply | StepName::Outputs => applies,
        StepName::Command => operation == Operation::Command,
        // The review is done by no pod, and the description of the stored plan by one of its own.
        StepName::Review | StepName::Judge => false,
    }
}

/// Whether the run's command is `init`, or one that needs none.
fn initialises_itself(spec: &RunSpec) -> bool {
    spec.operation == Operation::Command
        && matches!(spec.command.as_deref(), Some("init" | "version" | "fmt" | "get" | "help"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use knoll_api::hooks::HookStep;

    #[track_caller]
    fn check(operation: Operation, stage: Stage, hooks: &[HookStep], expect: &str) {
        let hooks = hooks.iter().map(|step| Hook { step: *step, ..Hook::default() }).collect();
        let spec = RunSpec { operation, hooks, ..RunSpec::default() };
        let steps: Vec<_> = of_stage(&spec, &RunStatus::default(), stage).into_iter().map(StepName::as_str).collect();
        assert_eq!(steps.join(" "), expect);
    }

    #[test]
    fn the_steps_of_each_operation() {
        check(Operation::Plan, Stage::Whole, &[], "setup init plan");
        check(Operation::Apply, Stage::Whole, &[], "setup init plan apply outputs");
        check(Operation::Destroy, Stage::Whole, &[], "setup init plan apply outputs");
        check(Operation::Refresh, Stage::Whole, &[], "setup init plan apply outputs");
        check(Operation::Command, Stage::Whole, &[], "setup init command");
    }

    #[test]
    fn where_terraform_asks_there_is_one_step() {
        let steps = |operation, command: Option<&str>| {
            let command = command.map(str::to_owned);
            let spec = RunSpec { operation, command, approval: RunApproval::Prompt, ..RunSpec::default() };
            of_stage(&spec, &RunStatus::default(), Stage::Whole)
                .into_iter()
                .map(StepName::as_str)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(steps(Operation::Apply, None), "setup init apply outputs");
        assert_eq!(steps(Operation::Destroy, None), "setup init apply outputs");
        assert_eq!(steps(Operation::Plan, None), "setup init plan");
        assert_eq!(steps(Operation::Command, Some("init")), "setup command");
        assert_eq!(steps(Operation::Command, Some("output")), "setup init command");
    }

    #[test]
    fn a_review_parts_the_steps_in_two() {
        check(Operation::Apply, Stage::Plan, &[], "setup init plan");
        check(Operation::Apply, Stage::Apply, &[], "setup init apply outputs");
    }

    #[test]
    fn the_pod_that_describes_a_stored_plan_runs_no_hook() {
        check(Operation::Apply, Stage::Judge, &[HookStep::PreInit, HookStep::PostInit], "setup init judge");
        check(Operation::Destroy, Stage::Judge, &[HookStep::PostPlan], "setup init judge");
    }

    #[test]
    fn hooks_make_steps_where_they_are_asked_for() {
        let all = [HookStep::PreInit, HookStep::PostInit, HookStep::PrePlan, HookStep::PostPlan, HookStep::PreApply];
        check(
            Operation::Apply,
            Stage::Whole,
            &all,
            "setup pre-init init post-init pre-plan plan post-plan pre-apply apply outputs",
        );
        check(Operation::Apply, Stage::Plan, &all, "setup pre-init init post-init pre-plan plan post-plan");
        check(
            Operation::Apply,
            Stage::Apply,
            &[HookStep::PostPlan, HookStep::PostApply],
            "setup init apply post-apply outputs",
        );
        check(Operation::Plan, Stage::Whole, &[HookStep::PreApply], "setup init plan");
    }

    #[test]
    fn apply_is_never_tried_twice() {
        let attempts = attempts(&RunSpec::default());
        assert_eq!(attempts.get(&StepName::Init), Some(&3));
        assert_eq!(attempts.get(&StepName::Apply), None);
    }
}
