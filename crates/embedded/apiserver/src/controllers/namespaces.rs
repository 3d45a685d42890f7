//! Namespaces: each has a default service account and the cluster's root certificate; a deleted one is emptied first.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{call, ensure, resource};
use crate::delete::{self, Options};
use crate::status::{ApiError, Result};
use crate::{Server, object, write};
use knoll_kube_store::List;

const PREFIX: &str = "core/namespaces/";
const DESCRIPTION: &str = "kubernetes.io/description";
const ABOUT: &str = "The certificate authority that signed this cluster's own certificate.";

/// Creates a namespace with all that belongs to it.
pub async fn create(server: &Server, name: &str) -> Result<()> {
    ensure(server, &*resource(server, "", "namespaces")?, None, json!({"metadata": {"name": name}})).await?;
    furnish(server, name).await
}

async fn furnish(server: &Server, namespace: &str) -> Result<()> {
    let account = async {
        if server.read_account(namespace, "default")?.is_some() {
            return Ok(());
        }
        let account = json!({"metadata": {"name": "default"}});
        ensure(server, &*resource(server, "", "serviceaccounts")?, Some(namespace), account).await
    };
    let certificate = async {
        let key = format!("core/configmaps/{namespace}/kube-root-ca.crt");
        if server.store.get(&key).map_err(ApiError::internal)?.is_some() {
            return Ok(());
        }
        let map = json!({"metadata": {"name": "kube-root-ca.crt", "annotations": {DESCRIPTION: ABOUT}}, "data": {"ca.crt": server.ca_pem}});
        ensure(server, &*resource(server, "", "configmaps")?, Some(namespace), map).await
    };
    futures::future::try_join(account, certificate).await?;
    Ok(())
}

/// Follows the namespaces, and their contents while one of them is on its way out.
pub async fn run(server: Server) -> Result<()> {
    let mut seen = server.store.revision();
    loop {
        let list = List { prefix: PREFIX, ..List::default() };
        let page = server.store.list(list).map_err(ApiError::internal)?;
        let mut emptying = false;
        for namespace in page.entries.iter().filter_map(|e| object::decode_entry(e).ok()) {
            let name = object::meta(&namespace, "name");
            if object::deleting(&namespace) {
                emptying |= !empty(&server, &namespace).await?;
            } else if let Err(error) = furnish(&server, name).await {
                // It was deleted between the two looks at it: the next round sees that.
                tracing::debug!(namespace = name, %error, "namespace could not be furnished");
            }
        }
        let prefix = if emptying { "" } else { PREFIX };
        let mut watch = server.store.watch(prefix, seen).map_err(ApiError::internal)?;
        let events = watch.next().await.map_err(ApiError::internal)?;
        seen = events.last().map_or(seen, |e| e.revision);
    }
}

/// Deletes what is in the namespace. `true`: it was empty, and the namespace is gone.
async fn empty(server: &Server, namespace: &Value) -> Result<bool> {
    let name = object::meta(namespace, "name");
    let current = server.registry.current();
    for kind in current.stored().filter(|r| r.namespaced) {
        for inside in server.objects(&kind.prefix(Some(name))).iter().filter(|o| !object::deleting(o)) {
            let options = Options::background(object::meta(inside, "uid"));
            if let Err(error) = delete::delete(server, kind, Some(name), object::meta(inside, "name"), &options).await {
                tracing::debug!(namespace = name, %error, "an object of a deleted namespace is left for the next round");
            }
        }
    }
    // What waits for nobody is gone by now.
    let left = Left::observe(server, name);
    if !left.kinds.is_empty() {
        publish(server, namespace, &left).await?;
        return Ok(false);
    }
    let kind = resource(server, "", "namespaces")?;
    let mut done = namespace.clone();
    done["spec"]["finalizers"] = json!([]);
    object::set_meta(&mut done, "resourceVersion", None);
    let call = call(server, &kind, None, Some(name), Some("finalize"));
    let mut body = server.read_namespace(name)?.unwrap_or(done);
    body["spec"]["finalizers"] = json!([]);
    match write::update(server, &call, body.into()).await {
        Err(error) if error.code == http::StatusCode::NOT_FOUND => Ok(true),
        result => result.map(|_| true),
    }
}

/// What keeps a namespace from going.
#[derive(Default)]
struct Left {
    kinds: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    fn observe(server: &Server, namespace: &str) -> Self {
        let mut left = Self::default();
        for kind in server.registry.current().stored().filter(|r| r.namespaced) {
            for object in server.objects(&kind.prefix(Some(namespace))) {
                *left.kinds.entry(format!("{}.{}", kind.plural, kind.group)).or_default() += 1;
                for finalizer in object::finalizers(&object) {
                    *left.finalizers.entry(finalizer.to_owned()).or_default() += 1;
                }
            }
        }
        left
    }
}

/// Says in the namespace's status what it waits for.
async fn publish(server: &Server, namespace: &Value, left: &Left) -> Result<()> {
    let list = |entries: &BTreeMap<String, usize>, verb: &str| {
        let texts: Vec<String> =
            entries.iter().map(|(what, count)| format!("{what} {verb} {count} resource instances")).collect();
        texts.join(", ")
    };
    let remaining = format!("Some resources are remaining: {}", list(&left.kinds, "has"));
    let held = if left.finalizers.is_empty() {
        ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned())
    } else {
        let text = list(&left.finalizers, "in");
        ("True", "SomeFinalizersRemain", format!("Some content in the namespace has finalizers remaining: {text}"))
    };
    let rows = [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", &remaining),
        ("NamespaceFinalizersRemaining", held.0, held.1, &held.2),
    ];
    let before = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut changed = false;
    let conditions: Vec<Value> = rows
        .iter()
        .map(|(kind, status, reason, message)| {
            let old = before.iter().find(|c| c["type"] == *kind);
            if let Some(old) = old.filter(|c| c["status"] == *status && c["message"] == *message) {
                return old.clone();
            }
            changed = true;
            let since = old.filter(|c| c["status"] == *status).map(|c| c["lastTransitionTime"].clone());
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": since.unwrap_or_else(|| server.now_text().into()),
            })
        })
        .collect();
    if !changed {
        return Ok(());
    }
    let kind = resource(server, "", "namespaces")?;
    let change = json!({"status": {"conditions": conditions}});
    super::patch(server, &kind, None, object::meta(namespace, "name"), Some("status"), &change).await
}
