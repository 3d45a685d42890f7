//! Why files cannot be fetched, each as a sentence that says what to do.

use std::io;

use knoll_bundle::PackError;

/// Why files cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be used.
    #[error("`{url}` cannot be fetched: {why}")]
    Address {
        /// The address, without a password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The operator is not told to read files beside it.
    #[error(
        "`{0}` is a file beside the operator, and this operator reads none; use https:// or ssh://, or start it with --local-sources"
    )]
    Local(String),
    /// The Secret lacks something, or something in it is wrong.
    #[error("the credentials for `{url}` cannot be used: {why}")]
    Credentials {
        /// What they are for.
        url: String,
        /// What is missing, and where to write it.
        why: String,
    },
    /// Nobody answers, or not as a server of that kind would.
    #[error("`{url}` cannot be reached: {why}")]
    Reach {
        /// The address, without a password.
        url: String,
        /// What happened.
        why: String,
    },
    /// The server does not give it.
    #[error("the server of `{url}` refuses: {why}")]
    Refused {
        /// The address, without a password.
        url: String,
        /// What it said.
        why: String,
    },
    /// There is no such branch, tag or commit.
    #[error("`{url}` has no {what}; correct the source's `ref`")]
    NoRef {
        /// The address, without a password.
        url: String,
        /// What was looked for.
        what: String,
    },
    /// There is no such folder, or no module in it.
    #[error("there is no `*.tf`, `*.tofu` or `*.tf.json` file in `{path}` of {of}; correct the source's `path`")]
    NoModule {
        /// The folder.
        path: String,
        /// Of what.
        of: String,
    },
    /// The archive is another one.
    #[error(
        "the archive `{url}` has the sha256 {found}, not {wanted}; correct the source's `sha256`, or find out who changed the archive"
    )]
    Digest {
        /// The address, without a password.
        url: String,
        /// What the source says.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// The archive cannot be unpacked.
    #[error("the archive `{url}` cannot be unpacked: {why}")]
    Archive {
        /// The address, without a password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// It is more than any module has.
    #[error("`{0}` has more than {limit} MiB; keep modules in a repository or an archive of their own", limit = crate::limits::LARGEST >> 20)]
    TooLarge(String),
    /// It takes too long.
    #[error("`{0}` was not fetched within {limit} seconds; is the server overloaded, or behind a firewall?", limit = crate::limits::LONGEST.as_secs())]
    TooSlow(String),
    /// The files cannot be collected.
    #[error(transparent)]
    Module(#[from] crate::module::Error),
    /// The files cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The disk beside the operator failed.
    #[error("what was fetched cannot be written to the operator's temporary folder: {0}")]
    Disk(#[from] io::Error),
}

impl Error {
    /// Whether the same attempt may succeed later although nothing was corrected.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Error::Reach { .. } | Error::TooSlow(_) | Error::Disk(_) | Error::Refused { .. })
    }
}
