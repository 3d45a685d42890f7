//! Asks the API server what the user may do, so that no button is offered that would be refused.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use knoll_api::names::GROUP;
use kube::api::PostParams;
use kube::{Api, Client};

/// Whether the user may do this with a kind of Knoll's in the namespace. A review that fails offers nothing.
pub async fn may(client: &Client, verb: &str, resource: &str, namespace: &str) -> bool {
    let attributes = ResourceAttributes {
        group: Some(GROUP.to_owned()),
        resource: Some(resource.to_owned()),
        verb: Some(verb.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.allowed))
}
