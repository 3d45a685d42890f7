//! Counts the requests to an API server by their sender.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::{Context, anyhow};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The number of requests, without watches and leases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// Those of the operator, the hub and the client that created the runs.
    pub knoll: f64,
    /// Those of kubelet, scheduler and controllers.
    pub others: f64,
}

impl Requests {
    pub fn since(&self, before: &Requests) -> Requests {
        Requests { knoll: self.knoll - before.knoll, others: self.others - before.others }
    }

    /// Adds the requests of the client that created the runs, if the meter does not see them.
    pub fn and_created(self, meter: &Meter, count: usize) -> Requests {
        #[allow(clippy::cast_precision_loss, reason = "a handful")]
        let created = if matches!(meter, Meter::Metrics { .. }) { count as f64 } else { 0.0 };
        Requests { knoll: self.knoll + created, ..self }
    }

    /// The average per run.
    pub fn each(&self, count: usize) -> Requests {
        #[allow(clippy::cast_precision_loss, reason = "a handful")]
        let count = count as f64;
        Requests { knoll: self.knoll / count, others: self.others / count }
    }
}

/// Where requests are counted.
pub enum Meter {
    /// In the audit log of a real cluster.
    Audit(Mutex<AuditLog>),
    /// In the metrics of operator and hub, at this port of the embedded cluster, whose node runs in the same process.
    Metrics { port: u16 },
}

impl Meter {
    pub async fn new(client: &Client, audit: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(log) = audit {
            return Ok(Meter::Audit(Mutex::new(AuditLog::at_its_end(log)?)));
        }
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
        let map = maps.get("knoll-hub").await.context("the embedded cluster does not say where its metrics are")?;
        let port = map.data.as_ref().and_then(|data| data.get("metricsPort")?.parse().ok());
        Ok(Meter::Metrics { port: port.context("the embedded cluster has no metrics")? })
    }

    pub async fn read(&self) -> anyhow::Result<Requests> {
        match self {
            Meter::Audit(log) => log.lock().map_err(|_| anyhow!("a reading of the audit log has failed"))?.read(),
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

/// An audit log that is read as it grows.
pub struct AuditLog {
    path: PathBuf,
    file: File,
    /// The beginning of an incomplete line.
    rest: String,
    counted: Requests,
}

impl AuditLog {
    fn at_its_end(path: PathBuf) -> anyhow::Result<Self> {
        let mut file = File::open(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { path, file, rest: String::new(), counted: Requests::default() })
    }

    /// Counts the new lines. After a rotation the old file is read to its end, then the new one.
    fn read(&mut self) -> anyhow::Result<Requests> {
        self.count()?;
        let now = File::open(&self.path).with_context(|| format!("cannot read `{}`", self.path.display()))?;
        if now.metadata()?.ino() != self.file.metadata()?.ino() {
            self.count()?;
            self.file = now;
            self.rest.clear();
            self.count()?;
        }
        Ok(self.counted.clone())
    }

    fn count(&mut self) -> anyhow::Result<()> {
        self.file.read_to_string(&mut self.rest)?;
        let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let more = audited(&self.rest[..whole]);
        self.rest.drain(..whole);
        self.counted.knoll += more.knoll;
        self.counted.others += more.others;
        Ok(())
    }
}

/// Parses an audit log: one JSON object per line, and one line per stage of a request.
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
        // Other requests of users are those of the benchmark itself.
        let creates = text("/verb") == "create" && text("/objectRef/resource") == "runs";
        if own || creates {
            requests.knoll += 1.0;
        } else if user.starts_with("system:") && !user.contains("admin") {
            requests.others += 1.0;
        }
    }
    requests
}

/// Parses the metrics of an operator.
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
    fn an_audit_log_that_begins_anew_is_read_on() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("audit.log");
        let line = |verb: &str| {
            let user = json!({"username": "system:serviceaccount:knoll-system:knoll-operator"});
            json!({"stage": "ResponseComplete", "verb": verb, "user": user}).to_string() + "\n"
        };
        let append = |text: &str| {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path)?;
            std::io::Write::write_all(&mut file, text.as_bytes())
        };
        append(&line("get"))?;
        let mut log = AuditLog::at_its_end(path.clone())?;
        let whole = line("patch");
        let (first, second) = whole.split_at(20);
        append(first)?;
        assert_eq!(log.read()?.knoll, 0.0, "half a line is none yet, and what was there before does not count");
        append(second)?;
        std::fs::rename(&path, folder.path().join("audit-1.log"))?;
        append(&line("create"))?;
        append(&line("watch"))?;
        assert_eq!(log.read()?.knoll, 2.0);
        assert_eq!(log.read()?.knoll, 2.0);
        Ok(())
    }

    #[test]
    fn requests_of_an_operator_are_summed() {
        let text = "# HELP x\nknoll_api_requests_total{verb=\"create\",resource=\"pods\",code=\"201\"} 3\nknoll_api_requests_total{verb=\"watch\",resource=\"pods\",code=\"200\"} 9\nknoll_api_requests_total{verb=\"patch\",resource=\"runs\",code=\"200\"} 4\n";
        let before = metered(text);
        assert_eq!(before, Requests { knoll: 7.0, others: 0.0 });
        assert_eq!(Requests { knoll: 27.0, others: 0.0 }.since(&before).each(20).knoll, 1.0);
    }
}
