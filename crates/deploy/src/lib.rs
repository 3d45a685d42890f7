//! What is installed into a cluster, as data: the kinds, the roles, the policy and the operator.
//!
//! `knoll install`, `knoll up` and the files under `deploy/` all come from here, so they cannot differ.

mod files;
mod manifest;
mod operator;
mod policy;
mod roles;

pub use files::{File, files};
pub use manifest::{Error, Manifest};
pub use operator::{DEPLOYMENT, HUB_PORT, METRICS_PORT, SERVICE};
pub use roles::LEASE;

/// What an installation may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of the operator.
    pub namespace: String,
    /// The image that has `knoll` in it.
    pub image: String,
    /// How many operators there are; one leads, and all of them serve runners.
    pub replicas: i32,
    /// Whether the pods of Runs take their runner from a volume of the image, which not every cluster has.
    pub image_volumes: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "knoll-system".to_owned(),
            image: concat!("knoll/knoll:", env!("CARGO_PKG_VERSION")).to_owned(),
            replicas: 1,
            image_volumes: false,
        }
    }
}

/// The label of the kinds that says which version of Knoll they came with.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// The kinds.
#[must_use]
pub fn kinds() -> Vec<Manifest> {
    let labelled = knoll_api::crds().into_iter().map(|mut crd| {
        let labels = operator::metadata("", None).labels.unwrap_or_default();
        let version = (VERSION_LABEL.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        crd.metadata.labels.get_or_insert_default().extend(labels.into_iter().chain([version]));
        crd
    });
    labelled.map(|crd| Manifest::of(&crd)).collect()
}

/// What a cluster needs besides the kinds so that people can be told apart: roles to be bound, and the policy.
#[must_use]
pub fn rules() -> Vec<Manifest> {
    roles::for_people().iter().map(Manifest::of).chain(policy::manifests()).collect()
}

/// The operator with what it may do, in an order in which each finds what it needs.
#[must_use]
pub fn operator(settings: &Settings) -> Vec<Manifest> {
    let mut all = vec![operator::namespace(settings), operator::account(settings)];
    all.extend(roles::for_operator(settings));
    all.extend([operator::service(settings), operator::deployment(settings)]);
    all
}

/// Everything, in an order in which each finds what it needs.
#[must_use]
pub fn all(settings: &Settings) -> Vec<Manifest> {
    kinds().into_iter().chain(rules()).chain(operator(settings)).collect()
}

#[cfg(test)]
mod tests;
