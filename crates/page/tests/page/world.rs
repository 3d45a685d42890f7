//! An embedded cluster with a page, and users of different rights who look at it over HTTP.

use std::net::Ipv4Addr;
use std::sync::LazyLock;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding, RoleRef, Subject};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::Digest;
use knoll_api::run::{Operation, PlanSummary, ResourceChange, Run, RunPhase, RunSpec, RunStatus};
use knoll_api::step::{StepName, StepStatus};
use knoll_core::identity::ObjectId;
use knoll_embedded::Cluster;
use knoll_page::{BearerToken, Hosts, Page, PageSettings, RunningPage, SessionKey};
use knoll_storage::{LogWriter, Storage};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::core::ObjectMeta;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Config, ResourceExt};
use reqwest::{RequestBuilder, StatusCode, header};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub const NAMESPACE: &str = "default";
/// Long enough for a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Made once: it takes long.
static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(knoll_api::crds);

pub struct World {
    pub client: Client,
    pub page: RunningPage,
    stop: CancellationToken,
    _cluster: Cluster,
}

impl World {
    pub async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cluster = Cluster::memory().await.unwrap();
        let client = cluster.client();
        let api = Api::all(client.clone());
        for crd in &*CRDS {
            api.create(&PostParams::default(), crd).await.unwrap();
            await_condition(api.clone(), &crd.name_any(), conditions::is_crd_established()).await.unwrap();
        }
        let roles: Api<ClusterRole> = Api::all(client.clone());
        for manifest in knoll_deploy::rules("operator") {
            if manifest.resource.kind == "ClusterRole" {
                let role = serde_json::from_value(manifest.value.clone()).unwrap();
                roles.create(&PostParams::default(), &role).await.unwrap();
            }
        }
        let config = Kubeconfig::from_yaml(&cluster.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        let connect = Box::new(move |token: &BearerToken| {
            let auth_info = AuthInfo { token: Some(token.expose().to_owned().into()), ..AuthInfo::default() };
            let mut config = config.clone();
            config.auth_info = auth_info;
            Client::try_from(config)
        });
        let stop = CancellationToken::new();
        let key = SessionKey::shared(&client, "kube-system").await.unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let settings = PageSettings { connect, key, hosts: Hosts::Loopback };
        let page = Page::serve(listener, settings, stop.clone()).unwrap();
        World { client, page, stop, _cluster: cluster }
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// A service account with these roles in the namespace, and its token.
    pub async fn token(&self, name: &str, roles: &[&str]) -> String {
        let metadata = |name: String| ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata: metadata(name.to_owned()), ..ServiceAccount::default() };
        self.api::<ServiceAccount>().create(&PostParams::default(), &account).await.unwrap();
        for role in roles {
            let binding = RoleBinding {
                metadata: metadata(format!("{name}-{role}")),
                role_ref: RoleRef {
                    api_group: "rbac.authorization.k8s.io".into(),
                    kind: "ClusterRole".into(),
                    name: (*role).to_owned(),
                },
                subjects: Some(vec![Subject {
                    kind: "ServiceAccount".into(),
                    name: name.to_owned(),
                    namespace: Some(NAMESPACE.into()),
                    api_group: None,
                }]),
            };
            self.api::<RoleBinding>().create(&PostParams::default(), &binding).await.unwrap();
        }
        let request = TokenRequest {
            spec: TokenRequestSpec { audiences: Vec::new(), expiration_seconds: Some(3600), bound_object_ref: None },
            ..TokenRequest::default()
        };
        let api = self.api::<ServiceAccount>();
        let token: TokenRequest =
            api.create_subresource("token", name, &PostParams::default(), &request).await.unwrap();
        token.status.unwrap().token
    }

    /// A browser in which nobody is signed in.
    pub fn browser(&self) -> Browser {
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Browser { http, base: format!("http://{}", self.page.addr), cookie: String::new() }
    }

    /// A browser that is signed in by a link.
    pub async fn signed_in(&self, token: &str) -> Browser {
        let mut browser = self.browser();
        let link = self.page.link(BearerToken::new(token).unwrap()).unwrap();
        let answer = browser.http.get(link).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        let cookie = answer.headers()[header::SET_COOKIE].to_str().unwrap();
        browser.cookie = cookie.split(';').next().unwrap().to_owned();
        browser
    }

    /// A Run whose plan, with this text, waits for a decision.
    pub async fn run_in_review(&self, name: &str, text: &str) -> Run {
        let run = self.run(name).await;
        let storage = Storage::new(self.client.clone());
        storage.plan_texts().put(&run, text.as_bytes()).await.unwrap();
        let plan = PlanSummary {
            digest: Some(Digest::of("plan").to_string()),
            text_digest: Some(Digest::of(text).to_string()),
            add: 1,
            changes: true,
            resources: vec![ResourceChange { address: "terraform_data.a".into(), ..ResourceChange::default() }],
            ..PlanSummary::default()
        };
        let review_digest = Some(Digest::of(format!("review of {name}")).to_string());
        let status = RunStatus { phase: RunPhase::Review, plan: Some(plan), review_digest, ..RunStatus::default() };
        self.set_status(name, &status).await
    }

    pub async fn run(&self, name: &str) -> Run {
        let spec = RunSpec { workspace: "w".into(), operation: Operation::Apply, ..RunSpec::default() };
        self.api().create(&PostParams::default(), &Run::new(name, spec)).await.unwrap()
    }

    pub async fn set_status(&self, name: &str, status: &RunStatus) -> Run {
        let patch = Patch::Merge(json!({"status": status}));
        self.api::<Run>().patch_status(name, &PatchParams::default(), &patch).await.unwrap()
    }

    pub fn log(&self, run: &Run) -> LogWriter {
        Storage::new(self.client.clone()).logs().writer(&ObjectId::of(run).unwrap(), "w")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A running Run whose step `plan` prints.
pub fn running() -> RunStatus {
    let steps = vec![StepStatus::started(StepName::Plan, MicroTime(jiff::Timestamp::now()), 0)];
    RunStatus { phase: RunPhase::Running, steps, ..RunStatus::default() }
}

/// The browser of one user, or of nobody.
pub struct Browser {
    pub http: reqwest::Client,
    pub base: String,
    pub cookie: String,
}

impl Browser {
    pub fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.base)).header(header::COOKIE, &self.cookie)
    }

    /// Sends a form with these fields.
    pub fn post(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        let encode = |text: &str| {
            let byte = |byte: u8| {
                if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
            };
            text.bytes().map(byte).collect::<String>()
        };
        let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let request = self.http.post(format!("{}{path}", self.base)).header(header::COOKIE, &self.cookie);
        request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(pairs.join("&"))
    }

    pub async fn read(&self, path: &str) -> (StatusCode, String) {
        let answer = self.get(path).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }
}

/// The value of a hidden field of a page.
pub fn field(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no field {name} in {page}"));
    rest.split('"').next().unwrap().to_owned()
}
