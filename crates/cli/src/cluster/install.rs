//! Puts Knoll's kinds into a cluster and waits until it serves them.

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};

/// Applies every CustomResourceDefinition.
pub async fn crds(client: &kube::Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("knoll").force();
    let crds = knoll_api::crds();
    futures::future::try_join_all(crds.iter().map(async |crd| {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        api.patch(name, &params, &Patch::Apply(crd)).await.with_context(|| format!("cannot install `{name}`"))?;
        await_condition(api.clone(), name, conditions::is_crd_established())
            .await
            .with_context(|| format!("`{name}` was installed and is not served"))?;
        anyhow::Ok(())
    }))
    .await?;
    Ok(())
}
