//! Drift: changes made outside of Knoll.
//!
//! *Guarantees.* No check starts while another Run holds the lock of the Workspace. Stacks with the same interval check at
//! different times, and each at a fixed distance from its last check.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{
    Purpose,
    names::{condition, reason},
    run::{ChangeAction, PlanSummary, ResourceChange, Run, RunPhase},
    stack::{DriftAction, DriftIgnore, DriftSpec, DriftStatus, Stack, StackStatus},
};
use kube::ResourceExt;

use super::{StackFacts, account};
use crate::conditions::{ConditionWriter, Truth, find};

const IN_SYNC: &str = "The infrastructure matches the applied revision.";

/// The number of resources that a message names.
const NAMED: usize = 3;

/// What follows for a Stack whose newest revision is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NextCheck {
    /// The Run that is due.
    pub launch: Option<Purpose>,
    /// The time of the next check, if none is due.
    pub check_at: Option<Timestamp>,
}

/// Decides on the next check, or on the correction of the drift that the last one found.
pub(super) fn next(facts: &StackFacts<'_>, status: &StackStatus, now: Timestamp) -> NextCheck {
    let Some(spec) = &facts.stack.spec.drift else {
        return NextCheck::default();
    };
    // The Workspace lets go of its lock a moment after the end of a Run.
    let active = facts.workspace.and_then(|workspace| workspace.status.as_ref()?.active.as_ref());
    let free = active.is_none_or(|active| status.last_run.as_ref() == Some(active));
    let found = status.drift.clone().unwrap_or_default();
    let to_correct = found.since.is_some() && found.corrected_by.is_none() && spec.action != DriftAction::Report;
    if to_correct && free {
        return NextCheck { launch: Some(Purpose::Correct), check_at: None };
    }
    match due(facts.stack, spec, status) {
        Some(due) if due <= now && free => NextCheck { launch: Some(Purpose::Drift), check_at: None },
        // The end of the Run that holds the lock is an event.
        Some(due) if due <= now => NextCheck::default(),
        due => NextCheck { launch: None, check_at: due },
    }
}

/// Removes what an earlier spec with drift checks has left in the status.
pub(super) fn forget(status: &mut StackStatus) {
    status.drift = None;
    status.conditions.retain(|found| found.type_ != condition::DRIFTED || found.reason == reason::STATE_CHANGED);
}

/// Sets `Drifted` when a Run that the Stack has not started has written the state since the Stack last knew it. An apply
/// of the Stack, or a drift check, makes the state known again.
pub(super) fn notice_state(facts: &StackFacts<'_>, status: &mut StackStatus, now: Timestamp) {
    let Some(state) = facts.state else { return };
    let is_own = |run: &String| status.started_runs.iter().any(|own| own.name == *run);
    let foreign = state.run.as_ref().filter(|run| !is_own(run));
    let (name, namespace) = (facts.stack.name_any(), facts.stack.namespace().unwrap_or_default());
    let generation = facts.stack.metadata.generation;
    match (foreign, &status.known_state) {
        (Some(run), Some(known)) if *known != state.digest => {
            let message = format!(
                "Run `{run}` changed the state, and this Stack has not started that run. To see the difference: knoll stack plan {name} -n {namespace}. To \
                 apply the Stack again: knoll stack apply {name} -n {namespace}."
            );
            let mut conditions = ConditionWriter::new(&mut status.conditions, generation, now);
            conditions.set(condition::DRIFTED, true, reason::STATE_CHANGED, message);
        }
        _ => {
            status.known_state = Some(state.digest.clone());
            let was_changed = find(&status.conditions, condition::DRIFTED)
                .is_some_and(|drifted| drifted.reason == reason::STATE_CHANGED);
            if was_changed && facts.stack.spec.drift.is_none() {
                status.conditions.retain(|found| found.type_ != condition::DRIFTED);
            } else if was_changed {
                let mut conditions = ConditionWriter::new(&mut status.conditions, generation, now);
                conditions.set(condition::DRIFTED, false, reason::IN_SYNC, IN_SYNC);
            }
        }
    }
}

