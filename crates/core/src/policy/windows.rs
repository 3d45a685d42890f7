//! When changes may start by the Policies that match a Workspace: all of them have to let it.

use jiff::Timestamp;
use knoll_api::{
    Purpose,
    plan_mode::PlanMode,
    policy::{Change, Freeze, OpenWindow, WindowRules},
    run::Run,
    stack::Stack,
};

use super::{Effective, Matched, of_policy};
use crate::{
    queue::{self, Lane},
    schedule::Schedule,
    stack::started_purpose,
};

/// How many windows and freezes in a row are looked at for the time until which a Run waits.
const IN_A_ROW: usize = 200;

/// A Run may not start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// When it may start; none if that is not in sight.
    pub until: Option<Timestamp>,
    pub message: String,
}

/// A freeze that holds, or windows that are closed.
struct Obstacle {
    until: Option<Timestamp>,
    field: &'static str,
    why: String,
}

/// What kind of change a Run may make; `None` if it cannot change the state.
#[must_use]
pub fn change(run: &Run, stack: Option<&Stack>) -> Option<Change> {
    if queue::lane(&run.spec) == Lane::AtOnce {
        return None;
    }
    Some(match run.spec.operation {
        operation if PlanMode::of(operation, &run.spec.args).destroy => Change::Destroy,
        _ if started_purpose(stack, run) == Some(Purpose::Correct) => Change::Drift,
        _ => Change::Apply,
    })
}

impl Effective {
    /// Whether the windows keep a Run from making this change at `now`. Policies that let the Run start all the same do
    /// not count.
    #[must_use]
    pub fn closed(&self, run: &Run, change: Change, now: Timestamp) -> Option<Closed> {
        let rules: Vec<&Matched> = self.rules.iter().filter(|rule| !is_overridden(&rule.windows, run)).collect();
        let obstacle =
            |at: Timestamp| rules.iter().find_map(|rule| Some((*rule, obstacle(&rule.windows, change, at)?)));
        let (rule, first) = obstacle(now)?;
        let mut until = Some(now);
        for _ in 0..IN_A_ROW {
            match until.and_then(obstacle) {
                None => break,
                Some((_, next)) => until = next.until.filter(|next| Some(*next) > until),
            }
        }
        let until = until.filter(|at| obstacle(*at).is_none());
        let begin = match until {
            Some(until) => format!("It waits until {until}"),
            None => "It waits, and no time is in sight at which it may start".to_owned(),
        };
        let by_group = match rule.windows.override_groups.as_slice() {
            [] => String::new(),
            groups => format!(
                " Users in {} may start a Run at any time: knoll {} --now --because REASON",
                super::quoted(groups.iter().map(String::as_str)),
                if change == Change::Destroy { "destroy" } else { "apply" },
            ),
        };
        let message = format!("{begin}: {} {} ({}).{by_group}", of_policy(&rule.policy), first.why, first.field);
        Some(Closed { until, message })
    }

    /// The Policies whose windows would keep a Run from starting at `now` if its user could not override them.
    #[must_use]
    pub fn overridden(&self, run: &Run, change: Change, now: Timestamp) -> Vec<&str> {
        let overridden = self.rules.iter().filter(|rule| is_overridden(&rule.windows, run));
        overridden
            .filter(|rule| obstacle(&rule.windows, change, now).is_some())
            .map(|rule| rule.policy.as_str())
            .collect()
    }
}

/// Whether the user of a Run may start it at any time, and wants to.
fn is_overridden(windows: &WindowRules, run: &Run) -> bool {
    // Admission has checked that the user is in the groups, and that it is this user.
    let asked = run.spec.start_now.as_ref().filter(|_| run.spec.requested_by.is_some());
    asked.is_some_and(|now| now.groups.iter().any(|group| windows.override_groups.contains(group)))
}

