//! The commands of the embedded cluster. Each data directory has one cluster.

pub mod down;
pub mod services;
pub mod status;
pub mod up;

mod folder;
