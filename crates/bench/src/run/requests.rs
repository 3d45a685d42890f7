//! How many requests reach an API server, and whose they are.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Counts of requests, without watches and leases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// Those of the operator, the hub and whoever created the runs.
    pub knoll: f64,
    /// Those of the cluster's own parts: kubelet, scheduler, controllers.
    pub others: f64,
}

impl Requests {
    /// What came since then.
    pub fn since(&self, before: &Requests) -> Requests {
        Requests { knoll: self.knoll - before.knoll, others: self.others - before.others }
    }

    /// With the client's requests that created so many runs, where the meter does not see them.
    pub fn and_created(self, meter: &Meter, count: usize) -> Requests {
        #[allow(clippy::cast_precision_loss, reason = "a handful")]
        let created = if matches!(meter, Meter::Metrics { .. }) { count as f64 } else { 0.0 };
        Requests { knoll: self.knoll + created, ..self }
    }

    /// What falls to one of so many.
    pub fn each(&self, count: usize) -> Requests {
        #[allow(clippy::cast_precision_loss, reason = "a handful")]
        let count = count as f64;
        Requests { knoll: self.knoll / count, others: self.others / count }
    }
}

/// Where requests are counted.
pub enum Meter {
    /// In the audit log of a real cluster, from this byte on.
    Audit { log: PathBuf, from: u64 },
    /// By the operator and the hub of an embedded cluster themselves, at this port; its node asks in the same process.
    Metrics { port: u16 },
}

impl Meter {
    /// Finds it.
    pub async fn new(client: &Client, audit: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(log) = audit {
            let from = std::fs::metadata(&log).with_context(|| format!("there is no `{}`", log.display()))?.len();
            return Ok(Meter::Audit { log, from });
        }
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
        let map = maps.get("knoll-hub").await.context("the embedded cluster does not say where its metrics are")?;
        let port = map.data.as_ref().and_then(|data| data.get("metricsPort")?.parse().ok());
        Ok(Meter::Metrics { port: port.context("the embedded cluster has no metrics")? })
    }

    /// The counts so far.
    pub async fn read(&self) -> anyhow::Result<Requests> {
        match self {
            Meter::Audit { log, from } => {
                let mut file = File::open(log)?;
                if file.metadata()?.len() < *from {
                    bail!("the audit log has begun anew meanwhile; measure again");
                }
                file.seek(SeekFrom::Start(*from))?;
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                Ok(audited(&text))
            }
            Meter::Metrics { port } => {
                let mut stream = TcpStream::connect(("127.0.0.1", *port)).await?;
                stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
                let mut text = String::new();
                stream.read_to_string(&mut text).await?;
                Ok(metered(&text))
            }
        }
    }
}

/// Reads an audit log: one JSON object a line, and one line for each stage of a request.
fn audited(log: &str) -> Requests {
    let mut requests = Requests::default();
    for line in log.lines() {
        let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
        let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if text("/stage") != "ResponseComplete" || text("/verb") == "watch" || text("/objectRef/resource") == "leases" {
            continue;
        }
        let user = text("/user/username");
        let own = user.starts_with("system:serviceaccount:knoll-system:");
        // Whoever creates runs; other requests of people are the benchmark's own bookkeeping.
        let creates = text("/verb") == "create" && text("/objectRef/resource") == "runs";
        if own || creates {
            requests.knoll += 1.0;
        } else if user.starts_with("system:") && !user.contains("admin") {
            requests.others += 1.0;
        }
    }
    requests
}

/// Reads the metrics of an operator.
fn metered(text: &str) -> Requests {
    let counted = text.lines().filter_map(|line| line.strip_prefix("knoll_api_requests_total{"));
    let counted = counted.filter(|line| !line.contains("verb=\"watch\"") && !line.contains("resource=\"leases\""));
    let knoll = counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    Requests { knoll, others: 0.0 }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_of_an_audit_log_are_told_apart() {
        let line = |user: &str, verb: &str, resource: &str, stage: &str| {
            json!({"stage": stage, "verb": verb, "user": {"username": user}, "objectRef": {"resource": resource}})
                .to_string()
        };
        let operator = "system:serviceaccount:knoll-system:knoll-operator";
        let log = [
            line(operator, "patch", "runs", "ResponseComplete"),
            line(operator, "update", "leases", "ResponseComplete"),
            line(operator, "watch", "runs", "ResponseStarted"),
            line("kubernetes-admin", "create", "runs", "ResponseComplete"),
            line("kubernetes-admin", "get", "workspaces", "ResponseComplete"),
            line("system:node:knoll", "patch", "pods", "ResponseComplete"),
            "{\"half".to_owned(),
        ];
        assert_eq!(audited(&log.join("\n")), Requests { knoll: 2.0, others: 1.0 });
    }

    #[test]
    fn requests_of_an_operator_are_summed() {
        let text = "# HELP x\nknoll_api_requests_total{verb=\"create\",resource=\"pods\",code=\"201\"} 3\nknoll_api_requests_total{verb=\"watch\",resource=\"pods\",code=\"200\"} 9\nknoll_api_requests_total{verb=\"patch\",resource=\"runs\",code=\"200\"} 4\n";
        let before = metered(text);
        assert_eq!(before, Requests { knoll: 7.0, others: 0.0 });
        assert_eq!(Requests { knoll: 27.0, others: 0.0 }.since(&before).each(20).knoll, 1.0);
    }
}
