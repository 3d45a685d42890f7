//! One API server under load. Responses are read but not parsed, so that the client costs little.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use futures::future::try_join_all;
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// A server and its processes.
pub struct Server {
    client: Client,
    processes: Vec<u32>,
}

impl Server {
    /// Connects with a kubeconfig.
    pub async fn connect(kubeconfig: &Path, processes: Vec<u32>) -> anyhow::Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Self { client: Client::try_from(config)?, processes })
    }

    /// Sends one request, and returns the bytes of the response.
    pub async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Bytes> {
        let mut request = Request::builder().method(&method).uri(path).header("accept", "application/json");
        if body.is_some() {
            let patch = "application/merge-patch+json";
            request = request.header("content-type", if method == Method::PATCH { patch } else { "application/json" });
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string().into_bytes()));
        let answer = self.client.send(request.body(body)?).await?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            bail!("{method} {path} returned {status}: {}", String::from_utf8_lossy(&bytes));
        }
        Ok(bytes)
    }

    /// Sends requests from several clients concurrently for a while, and returns the rate per second.
    pub async fn rate(
        &self,
        clients: usize,
        period: Duration,
        next: impl Fn(u64) -> (Method, String, Option<Value>),
    ) -> anyhow::Result<f64> {
        let count = AtomicU64::new(0);
        let begun = Instant::now();
        let work = (0..clients).map(async |_| {
            while begun.elapsed() < period {
                let (method, path, body) = next(count.fetch_add(1, Ordering::Relaxed));
                self.ask(method, &path, body).await?;
            }
            anyhow::Ok(())
        });
        try_join_all(work).await?;
        #[allow(clippy::cast_precision_loss, reason = "a rate, not an account")]
        let answered = count.load(Ordering::Relaxed) as f64;
        Ok(answered / begun.elapsed().as_secs_f64())
    }

    /// Opens a watch of the ConfigMaps in a namespace.
    pub async fn watch(&self, namespace: &str, from: &str) -> anyhow::Result<Watch> {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps?watch=true&resourceVersion={from}");
        let request = Request::get(path).body(Body::empty())?;
        Ok(Watch(self.client.send(request).await?.into_body()))
    }

    pub async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.ask(Method::POST, "/api/v1/namespaces", Some(body)).await.map(drop)
    }

    /// The resident memory of its processes, in MB.
    pub fn memory(&self) -> anyhow::Result<f64> {
        let mut kilobytes = 0.0;
        for process in &self.processes {
            let path = format!("/proc/{process}/status");
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{path}`"))?;
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
            kilobytes += line.trim().trim_end_matches(" kB").trim().parse::<f64>()?;
        }
        Ok(kilobytes / 1024.0)
    }
}

pub struct Watch(Body);

impl Watch {
    /// Resolves after this many events.
    pub async fn sees(mut self, events: usize) -> anyhow::Result<()> {
        let mut seen = 0;
        while seen < events {
            let frame = self.0.frame().await.context("the watch ended")??;
            if let Some(bytes) = frame.data_ref() {
                seen += bytes.iter().filter(|byte| **byte == b'\n').count();
            }
        }
        Ok(())
    }
}

/// A ConfigMap of about one kilobyte.
pub fn config_map(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "data": {"text": "x".repeat(700)},
    })
}
