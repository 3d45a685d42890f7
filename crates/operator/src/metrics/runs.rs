//! Gauges that are counted when somebody looks: the caches know the answer, so nothing has to be kept in step with them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};

use crate::context::Caches;

/// The caches of the controllers, while they work. An operator that stands by shows nothing, so that a sum over all
/// replicas counts every Run once.
#[derive(Clone, Debug, Default)]
pub struct Source {
    caches: Arc<RwLock<Option<Caches>>>,
}

impl Source {
    /// What is shown from now on.
    pub fn set(&self, caches: Option<Caches>) {
        *self.caches.write().unwrap_or_else(PoisonError::into_inner) = caches;
    }
}

impl Collector for Source {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(caches) = self.caches.read().unwrap_or_else(PoisonError::into_inner).clone() else {
            return Ok(());
        };
        let mut counts: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for run in caches.runs.all() {
            let phase = run.status.as_ref().map(|status| status.phase).unwrap_or_default();
            *counts.entry((phase.as_str(), run.spec.operation.as_str())).or_default() += 1;
        }
        let mut runs = encoder.encode_descriptor("knoll_runs", "Runs that there are", None, gauge_type())?;
        for ((phase, operation), count) in counts {
            ConstGauge::new(count).encode(runs.encode_family(&[("phase", phase), ("operation", operation)])?)?;
        }
        let waiting: usize = caches
            .workspaces
            .all()
            .iter()
            .map(|workspace| workspace.status.as_ref().map_or(0, |status| status.queue.len()))
            .sum();
        let gauge = ConstGauge::new(i64::try_from(waiting).unwrap_or(i64::MAX));
        let queue = encoder.encode_descriptor(
            "knoll_queue_length",
            "Runs that wait for their Workspace",
            None,
            gauge_type(),
        )?;
        gauge.encode(queue)
    }
}

fn gauge_type() -> prometheus_client::metrics::MetricType {
    ConstGauge::new(0_i64).metric_type()
}
