//! The kinds of Knoll, one file per kind: fields, defaults, rules and printer columns; and the names and wire types
//! that the other crates share. No I/O.

#![allow(clippy::duplicated_attributes, reason = "the printer columns of a kind each have a type and a priority")]

// The derives write paths of the facade `kube`, which has a client in it. This crate depends on its pure part alone.
extern crate self as kube;

/// The pure part of `kube`, where the derives look for it.
#[doc(hidden)]
pub mod core {
    pub use kube_core::*;
}
#[doc(hidden)]
pub use kube_derive::KubeSchema;

pub mod approval;
pub mod atom;
pub mod atom_version;
pub mod crds;
mod digest;
pub mod duration;
pub mod hooks;
pub mod names;
pub mod plan_mode;
pub mod pod;
pub mod policy;
pub mod purpose;
mod rules;
pub mod run;
pub mod sensitive;
pub mod size;
pub mod source;
pub mod stack;
pub mod step;
mod values;
pub mod variables;
pub mod verdict;
pub mod wire;
pub mod workspace;

pub use approval::{Approval, ApprovalSpec, ApprovalStatus};
pub use atom::{Atom, AtomSpec, AtomStatus};
pub use atom_version::{AtomVersion, AtomVersionSpec, AtomVersionStatus};
pub use crds::crds;
pub use digest::{Digest, DigestError};
pub use duration::Duration;
pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
pub use policy::{Policy, PolicySpec, PolicyStatus};
pub use purpose::Purpose;
pub use run::{Run, RunPhase, RunSpec, RunStatus};
pub use source::Source;
pub use stack::{Stack, StackSpec, StackStatus};
pub use verdict::{PlanVerdict, RuleResult};
pub use workspace::{Workspace, WorkspaceSpec, WorkspaceStatus};
