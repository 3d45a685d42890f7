//! The files of the current folder's module, and of the local modules that it refers to, for a bundle.

mod collect;
mod references;

pub use collect::collect;
pub use references::has_configuration;
