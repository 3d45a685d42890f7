//! What would make an installation fail half-way is found before anything is changed.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use knoll_deploy::{DEPLOYMENT, Manifest, Settings};
use kube::api::{Api, PostParams};

use crate::connect::{Cluster, Explain};

/// Refuses a cluster that cannot hold Knoll, that has it elsewhere, or that the user may not change.
pub async fn check(cluster: &Cluster, settings: &Settings, manifests: &[Manifest]) -> Result<()> {
    let deployments = cluster.client.list_api_group_resources("apps/v1").await;
    if matches!(&deployments, Err(kube::Error::Api(status)) if status.code == 404) {
        bail!(
            "the cluster at {} has no Deployments, so no operator can be installed; the cluster of `knoll up` has Knoll in it already",
            cluster.server
        );
    }
    deployments.explain(cluster, "cannot look at the cluster")?;
    allowed(cluster, "patch", manifests).await?;
    if let Some(other) = installed_in(cluster).await?.filter(|other| *other != settings.namespace) {
        bail!(
            "Knoll is installed in the namespace `{other}`, and a cluster has one Knoll: use `--namespace {other}` to change that one, or `knoll uninstall --namespace {other}` first"
        );
    }
    Ok(())
}

/// The namespace of the operator that the cluster has.
pub async fn installed_in(cluster: &Cluster) -> Result<Option<String>> {
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client.clone());
    let binding =
        super::administrator(bindings.get_opt(DEPLOYMENT).await, cluster, "cannot see whether Knoll is installed")?;
    Ok(binding.and_then(|binding| binding.subjects?.into_iter().next()?.namespace))
}

/// Refuses when the user may not do this to every object.
pub async fn allowed(cluster: &Cluster, verb: &str, manifests: &[Manifest]) -> Result<()> {
    let wanted: BTreeSet<(String, String, Option<String>)> = manifests
        .iter()
        .map(|manifest| {
            let (resource, namespace) = (&manifest.resource, manifest.namespace().map(str::to_owned));
            (resource.group.clone(), resource.plural.clone(), namespace)
        })
        .collect();
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let answers = wanted.into_iter().map(async |(group, resource, namespace)| {
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
    let refused = try_join_all(answers).await.explain(cluster, "cannot see what you may do")?;
    let refused: BTreeSet<String> = refused.into_iter().flatten().collect();
    if refused.is_empty() {
        return Ok(());
    }
    let list = refused.into_iter().collect::<Vec<_>>().join(", ");
    bail!(
        "you may not {verb} {list} in the cluster at {}, so nothing was changed: ask an administrator of the cluster (role `cluster-admin`) to do it",
        cluster.server
    )
}
