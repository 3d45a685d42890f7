#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::{
    policy::Policy,
    run::{Operation, RunSpec, StartNow},
    stack::{StackStatus, StartedRun},
};
use serde_json::{Value, json};

use super::*;
use crate::policy::{Labels, effective};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn of(windows: &[Value]) -> Effective {
    let policies: Vec<Policy> = windows
        .iter()
        .enumerate()
        .map(|(index, windows)| {
            let meta = json!({"name": format!("p{index}")});
            let policy = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": meta, "spec": {"windows": windows}});
            serde_json::from_value(policy).unwrap()
        })
        .collect();
    effective(&policies, [], &Labels::new(), &Labels::new())
}

fn run(operation: Operation) -> Run {
    let mut run = Run::new("r", RunSpec { operation, ..RunSpec::default() });
    run.metadata.uid = Some("u".to_owned());
    run
}

#[track_caller]
fn check(windows: &[Value], change: Change, now: &str, expect: Option<(Option<&str>, &str)>) {
    let closed = of(windows).closed(&run(Operation::Apply), change, at(now));
    let found = closed.map(|closed| (closed.until, closed.message));
    assert_eq!(found, expect.map(|(until, message)| (until.map(at), message.to_owned())), "{windows:?} {now}");
}

fn office() -> Value {
    json!({"schedule": "0 9 * * mon-fri", "timeZone": "Europe/Berlin", "duration": "8h"})
}

#[test]
fn a_change_waits_for_its_window() {
    let windows = [json!({"open": [office()]})];
    check(&windows, Change::Apply, "2026-11-18T08:00:00Z", None);
    check(&windows, Change::Apply, "2026-11-18T15:59:59Z", None);
    let message = "It waits until 2026-11-23T08:00:00Z: Policy `p0` lets changes start at `0 9 * * mon-fri` Europe/Berlin for 8h (spec.windows.open).";
    check(&windows, Change::Destroy, "2026-11-20T16:00:00Z", Some((Some("2026-11-23T08:00:00Z"), message)));
    let own =
        [json!({"open": [office(), {"schedule": "0 3 * * *", "duration": "1h", "changes": ["Destroy", "Drift"]}]})];
    check(&own, Change::Drift, "2026-11-18T03:30:00Z", None);
    check(&own, Change::Apply, "2026-11-18T09:30:00Z", None);
    let message = "It waits until 2026-11-19T03:00:00Z: Policy `p0` lets changes start at `0 3 * * *` UTC for 1h (spec.windows.open).";
    check(&own, Change::Destroy, "2026-11-18T09:30:00Z", Some((Some("2026-11-19T03:00:00Z"), message)));
    check(
        &[json!({"open": [{"schedule": "0 3 * * *", "duration": "1h", "changes": ["Drift"]}]})],
        Change::Apply,
        "2026-11-18T09:30:00Z",
        None,
    );
}

#[test]
fn a_freeze_holds_whatever_is_open_and_tells_its_reason() {
    let friday = json!({"schedule": "0 12 * * fri", "timeZone": "Europe/Berlin", "duration": "60h", "reason": "No changes before the weekend."});
    let fair = json!({"from": "2026-11-23T00:00:00Z", "until": "2026-11-24T12:00:00Z", "reason": "The fair", "changes": ["Apply"]});
    let windows = [json!({"open": [office()], "freezes": [friday]}), json!({"freezes": [fair]})];
    check(&windows, Change::Apply, "2026-11-20T10:59:59Z", None);
    // The weekend, then the fair of the other Policy, which ends within the window.
    let message = "It waits until 2026-11-24T12:00:00Z: Policy `p0` has a freeze: No changes before the weekend (spec.windows.freezes).";
    check(&windows, Change::Apply, "2026-11-20T11:00:00Z", Some((Some("2026-11-24T12:00:00Z"), message)));
    let message = "It waits until 2026-11-23T08:00:00Z: Policy `p0` has a freeze: No changes before the weekend (spec.windows.freezes).";
    check(&windows, Change::Destroy, "2026-11-20T11:00:00Z", Some((Some("2026-11-23T08:00:00Z"), message)));
    let always = [json!({"freezes": [{"schedule": "* * * * *", "duration": "2m", "reason": "Closed"}]})];
    let message = "It waits, and no time is in sight at which it may start: Policy `p0` has a freeze: Closed (spec.windows.freezes).";
    check(&always, Change::Apply, "2026-11-20T11:00:30Z", Some((None, message)));
}

