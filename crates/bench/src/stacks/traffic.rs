//! Reads the operator's Prometheus metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The metrics at one time.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Requests to the API server, by verb and resource.
    pub requests: BTreeMap<(String, String), u64>,
    /// Resident memory in bytes.
    pub memory: u64,
    /// The number of finished reconciles of Stacks.
    pub reconciles: u64,
}

impl Reading {
    /// Reads the metrics from a port of this machine.
    pub async fn of(port: u16) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(Self::parse(&text))
    }

    /// Waits until the endpoint responds.
    pub async fn first(port: u16, patience: Duration) -> anyhow::Result<Self> {
        let begun = std::time::Instant::now();
        loop {
            match Self::of(port).await {
                Ok(reading) => return Ok(reading),
                Err(error) if begun.elapsed() > patience => return Err(error).context("the operator does not respond"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn parse(text: &str) -> Self {
        let mut reading = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let value = value.parse::<f64>().unwrap_or_default();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters and bytes")]
            let value = value as u64;
            let label = |key: &str| {
                let from = name.split_once(&format!("{key}=\""))?.1;
                Some(from.split_once('"')?.0.to_owned())
            };
            if name.starts_with("knoll_api_requests_total{") {
                let key = (label("verb").unwrap_or_default(), label("resource").unwrap_or_default());
                *reading.requests.entry(key).or_default() += value;
            } else if name.starts_with("process_resident_memory_bytes") {
                reading.memory = value;
            } else if name.starts_with("knoll_reconciles_total{") && label("controller").as_deref() == Some("stacks") {
                reading.reconciles = value;
            }
        }
        reading
    }

    /// The requests since an earlier reading, without zeros.
    pub fn since(&self, earlier: &Self) -> BTreeMap<(String, String), u64> {
        let new = |(key, count): (&(String, String), &u64)| {
            let more = count - earlier.requests.get(key).copied().unwrap_or_default();
            (more > 0).then(|| (key.clone(), more))
        };
        self.requests.iter().filter_map(new).collect()
    }
}

/// Whether a verb writes.
pub fn writes(verb: &str) -> bool {
    !matches!(verb, "get" | "list" | "watch")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_other_metrics() {
        let text = "# HELP x\nknoll_api_requests_total{verb=\"get\",resource=\"runs\",code=\"200\"} 2\nknoll_api_requests_total{verb=\"get\",resource=\"runs\",code=\"404\"} 1\nprocess_resident_memory_bytes 1048576\nknoll_reconciles_total{controller=\"stacks\"} 7\n";
        let earlier = Reading::parse(text);
        assert_eq!((earlier.memory, earlier.reconciles), (1 << 20, 7));
        let later = Reading::parse(&text.replace("\"404\"} 1", "\"404\"} 3"));
        assert_eq!(later.since(&earlier), BTreeMap::from([(("get".to_owned(), "runs".to_owned()), 2)]));
        assert!(earlier.since(&earlier).is_empty());
    }
}
