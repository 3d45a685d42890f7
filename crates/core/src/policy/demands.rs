//! What one Run has to pass: the demands of the Policies, of its Workspace and of the Workspace's Stack together.

use knoll_api::{
    plan_mode::PlanMode,
    policy::{AllowedHooks, ReviewFloor},
    run::{Operation, Run, RunApproval, RunSpec},
    stack::Stack,
    verdict::IsolatedPlan,
    workspace::Workspace,
};
use kube::ResourceExt;

use super::{Effective, Reviewers, Violation, plan};
use crate::{
    frozen::FrozenJob,
    queue::{self, Lane},
    stack,
};

/// The command that runs any other.
const SHELL: &str = "sh";

/// Commands that are operations of a Run. The schema refuses them.
const OPERATIONS: [&str; 3] = ["apply", "destroy", "refresh"];

/// What a Run has to pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demands {
    /// The approval that holds: the Run's own, or a stricter one.
    pub approval: RunApproval,
    /// The Run needs an Approval before it starts, as it has no plan to look at; for this reason.
    pub before_start: Option<String>,
    /// Why it is reviewed whatever it asks for: a sentence that names the object and the field.
    pub review_reason: Option<String>,
    /// The rules of Policies judge its plan.
    pub is_judged: bool,
    /// A pod of its own describes the plan for them.
    pub isolated: Option<IsolatedPlan>,
    /// Who has to approve it.
    pub reviewers: Reviewers,
    /// What is not allowed. The Run must not start, and not go on.
    pub violations: Vec<Violation>,
}

/// The demands on a Run. `stack` is the Stack that has the name of the Workspace. A Run with a `frozen` job is judged by
/// that job, as its pods are made of nothing else; without one, by its Workspace.
#[must_use]
pub fn demands(
    run: &Run,
    workspace: &Workspace,
    frozen: Option<&FrozenJob>,
    stack: Option<&Stack>,
    policy: &Effective,
) -> Demands {
    let spec = &run.spec;
    let (floor, mut reason) = floor(spec, workspace, stack, policy);
    let before_start = before_start(spec, workspace, policy, floor);
    let is_judged = plan::is_judged(spec, policy);
    let mut approval = at_least(spec.approval, floor);
    if is_judged && approval == RunApproval::Prompt {
        // Terraform would plan and apply in one process, and nothing would judge the plan in between.
        approval = RunApproval::Manual;
        let judges = policy.judges().map(super::of_policy).collect::<Vec<_>>().join(", ");
        let why = format!("{judges} has rules on plans (spec.plan), so terraform cannot ask at a prompt.");
        reason.get_or_insert(why);
    }
    if let Some(why) = plan::review_reason(run) {
        approval = RunApproval::Manual;
        reason = Some(reason.map_or(why.clone(), |reason| format!("{reason} {why}")));
    }
    let owner = stack.filter(|stack| stack::is_owned(workspace, stack));
    let mut violations = match frozen {
        Some(job) => policy.check_frozen(job),
        None => policy.check_workspace(&workspace.spec),
    };
    if let Some(source) = &spec.source {
        violations.extend(policy.check_source(source));
    }
    // The cluster lets nobody but the operator mark a Run as that of a Stack.
    let of_stack = owner.is_some_and(|stack| stack::is_owned(run, stack));
    let hooks_of_stack = of_stack || owner.is_some_and(|stack| stack.spec.hooks == spec.hooks);
    violations.extend(policy.check_hooks(&spec.hooks, hooks_of_stack));
    if !spec.hooks.is_empty() && !hooks_of_stack {
        violations.extend(hook_could_do(workspace, policy));
        violations.extend(plan::hook_could_apply(policy));
    }
    if spec.snapshot.is_some() && !of_stack {
        violations.extend(policy.check_foreign_snapshot());
    }
    if spec.override_stack && stack::changed_by(run, workspace, stack).is_some() {
        violations.extend(policy.check_stack_override());
    }
    violations.extend(plan::not_judged(run, policy));
    let isolated = plan::isolated(spec, policy).unwrap_or_else(|conflict| {
        violations.push(conflict);
        None
    });
    Demands {
        approval,
        // A command is reviewed by its own rule, or because of the floor.
        review_reason: before_start.clone().into_iter().chain(reason).reduce(|all, more| format!("{all} {more}")),
        before_start,
        is_judged,
        isolated,
        reviewers: policy.reviewers_of(run),
        violations,
    }
}

