//! Copies the versions of one state.

use knoll_api::Run;
use knoll_api::names::reason;
use knoll_backup::{ArchiveError, Record, RecordName};
use knoll_core::backup::{Copied, CopyOutcome, FoundBackup};
use knoll_core::run::requested_by;
use knoll_storage::states::{Head, Version};

use super::worker::record;
use super::{Backups, written_at};
use crate::context::Context;

/// Copies every version that the cluster keeps and the target does not have, the oldest first; then deletes the copies
/// that nothing keeps.
pub async fn state(context: &Context, backups: &Backups, namespace: &str, workspace: &str) -> CopyOutcome {
    match try_state(context, backups, namespace, workspace).await {
        Ok(outcome) => outcome,
        Err(CopyError::Archive(error @ ArchiveError::Target { .. })) => CopyOutcome::Unreachable(error.to_string()),
        Err(CopyError::Archive(error)) => CopyOutcome::Failed(error.to_string()),
        Err(CopyError::Storage(error)) => CopyOutcome::Failed(error.to_string()),
    }
}

enum CopyError {
    Archive(ArchiveError),
    Storage(knoll_storage::Error),
}

impl From<ArchiveError> for CopyError {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl From<knoll_storage::Error> for CopyError {
    fn from(error: knoll_storage::Error) -> Self {
        Self::Storage(error)
    }
}

async fn try_state(
    context: &Context,
    backups: &Backups,
    namespace: &str,
    workspace: &str,
) -> Result<CopyOutcome, CopyError> {
    let head = context.storage.states().head_of(namespace, workspace).await?;
    let mut known = backups.archive.listed(namespace, workspace).await?;
    let Some(current) = &head.index.current else {
        let found = known.names.first().map(|name| FoundBackup { serial: name.serial, written_at: name.written_at });
        return Ok(CopyOutcome::NoState(found));
    };
    let versions: Vec<&Version> = head.index.versions().collect();
    for version in versions.into_iter().rev() {
        let name = name(version);
        if known.names.contains(&name) {
            continue;
        }
        if copy(context, backups, (namespace, workspace), &head, version).await? {
            context.metrics.state_copied();
            known.names.push(name);
        }
    }
    let pruned = backups.archive.prune(namespace, workspace, known, &backups.retention, context.now()).await?;
    if pruned.is_crowded {
        crowded(context, backups, namespace, workspace);
    }
    let digest = current.digest.to_string();
    Ok(CopyOutcome::State(Copied { serial: current.serial, digest, written_at: written_at(current) }))
}

/// Says that old copies may stay for ever. The state itself is copied.
fn crowded(context: &Context, backups: &Backups, namespace: &str, workspace: &str) {
    context.metrics.copy_ended(true);
    let message = format!(
        "`{}` has so many copies of this state that not all of them are looked at, and old ones may stay; delete what Knoll has not written, or keep fewer versions.",
        backups.archive.shown()
    );
    record(context, namespace, workspace, true, reason::BACKUP_FAILED, message);
}

/// Copies one version; returns whether the cluster still has it.
async fn copy(
    context: &Context,
    backups: &Backups,
    (namespace, workspace): (&str, &str),
    head: &Head,
    version: &Version,
) -> Result<bool, CopyError> {
    let states = context.storage.states();
    let content = match states.version_of(namespace, workspace, head, version).await {
        Ok(Some(content)) => content,
        Ok(None) => return Ok(false),
        // A damaged version of the history keeps no newer one from being copied.
        Err(error)
            if Some(version) != head.index.current.as_ref() && !matches!(error, knoll_storage::Error::Api(_)) =>
        {
            tracing::warn!(namespace, workspace, serial = version.serial, %error, "an earlier version of a state cannot be copied");
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    let run = context.caches.runs.named(namespace, &version.run);
    let record = Record {
        namespace: namespace.to_owned(),
        workspace: workspace.to_owned(),
        serial: version.serial,
        lineage: version.lineage.clone(),
        digest: version.digest.clone(),
        size: content.len() as u64,
        resources: version.resources,
        written_at: written_at(version),
        run: version.run.clone(),
        requested_by: run.as_deref().and_then(|run: &Run| requested_by(run)).map(str::to_owned),
        lock: head.lock.clone().and_then(|lock| String::from_utf8(lock).ok()),
    };
    backups.archive.put(&record, &content).await?;
    Ok(true)
}

fn name(version: &Version) -> RecordName {
    RecordName { written_at: written_at(version), serial: version.serial, digest: version.digest.clone() }
}
