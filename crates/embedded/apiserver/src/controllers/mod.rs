//! The upkeep that on a cluster is the controller manager's: custom resources come and go with their definitions,
//! namespaces have what every namespace has and take all with them, dependents follow their owners, old events go.

mod collector;
pub mod definitions;
mod expiry;
mod namespaces;
mod policies;
mod roles;

use std::time::Duration;

use serde_json::json;

use crate::Server;
use crate::identity::Identity;
use crate::kinds::{Resource, Rules};
use crate::path::Target;
use crate::query::{Form, Query};
use crate::status::{ApiError, Result};
use crate::{Call, patching, write};

/// How long a controller that failed waits before it starts over.
const PAUSE: Duration = Duration::from_secs(1);

/// Creates what every cluster has and starts the controllers. They end with the server.
pub async fn start(server: &Server) -> Result<()> {
    definitions::load(server)?;
    server.policies.load(server);
    // Writes that wait at the same time share an fsync, so the first start takes a few of them and not dozens.
    let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"].map(async |name| {
        match server.read_namespace(name)? {
            Some(_) => Ok(()),
            None => namespaces::create(server, name).await,
        }
    });
    let node = async {
        match server.node_name() {
            Some(node) => register(server, node).await,
            None => Ok(()),
        }
    };
    futures::future::try_join3(futures::future::try_join_all(namespaces), roles::create(server), node).await?;
    spawn(server, "custom resources", definitions::run);
    spawn(server, "namespaces", namespaces::run);
    spawn(server, "garbage collection", collector::run);
    spawn(server, "event expiry", expiry::run);
    spawn(server, "admission policies", policies::run);
    Ok(())
}

/// The Node object of the only node, so that `kubectl get nodes` shows where pods run.
async fn register(server: &Server, name: &str) -> Result<()> {
    let nodes = resource(server, "", "nodes")?;
    let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": std::env::consts::OS});
    ensure(server, &nodes, None, json!({"metadata": {"name": name, "labels": labels}})).await?;
    let now = server.now_text();
    let status = json!({
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KnollReady", "message": "pods run as processes of this machine",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "architecture": std::env::consts::ARCH, "operatingSystem": std::env::consts::OS, "bootID": "", "machineID": "",
            "systemUUID": "", "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "process://1",
            "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION")), "kubeProxyVersion": "",
        },
    });
    patch(server, &nodes, None, name, Some("status"), &json!({"status": status})).await
}

fn spawn<F>(server: &Server, name: &'static str, run: fn(Server) -> F)
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let server = server.clone();
    tokio::spawn(async move {
        let work = async {
            loop {
                if let Err(error) = run(server.clone()).await {
                    tracing::warn!(controller = name, %error, "controller starts over");
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = server.stopping() => {}
            () = work => {}
        }
    });
}

/// A call of the server's own.
fn call(server: &Server, resource: &Resource, namespace: Option<&str>, name: Option<&str>, sub: Option<&str>) -> Call {
    let _ = server;
    Call {
        identity: Identity::admin("system:kube-controller-manager"),
        resource: std::sync::Arc::new(resource.clone()),
        api_version: resource.api_version(),
        target: Target {
            group: resource.group.clone(),
            version: resource.version.clone(),
            resource: resource.plural.clone(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource: sub.map(str::to_owned),
        },
        query: Query::parse(Some(if resource.rules == Rules::Crd {
            "fieldManager=kube-apiserver"
        } else {
            "fieldManager=kube-controller-manager"
        })),
        headers: http::HeaderMap::from_iter([(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("application/merge-patch+json"),
        )]),
        form: Form::Object,
        warnings: std::sync::Arc::default(),
    }
}

/// A built-in resource of the core group or another.
fn resource(server: &Server, group: &str, plural: &str) -> Result<std::sync::Arc<Resource>> {
    let target = Target { group: group.into(), version: "v1".into(), resource: plural.into(), ..Target::default() };
    server.registry.current().find(&target).ok_or_else(|| ApiError::internal(format!("no resource {plural}")))
}

/// A merge patch of the server's own. An object that is gone meanwhile needs none.
async fn patch(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
    sub: Option<&str>,
    patch: &serde_json::Value,
) -> Result<()> {
    let call = call(server, resource, namespace, Some(name), sub);
    match patching::patch(server, &call, patch.to_string().into()).await {
        Err(error) if error.code == http::StatusCode::NOT_FOUND => Ok(()),
        result => result.map(|_| ()),
    }
}

/// Creates an object, or finds it there.
async fn ensure(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    mut object: serde_json::Value,
) -> Result<()> {
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = json!(resource.kind);
    let call = call(server, resource, namespace, None, None);
    match write::create(server, &call, object.into()).await {
        Err(error) if error.reason == "AlreadyExists" => Ok(()),
        result => result.map(|_| ()),
    }
}
