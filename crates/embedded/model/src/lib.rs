#![doc = include_str!("../README.md")]

mod cel;
pub mod patch;
mod quantity;
pub mod schema;
pub mod select;
pub mod table;

pub use cel::{Budget, ConditionError, Expression};
pub use quantity::Quantity;
