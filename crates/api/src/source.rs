//! [`Source`]: the origin of a module's files.

use std::collections::BTreeMap;

use kube_derive::KubeSchema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{duration::Duration, rules};

/// The origin of a module's files. Exactly one of the fields must be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(
    &["configMap", "inline", "git", "archive", "bundle"],
    "set exactly one of configMap, inline, git, archive or bundle",
))]
pub struct Source {
    /// A ConfigMap in the same namespace; each key is a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// The files by path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "files")]
    #[x_kube(validation = rules::not_empty("write at least one file, for example main.tf"))]
    #[x_kube(validation = Rule::new(r"self.all(path, path != '' && !path.startsWith('/') && !path.matches('(^|/)[.][.](/|$)'))")
        .message("write paths inside of the module, such as main.tf or modules/net/main.tf, without a leading / and without .."))]
    pub inline: Option<BTreeMap<String, String>>,
    /// A git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// A tar or zip archive at a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveSource>,
    /// A bundle that is already stored in this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<BundleSource>,
}

/// The field of a [`Source`] that is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SourceKind<'a> {
    /// See [`Source::config_map`].
    ConfigMap(&'a ConfigMapSource),
    /// See [`Source::inline`].
    Inline(&'a BTreeMap<String, String>),
    /// See [`Source::git`].
    Git(&'a GitSource),
    /// See [`Source::archive`].
    Archive(&'a ArchiveSource),
    /// See [`Source::bundle`].
    Bundle(&'a BundleSource),
}

impl Source {
    /// The field that is set, or none for an object that bypassed the schema.
    #[must_use]
    pub fn kind(&self) -> Option<SourceKind<'_>> {
        let Self { config_map, inline, git, archive, bundle } = self;
        None.or(config_map.as_ref().map(SourceKind::ConfigMap))
            .or(inline.as_ref().map(SourceKind::Inline))
            .or(git.as_ref().map(SourceKind::Git))
            .or(archive.as_ref().map(SourceKind::Archive))
            .or(bundle.as_ref().map(SourceKind::Bundle))
    }

    /// A source of inline files.
    #[must_use]
    pub fn inline(files: BTreeMap<String, String>) -> Self {
        Self { inline: Some(files), ..Self::default() }
    }

    /// A source of the bundle with this digest.
    #[must_use]
    pub fn bundle(digest: impl Into<String>) -> Self {
        Self { bundle: Some(BundleSource { digest: digest.into() }), ..Self::default() }
    }
}

/// A ConfigMap whose keys are the files of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// The name of the ConfigMap, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
}

/// An address for messages, without what may be secret in it: passwords, and of `http` and `https` also the user, which is
/// often a token, and the query, which is often a signature.
#[must_use]
pub fn shown_address(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let is_http = matches!(scheme, "http" | "https");
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) if is_http => (rest, "?..."),
        _ => (rest, ""),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) if is_http => host.to_owned(),
        Some((user, host)) => format!("{}@{host}", user.split(':').next().unwrap_or_default()),
        None => authority.to_owned(),
    };
    format!("{scheme}://{authority}{path}{query}")
}

/// A git repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// The URL of the repository: `https://`, `ssh://`, `git://`, `file://` or `user@host:path`.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = rules::form(
        "^((https?|ssh|git|file)://.+|[^@:/ ]+@[^@:/ ]+:.+)$",
        "write an address that begins with https://, http://, ssh://, git:// or file://, or user@host:path",
    ))]
    #[x_kube(validation = rules::no_password())]
    pub url: String,
    /// The ref to check out. Defaults to the default branch.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRef>,
    /// The directory of the module in the repository. Defaults to the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = rules::inner_path())]
    pub path: Option<String>,
    /// How often a Stack checks for a new commit. Defaults to 1m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::at_least("10s"))]
    pub interval: Option<Duration>,
    /// Whether submodules are checked out too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub submodules: bool,
    /// A Secret with credentials: for https `username` and `password`, or `token` (with `username` if the server needs a
    /// certain one), and `ca.crt` for a private certificate authority; for ssh `identity` and `known_hosts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
}

/// The ref to check out. Exactly one of the fields must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(
    &["branch", "tag", "commit"],
    "set exactly one of branch, tag or commit, or leave ref out for the default branch",
))]
pub struct GitRef {
    /// The latest commit of a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub branch: Option<String>,
    /// A tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub tag: Option<String>,
    /// A commit, by its full hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::form(
        "^([0-9a-f]{40}|[0-9a-f]{64})$",
        "write the full hash of the commit, 40 or 64 hex digits in lower case",
    ))]
    pub commit: Option<String>,
}

/// A tar archive, uncompressed or compressed with gzip or zstd, or a zip archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveSource {
    /// The URL of the archive: `https://`, `http://`, or `file://` if the operator allows local sources.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = rules::form(
        "^(https?://.+|file:///.+)$",
        "write an address that begins with https://, http:// or file:///",
    ))]
    #[x_kube(validation = rules::no_password())]
    pub url: String,
    /// The SHA-256 of the archive, in hex. Other content is rejected.
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::form(
        "^[0-9a-f]{64}$",
        "write 64 hex digits in lower case, as sha256sum prints them",
    ))]
    pub sha256: String,
    /// The directory of the module in the archive. Defaults to the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = rules::inner_path())]
    pub path: Option<String>,
    /// A Secret with credentials: `username` and `password`, or `token`, and `ca.crt` for a private certificate
    /// authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
}

/// A bundle that is already stored in this namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleSource {
    /// The digest of the bundle: `sha256:` and 64 hex digits.
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::digest())]
    pub digest: String,
}

/// The name of an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
}

/// Files by path. The limits keep the cost of the rules within the API server's budget.
fn files(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 128,
        "additionalProperties": { "type": "string", "maxLength": 262_144 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_token_or_signature_is_not_shown() {
        let rows = [
            ("https://me:secret@host/x", "https://host/x"),
            ("https://me:se@cret@host", "https://host"),
            ("https://token@host/x", "https://host/x"),
            ("https://host/x.tgz?X-Signature=secret&a=b", "https://host/x.tgz?..."),
            ("https://host?secret@x", "https://host?..."),
            ("https://host/a@b:c", "https://host/a@b:c"),
            ("ssh://git:secret@host/x", "ssh://git@host/x"),
            ("ssh://git@host/x", "ssh://git@host/x"),
            ("git@host:a/b", "git@host:a/b"),
            ("file:///a?b", "file:///a?b"),
        ];
        for (url, expect) in rows {
            assert_eq!(shown_address(url), expect, "{url}");
        }
    }
}