/// The least that the plan of a Run has to pass, and a sentence that names the object which demands it.
fn floor(
    spec: &RunSpec,
    workspace: &Workspace,
    stack: Option<&Stack>,
    policy: &Effective,
) -> (ReviewFloor, Option<String>) {
    let (of_policy, from) = policy.floor();
    let of_stack = stack.map(|stack| ReviewFloor::from(stack.spec.approval)).unwrap_or_default();
    let privileged = operations(spec)
        .into_iter()
        .find_map(|operation| is_privileged(operation, workspace, policy).map(|from| (operation, from)));
    let of_operation = if privileged.is_some() { ReviewFloor::Manual } else { ReviewFloor::Auto };
    let floor = of_policy.max(of_stack).max(of_operation);
    let what = if floor == ReviewFloor::ManualOnDestroy { "a review of plans that destroy" } else { "a review" };
    let reason = if floor == ReviewFloor::Auto {
        None
    } else if let Some(from) = from.filter(|_| floor == of_policy) {
        Some(format!("{} demands {what} (spec.review.floor).", super::of_policy(from)))
    } else if let Some(stack) = stack.filter(|_| floor == of_stack) {
        Some(format!("Stack `{}` demands {what} (spec.approval).", stack.name_any()))
    } else {
        privileged.map(|(operation, from)| format!("`{}` needs an Approval by {from}.", operation.as_str()))
    };
    (floor, reason)
}

/// The approval of a Run that asks for `own`, where at least `floor` is demanded.
fn at_least(own: RunApproval, floor: ReviewFloor) -> RunApproval {
    match (own, floor) {
        (RunApproval::Manual, _) | (_, ReviewFloor::Manual) => RunApproval::Manual,
        // The attached client is the user who started the run, so `Prompt` is no review.
        (RunApproval::ManualOnDestroy, _) | (_, ReviewFloor::ManualOnDestroy) => RunApproval::ManualOnDestroy,
        (RunApproval::Auto | RunApproval::Prompt, ReviewFloor::Auto) => own,
    }
}

/// Why a Run without a plan needs an Approval before it starts, if it does.
fn before_start(spec: &RunSpec, workspace: &Workspace, policy: &Effective, floor: ReviewFloor) -> Option<String> {
    match spec.operation {
        Operation::Plan => {
            let from = is_privileged(Operation::Plan, workspace, policy)?;
            Some(format!("Plans need an Approval by {from}."))
        }
        Operation::Command => {
            let words: Vec<&str> = words(spec).collect();
            if let Some(operation) = words.first().filter(|word| OPERATIONS.contains(word)) {
                return Some(format!(
                    "The command `{operation}` applies a plan that nobody sees, so it needs an Approval; write `operation: {operation}` instead."
                ));
            }
            let of_list = privileged(workspace, policy).find(|(command, _)| {
                let command: Vec<&str> = command.split_whitespace().collect();
                // Terraform takes the rest of a command from variables such as `TF_CLI_ARGS_state`.
                !command.is_empty() && (words.starts_with(&command) || command.starts_with(&words))
            });
            if let Some((command, from)) = of_list {
                return Some(format!("The command `{command}` needs an Approval by {from}."));
            }
            if let (Some(&SHELL), Some((command, from))) = (words.first(), privileged(workspace, policy).next()) {
                return Some(format!(
                    "`{command}` needs an Approval by {from}, and `{SHELL}` could run it without one."
                ));
            }
            if let (Some(&SHELL), Some((field, from))) = (words.first(), policy.restriction()) {
                return Some(format!(
                    "{from} says what may run ({field}), and `{SHELL}` could run something else, so it needs an Approval."
                ));
            }
            if queue::lane(spec) != Lane::Queue {
                return None;
            }
            let of_floor = (floor > ReviewFloor::Auto).then(|| {
                "The command may change something and has no plan to review, so it needs an Approval before it starts."
                    .to_owned()
            });
            of_floor.or_else(|| plan::command_reason(policy))
        }
        Operation::Apply | Operation::Destroy | Operation::Refresh => None,
    }
}

