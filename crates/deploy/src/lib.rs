//! The manifests of an installation, as data: CRDs, roles, the admission policies and the operator.
//!
//! `knoll install`, `knoll up` and the files under `deploy/` are all generated from here, so they cannot differ.

mod files;
mod manifest;
mod operator;
mod policy;
mod roles;

pub use files::{File, files};
pub use manifest::{Error, Manifest};
pub use operator::{DEPLOYMENT, HUB_PORT, METRICS_PORT, PAGE_PORT, PAGE_SERVICE, SERVICE};
pub use roles::LEASE;

/// The settings of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of the operator.
    pub namespace: String,
    /// The image that contains `knoll`.
    pub image: String,
    /// The number of operator replicas. One leads, and all of them serve runners.
    pub replicas: i32,
    /// Whether the pods of Runs mount the runner as an image volume, which not every cluster supports.
    pub image_volumes: bool,
    /// The ranges of addresses, besides public ones, that sources may be fetched from.
    pub allow_source_cidrs: Vec<String>,
    /// Whether credentials of sources are sent over `http://`.
    pub plain_http_credentials: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "knoll-system".to_owned(),
            image: concat!("knoll/knoll:", env!("CARGO_PKG_VERSION")).to_owned(),
            replicas: 1,
            image_volumes: false,
            allow_source_cidrs: Vec::new(),
            plain_http_credentials: false,
        }
    }
}

impl Settings {
    /// The username of the operator's service account.
    #[must_use]
    pub fn operator_user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, roles::OPERATOR)
    }
}

/// The label of the CRDs with the version of Knoll that they belong to.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";

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

/// The user roles and the admission policies of every cluster. `operator` is the username of the operator.
#[must_use]
pub fn rules(operator: &str) -> Vec<Manifest> {
    roles::for_people().iter().map(Manifest::of).chain(policy::manifests(operator)).collect()
}

/// As [`rules`], with those of the embedded cluster.
#[must_use]
pub fn embedded_rules(operator: &str) -> Vec<Manifest> {
    let others = [policy::contents_on_embedded(operator), policy::finalizers_on_embedded(operator)];
    rules(operator).into_iter().chain(others.into_iter().flatten()).collect()
}

/// As [`rules`], with those that need more than the embedded cluster has.
#[must_use]
pub fn cluster_rules(settings: &Settings) -> Vec<Manifest> {
    let operator = settings.operator_user();
    let others =
        [policy::for_cluster(), policy::contents_on_cluster(&operator), policy::finalizers_on_cluster(&operator)];
    rules(&operator).into_iter().chain(others.into_iter().flatten()).collect()
}

/// The operator and its permissions, in an order in which they can be applied.
#[must_use]
pub fn operator(settings: &Settings) -> Vec<Manifest> {
    let mut all = vec![operator::namespace(settings), operator::account(settings)];
    all.extend(roles::for_operator(settings));
    all.extend([operator::service(settings), operator::page_service(settings), operator::deployment(settings)]);
    all
}

/// All manifests, in an order in which they can be applied.
#[must_use]
pub fn all(settings: &Settings) -> Vec<Manifest> {
    kinds().into_iter().chain(cluster_rules(settings)).chain(operator(settings)).collect()
}

#[cfg(test)]
mod tests;
