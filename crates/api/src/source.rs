//! [`Source`]: where the files of a module come from.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{duration::Duration, rules};

/// Where the files of a module come from: exactly one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(
    &["configMap", "inline", "git", "archive", "bundle"],
    "set exactly one of configMap, inline, git, archive or bundle",
))]
pub struct Source {
    /// A ConfigMap in the same namespace; each of its keys is a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// The files themselves, by path.
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
    /// A bundle that Knoll already keeps in this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<BundleSource>,
}

/// The one field of a [`Source`] that is set.
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
    /// The one field that is set; `None` for an object that got past the schema without one.
    #[must_use]
    pub fn kind(&self) -> Option<SourceKind<'_>> {
        let Self { config_map, inline, git, archive, bundle } = self;
        None.or(config_map.as_ref().map(SourceKind::ConfigMap))
            .or(inline.as_ref().map(SourceKind::Inline))
            .or(git.as_ref().map(SourceKind::Git))
            .or(archive.as_ref().map(SourceKind::Archive))
            .or(bundle.as_ref().map(SourceKind::Bundle))
    }

    /// A source of the files given.
    #[must_use]
    pub fn inline(files: BTreeMap<String, String>) -> Self {
        Self { inline: Some(files), ..Self::default() }
    }

    /// A source that is the bundle of that digest.
    #[must_use]
    pub fn bundle(digest: impl Into<String>) -> Self {
        Self { bundle: Some(BundleSource { digest: digest.into() }), ..Self::default() }
    }
}

/// A ConfigMap whose keys are the files of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// Its name, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
}

/// A git repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// Where to clone from: `https://`, `ssh://`, `git://`, `file://` or `user@host:path`.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = rules::form(
        "^((https?|ssh|git|file)://.+|[^@:/ ]+@[^@:/ ]+:.+)$",
        "write an address that begins with https://, http://, ssh://, git:// or file://, or user@host:path",
    ))]
    #[x_kube(validation = rules::no_password())]
    pub url: String,
    /// What to check out; the default branch when absent.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRef>,
    /// The folder of the module in the repository; its root when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = rules::inner_path())]
    pub path: Option<String>,
    /// How often a Stack looks for a newer commit; 1m when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::at_least("10s"))]
    pub interval: Option<Duration>,
    /// Whether its submodules are checked out too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub submodules: bool,
    /// A Secret: for https `username` and `password`, or `token`, and `ca.crt` when the server's certificate is of an
    /// authority of its own; for ssh `identity` and `known_hosts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
}

/// What to check out of a git repository: exactly one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(
    &["branch", "tag", "commit"],
    "set exactly one of branch, tag or commit, or leave ref out for the default branch",
))]
pub struct GitRef {
    /// The newest commit of a branch.
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

/// A tar archive, plain or packed with gzip or zstd, or a zip archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveSource {
    /// Where to fetch it from: `https://`, `http://`, or `file://` where the operator may read files beside it.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = rules::form(
        "^(https?://.+|file:///.+)$",
        "write an address that begins with https://, http:// or file:///",
    ))]
    #[x_kube(validation = rules::no_password())]
    pub url: String,
    /// The SHA-256 of the archive, in hex; other bytes are refused.
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::form(
        "^[0-9a-f]{64}$",
        "write 64 hex digits in lower case, as sha256sum prints them",
    ))]
    pub sha256: String,
    /// The folder of the module in the archive; its root when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = rules::inner_path())]
    pub path: Option<String>,
    /// A Secret with `username` and `password`, or `token`, and `ca.crt` when the server's certificate is of an authority
    /// of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
}

/// A bundle that Knoll already keeps in this namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleSource {
    /// The digest of the bundle: `sha256:` and 64 hex digits.
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::digest())]
    pub digest: String,
}

/// An object in the same namespace, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
}

/// Files by path. The limits keep the price of the rules that look at them within what the API server allows.
fn files(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 128,
        "additionalProperties": { "type": "string", "maxLength": 262_144 },
    })
}
