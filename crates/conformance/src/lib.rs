//! One suite of API scenarios, run against the embedded API server and a real kube-apiserver, answers compared.
//!
//! The scenarios are data (`scenarios/*.yaml`); what both must agree on is everything but what must differ
//! ([`normal`]). Random sequences of writes are made into scenarios of the same form ([`sequence`]).

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
