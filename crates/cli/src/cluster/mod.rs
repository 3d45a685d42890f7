//! The embedded cluster's commands. The data folder tells them apart: one folder, one cluster.

pub mod down;
pub mod status;
pub mod up;

mod folder;
mod place;
