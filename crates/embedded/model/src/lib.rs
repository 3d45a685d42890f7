//! The rules of the Kubernetes API as pure functions on JSON values: what a kind's schema accepts, what a CEL rule says,
//! what a patch changes and who owns the result, which objects a selector picks, what `kubectl get` prints.
//!
//! Nothing here reads a clock, a file or a socket. Answers and error texts are those of Kubernetes 1.34.

mod cel;
pub mod patch;
pub mod schema;
pub mod select;
pub mod table;

pub use cel::Expression;
