//! How far the copies of states are, as the ledger knows it when somebody looks.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use crate::backup::Backups;

/// The copies of the process that leads. One that stands by shows nothing, so that a sum over all replicas is right.
#[derive(Clone, Debug, Default)]
pub struct BackupSource {
    backups: Arc<RwLock<Option<Arc<Backups>>>>,
}

impl BackupSource {
    /// What is shown from now on.
    pub fn set(&self, backups: Option<Arc<Backups>>) {
        *self.backups.write().unwrap_or_else(PoisonError::into_inner) = backups;
    }
}

impl Collector for BackupSource {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(backups) = self.backups.read().unwrap_or_else(PoisonError::into_inner).clone() else {
            return Ok(());
        };
        let lag = backups.lag(Timestamp::now());
        let versions = i64::try_from(lag.versions).unwrap_or(i64::MAX);
        for (name, help, value) in [
            ("knoll_backup_behind_versions", "Versions of states that are not copied yet, one a Run", versions),
            (
                "knoll_backup_reachable",
                "Whether the target of backups does what it is asked for",
                lag.is_reachable.into(),
            ),
        ] {
            ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let help = "How long the oldest version that is not copied has waited";
        let seconds = ConstGauge::new(lag.time.as_secs_f64());
        seconds.encode(encoder.encode_descriptor("knoll_backup_behind_seconds", help, None, MetricType::Gauge)?)
    }
}
