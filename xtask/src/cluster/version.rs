//! The version of Kubernetes that a cluster runs.

use anyhow::{Context, bail};

/// A version of Kubernetes, as `--kube-version` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeVersion {
    pub minor: u32,
    /// The third number, with what may follow it.
    pub patch: String,
}

impl KubeVersion {
    /// Reads `1.34.4` or `v1.34.4`.
    pub fn parse(text: &str) -> anyhow::Result<KubeVersion> {
        let wrong = || format!("`{text}` is no version of Kubernetes: write it as `1.34.4`");
        let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
        let (Some("1"), Some(minor), Some(patch)) = (parts.next(), parts.next(), parts.next()) else {
            bail!(wrong());
        };
        let clean = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if !patch.starts_with(|c: char| c.is_ascii_digit()) || !patch.chars().all(clean) {
            bail!(wrong());
        }
        Ok(KubeVersion { minor: minor.parse().with_context(wrong)?, patch: patch.to_owned() })
    }

    /// The version as tags have it.
    pub fn tag(&self) -> String {
        format!("v1.{}.{}", self.minor, self.patch)
    }

    /// The feature gate of image volumes, where they have to be asked for: they are there since 1.33, and by themselves
    /// since 1.35.
    pub fn image_volumes(&self) -> Option<&'static str> {
        (33..35).contains(&self.minor).then_some("ImageVolume")
    }

    /// The feature gate of pods that are resized in place, where it can be turned off: before 1.33 it is, and from 1.35 on
    /// it cannot be.
    pub fn resize(&self) -> Option<&'static str> {
        (33..35).contains(&self.minor).then_some("InPlacePodVerticalScaling")
    }

    /// The version of the libraries that are published with it.
    pub fn libraries(&self) -> String {
        format!("v0.{}.{}", self.minor, self.patch)
    }
}

impl std::fmt::Display for KubeVersion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "1.{}.{}", self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn versions() {
        let version = KubeVersion::parse("1.36.0-rc.1").unwrap();
        assert_eq!((version.tag().as_str(), version.libraries().as_str()), ("v1.36.0-rc.1", "v0.36.0-rc.1"));
        for wrong in ["", "1", "1.34", "2.0.0", "1.x.0", "1.34.x", "1.34.4/..", "1.34.4 "] {
            assert!(KubeVersion::parse(wrong).is_err(), "{wrong}");
        }
    }
}
