//! Admission policies are compiled anew whenever one of them or of their bindings changes.

use serde_json::json;

use super::{call, resource};
use crate::admission::FOLDER;
use crate::query::Query;
use crate::status::{ApiError, Result};
use crate::{Server, object, patching};

const POLICIES: &str = "admissionregistration.k8s.io/validatingadmissionpolicies/";

/// Follows the policies and their bindings.
pub async fn run(server: Server) -> Result<()> {
    let mut watch = server.store.watch(FOLDER, server.store.revision()).map_err(ApiError::internal)?;
    loop {
        server.policies.load(&server);
        look_at(&server).await?;
        watch.next().await.map_err(ApiError::internal)?;
    }
}

/// Says of every policy that was looked at that it was. Its types were checked when it was written.
async fn look_at(server: &Server) -> Result<()> {
    let kind = resource(server, "admissionregistration.k8s.io", "validatingadmissionpolicies")?;
    for policy in server.objects(POLICIES) {
        let generation = &policy["metadata"]["generation"];
        if policy["status"]["observedGeneration"] == *generation {
            continue;
        }
        let name = object::meta(&policy, "name");
        let mut call = call(server, &kind, None, Some(name), Some("status"));
        call.query = Query::parse(Some("fieldManager=validatingadmissionpolicy-status&force=true"));
        let form = http::HeaderValue::from_static("application/apply-patch+yaml");
        call.headers.insert(http::header::CONTENT_TYPE, form);
        let status = json!({
            "apiVersion": call.api_version, "kind": kind.kind, "metadata": {"name": name},
            "status": {"observedGeneration": generation, "typeChecking": {}},
        });
        match patching::patch(server, &call, status.to_string().into()).await {
            Err(error) if error.code == http::StatusCode::NOT_FOUND => {}
            result => _ = result?,
        }
    }
    Ok(())
}
