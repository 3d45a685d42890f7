//! An in-memory hub that records all requests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post, put};
use knoll_api::run::Operation;
use knoll_api::step::{StepName, StepStatus};
use knoll_api::wire::{
    Answer, Exit, Job, JobRegistry, PROTOCOL, PlanJudged, Progress, ProgressReply, Stage, StopTimes, path,
};
use knoll_api::workspace::Tool;
use knoll_runner::Config;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;

#[derive(Default)]
pub struct Recorded {
    pub states: Vec<Value>,
    pub reports: Vec<Progress>,
    pub log: Vec<u8>,
    pub plan: Option<Bytes>,
    pub plan_text: Option<String>,
    /// The JSON of the plan, which rules judge.
    pub plan_json: Option<Value>,
    pub lock: Option<String>,
    pub answer: Option<Answer>,
    /// How many more requests are answered with 503.
    pub away: usize,
    /// No request is answered any more.
    pub silent: bool,
    /// Requests of this path are refused with this status.
    pub refuse: Option<(&'static str, u16)>,
    /// States are refused with this message.
    pub refuse_states: Option<&'static str>,
}

pub struct Hub {
    job: Job,
    bundle: Vec<u8>,
    state: Option<String>,
    pub told: Mutex<Recorded>,
    cancelled: watch::Sender<bool>,
    /// Counts the answered requests.
    answered: watch::Sender<u64>,
    url: String,
    pub home: tempfile::TempDir,
}

/// A job without special settings.
pub fn job(operation: Operation, steps: &[StepName]) -> Job {
    Job {
        protocol: PROTOCOL,
        stage: Stage::Whole,
        namespace: "ns".into(),
        run: "run".into(),
        workspace: "ws".into(),
        operation,
        command: None,
        args: Vec::new(),
        answers: false,
        tool: Tool::Terraform,
        version: None,
        steps: steps.to_vec(),
        variables: Vec::new(),
        sensitive_files: Vec::new(),
        input: None,
        registry: JobRegistry::default(),
        masked: Vec::new(),
        variable_files: BTreeMap::new(),
        targets: Vec::new(),
        replace: Vec::new(),
        managed_state: true,
        terraform_workspace: None,
        lock_file: None,
        judged: false,
        isolated: false,
        mirror: None,
        plan_digest: None,
        hooks: Vec::new(),
        retry: BTreeMap::new(),
        retry_backoff_millis: 1,
        timeouts: BTreeMap::new(),
        stop: StopTimes {
            silence: Duration::from_secs(60),
            answer: Duration::from_secs(10),
            interrupt: Duration::from_secs(20),
            terminate: Duration::from_secs(5),
            deliver: Duration::from_secs(60),
        },
        attach_timeout_seconds: None,
        answer_timeout_seconds: 60,
        cancel: false,
        earlier_steps: Vec::new(),
        log_offset: 0,
    }
}

impl Hub {
    pub async fn start(job: Job, files: &[(&str, &str)], state: Option<String>, plan: Option<Bytes>) -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), "token-1\n").unwrap();
        let told = Mutex::new(Recorded { plan, ..Recorded::default() });
        let cancelled = watch::Sender::new(false);
        let answered = watch::Sender::new(0);
        let hub = Arc::new(Hub { job, bundle: bundle(files), state, told, cancelled, answered, url, home });
        let router = Router::new()
            .route(path::JOB, get(async |State(hub): State<Arc<Hub>>| Json(hub.job.clone())))
            .route(path::BUNDLE, get(async |State(hub): State<Arc<Hub>>| hub.bundle.clone()))
            .route(path::STATE, get(get_state).put(put_state))
            .route(path::PLAN, get(get_plan).put(put_plan))
            .route(path::PLAN_TEXT, put(put_plan_text))
            .route(path::PLAN_JSON, put(put_plan_json))
            .route(path::LOCK, put(put_lock))
            .route(path::ANSWER, put(put_answer))
            .route(path::LOG, post(post_log))
            .route(path::PROGRESS, put(put_progress))
            .route(path::CANCEL, get(get_cancel))
            .layer(from_fn_with_state(Arc::clone(&hub), front))
            .with_state(Arc::clone(&hub));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        hub
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn work_dir(&self) -> PathBuf {
        self.home.path().join("work")
    }

    /// Runs the runner to its end, and returns its exit.
    pub async fn run(&self) -> Exit {
        let config = Config {
            hub_url: self.url.clone(),
            hub_ca: None,
            token_file: self.home.path().join("token"),
            work_dir: self.work_dir(),
            plugin_cache: None,
            unused_image: None,
        };
        knoll_runner::run(config).await;
        self.last_report().exit.unwrap_or_default()
    }

    /// Waits until the recorded requests meet `condition`.
    pub async fn until(&self, what: &str, mut condition: impl FnMut(&Hub) -> bool) {
        let mut answered = self.answered.subscribe();
        let waited = answered.wait_for(|_| condition(self));
        let waited = tokio::time::timeout(Duration::from_secs(60), waited).await;
        assert!(waited.is_ok(), "{what} did not happen\n{}", self.log());
    }

    pub fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    pub fn last_report(&self) -> Progress {
        self.told.lock().unwrap().reports.last().cloned().unwrap_or_default()
    }

    pub fn step(&self, name: StepName) -> StepStatus {
        self.last_report().steps.into_iter().find(|step| step.name == name).unwrap()
    }

    pub fn serials(&self) -> Vec<u64> {
        self.told.lock().unwrap().states.iter().map(|state| state["serial"].as_u64().unwrap()).collect()
    }

    pub fn last_state(&self) -> Value {
        self.told.lock().unwrap().states.last().cloned().unwrap_or_default()
    }

    /// The addresses of the resources in the last state.
    pub fn resources(&self) -> Vec<String> {
        let state = self.last_state();
        let resources = state["resources"].as_array().cloned().unwrap_or_default();
        resources.iter().map(|resource| resource["name"].as_str().unwrap().to_owned()).collect()
    }

    pub fn log(&self) -> String {
        String::from_utf8(self.told.lock().unwrap().log.clone()).unwrap()
    }
}

