//! What the operator counts and measures, for Prometheus.
//!
//! *Guarantee.* Every label is one of a few words that the code knows: no name, and no value, that a user gave.

mod backups;
mod process;
mod requests;
mod runs;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::jiff::SignedDuration;
use knoll_api::{
    names::condition,
    run::{RunPhase, RunStatus},
    step::StepState,
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        histogram::Histogram,
        info::Info,
    },
    registry::Registry,
};

use crate::{
    backup::Backups,
    context::{Caches, Transition},
};

pub use requests::{Counted, counted};

/// The media type of what [`Metrics::text`] gives.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the buckets for waits and steps, in seconds: terraform takes from a moment to hours.
const SECONDS: [f64; 14] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0, 300.0, 900.0, 3600.0, 14400.0];

/// Upper bounds of the buckets for reconciles and requests, in seconds.
const SHORT_SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// All of the operator's metrics. A clone counts in the same place.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    requests: requests::RequestMetrics,
    reconciles: Family<ControllerLabels, Counter>,
    reconcile_errors: Family<ControllerLabels, Counter>,
    reconcile_duration: Family<ReconcileLabels, Histogram, ShortBuckets>,
    skipped: Family<SkippedLabels, Counter>,
    hub_requests: Family<HubLabels, Histogram, ShortBuckets>,
    queue_wait: Histogram,
    steps: Family<StepLabels, Histogram, Buckets>,
    runs: runs::Source,
    copies: Family<CopyLabels, Counter>,
    states_copied: Counter,
    backups: backups::BackupSource,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CopyLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    step: &'static str,
    outcome: &'static str,
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReconcileOutcome {
    /// An action was carried out and the status stays.
    Acted,
    /// A cache was older than another fact.
    Behind,
    /// The API refused a request or could not be reached.
    Failed,
    /// Another writer was faster.
    Overtaken,
    /// The status was written.
    Published,
    /// The cache did not show this process's last write yet.
    Stale,
    /// There was nothing to do.
    Unchanged,
}

impl ReconcileOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Acted => "acted",
            Self::Behind => "behind",
            Self::Failed => "failed",
            Self::Overtaken => "overtaken",
            Self::Published => "published",
            Self::Stale => "stale",
            Self::Unchanged => "unchanged",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SkippedLabels {
    kind: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HubLabels {
    route: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug)]
struct ShortBuckets;

impl MetricConstructor<Histogram> for ShortBuckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(SHORT_SECONDS)
    }
}

#[derive(Clone, Debug)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(SECONDS)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let metrics = Self {
            registry: Arc::default(),
            requests: requests::RequestMetrics::default(),
            reconciles: Family::default(),
            reconcile_errors: Family::default(),
            reconcile_duration: Family::new_with_constructor(ShortBuckets),
            skipped: Family::default(),
            hub_requests: Family::new_with_constructor(ShortBuckets),
            queue_wait: Histogram::new(SECONDS),
            steps: Family::new_with_constructor(Buckets),
            runs: runs::Source::default(),
            copies: Family::default(),
            states_copied: Counter::default(),
            backups: backups::BackupSource::default(),
        };
        let Self {
            registry: _,
            requests,
            reconciles,
            reconcile_errors,
            reconcile_duration,
            skipped,
            hub_requests,
            queue_wait,
            steps,
            runs,
            copies,
            states_copied,
            backups,
        } = metrics.clone();
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("knoll_build", "The Knoll that runs", build);
        requests.register(&mut registry);
        registry.register("knoll_reconciles", "Reconciles that have ended, well or not", reconciles);
        registry.register(
            "knoll_reconcile_errors",
            "Reconciles that have failed and are tried again",
            reconcile_errors,
        );
        registry.register(
            "knoll_reconcile_duration_seconds",
            "The duration of reconciles, by kind and outcome",
            reconcile_duration,
        );
        registry.register(
            "knoll_objects_skipped",
            "Objects that were skipped because they cannot be decoded or identified",
            skipped,
        );
        registry.register(
            "knoll_hub_request_duration_seconds",
            "The duration of requests of runners to the hub, by route and outcome",
            hub_requests,
        );
        registry.register(
            "knoll_queue_wait_seconds",
            "From the creation of a Run, or from its approval, to its first pod",
            queue_wait,
        );
        registry.register(
            "knoll_step_duration_seconds",
            "How long the steps of Runs took; counted when the Run ends",
            steps,
        );
        registry.register("knoll_backup_copies", "Copies to the target of backups that have ended, by outcome", copies);
        registry.register("knoll_backup_states", "Versions of states that were copied", states_copied);
        registry.register_collector(Box::new(runs));
        registry.register_collector(Box::new(backups));
        registry.register_collector(Box::new(process::Process));
        Self { registry: Arc::new(registry), ..metrics }
    }
}