fn obstacle(windows: &WindowRules, change: Change, now: Timestamp) -> Option<Obstacle> {
    let frozen = windows.freezes.iter().filter(|freeze| freeze.changes.is_empty() || freeze.changes.contains(&change));
    let freezes = frozen.filter_map(|freeze| Some((frozen_until(freeze, now)?, freeze)));
    if let Some((until, freeze)) = freezes.max_by_key(|(until, _)| *until) {
        let why = format!("has a freeze: {}", freeze.reason.trim_end_matches('.'));
        return Some(Obstacle { until: Some(until), field: "spec.windows.freezes", why });
    }
    let own: Vec<&OpenWindow> = windows.open.iter().filter(|window| window.changes.contains(&change)).collect();
    let general = windows.open.iter().filter(|window| window.changes.is_empty());
    let relevant: Vec<&OpenWindow> = if own.is_empty() { general.collect() } else { own };
    if relevant.is_empty() {
        return None;
    }
    let read = |window: &OpenWindow| Schedule::read(&window.schedule, &window.time_zone, window.duration.get()).ok();
    let schedules: Vec<Schedule> = relevant.iter().filter_map(|window| read(window)).collect();
    if schedules.iter().any(|schedule| schedule.open_until(now).is_some()) {
        return None;
    }
    let until = schedules.iter().filter_map(|schedule| schedule.next_start(now)).min();
    Some(Obstacle { until, field: "spec.windows.open", why: format!("lets changes start {}", times(&relevant)) })
}

fn times(windows: &[&OpenWindow]) -> String {
    let shown: Vec<String> = windows.iter().take(super::LISTED).map(|window| shown_window(window)).collect();
    format!("at {}", shown.join(" and "))
}

/// A window as messages and statuses show it.
fn shown_window(window: &OpenWindow) -> String {
    let OpenWindow { schedule, time_zone, duration, changes: _ } = window;
    format!("`{schedule}` {time_zone} for {duration}")
}

/// The end of a freeze, if it holds at `now`.
fn frozen_until(freeze: &Freeze, now: Timestamp) -> Option<Timestamp> {
    match (&freeze.schedule, &freeze.duration, &freeze.from, &freeze.until) {
        (Some(schedule), Some(duration), ..) => {
            Schedule::read(schedule, &freeze.time_zone, duration.get()).ok()?.open_until(now)
        }
        (_, _, Some(from), Some(until)) => (from.0 <= now && now < until.0).then_some(until.0),
        _ => None,
    }
}

/// The fields that cannot be read, and why.
pub(super) fn unreadable(windows: &WindowRules) -> Vec<(String, String)> {
    let hour = std::time::Duration::from_secs(3600);
    let open = windows.open.iter().map(|window| (Some(&window.schedule), &window.time_zone)).enumerate();
    let freezes = windows.freezes.iter().map(|freeze| (freeze.schedule.as_ref(), &freeze.time_zone)).enumerate();
    let all = open.map(|window| ("open", window)).chain(freezes.map(|freeze| ("freezes", freeze)));
    let read = all.filter_map(|(list, (index, (schedule, zone)))| {
        let schedule = schedule?;
        let of_zone = |why| ("timeZone", why);
        let of_schedule = Schedule::read(schedule, "UTC", hour).err().map(|why| ("schedule", why));
        let (field, why) = of_schedule.or_else(|| Schedule::read(schedule, zone, hour).err().map(of_zone))?;
        Some((format!("spec.windows.{list}[{index}].{field}"), why))
    });
    read.collect()
}

/// Notes the windows of one Policy, for the status of a Workspace.
pub(super) fn shown(windows: &WindowRules, mut note: impl FnMut(&str, String)) {
    let WindowRules { open, freezes, override_groups } = windows;
    let of = |changes: &[Change]| match changes {
        [] => String::new(),
        changes => format!(" ({})", changes.iter().map(|change| change.as_str()).collect::<Vec<_>>().join(", ")),
    };
    let shown: Vec<String> = open.iter().map(|window| shown_window(window) + &of(&window.changes)).collect();
    if !shown.is_empty() {
        note("windows.open", shown.join("; "));
    }
    let shown = freezes.iter().map(|freeze| {
        let Freeze { reason, schedule, time_zone, duration, from, until, changes } = freeze;
        let times = match (schedule, duration, from, until) {
            (Some(schedule), Some(duration), ..) => format!("`{schedule}` {time_zone} for {duration}"),
            (_, _, Some(from), Some(until)) => format!("from {} until {}", from.0, until.0),
            _ => "never".to_owned(),
        };
        format!("{times}{}: {reason}", of(changes))
    });
    let shown: Vec<String> = shown.collect();
    if !shown.is_empty() {
        note("windows.freezes", shown.join("; "));
    }
    if !override_groups.is_empty() {
        note("windows.overrideGroups", override_groups.join(", "));
    }
}

#[cfg(test)]
mod tests;
