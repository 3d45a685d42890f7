//! An embedded cluster with a hub, and runners that are nothing but their requests.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knoll_api::run::{Operation, Run, RunSpec};
use knoll_api::source::Source;
use knoll_api::wire::HUB_AUDIENCE;
use knoll_api::workspace::{Workspace, WorkspaceSpec};
use knoll_embedded::Cluster;
use knoll_hub::{Hub, HubSettings, Running, Tls};
use knoll_rules::Evaluator;
use knoll_storage::Storage;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "default";

/// Made once: it takes long.
static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(knoll_api::crds);

pub struct World {
    pub client: Client,
    pub hub: Running,
    shutdown: CancellationToken,
    /// Lives as long as the world.
    _cluster: Cluster,
}

impl World {
    pub fn storage(&self) -> Storage {
        Storage::new(self.client.clone())
    }

    pub async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cluster = Cluster::memory().await.unwrap();
        let client = cluster.client();
        let api = Api::all(client.clone());
        for crd in &*CRDS {
            api.create(&PostParams::default(), crd).await.unwrap();
            await_condition(api.clone(), &crd.name_any(), conditions::is_crd_established()).await.unwrap();
        }
        let shutdown = CancellationToken::new();
        let hub = start_hub(&client, &shutdown, HubSettings::default()).await;
        World { client, hub, shutdown, _cluster: cluster }
    }

    pub async fn another_hub(&self) -> Running {
        start_hub(&self.client, &self.shutdown, HubSettings::default()).await
    }

    /// A hub with a client of its own.
    pub async fn hub_of(&self, client: Client) -> Running {
        start_hub(&client, &self.shutdown, HubSettings::default()).await
    }

    /// A hub that evaluates the rules of Policies with this program.
    pub async fn hub_with(&self, evaluator: Evaluator) -> Running {
        start_hub(&self.client, &self.shutdown, HubSettings { evaluator, ..HubSettings::default() }).await
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub async fn workspace(&self, name: &str, spec: WorkspaceSpec) {
        self.api::<Workspace>().create(&PostParams::default(), &Workspace::new(name, spec)).await.unwrap();
    }

    /// A Run in the Workspace `w`, with its pod and that pod's token.
    pub async fn runner(&self, name: &str, spec: RunSpec) -> Runner {
        let run = self.api::<Run>().create(&PostParams::default(), &Run::new(name, spec)).await.unwrap();
        let runner = self.pod(name).await;
        let status = json!({"status": {"phase": "Starting", "podName": name, "podUID": runner.uid}});
        self.set_status(&run.name_any(), status).await;
        runner
    }

    /// A pod with a token for the hub.
    pub async fn pod(&self, name: &str) -> Runner {
        let pod = Pod {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: Some(PodSpec {
                containers: vec![Container {
                    name: "runner".into(),
                    image: Some("terraform".into()),
                    ..Container::default()
                }],
                service_account_name: Some("default".into()),
                ..PodSpec::default()
            }),
            status: None,
        };
        let pod = self.api::<Pod>().create(&PostParams::default(), &pod).await.unwrap();
        let uid = pod.uid().unwrap();
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![HUB_AUDIENCE.into()],
                expiration_seconds: Some(3600),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: Some(name.to_owned()),
                    uid: Some(uid.clone()),
                }),
            },
            ..TokenRequest::default()
        };
        let token: TokenRequest = self
            .api::<ServiceAccount>()
            .create_subresource("token", "default", &PostParams::default(), &request)
            .await
            .unwrap();
        Runner::new(&self.hub, token.status.unwrap().token, uid)
    }

    pub async fn set_status(&self, run: &str, status: Value) {
        self.api::<Run>().patch_status(run, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    pub async fn run(&self, name: &str) -> Run {
        self.api::<Run>().get(name).await.unwrap()
    }

    pub async fn secrets(&self, selector: &str) -> Vec<Secret> {
        self.api::<Secret>().list(&kube::api::ListParams::default().labels(selector)).await.unwrap().items
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

async fn start_hub(client: &Client, shutdown: &CancellationToken, settings: HubSettings) -> Running {
    let tls = Tls::shared(client, NAMESPACE, &["127.0.0.1".to_owned()]).await.unwrap();
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let observer = Default::default();
    Hub::start(Storage::new(client.clone()), None, listen, tls, settings, observer, shutdown.clone()).await.unwrap()
}

pub fn apply() -> RunSpec {
    RunSpec {
        workspace: "w".into(),
        operation: Operation::Apply,
        source: Some(Source::inline([("main.tf".to_owned(), "# empty".to_owned())].into())),
        ..RunSpec::default()
    }
}

pub fn state(serial: u64, noise: &str) -> String {
    json!({
        "version": 4, "terraform_version": "1.11.4", "serial": serial, "lineage": "l",
        "outputs": {"open": {"value": noise.len(), "type": "number"},
                    "closed": {"value": "hunter2", "type": "string", "sensitive": true}},
        "resources": [{"mode": "managed", "type": "t", "name": "a", "instances": [{"attributes": {"noise": noise}}]}],
    })
    .to_string()
}

#[derive(Clone)]
pub struct Runner {
    http: reqwest::Client,
    url: String,
    pub token: String,
    pub uid: String,
}

impl Runner {
    fn new(hub: &Running, token: String, uid: String) -> Self {
        let ca = reqwest::Certificate::from_pem(hub.ca_pem.as_bytes()).unwrap();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).timeout(Duration::from_secs(60));
        Runner { http: http.build().unwrap(), url: format!("https://{}", hub.addr), token, uid }
    }

    /// The same runner, from another address of this machine.
    pub fn from(&self, hub: &Running, address: [u8; 4]) -> Self {
        let ca = reqwest::Certificate::from_pem(hub.ca_pem.as_bytes()).unwrap();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).local_address(IpAddr::from(address));
        Runner { http: http.build().unwrap(), ..self.clone() }
    }

    /// The same runner, speaking to another replica.
    pub fn at(&self, hub: &Running) -> Self {
        Runner { url: format!("https://{}", hub.addr), ..self.clone() }
    }

    pub fn with_token(&self, token: &str) -> Self {
        Runner { token: token.to_owned(), ..self.clone() }
    }

    pub async fn ask(&self, method: Method, path: &str, body: impl Into<Vec<u8>>) -> (StatusCode, Vec<u8>) {
        let request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token);
        let answer = request.body(body.into()).send().await.unwrap();
        (answer.status(), answer.bytes().await.unwrap().to_vec())
    }

    /// The status of an answer, or why there is none.
    pub async fn try_get(&self, path: &str) -> reqwest::Result<StatusCode> {
        let request = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        Ok(request.send().await?.status())
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Vec<u8>) {
        self.ask(Method::GET, path, "").await
    }

    pub async fn put(&self, path: &str, body: impl Into<Vec<u8>>) -> (StatusCode, Vec<u8>) {
        self.ask(Method::PUT, path, body).await
    }

    /// The sentence of a refusal.
    pub async fn refused(&self, method: Method, path: &str, body: impl Into<Vec<u8>>) -> (u16, String) {
        let (status, body) = self.ask(method, path, body).await;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        (status.as_u16(), body["error"].as_str().unwrap_or_default().to_owned())
    }
}
