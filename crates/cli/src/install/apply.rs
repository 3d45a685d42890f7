//! Puts objects into a cluster: each as it should be, whatever was there.

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knoll_deploy::Manifest;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};

/// Who owns the fields of what is installed.
pub const FIELD_MANAGER: &str = "knoll";

/// What applying an object did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not there.
    Created,
    /// It was another.
    Changed,
    /// It was so already.
    Unchanged,
}

impl Outcome {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Created => "created",
            Outcome::Changed => "changed",
            Outcome::Unchanged => "unchanged",
        }
    }
}

/// Where an object is, or would be.
pub fn api(client: &Client, manifest: &Manifest) -> Api<DynamicObject> {
    match manifest.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &manifest.resource),
        None => Api::all_with(client.clone(), &manifest.resource),
    }
}

/// Applies one object.
pub async fn one(client: &Client, manifest: &Manifest) -> kube::Result<Outcome> {
    let api = api(client, manifest);
    let before = api.get_metadata_opt(manifest.name()).await?.and_then(|object| object.resource_version());
    let after = write(&api, manifest).await?.resource_version();
    Ok(match before {
        None => Outcome::Created,
        before if before == after => Outcome::Unchanged,
        Some(_) => Outcome::Changed,
    })
}

async fn write(api: &Api<DynamicObject>, manifest: &Manifest) -> kube::Result<DynamicObject> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(manifest.name(), &params, &Patch::Apply(&manifest.value)).await
}

/// Waits until the cluster serves a kind that was applied.
pub async fn served(client: &Client, kind: &str) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    await_condition(api, kind, conditions::is_crd_established())
        .await
        .with_context(|| format!("`{kind}` was installed and is not served"))?;
    Ok(())
}

/// Applies the kinds and the rules that go with them, all at once, and waits until the kinds are served.
pub async fn kinds_and_rules(client: &Client) -> Result<()> {
    let (kinds, rules) = (knoll_deploy::kinds(), knoll_deploy::rules());
    let applied = futures::future::try_join_all(kinds.iter().chain(&rules).map(async |manifest| {
        let result = write(&api(client, manifest), manifest).await;
        result.with_context(|| format!("cannot install `{}`", manifest.title()))
    }));
    applied.await?;
    futures::future::try_join_all(kinds.iter().map(|kind| served(client, kind.name()))).await?;
    Ok(())
}
