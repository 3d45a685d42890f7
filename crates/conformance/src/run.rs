//! Runs scenarios on both servers step by step, and compares the responses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{StreamExt, pin_mut};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::accepted::Accepted;
use crate::connection::{Answer, Connection, Outgoing};
use crate::diff::{Difference, diff};
use crate::normal::Names;
use crate::quiet;
use crate::scenario::{Part, Scenario, Step, Until};
use crate::variables::Variables;

/// How long to wait for the effect of a controller.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait for the events of a watch.
const EVENTS: Duration = Duration::from_secs(8);
/// How long objects must be unchanged, while the garbage collector may still act.
const STILL: Duration = Duration::from_millis(100);
/// The pause before a request is repeated.
const AGAIN: Duration = Duration::from_millis(20);
/// The default user of all requests, on both servers.
const USER: (&str, &str) = ("conformance", "system:masters");

/// Both servers, and the settings of a run.
pub struct Suite {
    pub ours: Connection,
    pub theirs: Connection,
    pub accepted: Accepted,
    /// A unique word in the names of this run.
    pub run: String,
    count: AtomicUsize,
}

/// The result of one scenario.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The comparable responses of the embedded and the real server to each step.
    answers: Vec<(Value, Value)>,
    /// How many requests were compared.
    pub requests: usize,
    /// How many responses differed in a way that is not accepted.
    pub differed: usize,
    pub findings: Vec<Finding>,
}

/// A request with different responses.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The step's number, from 1.
    pub step: usize,
    /// `METHOD PATH`
    pub request: String,
    /// The body of the request.
    pub sent: String,
    pub differences: Vec<Difference>,
}

/// One server in one scenario.
struct Side {
    connection: Connection,
    variables: Variables,
    names: Names,
    watches: HashMap<String, mpsc::UnboundedReceiver<Value>>,
}

impl Suite {
    pub fn new(ours: Connection, theirs: Connection, accepted: Accepted, run: String) -> Self {
        Self { ours, theirs, accepted, run, count: AtomicUsize::new(0) }
    }

    /// The API group of this run's custom resources.
    pub fn group(&self) -> String {
        format!("{}.conformance.knoll.dev", self.run)
    }

    /// Runs a scenario in a new namespace on both servers.
    pub async fn run(&self, scenario: &Scenario) -> anyhow::Result<Outcome> {
        let namespace = format!("{}-{}", self.run, self.count.fetch_add(1, Ordering::Relaxed) + 1);
        let mut variables = Variables::default();
        variables.set("run", self.run.as_str().into());
        variables.set("ns", namespace.as_str().into());
        variables.set("core", format!("/api/v1/namespaces/{namespace}").into());
        variables.set("group", self.group().into());
        variables.set("custom", format!("/apis/{}/v1/namespaces/{namespace}", self.group()).into());
        for (name, value) in &scenario.vars {
            variables.set(name, value.clone());
        }
        let side = |connection: &Connection| {
            let mut names = Names::default();
            names.own(&connection.host, "<host>");
            names.own(&namespace, "<namespace>");
            Side { connection: connection.clone(), variables: variables.clone(), names, watches: HashMap::new() }
        };
        let (mut ours, mut theirs) = (side(&self.ours), side(&self.theirs));
        let prepared = tokio::join!(prepare(&ours.connection, &namespace), prepare(&theirs.connection, &namespace));
        prepared.0.context("the embedded server gave no namespace")?;
        prepared.1.context("the real server gave no namespace")?;
        let mut outcome = Outcome::default();
        for (at, step) in scenario.steps.iter().enumerate() {
            let (a, b) = tokio::join!(ours.step(step), theirs.step(step));
            let a = a.with_context(|| format!("step {} on the embedded server", at + 1))?;
            let b = b.with_context(|| format!("step {} on the real server", at + 1))?;
            let (mut a, mut b) = (ours.names.normalize(&a), theirs.names.normalize(&b));
            if let Some(part) = &step.part {
                keep_part(part, &mut a, &mut b);
            }
            let differences = self.differences(scenario, step, &a, &b);
            outcome.requests += 1;
            outcome.answers.push((a, b));
            if !differences.is_empty() {
                outcome.differed += 1;
                let sent = step.text.clone().or_else(|| step.body.as_ref().map(Value::to_string)).unwrap_or_default();
                outcome.findings.push(Finding { step: at + 1, request: describe(step), sent, differences });
            }
        }
        let away = format!("/api/v1/namespaces/{namespace}");
        let delete = outgoing_admin("DELETE", &away, None);
        let _ = tokio::join!(self.ours.send(&delete), self.theirs.send(&delete));
        Ok(outcome)
    }

    /// Whether each response of the embedded server equals one of the real server's responses in any repetition.
    pub fn agree(&self, scenario: &Scenario, ours: &Outcome, theirs: &Outcome) -> bool {
        let answers = ours.answers.iter().zip(&theirs.answers).zip(&scenario.steps);
        answers.into_iter().all(|(((a, _), (_, b)), step)| self.differences(scenario, step, a, b).is_empty())
    }

