//! The pure machines of Knoll: from what is seen to the next status and what to do about it.
//!
//! Nothing here does I/O or reads a clock; time is an argument. So every decision can be tested with plain
//! values, and taken again with the same result.

pub mod approval;
pub mod atom;
pub mod backup;
pub mod conditions;
pub mod events;
pub mod identity;
pub mod machine;
pub mod outputs;
pub mod patch;
pub mod policy;
pub mod readiness;
pub mod run;
pub mod schedule;
pub mod slots;
pub mod stack;
pub mod times;
pub mod visible;
pub mod workspace;

pub use run::{frozen, pod, pod_outcome, progress, status, steps, stop_times};
pub use workspace::queue;
