//! Copies of states, and of the objects that belong to them, in a bucket or a folder outside of the cluster.
//!
//! | name below the target's prefix | holds |
//! |---|---|
//! | `states/NAMESPACE/WORKSPACE/versions/TIME-SERIAL-DIGEST.json` | a [`Record`]: one version of a state |
//! | `states/NAMESPACE/WORKSPACE/content/DIGEST.zst` | the bytes of a state, compressed |
//! | `objects/NAMESPACE/KIND/NAME/DIGEST.json` | an object as it was last seen; a cluster-scoped one in `_cluster` |
//! | `objects/NAMESPACE/KIND/NAME/DIGEST.deleted` | the same, after it was deleted in the cluster |
//! | `bundles/DIGEST.tar.zst` | the files of a module |
//!
//! *Guarantees.* A record is written after its content, and each is written as a whole, so a record that exists can be
//! restored. Content is named by its digest and sent once. What is read has the digest that was asked for and a bounded
//! size, whatever somebody wrote into the bucket; names that are no names of Kubernetes objects are ignored.
//!
//! Nothing in this crate knows a cluster.

mod archive;
mod names;
mod objects;
mod prune;
mod record;
mod retention;
mod target;

/// The kinds of objects that are copied, as their addresses have them.
pub mod kinds {
    pub const NAMESPACE: &str = "namespace";
    pub const POLICY: &str = "policy";
    pub const STACK: &str = "stack";
    pub const WORKSPACE: &str = "workspace";
}

pub use archive::{Archive, ArchiveError, Versions};
pub use objects::{ObjectAddress, StoredObject};
pub use prune::Pruned;
pub use record::{Record, RecordName};
pub use retention::Retention;
pub use target::{Target, TargetError};
