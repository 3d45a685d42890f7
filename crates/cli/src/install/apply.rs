//! Applies manifests to a cluster with server-side apply.

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knoll_deploy::Manifest;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};

/// The field manager of everything that `knoll install` applies.
pub const FIELD_MANAGER: &str = "knoll";

/// The effect of applying one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyResult {
    Created,
    Changed,
    Unchanged,
}

impl ApplyResult {
    pub fn as_str(self) -> &'static str {
        match self {
            ApplyResult::Created => "created",
            ApplyResult::Changed => "changed",
            ApplyResult::Unchanged => "unchanged",
        }
    }
}

pub fn api(client: &Client, manifest: &Manifest) -> Api<DynamicObject> {
    match manifest.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &manifest.resource),
        None => Api::all_with(client.clone(), &manifest.resource),
    }
}

pub async fn one(client: &Client, manifest: &Manifest) -> kube::Result<ApplyResult> {
    let api = api(client, manifest);
    let before = api.get_metadata_opt(manifest.name()).await?.and_then(|object| object.resource_version());
    let after = write(&api, manifest).await?.resource_version();
    Ok(match before {
        None => ApplyResult::Created,
        before if before == after => ApplyResult::Unchanged,
        Some(_) => ApplyResult::Changed,
    })
}

async fn write(api: &Api<DynamicObject>, manifest: &Manifest) -> kube::Result<DynamicObject> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(manifest.name(), &params, &Patch::Apply(&manifest.value)).await
}

/// Waits until the API server serves a kind after its CRD was applied.
pub async fn served(client: &Client, kind: &str) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    await_condition(api, kind, conditions::is_crd_established())
        .await
        .with_context(|| format!("the CRD `{kind}` was installed but is not served yet"))?;
    Ok(())
}

/// Applies the CRDs and the admission policies concurrently, and waits until the CRDs are served. `operator` is the
/// username of the operator.
pub async fn kinds_and_rules(client: &Client, operator: &str) -> Result<()> {
    let (kinds, rules) = (knoll_deploy::kinds(), knoll_deploy::embedded_rules(operator));
    let applied = futures::future::try_join_all(kinds.iter().chain(&rules).map(async |manifest| {
        let result = write(&api(client, manifest), manifest).await;
        result.with_context(|| format!("cannot install `{}`", manifest.title()))
    }));
    applied.await?;
    futures::future::try_join_all(kinds.iter().map(|kind| served(client, kind.name()))).await?;
    Ok(())
}