impl Metrics {
    /// Everything, as Prometheus reads it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string fails only when a metric does not know how to write itself.
        if let Err(error) = text::encode(&mut text, &self.registry) {
            tracing::error!(%error, "the metrics cannot be written");
        }
        text
    }

    /// A reconcile of this controller has ended.
    pub(crate) fn reconciled(&self, controller: &str, failed: bool) {
        let labels = ControllerLabels { controller: controller.to_owned() };
        self.reconciles.get_or_create(&labels).inc();
        // Made with the first reconcile, so that there is a zero to compare with.
        self.reconcile_errors.get_or_create(&labels).inc_by(failed.into());
    }

    /// The duration of one reconcile. The kind is one of Knoll's own.
    pub(crate) fn reconcile_took(&self, kind: &str, outcome: ReconcileOutcome, took: Duration) {
        let labels = ReconcileLabels { kind: kind.to_owned(), outcome: outcome.as_str() };
        self.reconcile_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// The duration of one request of a runner to the hub. Both words are the hub's own.
    pub fn hub_request(&self, route: &'static str, outcome: &'static str, took: Duration) {
        self.hub_requests.get_or_create(&HubLabels { route, outcome }).observe(took.as_secs_f64());
    }

    /// An object of one of the watched kinds was skipped.
    pub(crate) fn skipped(&self, kind: &str, reason: &'static str) {
        self.skipped.get_or_create(&SkippedLabels { kind: kind.to_owned(), reason }).inc();
    }

    /// From now on the gauges show what these caches hold.
    pub(crate) fn show(&self, caches: &Caches, backups: Option<Arc<Backups>>) {
        self.runs.set(Some(caches.clone()));
        self.backups.set(backups);
    }

    /// From now on another process knows.
    pub(crate) fn hide(&self) {
        self.runs.set(None);
        self.backups.set(None);
    }

    /// A copy to the target of backups has ended.
    pub(crate) fn copy_ended(&self, has_failed: bool) {
        let outcome = if has_failed { "failed" } else { "succeeded" };
        self.copies.get_or_create(&CopyLabels { outcome }).inc();
    }

    /// A version of a state was copied.
    pub(crate) fn state_copied(&self) {
        self.states_copied.inc();
    }

    /// A run has gone from one phase to another.
    pub(crate) fn run_changed(&self, transition: &Transition, status: &RunStatus) {
        let waited = matches!(transition.before.phase, RunPhase::Pending | RunPhase::Queued);
        if waited && let Some(started) = &status.started_at {
            let wait = since(transition, status).map(|since| seconds(started.0.duration_since(since)));
            self.queue_wait.observe(wait.unwrap_or_default());
        }
        if !status.phase.is_finished() {
            return;
        }
        for step in &status.steps {
            if let (Some(started), Some(finished)) = (&step.started_at, &step.finished_at) {
                let labels = StepLabels { step: step.name.as_str(), outcome: outcome(step.state) };
                self.steps.get_or_create(&labels).observe(seconds(finished.0.duration_since(started.0)));
            }
        }
    }
}

/// Since when a run has waited for its turn: a command that had to be approved could not queue before.
fn since(transition: &Transition, status: &RunStatus) -> Option<Timestamp> {
    let approved = status.conditions.iter().find(|c| c.type_ == condition::APPROVED && c.status == "True");
    transition.since.max(approved.map(|condition| condition.last_transition_time.0))
}

/// Clocks of two machines may disagree; nothing took less than no time.
fn seconds(duration: SignedDuration) -> f64 {
    duration.as_secs_f64().max(0.0)
}

fn outcome(state: StepState) -> &'static str {
    match state {
        StepState::Running => "Running",
        StepState::Waiting => "Waiting",
        StepState::Succeeded => "Succeeded",
        StepState::Failed => "Failed",
        StepState::Skipped => "Skipped",
        StepState::Cancelled => "Cancelled",
    }
}

#[cfg(test)]
mod tests;
