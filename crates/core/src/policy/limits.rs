//! The limits of the Policies that match a Workspace: of each, the smallest counts.

use std::time::Duration;

use knoll_api::{
    policy::{LimitRules, PriorityRule, RetentionLimits, RunLimits, SizeLimits},
    run::{Operation, SizeInForce, SizesInForce, Timeouts},
    size::Size,
};

use super::Effective;

impl Effective {
    /// The number of finished Runs that a Workspace keeps which asks for `own`.
    #[must_use]
    pub fn run_history(&self, own: u32) -> u32 {
        self.retention().filter_map(|retention| retention.runs).chain([own]).min().unwrap_or(own)
    }

    /// How long finished reading commands are kept, if a Policy says so.
    #[must_use]
    pub fn reading_kept(&self) -> Option<Duration> {
        self.retention().filter_map(|retention| retention.reading.as_ref()).map(|reading| reading.get()).min()
    }

    /// Whether a Policy limits for how long Runs are kept.
    #[must_use]
    pub fn limits_retention(&self) -> bool {
        self.retention().next().is_some()
    }

    /// These timeouts, each at most as long as the Policies allow.
    #[must_use]
    pub fn shortened(&self, own: Timeouts) -> Timeouts {
        let limits = self.rules.iter().filter_map(|rule| rule.limits.timeouts.as_ref());
        limits.fold(own, |timeouts, limit| timeouts.at_most(limit))
    }

    /// Whether a Policy limits timeouts or supplies some.
    #[must_use]
    pub fn has_timeouts(&self) -> bool {
        self.rules.iter().any(|rule| rule.limits.timeouts.is_some()) || self.default_timeouts() != Timeouts::default()
    }

    /// The Policies that limit how many Runs have a pod at the same time, by name.
    pub fn run_limits(&self) -> impl Iterator<Item = (&str, &RunLimits)> {
        self.rules.iter().filter_map(|rule| Some((rule.policy.as_str(), rule.limits.runs.as_ref()?)))
    }

    /// The largest content of a Run, if a Policy limits it.
    #[must_use]
    pub fn sizes(&self) -> Option<SizesInForce> {
        let smallest = |of: fn(&SizeLimits) -> Option<&Size>| {
            let limits = self.rules.iter().filter_map(|rule| Some((rule, of(rule.limits.sizes.as_ref()?)?)));
            let (rule, most) = limits.min_by_key(|(_, most)| most.bytes())?;
            Some(SizeInForce { most: most.clone(), policy: rule.policy.clone() })
        };
        let sizes = SizesInForce {
            state: smallest(|sizes| sizes.state.as_ref()),
            plan: smallest(|sizes| sizes.plan.as_ref()),
            log: smallest(|sizes| sizes.log.as_ref()),
            bundle: smallest(|sizes| sizes.bundle.as_ref()),
        };
        (sizes != SizesInForce::default()).then_some(sizes)
    }

    /// The priority of a Run among those of its namespace that wait for a slot. A Run cannot choose it.
    #[must_use]
    pub fn priority(&self, operation: Operation) -> i32 {
        let fits = |rule: &&PriorityRule| rule.operations.is_empty() || rule.operations.contains(&operation);
        let of_policies = self.rules.iter().filter_map(|rule| rule.limits.priorities.iter().find(fits));
        of_policies.map(|rule| rule.priority).min().unwrap_or_default()
    }

    fn retention(&self) -> impl Iterator<Item = &RetentionLimits> {
        self.rules.iter().filter_map(|rule| rule.limits.retention.as_ref())
    }
}