    /// The differences between two responses that are not accepted.
    fn differences(&self, scenario: &Scenario, step: &Step, a: &Value, b: &Value) -> Vec<Difference> {
        let (place, request) = (format!("{}/{}", scenario.file, scenario.scenario), describe(step));
        let mut differences = diff(a, b);
        differences.retain(|d| !self.accepted.accepts(&place, &request, &d.path));
        differences
    }

    /// Installs a CRD on both servers, and waits until it is served.
    pub async fn install(&self, definition: &Value) -> anyhow::Result<()> {
        let mut variables = Variables::default();
        variables.set("group", self.group().into());
        let definition = variables.fill_value(definition);
        let install = async |connection: &Connection| -> anyhow::Result<()> {
            let root = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let answer = connection.send(&outgoing_admin("POST", root, Some(&definition))).await?;
            if !matches!(answer.code, 201 | 409) {
                bail!("a custom resource definition was refused: {}", answer.body);
            }
            let spec = &definition["spec"];
            for version in spec["versions"].as_array().into_iter().flatten().filter(|v| v["served"] == true) {
                let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
                let (group, version, plural) =
                    (text(&spec["group"]), text(&version["name"]), text(&spec["names"]["plural"]));
                let list = outgoing_admin("GET", &format!("/apis/{group}/{version}/{plural}"), None);
                wait(connection, &list, |a| a.code == 200).await?;
            }
            Ok(())
        };
        let (a, b) = tokio::join!(install(&self.ours), install(&self.theirs));
        a.context("on the embedded server")?;
        b.context("on the real server")
    }
}

/// Creates a namespace, and waits for the objects that every namespace gets.
async fn prepare(connection: &Connection, namespace: &str) -> anyhow::Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"conformance.knoll.dev/run": "true"}}});
    let answer = connection.send(&outgoing_admin("POST", "/api/v1/namespaces", Some(&body))).await?;
    if answer.code != 201 {
        bail!("{}", answer.body);
    }
    for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
        let get = outgoing_admin("GET", &format!("/api/v1/namespaces/{namespace}/{path}"), None);
        wait(connection, &get, |a| a.code == 200)
            .await
            .with_context(|| format!("no controller made {path}: a control plane has a controller-manager"))?;
    }
    Ok(())
}

