//! API scenarios that run against the embedded API server and a real kube-apiserver, and are compared.
//!
//! The scenarios are data (`scenarios/*.yaml`). Everything must be equal except server-specific values ([`normal`]).
//! Random sequences of writes become scenarios of the same form ([`sequence`]).

pub mod accepted;
pub mod cases;
pub mod connection;
pub mod diff;
pub mod normal;
pub mod quiet;
pub mod report;
pub mod run;
pub mod scenario;
pub mod sequence;

pub mod variables;
