//! Fetches the files of a module from a git repository or an archive, and packs of rules from git and OCI registries.
//!
//! *Guarantees.* Every fetch has a deadline and a byte limit. A connection is made only to an address that
//! [`judge`] allows. A server is trusted only with a valid certificate, a known host key or a matching digest.
//! Credentials are sent only to the host they are for, and appear in no message, nor does anything that a server
//! answered. A bundle contains only files that were fetched.

mod address;
mod archive;
mod client;
mod credentials;
mod error;
mod git;
mod limits;
pub mod module;
mod oci;
mod pack;
mod settings;

pub use address::{Addresses, IpNet, Refusal, judge, parse_range};
pub use archive::archive;
pub use credentials::Credentials;
pub use error::Error;
pub use git::{Commit, git, newest};
pub use oci::oci_pack;
pub use pack::{Texts, git_pack};
pub use settings::Settings;
