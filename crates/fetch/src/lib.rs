//! Fetches the files of a module from where they are kept: a git repository or an archive.
//!
//! *Guarantees.* A fetch ends: it has a deadline and a limit of bytes. Whoever answers at an address is believed only with a
//! certificate, a host key that is known, or a digest. Credentials go to the host that they are for and to no other, and
//! are in no message. Nothing outside of what was fetched gets into a bundle.

mod archive;
mod credentials;
mod error;
mod git;
mod limits;
pub mod module;
mod settings;

pub use archive::archive;
pub use credentials::Credentials;
pub use error::Error;
pub use git::{Commit, git, newest};
pub use settings::Settings;
