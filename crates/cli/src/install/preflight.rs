//! Checks before an installation changes anything, so that it does not fail half-way.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use knoll_deploy::{DEPLOYMENT, Manifest, Settings};
use kube::api::{Api, PostParams};

use crate::connect::{Cluster, Explain};

/// Fails if the cluster cannot run the operator, already has one elsewhere, or the user lacks permissions.
pub async fn check(cluster: &Cluster, settings: &Settings, manifests: &[Manifest]) -> Result<()> {
    let deployments = cluster.client.list_api_group_resources("apps/v1").await;
    if matches!(&deployments, Err(kube::Error::Api(status)) if status.code == 404) {
        bail!(
            "the cluster at {} does not serve Deployments, so the operator cannot be installed; the embedded cluster (`knoll up`) already includes Knoll",
            cluster.server
        );
    }
    deployments.explain(cluster, "cannot list the API resources of the cluster")?;
    allowed(cluster, "patch", manifests).await?;
    if let Some(other) = installed_in(cluster).await?.filter(|other| *other != settings.namespace) {
        bail!(
            "Knoll is already installed in namespace `{other}`, and a cluster can have only one installation: use `--namespace {other}` to upgrade it, or run `knoll uninstall --namespace {other}` first"
        );
    }
    Ok(())
}

/// The namespace of the installed operator, if there is one.
pub async fn installed_in(cluster: &Cluster) -> Result<Option<String>> {
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client.clone());
    let binding =
        super::administrator(bindings.get_opt(DEPLOYMENT).await, cluster, "cannot check whether Knoll is installed")?;
    Ok(binding.and_then(|binding| binding.subjects?.into_iter().next()?.namespace))
}

/// Fails if the user may not do `verb` on every one of the objects.
pub async fn allowed(cluster: &Cluster, verb: &str, manifests: &[Manifest]) -> Result<()> {
    let resources: BTreeSet<(String, String, Option<String>)> = manifests
        .iter()
        .map(|manifest| {
            let (resource, namespace) = (&manifest.resource, manifest.namespace().map(str::to_owned));
            (resource.group.clone(), resource.plural.clone(), namespace)
        })
        .collect();
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let answers = resources.into_iter().map(async |(group, resource, namespace)| {
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group),
            resource: Some(resource.clone()),
            namespace,
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        Ok::<_, kube::Error>((!allowed).then_some(resource))
    });
    let refused = try_join_all(answers).await.explain(cluster, "cannot check your permissions")?;
    let refused: BTreeSet<String> = refused.into_iter().flatten().collect();
    if refused.is_empty() {
        return Ok(());
    }
    let list = refused.into_iter().collect::<Vec<_>>().join(", ");
    bail!(
        "you are not allowed to {verb} {list} in the cluster at {}, so nothing was changed: ask an administrator of the cluster (role `cluster-admin`) to do it",
        cluster.server
    )
}
