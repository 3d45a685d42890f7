//! Collects the files of a module, and of the local modules that it refers to, for a bundle.

mod collect;
mod references;

use std::{io, path::PathBuf};

pub use collect::{Module, VariableFiles, collect};
pub use references::has_configuration;

/// Why the files of a module cannot be collected.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// An ignore file is invalid.
    #[error("`{}` is invalid: {why}", path.display())]
    Ignore { path: PathBuf, why: String },
    /// The directory is too large to be a module.
    #[error("`{}` contains more than {limit} MiB of files\n  is this the directory of a module? `.terraformignore` excludes files", folder.display())]
    TooLarge { folder: PathBuf, limit: u64 },
}

impl ModuleError {
    fn read(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }
}