async fn wait(connection: &Connection, request: &Outgoing, done: impl Fn(&Answer) -> bool) -> anyhow::Result<Answer> {
    let end = Instant::now() + CONTROLLER_TIMEOUT;
    loop {
        let answer = connection.send(request).await?;
        if done(&answer) {
            return Ok(answer);
        }
        if Instant::now() > end {
            bail!(
                "{} {} did not come to what was waited for; the last answer was {} {}",
                request.method,
                request.path,
                answer.code,
                answer.body
            );
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn outgoing_admin(method: &str, path: &str, body: Option<&Value>) -> Outgoing {
    let mut headers = vec![("user-agent".to_owned(), "conformance".to_owned())];
    if body.is_some() {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    let body = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
    Outgoing { method: method.into(), path: path.into(), headers, body, bare: false }
}

fn describe(step: &Step) -> String {
    match (&step.request, &step.events) {
        (Some(request), _) => request.clone(),
        (None, Some(name)) => format!("EVENTS {name}"),
        (None, None) => format!("SETTLE {}", step.settle.join(" ")),
    }
}

/// Keeps only the items of a list that the embedded server has too.
fn keep_part(part: &Part, ours: &mut Value, theirs: &mut Value) {
    let at = format!("/body{}", part.list);
    let keys: Vec<Value> = ours
        .pointer(&at)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|item| item.pointer(&part.key).cloned().unwrap_or_default())
        .collect();
    if let Some(list) = theirs.pointer_mut(&at).and_then(Value::as_array_mut) {
        list.retain(|item| keys.contains(&item.pointer(&part.key).cloned().unwrap_or_default()));
    }
}

fn holds(until: &Until, answer: &Answer) -> bool {
    let code = until.code.is_none_or(|code| code == answer.code);
    let found = until.at.as_ref().map(|at| answer.body.pointer(at));
    code && match (found, &until.is) {
        (None, _) => true,
        (Some(found), None) => found.is_some(),
        (Some(found), Some(wanted)) => found == Some(wanted),
    }
}

impl Side {
    async fn step(&mut self, step: &Step) -> anyhow::Result<Value> {
        if let Some(name) = &step.events {
            return self.events(name, step.count.unwrap_or_default()).await;
        }
        if !step.settle.is_empty() {
            return self.settle(&step.settle).await;
        }
        let request = self.outgoing(step)?;
        if let Some(base) = step.body.as_ref().and_then(|b| b.pointer("/metadata/generateName")?.as_str()) {
            let base = self.variables.fill(base);
            self.names.base(&base);
        }
        if let Some(name) = &step.watch {
            return self.watch(name, &request).await;
        }
        let answer = match &step.until {
            // A response that never comes shows up in the comparison.
            Some(until) => match wait(&self.connection, &request, |a| holds(until, a)).await {
                Ok(answer) => answer,
                Err(_) => self.connection.send(&request).await?,
            },
            None => self.connection.send(&request).await?,
        };
        for (name, pointer) in &step.save {
            if let Some(value) = answer.body.pointer(pointer) {
                self.variables.set(name, value.clone());
            }
        }
        Ok(answer.to_value())
    }

    fn outgoing(&self, step: &Step) -> anyhow::Result<Outgoing> {
        let line = self.variables.fill(step.request.as_deref().unwrap_or_default());
        let (method, path) = line.split_once(' ').context("a request is `METHOD PATH`")?;
        let mut path = path.trim().to_owned();
        for (name, value) in &step.query {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(&format!("{name}={}", encode(&self.variables.fill(value))));
        }
        let mut headers = vec![("user-agent".to_owned(), "conformance".to_owned())];
        let body = match (&step.body, &step.text) {
            (Some(body), _) => Some(self.variables.fill_value(body).to_string()),
            (None, Some(text)) => Some(self.variables.fill(text)),
            (None, None) => None,
        };
        match step.media.as_deref() {
            Some("none") => {}
            Some(media) => headers.push(("content-type".to_owned(), media_type(media).to_owned())),
            None if body.is_some() => headers.push(("content-type".to_owned(), "application/json".to_owned())),
            None => {}
        }
        if let Some(accept) = &step.accept {
            headers.push(("accept".to_owned(), accept_header(accept).to_owned()));
        }
        for (name, value) in &step.headers {
            headers.push((name.to_lowercase(), self.variables.fill(value)));
        }
        let mut bare = false;
        match (&step.token, step.user.as_deref()) {
            (Some(token), _) => {
                bare = true;
                if !token.is_empty() {
                    headers.push(("authorization".to_owned(), format!("Bearer {}", self.variables.fill(token))));
                }
            }
            (None, user) => {
                let user = user.map(|u| self.variables.fill(u));
                headers.push(("impersonate-user".to_owned(), user.clone().unwrap_or_else(|| USER.0.to_owned())));
                if user.is_none() {
                    headers.push(("impersonate-group".to_owned(), USER.1.to_owned()));
                }
                for group in &step.groups {
                    headers.push(("impersonate-group".to_owned(), self.variables.fill(group)));
                }
            }
        }
        Ok(Outgoing { method: method.to_owned(), path, headers, body: body.unwrap_or_default().into_bytes(), bare })
    }

    async fn watch(&mut self, name: &str, request: &Outgoing) -> anyhow::Result<Value> {
        let (mut answer, lines) = self.connection.watch(request).await?;
        if answer.code != 200 {
            pin_mut!(lines);
            answer.body = lines.next().await.unwrap_or_default();
            return Ok(answer.to_value());
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            pin_mut!(lines);
            while let Some(line) = lines.next().await {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        self.watches.insert(name.to_owned(), receiver);
        Ok(answer.to_value())
    }

    async fn events(&mut self, name: &str, count: usize) -> anyhow::Result<Value> {
        let Some(mut receiver) = self.watches.remove(name) else {
            return Ok(json!({"watch": "never began"}));
        };
        let end = tokio::time::Instant::now() + EVENTS;
        let mut events = Vec::new();
        while events.len() < count {
            match tokio::time::timeout_at(end, receiver.recv()).await {
                // The time at which a server sends bookmarks is not compared.
                Ok(Some(event)) if event["type"] == "BOOKMARK" && !ends_initial(&event) => {}
                Ok(Some(event)) => events.push(event),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(json!({"events": events}))
    }

    /// All objects at these paths, once the garbage collector has no work left.
    async fn settle(&mut self, paths: &[String]) -> anyhow::Result<Value> {
        let end = Instant::now() + CONTROLLER_TIMEOUT;
        let (mut objects, mut since) = (Vec::new(), Instant::now());
        loop {
            let mut now = Vec::new();
            for path in paths {
                let answer = self.connection.send(&outgoing_admin("GET", &self.variables.fill(path), None)).await?;
                now.extend(answer.body["items"].as_array().cloned().unwrap_or_default());
            }
            if now != objects {
                (objects, since) = (now, Instant::now());
            }
            let still = since.elapsed() >= STILL || !quiet::may_change(&objects);
            if quiet::is_quiet(&objects) && still || Instant::now() > end {
                return Ok(json!({"objects": objects}));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

fn ends_initial(event: &Value) -> bool {
    event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}

fn media_type(word: &str) -> &str {
    match word {
        "json" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        "yaml" => "application/yaml",
        full => full,
    }
}

fn accept_header(word: &str) -> &str {
    match word {
        "table" => "application/json;as=Table;v=v1;g=meta.k8s.io",
        "metadata" => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "metadata-list" => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "discovery" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        full => full,
    }
}

fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
