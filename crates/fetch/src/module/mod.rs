//! The files of a module in a folder, and of the local modules that it refers to, for a bundle.

mod collect;
mod references;

use std::{io, path::PathBuf};

pub use collect::{Module, collect};
pub use references::has_configuration;

/// Why the files of a module cannot be collected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The rules of what to leave out are wrong.
    #[error("`{}` cannot be used: {why}", path.display())]
    Ignore {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// It is no module.
    #[error("there are more than {limit} MiB of files in `{}`\n  is this the folder of a module? `.terraformignore` can leave files out", folder.display())]
    TooLarge {
        /// The folder.
        folder: PathBuf,
        /// How much there may be.
        limit: u64,
    },
}

impl Error {
    fn read(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }
}
