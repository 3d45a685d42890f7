//! States for the user's commands: read with the user's own rights, changed by a Run only.
//!
//! Reading needs no run: whoever may read the Secrets of a namespace may read its states. A push or a rollback is a Run
//! with `command: state push` and waits in the queue as any other, so there is never a second writer. What it pushes is
//! named by an address that the runner asks the hub for: [`knoll_api::wire::stored::history`] or [`knoll_api::wire::stored::UPLOAD`].

use bytes::Bytes;
use k8s_openapi::api::core::v1::Secret;
use knoll_api::names::{self, content};
use knoll_api::run::{Operation, Run, RunSpec};
use knoll_api::wire::stored;
use kube::{Api, Client, Resource, ResourceExt};

use crate::content as contents;
use crate::error::Error as StorageError;

mod file;
mod head;
mod store;

pub use file::{Error as FileError, Output, StateFile};
pub(crate) use head::CONTENT;
pub use head::{Head, HeadError, Index, Owner, Version};
pub(crate) use store::create_once;
pub use store::{Claim, Store, Taken};

/// The command of a Run that pushes a state.
const PUSH: &str = "state push";

/// Why a state cannot be read or handed in.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// That version is not kept.
    #[error("the Workspace `{workspace}` keeps no state of serial {serial}; it has {}", serials(.kept))]
    NotKept {
        /// The Workspace.
        workspace: String,
        /// What was asked for.
        serial: u64,
        /// What there is, the newest first.
        kept: Vec<u64>,
    },
    /// The content is no state.
    #[error(transparent)]
    NoState(#[from] FileError),
    /// It cannot be read or stored.
    #[error(transparent)]
    Store(Box<StorageError>),
    /// The API failed.
    #[error("the Kubernetes API failed: {}", crate::message_of(.0))]
    Api(#[from] kube::Error),
}

fn serials(kept: &[u64]) -> String {
    match kept {
        [] => "none yet".to_owned(),
        kept => kept.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Api(error) => Error::Api(error),
            error => Error::Store(Box::new(error)),
        }
    }
}

/// The versions of a Workspace's state that are kept, the current one first.
///
/// # Errors
/// When they cannot be read.
pub async fn history(client: &Client, namespace: &str, workspace: &str) -> Result<Vec<Version>, Error> {
    let Index { current, history } = head(client, namespace, workspace).await?.index;
    Ok(current.into_iter().chain(history).collect())
}

/// The state of a Workspace: the current one, or an earlier one that is kept; nothing when there is none yet.
///
/// # Errors
/// When it cannot be read, or is damaged.
pub async fn pull(
    client: &Client,
    namespace: &str,
    workspace: &str,
    serial: Option<u64>,
) -> Result<Option<Bytes>, Error> {
    let store = Store::new(client.clone());
    Ok(match serial {
        None => store.look(namespace, workspace).await?,
        Some(serial) => Some(version(&store, namespace, workspace, serial).await?),
    })
}

/// An earlier version that is kept.
///
/// # Errors
/// When it is not kept, cannot be read, or is damaged.
pub async fn version(store: &Store, namespace: &str, workspace: &str, serial: u64) -> Result<Bytes, Error> {
    let (head, found) = store.version(namespace, workspace, serial).await?;
    found.ok_or_else(|| {
        let kept = head.current.iter().chain(&head.history).map(|version| version.serial).collect();
        Error::NotKept { workspace: workspace.to_owned(), serial, kept }
    })
}

/// A Run that makes an earlier version the current one, as a new version of its own.
#[must_use]
pub fn rollback(workspace: &str, serial: u64) -> RunSpec {
    command(workspace, vec!["-force".to_owned(), stored::history(serial)])
}

/// A Run that pushes the state that [`hand_in`] gives it; with `force` also one of another lineage or an older serial.
#[must_use]
pub fn push(workspace: &str, force: bool) -> RunSpec {
    let args = force.then(|| "-force".to_owned()).into_iter().chain([stored::UPLOAD.to_owned()]);
    command(workspace, args.collect())
}

fn command(workspace: &str, args: Vec<String>) -> RunSpec {
    RunSpec {
        workspace: workspace.to_owned(),
        operation: Operation::Command,
        command: Some(PUSH.to_owned()),
        args,
        ..RunSpec::default()
    }
}

/// Whether a run may put a state of another lineage, or with an older serial, in the place of the one that is kept.
#[must_use]
pub fn may_force(spec: &RunSpec) -> bool {
    let words = spec.command.as_deref().unwrap_or_default().split_whitespace();
    spec.operation == Operation::Command && words.eq(["state", "push"]) && spec.args.iter().any(|arg| is_force(arg))
}

fn is_force(arg: &str) -> bool {
    matches!(arg.trim_start_matches('-'), "force" | "force=true" | "force=1") && arg.starts_with('-')
}

/// Gives a Run that was created from [`push`] the state to push. It goes with the Run.
///
/// # Errors
/// When it is no state, or cannot be stored.
pub async fn hand_in(client: &Client, run: &Run, state: &[u8]) -> Result<(), Error> {
    StateFile::parse(state)?;
    let (name, namespace) = (run.name_any(), run.namespace().unwrap_or_default());
    let owner = run.owner_ref(&()).ok_or_else(|| StorageError::Internal("the Run has no UID".to_owned()))?;
    let workspace = run.spec.workspace.as_str();
    let label = contents::Label {
        name: names::upload_secret(&name),
        type_: names::secret_type::CONTENT,
        labels: contents::labels(content::UPLOAD, &name, workspace),
        owner,
    };
    contents::put(client, &namespace, &label, state).await?;
    Ok(())
}

async fn head(client: &Client, namespace: &str, workspace: &str) -> Result<Head, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = api.get_opt(&names::state_secret(workspace)).await?;
    Ok(Head::read(secret.as_ref()).map_err(StorageError::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_forced_push_may_change_the_lineage() {
        assert!(may_force(&rollback("w", 3)) && may_force(&push("w", true)));
        assert!(!may_force(&push("w", false)));
        let other = RunSpec { command: Some("state mv".into()), args: vec!["-force".into()], ..push("w", true) };
        assert!(!may_force(&other));
        assert!(!may_force(&RunSpec { operation: Operation::Apply, ..push("w", true) }));
    }
}
