//! CustomResourceDefinitions: a definition that was written is served, one that is deleted takes its objects along.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{patch, resource};
use crate::delete::{self, Options};
use crate::kinds::Resource;
use crate::status::{ApiError, Result};
use crate::{Server, object, rules};
use knoll_kube_store::List;

const GROUP: &str = "apiextensions.k8s.io";
const PREFIX: &str = "apiextensions.k8s.io/customresourcedefinitions/";
/// What holds a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Serves every definition that was there before the server started.
pub fn load(server: &Server) -> Result<()> {
    serve(server, &all(server)?.0);
    Ok(())
}

fn all(server: &Server) -> Result<(Vec<Value>, u64)> {
    let page = server.store.list(List { prefix: PREFIX, ..List::default() }).map_err(ApiError::internal)?;
    let crds = page.entries.iter().filter_map(|e| object::decode_entry(e).ok()).collect();
    Ok((crds, page.revision))
}

/// A definition is served before its status says so: a client that has seen `Established` finds the resource.
fn serve(server: &Server, crds: &[Value]) {
    let custom: Vec<Arc<Resource>> = crds.iter().flat_map(rules::custom_resources).collect();
    server.registry.replace(custom);
}

pub async fn run(server: Server) -> Result<()> {
    let (_, revision) = all(&server)?;
    let mut watch = server.store.watch(PREFIX, revision).map_err(ApiError::internal)?;
    // Instances of a definition that is being deleted may take their time: their events wake this loop too.
    loop {
        let (crds, _) = all(&server)?;
        serve(&server, &crds);
        let mut waiting = false;
        for crd in &crds {
            if object::deleting(crd) {
                waiting |= !clean_up(&server, crd).await?;
            } else {
                establish(&server, crd).await?;
            }
        }
        if waiting {
            let mut everything = server.store.watch("", server.store.revision()).map_err(ApiError::internal)?;
            tokio::select! {
                events = watch.next() => events.map_err(ApiError::internal)?,
                events = everything.next() => events.map_err(ApiError::internal)?,
            };
        } else {
            watch.next().await.map_err(ApiError::internal)?;
        }
    }
}

async fn establish(server: &Server, crd: &Value) -> Result<()> {
    let definitions = resource(server, GROUP, "customresourcedefinitions")?;
    let name = object::meta(crd, "name");
    if let Some(status) = rules::established(crd, &server.now_text()) {
        patch(server, &definitions, None, name, Some("status"), &json!({"status": status})).await?;
    }
    Ok(())
}

/// Deletes all objects of the definition. `true`: none is left, and the definition may go.
async fn clean_up(server: &Server, crd: &Value) -> Result<bool> {
    let Some(custom) = rules::custom_resources(crd).into_iter().next() else {
        return Ok(true);
    };
    let prefix = custom.prefix(None);
    for instance in server.objects(&prefix).iter().filter(|o| !object::deleting(o)) {
        let namespace = custom.namespaced.then(|| object::meta(instance, "namespace"));
        let options = Options::background(object::meta(instance, "uid"));
        if let Err(error) = delete::delete(server, &custom, namespace, object::meta(instance, "name"), &options).await {
            tracing::debug!(%error, "an object of a deleted definition is left for the next round");
        }
    }
    if server.store.count(&prefix).map_err(ApiError::internal)? > 0 {
        return Ok(false);
    }
    let definitions = resource(server, GROUP, "customresourcedefinitions")?;
    let rest: Vec<&str> = object::finalizers(crd).into_iter().filter(|f| *f != FINALIZER).collect();
    patch(server, &definitions, None, object::meta(crd, "name"), None, &json!({"metadata": {"finalizers": rest}}))
        .await?;
    Ok(true)
}
