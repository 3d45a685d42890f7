//! Whether the content of a Run is as large as the Policies allow. The hub asks before it stores or hands out content.
//!
//! *Guarantee.* No limit refuses a state that is written: what terraform has done is never lost. A state that is too large
//! stops the next Run before it plans.

use knoll_api::run::{Operation, Run, SizeInForce, SizesInForce};

use super::steps::Stage;

/// What of a Run has a limit of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The packed files of the module.
    Bundle,
    Plan,
    /// The state that a pod of this stage reads.
    State(Stage),
}

/// The limit of a Run's log, and the line at the end of a log that has reached it.
#[must_use]
pub fn of_log(run: &Run) -> Option<(u64, String)> {
    let limit = in_force(run)?.log.as_ref()?;
    let SizeInForce { most, policy } = limit;
    let line = format!(
        "\nknoll: the rest of the log is not stored: Policy `{policy}` allows {most} (spec.limits.sizes.log)\n"
    );
    Some((most.bytes(), line))
}

/// Why content of so many bytes is refused, if it is.
#[must_use]
pub fn refused(run: &Run, content: Content, bytes: usize) -> Option<String> {
    let sizes = in_force(run)?;
    let (limit, what, field, advice) = match content {
        Content::Bundle => (&sizes.bundle, "the module", "bundle", "Leave out what terraform does not need."),
        Content::Plan => (&sizes.plan, "the plan", "plan", "Apply less at once, for example with -target."),
        Content::State(Stage::Apply | Stage::Judge) => return None,
        // What makes a state smaller is not refused, and neither is what only reads it.
        Content::State(Stage::Whole | Stage::Plan) => match run.spec.operation {
            Operation::Apply | Operation::Refresh => (
                &sizes.state,
                "the state",
                "state",
                "Destroy what is not needed, or move resources to another Workspace.",
            ),
            Operation::Plan | Operation::Destroy | Operation::Command => return None,
        },
    };
    let SizeInForce { most, policy } = limit.as_ref()?;
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    (bytes > most.bytes()).then(|| {
        format!(
            "{what} has {} KiB, and Policy `{policy}` allows {most} (spec.limits.sizes.{field}). Nothing was changed. {advice}",
            bytes.div_ceil(1 << 10)
        )
    })
}

fn in_force(run: &Run) -> Option<&SizesInForce> {
    run.status.as_ref()?.sizes.as_ref()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn run(operation: &str, sizes: &[&str]) -> Run {
        let sizes: serde_json::Map<String, serde_json::Value> =
            sizes.iter().map(|of| ((*of).to_owned(), json!({"most": "1Mi", "policy": "small"}))).collect();
        let run = json!({
            "apiVersion": "knoll.dev/v1alpha1",
            "kind": "Run",
            "metadata": {"name": "r"},
            "spec": {"workspace": "w", "operation": operation},
            "status": {"phase": "Running", "sizes": sizes},
        });
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn content_beyond_the_limit_is_refused_and_what_makes_a_state_smaller_is_not() {
        let all = ["state", "plan", "bundle", "log"];
        let (fits, larger) = (1 << 20, (1 << 20) + 1);
        let state = |stage| Content::State(stage);
        let rows: [(&str, &[&str], Content, usize, &str); 12] = [
            ("apply", &all, Content::Plan, fits, ""),
            ("apply", &all, Content::Plan, larger, "spec.limits.sizes.plan"),
            ("apply", &["state"], Content::Plan, larger, ""),
            ("command", &all, Content::Bundle, larger, "spec.limits.sizes.bundle"),
            ("apply", &all, state(Stage::Whole), larger, "spec.limits.sizes.state"),
            ("refresh", &all, state(Stage::Plan), larger, "spec.limits.sizes.state"),
            ("apply", &all, state(Stage::Plan), fits, ""),
            ("apply", &all, state(Stage::Apply), larger, ""),
            ("destroy", &all, state(Stage::Whole), larger, ""),
            ("command", &all, state(Stage::Whole), larger, ""),
            ("plan", &all, state(Stage::Whole), larger, ""),
            ("apply", &[], state(Stage::Whole), larger, ""),
        ];
        for (operation, sizes, content, bytes, expect) in rows {
            let refused = refused(&run(operation, sizes), content, bytes).unwrap_or_default();
            let is_as_expected = if expect.is_empty() { refused.is_empty() } else { refused.contains(expect) };
            assert!(is_as_expected, "{operation} {content:?} {bytes}: {refused}");
        }
        let (most, line) = of_log(&run("apply", &["log"])).unwrap();
        assert_eq!(most, 1 << 20);
        assert!(line.contains("Policy `small` allows 1Mi (spec.limits.sizes.log)"), "{line}");
    }
}
