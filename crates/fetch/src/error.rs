//! Errors of fetches. Each message says what the user can do.

use std::io;

use knoll_bundle::PackError;

use crate::Refusal;

/// Why a source cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot fetch `{url}`: {why}")]
    Address { url: String, why: String },
    /// The operator does not allow `file://` sources.
    #[error(
        "`{0}` is a local file, which this operator does not read; use https:// or ssh://, or start the operator with --local-sources"
    )]
    Local(String),
    /// The operator does not connect to this address.
    #[error("cannot fetch `{url}`: {refusal}")]
    Forbidden { url: String, refusal: Refusal },
    /// The Secret is incomplete or invalid.
    #[error("cannot use the credentials for `{url}`: {why}")]
    Credentials { url: String, why: String },
    /// The server does not respond, or not with the expected protocol.
    #[error("cannot reach `{url}`: {why}")]
    Reach { url: String, why: String },
    #[error("the server of `{url}` refused the request: {why}")]
    Refused { url: String, why: String },
    #[error("`{url}` has no {what}; correct the source's `ref`")]
    NoRef { url: String, what: String },
    /// The path does not exist, or contains no module.
    #[error("no `*.tf`, `*.tofu` or `*.tf.json` file found in `{path}` of {of}; correct the source's `path`")]
    NoModule { path: String, of: String },
    /// The path of a pack does not exist, or has no rules.
    #[error("no `*.rego` or `*.cel.yaml` file found in `{path}` of {of}; correct `path` of the pack")]
    NoPack { path: String, of: String },
    #[error("the rules of {0} have more than {limit} KiB; split them into several packs", limit = crate::pack::LARGEST_PACK >> 10)]
    PackTooLarge(String),
    #[error("`{name}` of {of} is no UTF-8 text")]
    PackText { name: String, of: String },
    #[error("the artifact of `{of}` cannot be used: {why}")]
    Artifact { of: String, why: String },
    #[error("what `{of}` has under the digest {wanted} has another digest; find out why the registry changed it")]
    ContentDigest { of: String, wanted: String },
    /// The archive has another sha256. The message does not say which: whoever may read it may not be allowed to read
    /// the archive.
    #[error(
        "the archive `{url}` does not have the sha256 {wanted}; correct the source's `sha256`, or find out why the archive changed"
    )]
    Digest { url: String, wanted: String },
    #[error("cannot unpack the archive `{url}`: {why}")]
    Archive { url: String, why: String },
    #[error("`{0}` is larger than {limit} MiB; keep modules in a separate repository or archive", limit = crate::limits::LARGEST >> 20)]
    TooLarge(String),
    #[error("`{0}` has more than {limit} files; keep modules in a separate repository or archive", limit = crate::limits::MOST_FILES)]
    TooMany(String),
    #[error("fetching `{0}` exceeded {limit} seconds; is the server overloaded, or behind a firewall?", limit = crate::limits::LONGEST.as_secs())]
    TooSlow(String),
    #[error(transparent)]
    Module(#[from] crate::module::ModuleError),
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The operator's temporary directory cannot be written.
    #[error("cannot write to the operator's temporary directory: {0}")]
    Disk(#[from] io::Error),
}

impl Error {
    /// Whether a retry may succeed without a correction by the user.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Error::Reach { .. } | Error::TooSlow(_) | Error::Disk(_) | Error::Refused { .. })
    }
}
