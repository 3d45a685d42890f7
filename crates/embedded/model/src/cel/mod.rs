//! `x-kubernetes-validations`: rules in the Common Expression Language.
//!
//! Expressions are parsed by the `cel` crate and evaluated here, on JSON as it is: the evaluation follows cel-go and
//! the Kubernetes libraries, reads objects through their schema, and has a budget that a hostile rule cannot exceed.

mod check;
mod eval;
mod expression;
mod functions;
mod names;
mod network;
mod program;
mod rule;
mod signatures;
mod text;
mod time;
mod types;
mod value;

pub use expression::{Budget, ConditionError, Expression};

pub(crate) use eval::Fault;
pub(crate) use rule::{Rule, validate, validate_value};

#[cfg(test)]
mod tests;
