//! Recognises a cluster again, whatever the kubeconfig calls it.

use k8s_openapi::api::core::v1::Namespace;
use knoll_api::Digest;
use kube::{Api, Config};
use serde::{Deserialize, Serialize};

use super::Cluster;

/// The namespace whose UID identifies a cluster: it is as old as the cluster and cannot be deleted.
const OLDEST: &str = "kube-system";

/// What a cluster is recognised by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentity {
    /// The URL of the API server.
    pub server: String,
    /// The digest of its certificate authority, if the kubeconfig has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    /// The UID of the namespace `kube-system`, if the user may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
}

impl ClusterIdentity {
    /// The identity as far as the configuration shows it.
    pub(super) fn configured(config: &Config) -> Self {
        let ca = config.root_cert.as_ref().map(|certificates| Digest::of(certificates.concat()).to_string());
        ClusterIdentity { server: config.cluster_url.to_string().trim_end_matches('/').to_owned(), ca, uid: None }
    }

    /// Whether both are the same cluster; `None` if only the UID can tell.
    fn is_configured_as(&self, other: &Self) -> Option<bool> {
        (self.ca.is_some() && (&self.server, &self.ca) == (&other.server, &other.ca)).then_some(true)
    }

    /// Whether both are the same cluster. An address may change, and one authority may sign for several clusters, so they
    /// decide only where a UID is not known.
    fn is(&self, other: &Self) -> bool {
        match (&self.uid, &other.uid) {
            (Some(uid), Some(other)) => uid == other,
            _ if self.ca.is_some() || other.ca.is_some() => self.ca == other.ca,
            _ => self.server == other.server,
        }
    }
}

impl Cluster {
    /// The identity of the cluster, with the UID if the user may read it.
    pub async fn identity(&self) -> Result<ClusterIdentity, kube::Error> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let uid = match namespaces.get_metadata_opt(OLDEST).await {
            Ok(found) => found.and_then(|namespace| namespace.metadata.uid),
            Err(kube::Error::Api(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(ClusterIdentity { uid, ..self.configured.clone() })
    }

    /// Whether this is the cluster with that identity. A cluster that does not answer is not taken for another one: the
    /// command itself fails then.
    pub async fn is(&self, known: &ClusterIdentity) -> bool {
        match known.is_configured_as(&self.configured) {
            Some(same) => same,
            None => self.identity().await.map_or(true, |found| known.is(&found)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_recognised_by_its_uid_before_its_address() {
        let identity = |server: &str, ca: &str, uid: &str| {
            let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            ClusterIdentity { server: server.to_owned(), ca: text(ca), uid: text(uid) }
        };
        let rows = [
            (("a", "x", "1"), ("b", "x", "1"), true),
            (("a", "x", "1"), ("b", "y", "1"), true),
            (("a", "x", "1"), ("b", "x", "2"), false),
            (("a", "x", "1"), ("b", "x", ""), true),
            (("a", "x", "1"), ("a", "y", ""), false),
            (("a", "", ""), ("a", "", ""), true),
            (("a", "", ""), ("b", "", ""), false),
            (("a", "x", ""), ("a", "", ""), false),
        ];
        for ((server, ca, uid), (other, other_ca, other_uid), expect) in rows {
            let (known, found) = (identity(server, ca, uid), identity(other, other_ca, other_uid));
            assert_eq!(known.is(&found), expect, "{known:?} {found:?}");
        }
        let known = identity("a", "x", "1");
        assert_eq!(known.is_configured_as(&identity("a", "x", "")), Some(true));
        assert_eq!(known.is_configured_as(&identity("b", "x", "")), None);
        assert_eq!(identity("a", "", "1").is_configured_as(&identity("a", "", "")), None);
    }
}