#[test]
fn whoever_a_policy_lets_may_start_at_any_time() {
    let windows = [json!({"open": [office()], "overrideGroups": ["sre"]}), json!({"open": [office()]})];
    let night = at("2026-11-18T02:00:00Z");
    let mut urgent = run(Operation::Apply);
    let closed = |policies: &[Value], run: &Run| of(policies).closed(run, Change::Apply, night);
    assert!(
        closed(&windows[..1], &urgent)
            .unwrap()
            .message
            .ends_with("Users in `sre` may start a Run at any time: knoll apply --now --because REASON")
    );
    urgent.spec.start_now = Some(StartNow { because: "outage".into(), groups: vec!["dev".into(), "sre".into()] });
    assert!(closed(&windows[..1], &urgent).is_some(), "nobody is known to have asked");
    urgent.spec.requested_by = Some("ann".to_owned());
    assert_eq!(closed(&windows[..1], &urgent), None);
    assert!(closed(&windows, &urgent).is_some(), "another Policy lets nobody");
    assert_eq!(of(&windows).overridden(&urgent, Change::Apply, night), ["p0"]);
    assert_eq!(of(&windows).overridden(&urgent, Change::Apply, at("2026-11-18T09:00:00Z")), Vec::<&str>::new());
}

#[test]
fn a_schedule_that_cannot_be_read_blocks() {
    let policy = of(&[json!({
        "open": [office(), {"schedule": "61 * * * *", "duration": "1h"}],
        "freezes": [{"schedule": "0 9 * * *", "timeZone": "Europe/Atlantis", "duration": "1h", "reason": "r"}],
    })]);
    let blocking = policy.blocking();
    let fields: Vec<&str> = blocking.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(fields, ["spec.windows.freezes[0].timeZone", "spec.windows.open[1].schedule"]);
    assert!(blocking[0].message.contains("no time zone `Europe/Atlantis`"), "{}", blocking[0].message);
    assert!(blocking[1].message.contains("`61` is no minute"), "{}", blocking[1].message);
}

#[test]
fn the_kind_of_a_change() {
    let mut stack = Stack::new("w", Default::default());
    let started = StartedRun { name: "r".into(), uid: "u".into(), purpose: Purpose::Correct, ..StartedRun::default() };
    stack.status = Some(StackStatus { started_runs: vec![started], ..StackStatus::default() });
    assert_eq!(change(&run(Operation::Plan), None), None);
    assert_eq!(change(&run(Operation::Apply), None), Some(Change::Apply));
    assert_eq!(change(&run(Operation::Command), None), Some(Change::Apply));
    assert_eq!(change(&run(Operation::Destroy), None), Some(Change::Destroy));
    assert_eq!(change(&run(Operation::Apply), Some(&stack)), Some(Change::Drift));
    // Its flags make a destroy of an apply, and nothing else of a destroy.
    for (operation, flag, expect) in [
        (Operation::Apply, "-destroy", Change::Destroy),
        (Operation::Apply, "--destroy=true", Change::Destroy),
        (Operation::Apply, "-destroy=false", Change::Apply),
        (Operation::Destroy, "-destroy=false", Change::Destroy),
        (Operation::Refresh, "-refresh-only=false", Change::Apply),
    ] {
        let mut run = run(operation);
        run.spec.args = vec![flag.to_owned()];
        assert_eq!(change(&run, None), Some(expect), "{operation:?} {flag}");
    }
}