/// A drift check has compared the state, whoever has written it before the check began.
pub(super) fn compared(facts: &StackFacts<'_>, check: &Run, status: &mut StackStatus) {
    let began = check.status.as_ref().and_then(|status| status.started_at.as_ref());
    if let (Some(state), Some(began)) = (facts.state, began)
        && state.updated_at.as_ref().is_some_and(|written| written.0 < began.0)
    {
        status.known_state = Some(state.digest.clone());
    }
}

/// The time of the next check.
fn due(stack: &Stack, spec: &DriftSpec, status: &StackStatus) -> Option<Timestamp> {
    let checked = status.drift.as_ref().and_then(|drift| drift.checked_at.as_ref());
    let last = [checked, status.applied_at.as_ref()].into_iter().flatten().map(|time| time.0).max()?;
    let interval = spec.interval.get();
    last.checked_add(interval).ok()?.checked_add(jitter(&stack.uid().unwrap_or_default(), interval)).ok()
}

/// Up to a tenth of the interval, always the same for one Stack.
fn jitter(uid: &str, interval: std::time::Duration) -> std::time::Duration {
    // FNV-1a: the values only have to spread.
    let hash = uid
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let tenth = u64::try_from(interval.as_millis() / 10).unwrap_or(u64::MAX).max(1);
    std::time::Duration::from_millis(hash % tenth)
}

/// A revision was just applied, so there is no drift.
pub(super) fn clear(stack: &Stack, status: &mut StackStatus, at: &MicroTime) {
    if let Some(drift) = &mut status.drift {
        *drift = DriftStatus { checked_at: Some(at.clone()), run: drift.run.take(), ..DriftStatus::default() };
        let mut conditions = ConditionWriter::new(&mut status.conditions, stack.metadata.generation, at.0);
        conditions.set(condition::DRIFTED, false, reason::IN_SYNC, IN_SYNC);
    }
}

/// Accounts for the end of a drift check.
pub(super) fn account(stack: &Stack, run: &Run, status: &mut StackStatus, at: &MicroTime) {
    let Some(ended) = &run.status else { return };
    let before = status.drift.take().unwrap_or_default();
    let mut next =
        DriftStatus { checked_at: Some(at.clone()), run: run.metadata.name.clone(), ..DriftStatus::default() };
    let generation = stack.metadata.generation;
    if ended.phase != RunPhase::Succeeded {
        // The result is not known, so the one before stays. A check that was cancelled says nothing.
        status.drift = Some(DriftStatus { checked_at: next.checked_at, run: next.run, ..before });
        if ended.phase == RunPhase::Failed {
            let message = format!("Run `{}` failed: {}", run.name_any(), account::why(run).message);
            ConditionWriter::new(&mut status.conditions, generation, at.0).set(
                condition::DRIFTED,
                Truth::Unknown,
                reason::DRIFT_UNKNOWN,
                message,
            );
        }
        return;
    }
    let ignore = stack.spec.drift.as_ref().map(|drift| drift.ignore.as_slice()).unwrap_or_default();
    let plan = ended.plan.clone().unwrap_or_default();
    let counted: Vec<&ResourceChange> = plan.resources.iter().filter(|change| counts(change, ignore)).collect();
    for change in &counted {
        match change.action {
            ChangeAction::Create => next.add += 1,
            ChangeAction::Update => next.change += 1,
            ChangeAction::Delete | ChangeAction::Unknown => next.destroy += 1,
            ChangeAction::Replace => {
                next.add += 1;
                next.destroy += 1;
            }
            ChangeAction::Read
            | ChangeAction::Import
            | ChangeAction::Move
            | ChangeAction::Forget
            | ChangeAction::Invoke => {}
        }
    }
    let differs = !counted.is_empty() || plan.omitted > 0 || (plan.changes && plan.resources.is_empty());
    let mut conditions = ConditionWriter::new(&mut status.conditions, generation, at.0);
    if differs {
        next.since = before.since.or_else(|| Some(at.clone()));
        conditions.set(condition::DRIFTED, true, reason::DRIFTED, describe(&next, &counted, &plan));
    } else {
        conditions.set(condition::DRIFTED, false, reason::IN_SYNC, IN_SYNC);
    }
    status.drift = Some(next);
}

