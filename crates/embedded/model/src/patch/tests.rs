#![allow(clippy::unwrap_used, reason = "tests")]

mod apply;
mod fields;
mod plain;
mod recorded;
mod schemas;
mod strategic;
mod values;