fn bundle(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    zstd::encode_all(&tar.into_inner().unwrap()[..], 1).unwrap()
}

/// Checks the token, and answers 503 as often as the test wants.
async fn front(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    assert_eq!(request.headers()["authorization"], "Bearer token-1");
    {
        let mut told = hub.told.lock().unwrap();
        if told.away > 0 {
            told.away -= 1;
            return (StatusCode::SERVICE_UNAVAILABLE, "away").into_response();
        }
    }
    let (silent, refuse) = {
        let told = hub.told.lock().unwrap();
        (told.silent, told.refuse)
    };
    if silent {
        std::future::pending::<()>().await;
    }
    if let Some((_, status)) = refuse.filter(|(path, _)| *path == request.uri().path()) {
        let status = StatusCode::from_u16(status).unwrap();
        return (status, Json(json!({"error": "this pod is not the run's"}))).into_response();
    }
    let response = next.run(request).await;
    hub.answered.send_modify(|count| *count += 1);
    response
}

async fn get_state(State(hub): State<Arc<Hub>>) -> Response {
    match &hub.state {
        Some(state) => state.clone().into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

async fn put_state(State(hub): State<Arc<Hub>>, content: Bytes) -> Response {
    let mut told = hub.told.lock().unwrap();
    if let Some(why) = told.refuse_states {
        return (StatusCode::FORBIDDEN, Json(json!({"error": why}))).into_response();
    }
    told.states.push(serde_json::from_slice(&content).unwrap());
    StatusCode::NO_CONTENT.into_response()
}

async fn get_plan(State(hub): State<Arc<Hub>>) -> Bytes {
    hub.told.lock().unwrap().plan.clone().unwrap()
}

async fn put_plan(State(hub): State<Arc<Hub>>, content: Bytes) {
    hub.told.lock().unwrap().plan = Some(content);
}

async fn put_plan_text(State(hub): State<Arc<Hub>>, text: String) {
    hub.told.lock().unwrap().plan_text = Some(text);
}

async fn put_plan_json(State(hub): State<Arc<Hub>>, content: Bytes) -> Json<PlanJudged> {
    hub.told.lock().unwrap().plan_json = Some(serde_json::from_slice(&content).unwrap());
    Json(PlanJudged { results: vec!["Policy `p` warns: hunter2-and-more.".to_owned()] })
}

async fn put_lock(State(hub): State<Arc<Hub>>, content: String) {
    hub.told.lock().unwrap().lock = Some(content);
}

async fn put_answer(State(hub): State<Arc<Hub>>, content: Bytes) {
    hub.told.lock().unwrap().answer = Some(serde_json::from_slice(&content).unwrap());
}

async fn post_log(State(hub): State<Arc<Hub>>, Query(query): Query<BTreeMap<String, u64>>, piece: Bytes) {
    let mut told = hub.told.lock().unwrap();
    assert_eq!(query["offset"], told.log.len() as u64);
    told.log.extend_from_slice(&piece);
}

async fn put_progress(State(hub): State<Arc<Hub>>, content: Bytes) -> Json<ProgressReply> {
    let report: Progress = serde_json::from_slice(&content).unwrap();
    hub.told.lock().unwrap().reports.push(report);
    Json(ProgressReply { cancel: false })
}

/// Asks often, so that a test that wants another answer gets it soon.
async fn get_cancel(State(hub): State<Arc<Hub>>) -> StatusCode {
    let mut cancelled = hub.cancelled.subscribe();
    let waited = tokio::time::timeout(Duration::from_millis(200), cancelled.wait_for(|cancelled| *cancelled)).await;
    if waited.is_ok() { StatusCode::OK } else { StatusCode::NO_CONTENT }
}
