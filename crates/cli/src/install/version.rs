//! Checks the Kubernetes version.

use std::fmt;

use anyhow::{Result, bail};
use kube::Client;

use crate::connect::{Cluster, Explain};

/// The first version in which ValidatingAdmissionPolicies are stable. Without them `spec.by` of an Approval could be
/// forged.
const OLDEST: (u32, u32) = (1, 30);

/// The version of a Kubernetes API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    number: Option<(u32, u32)>,
    text: String,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Version {
    /// Reads the version from the API server.
    pub async fn of(client: &Client) -> kube::Result<Self> {
        let info = client.apiserver_version().await?;
        Ok(Self::read(&info.major, &info.minor, info.git_version))
    }

    /// Parses the version numbers. Some providers write the minor version as `34+`.
    fn read(major: &str, minor: &str, text: String) -> Self {
        let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        Self { number: number(major).zip(number(minor)), text: text.trim_start_matches('v').to_owned() }
    }

    /// Fails for a version that is too old.
    pub fn require(&self) -> Result<()> {
        if self.number.is_some_and(|number| number < OLDEST) {
            bail!(
                "Knoll requires Kubernetes {}.{} or newer, but this cluster runs {}: upgrade it first",
                OLDEST.0,
                OLDEST.1,
                self.text
            );
        }
        Ok(())
    }
}

/// Reads the version of a cluster, and fails if it is too old.
pub async fn check(cluster: &Cluster) -> Result<Version> {
    let version = Version::of(&cluster.client).await.explain(cluster, "cannot reach the cluster")?;
    version.require()?;
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_version_that_is_known_to_be_too_old_is_refused() {
        let rows = [
            ("1", "30", true),
            ("1", "34+", true),
            ("1", "29", false),
            ("1", "29-gke", false),
            ("2", "0", true),
            ("", "", true),
        ];
        for (major, minor, expect) in rows {
            let version = Version::read(major, minor, format!("v{major}.{minor}"));
            assert_eq!(version.require().is_ok(), expect, "{version}");
        }
    }
}
