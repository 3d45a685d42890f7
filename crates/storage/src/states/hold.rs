//! The finalizer on the Secrets of a state that a Stack is responsible for.
//!
//! *Guarantee.* Whoever deletes such a Secret, or its whole namespace, the state can be read and written until the Stack
//! has let go of it: it has destroyed its infrastructure, or a person has decided to keep that.

use k8s_openapi::api::core::v1::Secret;
use knoll_api::names::{content, finalizer, label};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::States;

impl States {
    /// Lets go of all Secrets of a Workspace's state. Those that somebody has deleted are gone then.
    ///
    /// # Errors
    /// When the API refuses it.
    pub async fn release(&self, namespace: &str, workspace: &str) -> Result<(), kube::Error> {
        let api = self.api(namespace);
        for kind in [content::STATE, content::STATE_PART] {
            for secret in api.list_metadata(&of(workspace, kind)).await?.items {
                if secret.finalizers().iter().any(|held| held == finalizer::STATE) {
                    release(&api, &secret.name_any()).await?;
                }
            }
        }
        Ok(())
    }

    /// Deletes a Workspace's state and its earlier versions. The head goes first: without it nobody reads the parts.
    ///
    /// # Errors
    /// When the API refuses it.
    pub async fn delete(&self, namespace: &str, workspace: &str) -> Result<(), kube::Error> {
        let api = self.api(namespace);
        for kind in [content::STATE, content::STATE_PART] {
            for secret in api.list_metadata(&of(workspace, kind)).await?.items {
                let preconditions = Preconditions { uid: secret.uid(), resource_version: None };
                let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
                unless_gone(api.delete(&secret.name_any(), &params).await.map(drop))?;
                release(&api, &secret.name_any()).await?;
            }
        }
        Ok(())
    }
}

fn of(workspace: &str, kind: &str) -> ListParams {
    ListParams::default().labels(&format!("{}={workspace},{}={kind}", label::WORKSPACE, label::CONTENT))
}

/// Takes the finalizer off a Secret; it is no error when the Secret is gone or has none.
pub(crate) async fn release(api: &Api<Secret>, name: &str) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [finalizer::STATE]}});
    unless_gone(api.patch_metadata(name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop))
}

fn unless_gone(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        result => result,
    }
}