/// The operations of a Run that plans and applies: its own, and those that its flags make of it.
fn operations(spec: &RunSpec) -> Vec<Operation> {
    if matches!(spec.operation, Operation::Plan | Operation::Command) {
        return Vec::new();
    }
    let PlanMode { destroy, refresh_only } = PlanMode::of(spec.operation, &spec.args);
    let modes = [(destroy, Operation::Destroy), (refresh_only, Operation::Refresh)];
    let of_mode = modes.into_iter().filter(|(is_it, _)| *is_it).map(|(_, operation)| operation);
    std::iter::once(spec.operation).chain(of_mode).collect()
}

/// The object by which an operation is privileged.
fn is_privileged(operation: Operation, workspace: &Workspace, policy: &Effective) -> Option<String> {
    privileged(workspace, policy).find(|(command, _)| command.trim() == operation.as_str()).map(|(_, from)| from)
}

/// The privileged operations and commands, and the objects that say so.
fn privileged<'a>(workspace: &'a Workspace, policy: &'a Effective) -> impl Iterator<Item = (&'a str, String)> {
    let of_policies = policy.rules.iter().flat_map(|rule| {
        let lists = || rule.allow.privileged.iter();
        let operations = lists().flat_map(|privileged| &privileged.operations).map(|operation| operation.as_str());
        let commands = lists().flat_map(|privileged| &privileged.commands).map(String::as_str);
        operations.chain(commands).map(|command| (command, super::of_policy(&rule.policy)))
    });
    let of_workspace = workspace.spec.privileged_commands.iter();
    let name = format!("Workspace `{}`", workspace.name_any());
    of_policies.chain(of_workspace.map(move |command| (command.as_str(), name.clone())))
}

impl Effective {
    /// The first field that says what may run, and its Policy. Whoever has a shell in the pod could run something else.
    fn restriction(&self) -> Option<(&'static str, String)> {
        self.rules.iter().find_map(|rule| {
            let allow = &rule.allow;
            let fields = [
                (allow.sources.is_some(), "spec.allow.sources"),
                (allow.tools.is_some(), "spec.allow.tools"),
                (allow.hooks.is_some_and(|hooks| hooks != AllowedHooks::Any), "spec.allow.hooks"),
                (allow.stack_override == Some(false), "spec.allow.stackOverride"),
            ];
            let (_, field) = fields.into_iter().find(|(is_set, _)| *is_set)?;
            Some((field, super::of_policy(&rule.policy)))
        })
    }
}

/// A hook runs any command with the rights of the run, so it could run a privileged one.
fn hook_could_do(workspace: &Workspace, policy: &Effective) -> Option<Violation> {
    let (command, from) = privileged(workspace, policy).next()?;
    let field = if from.starts_with("Policy") { "spec.allow.privileged" } else { "spec.privilegedCommands" };
    Some(Violation {
        from,
        field: field.to_owned(),
        message: format!(
            "`{command}` needs an Approval, and a hook of the Run could run it without one. Leave the hooks out, or put them into the Stack of the Workspace."
        ),
    })
}

/// The words of a command. Terraform joins the words before it looks for a subcommand, so a blank in an argument parts
/// words there, too.
fn words(spec: &RunSpec) -> impl Iterator<Item = &str> {
    let command = spec.command.as_deref().unwrap_or_default();
    command.split_whitespace().chain(spec.args.iter().flat_map(|arg| arg.split_whitespace()))
}
