//! Evaluates the rules of Policies on the plan of a run: CEL and Rego.
//!
//! *Guarantees.* Rules are evaluated in a process of their own ([`child_main`]), with limits of time and memory: a rule that
//! never ends, needs too much memory or makes the evaluator crash costs its own Policy a result and nobody else anything
//! ([`Evaluator`]). A rule without a result fails, and a plan does not pass it. No result has a value that the plan marks
//! as sensitive.

mod cel;
mod child;
mod facts;
mod files;
mod mask;
mod pack;
mod process;
mod rego;
mod request;
mod verdict;

pub use child::main as child_main;
pub use pack::{PackError, text_of};
pub use process::{Evaluator, Place};
pub use request::{Finding, Pack, RuleSet};
pub use verdict::{Judged, verdict};

/// The words with which `knoll` becomes the process that evaluates rules.
pub const CHILD: &str = "evaluate-rules";