/// Notes the limits of one Policy, for the status of a Workspace.
pub(super) fn shown(limits: &LimitRules, mut note: impl FnMut(&str, String)) {
    let LimitRules { runs, timeouts, retention, sizes, priorities } = limits;
    let RunLimits { namespace, cluster } = runs.clone().unwrap_or_default();
    let RetentionLimits { runs, reading } = retention.clone().unwrap_or_default();
    let Timeouts { queue, pending, review, answer, init, plan, apply, command } = timeouts.clone().unwrap_or_default();
    let counts = [("runs.namespace", namespace), ("runs.cluster", cluster), ("retention.runs", runs)];
    for (field, count) in counts {
        if let Some(count) = count {
            note(&format!("limits.{field}"), count.to_string());
        }
    }
    let times = [
        ("retention.reading", reading),
        ("timeouts.queue", queue),
        ("timeouts.pending", pending),
        ("timeouts.review", review),
        ("timeouts.answer", answer),
        ("timeouts.init", init),
        ("timeouts.plan", plan),
        ("timeouts.apply", apply),
        ("timeouts.command", command),
    ];
    for (field, time) in times {
        if let Some(time) = time {
            note(&format!("limits.{field}"), time.to_string());
        }
    }
    let SizeLimits { state, plan, log, bundle } = sizes.clone().unwrap_or_default();
    for (field, most) in [("state", state), ("plan", plan), ("log", log), ("bundle", bundle)] {
        if let Some(most) = most {
            note(&format!("limits.sizes.{field}"), most.to_string());
        }
    }
    let of_rule = |rule: &PriorityRule| {
        let operations: Vec<&str> = rule.operations.iter().map(|operation| operation.as_str()).collect();
        let operations = if operations.is_empty() { "all".to_owned() } else { operations.join(", ") };
        format!("{} for {operations}", rule.priority)
    };
    if !priorities.is_empty() {
        note("limits.priorities", priorities.iter().map(of_rule).collect::<Vec<_>>().join("; "));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use knoll_api::{policy::Policy, run::Operation};
    use serde_json::json;

    use crate::policy::{Effective, Labels, effective};

    fn of(limits: &[serde_json::Value]) -> Effective {
        let policies: Vec<Policy> = limits
            .iter()
            .enumerate()
            .map(|(index, limits)| {
                let name = format!("p{index}");
                let policy = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": {"name": name}, "spec": {"limits": limits}});
                serde_json::from_value(policy).unwrap()
            })
            .collect();
        effective(&policies, [], &Labels::new(), &Labels::new())
    }

    #[test]
    fn the_smallest_limit_of_all_counts() {
        let rows = [
            (json!([]), json!({"init": "5m"}), json!({"init": "5m"})),
            (
                json!([{"timeouts": {"init": "10m", "apply": "1h"}}]),
                json!({"init": "5m"}),
                json!({"init": "5m", "apply": "1h"}),
            ),
            (
                json!([{"timeouts": {"init": "2m"}}, {"timeouts": {"init": "1m"}}]),
                json!({"init": "5m"}),
                json!({"init": "1m"}),
            ),
            (
                json!([{"timeouts": {"pending": "1m"}}]),
                json!({"pending": "15m", "queue": "3s"}),
                json!({"pending": "1m", "queue": "3s"}),
            ),
        ];
        for (limits, own, expect) in rows {
            let limits: Vec<_> = limits.as_array().unwrap().clone();
            let own = serde_json::from_value(own).unwrap();
            assert_eq!(serde_json::to_value(of(&limits).shortened(own)).unwrap(), expect, "{limits:?}");
        }
        let both = of(&[json!({"retention": {"runs": 5}}), json!({"retention": {"runs": 3, "reading": "1m"}})]);
        assert_eq!((both.run_history(20), both.run_history(2)), (3, 2));
        assert_eq!(both.reading_kept(), Some(std::time::Duration::from_secs(60)));
    }

    #[test]
    fn the_smallest_size_and_the_lowest_priority_count() {
        let policies = of(&[
            json!({"sizes": {"state": "10Mi", "log": "1Mi"}, "priorities": [{"priority": 5, "operations": ["destroy"]}, {"priority": 9}]}),
            json!({"sizes": {"state": "2048Ki"}, "priorities": [{"priority": 7}]}),
        ]);
        let sizes = serde_json::to_value(policies.sizes().unwrap()).unwrap();
        let expect = json!({"state": {"most": "2048Ki", "policy": "p1"}, "log": {"most": "1Mi", "policy": "p0"}});
        assert_eq!(sizes, expect);
        assert_eq!((policies.priority(Operation::Destroy), policies.priority(Operation::Apply)), (5, 7));
        assert_eq!((of(&[json!({})]).sizes(), of(&[]).priority(Operation::Apply)), (None, 0));
    }

    #[test]
    fn each_limit_is_shown() {
        let limits = json!({"runs": {"namespace": 2}, "timeouts": {"apply": "1h"}, "retention": {"reading": "10m"}});
        let mut shown = Vec::new();
        super::shown(&serde_json::from_value(limits).unwrap(), |field, value| shown.push(format!("{field}={value}")));
        assert_eq!(shown, ["limits.runs.namespace=2", "limits.retention.reading=10m", "limits.timeouts.apply=1h"]);
    }
}