fn describe(drift: &DriftStatus, counted: &[&ResourceChange], plan: &PlanSummary) -> String {
    let DriftStatus { add, change, destroy, .. } = drift;
    let named: Vec<String> = counted
        .iter()
        .take(NAMED)
        .map(|change| match change.attributes.is_empty() {
            true => format!("`{}`", change.address),
            false => format!("`{}` ({})", change.address, change.attributes.join(", ")),
        })
        .collect();
    let more = counted.len().saturating_sub(NAMED) + usize::try_from(plan.omitted).unwrap_or_default();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let which = if named.is_empty() { "outputs".to_owned() } else { named.join(", ") };
    format!("{add} to add, {change} to change, {destroy} to destroy: {which}{more}.")
}

fn counts(change: &ResourceChange, ignore: &[DriftIgnore]) -> bool {
    if matches!(change.action, ChangeAction::Read | ChangeAction::Move) {
        return false;
    }
    let rules: Vec<&DriftIgnore> =
        ignore.iter().filter(|rule| matches_pattern(&rule.address, &change.address)).collect();
    if rules.iter().any(|rule| rule.attributes.is_empty()) {
        return false;
    }
    // A list that is full may not name all of them.
    let all_are_known = (1..ResourceChange::MAX_ATTRIBUTES).contains(&change.attributes.len());
    let is_ignored = |attribute: &String| {
        rules.iter().any(|rule| rule.attributes.iter().any(|pattern| matches_pattern(pattern, attribute)))
    };
    let harmless = change.action == ChangeAction::Update && all_are_known && change.attributes.iter().all(is_ignored);
    !harmless
}

/// Whether a text matches a pattern in which `*` stands for any characters.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        let rows = [
            ("aws_instance.web", "aws_instance.web", true),
            ("aws_instance.web", "aws_instance.web2", false),
            ("aws_instance.*", "aws_instance.web", true),
            ("*.web", "aws_instance.web", true),
            ("module.*.aws_instance.*", "module.a.aws_instance.web[0]", true),
            ("module.*.aws_instance.*", "module.a.aws_vpc.web", false),
            ("*", "", true),
            ("a*a", "a", false),
        ];
        for (pattern, text, expect) in rows {
            assert_eq!(matches_pattern(pattern, text), expect, "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_ignored_is_an_address_or_attributes_of_it() {
        let rule = |address: &str, attributes: &[&str]| DriftIgnore {
            address: address.to_owned(),
            attributes: attributes.iter().map(|&name| name.to_owned()).collect(),
        };
        let change = |action, attributes: &[&str]| ResourceChange {
            address: "aws.web".to_owned(),
            action,
            attributes: attributes.iter().map(|&name| name.to_owned()).collect(),
        };
        let update = |attributes: &[&str]| change(ChangeAction::Update, attributes);
        let many: Vec<String> = (0..ResourceChange::MAX_ATTRIBUTES).map(|n| format!("tags{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let rows = [
            (update(&["tags"]), vec![], true),
            (update(&["tags"]), vec![rule("aws.*", &[])], false),
            (update(&["tags"]), vec![rule("gcp.*", &[])], true),
            (update(&["tags"]), vec![rule("aws.*", &["tags"])], false),
            (update(&["size", "tags"]), vec![rule("aws.*", &["tags"])], true),
            (update(&["size", "tags"]), vec![rule("aws.*", &["tags"]), rule("*", &["size"])], false),
            (update(&["tags", "tags_all"]), vec![rule("*", &["tags*"])], false),
            (change(ChangeAction::Replace, &["tags"]), vec![rule("*", &["tags"])], true),
            (change(ChangeAction::Delete, &[]), vec![rule("*", &["tags"])], true),
            (change(ChangeAction::Move, &[]), vec![], false),
            (update(&many), vec![rule("*", &["tags*"])], true),
        ];
        for (change, rules, expect) in rows {
            assert_eq!(counts(&change, &rules), expect, "{change:?} {rules:?}");
        }
    }

    #[test]
    fn stacks_look_at_different_times_each_at_its_own() {
        let hour = std::time::Duration::from_secs(3600);
        let waits: std::collections::BTreeSet<_> =
            (0..50).map(|number| jitter(&format!("uid-{number}"), hour)).collect();
        assert!(waits.len() > 45, "{waits:?}");
        assert!(waits.iter().all(|wait| *wait < hour / 10));
        assert_eq!(jitter("a", hour), jitter("a", hour));
    }
}
