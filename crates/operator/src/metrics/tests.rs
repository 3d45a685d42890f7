use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::step::{StepName, StepStatus};

use knoll_core::events::ReportedState;

use super::*;

fn at(millis: i64) -> MicroTime {
    MicroTime(Timestamp::from_millisecond(millis).unwrap_or_default())
}

#[test]
fn a_run_is_measured_when_it_starts_and_when_it_ends() {
    let metrics = Metrics::default();
    let from = |phase| Transition {
        before: ReportedState::of(&RunStatus { phase, ..RunStatus::default() }),
        since: Some(at(1000).0),
    };
    let started = RunStatus { phase: RunPhase::Starting, started_at: Some(at(3000)), ..RunStatus::default() };
    metrics.run_changed(&from(RunPhase::Queued), &started);
    let step = StepStatus {
        name: StepName::Plan,
        state: StepState::Failed,
        attempts: 1,
        started_at: Some(at(4000)),
        finished_at: Some(at(4300)),
        exit_code: Some(1),
        message: None,
        log_offset: None,
    };
    let ended = RunStatus { phase: RunPhase::Failed, steps: vec![step], ..started };
    metrics.run_changed(&from(RunPhase::Starting), &ended);
    metrics.reconciled("runs", true);

    let text = metrics.text();
    for line in [
        "knoll_queue_wait_seconds_sum 2.0",
        "knoll_queue_wait_seconds_count 1",
        r#"knoll_step_duration_seconds_bucket{le="0.25",step="plan",outcome="Failed"} 0"#,
        r#"knoll_step_duration_seconds_bucket{le="0.5",step="plan",outcome="Failed"} 1"#,
        r#"knoll_reconciles_total{controller="runs"} 1"#,
        r#"knoll_reconcile_errors_total{controller="runs"} 1"#,
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "`{line}` is not in\n{text}");
    }
    assert!(text.contains("knoll_build_info{version="), "{text}");
}
