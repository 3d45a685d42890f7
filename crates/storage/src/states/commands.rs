//! The Runs that change a state by hand.
//!
//! A push or a rollback is a Run with `command: state push` and waits in the queue as any other, so there is never a second
//! writer. Its argument is an address that the runner asks the hub for: [`knoll_api::wire::stored::history`] or
//! [`knoll_api::wire::stored::upload`].

use knoll_api::Digest;
use knoll_api::run::{Operation, RunSpec};
use knoll_api::wire::stored;

/// The command of a Run that pushes a state.
const PUSH: &str = "state push";

/// A Run that makes an earlier version the current one, as a new version of its own.
#[must_use]
pub fn rollback(workspace: &str, serial: u64) -> RunSpec {
    command(workspace, vec!["-force".to_owned(), stored::history(serial)])
}

/// A Run that pushes `state`, which [`crate::Uploads::put`] gives it; with `force` also one of another lineage or an older
/// serial. The Run names the digest of the state, and pushes no other.
#[must_use]
pub fn push(workspace: &str, state: &[u8], force: bool) -> RunSpec {
    let address = stored::upload(&Digest::of(state));
    let args = force.then(|| "-force".to_owned()).into_iter().chain([address]);
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
