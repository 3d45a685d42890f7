//! The worker that copies, as long as this process leads.

use std::time::Duration;

use knoll_api::Workspace;
use knoll_api::names::reason;
use knoll_core::backup::{Change, CopyOutcome, Work};
use knoll_core::events::Event;
use kube::Resource;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Backups, CONCURRENCY, Shared, begin, copy, objects};
use crate::context::Context;

/// How long the worker sleeps if there is nothing to do and nobody wakes it.
const IDLE: Duration = Duration::from_secs(3600);
/// How long copies that are under way may go on at the end. Each is written as a whole or not at all.
const LAST_COPIES: Duration = Duration::from_secs(2);

/// Copies until `shutdown`.
pub async fn until(context: std::sync::Arc<Context>, backups: Shared, shutdown: CancellationToken) {
    begin(&context, &backups);
    let mut copies: JoinSet<(Work, CopyOutcome)> = JoinSet::new();
    let mut running: std::collections::HashMap<Id, Work> = std::collections::HashMap::new();
    loop {
        while copies.len() < CONCURRENCY {
            let Some(work) = backups.ledger().next(context.now()) else { break };
            let (context, backups, copied) = (context.clone(), backups.clone(), work.clone());
            let task = copies.spawn(async move {
                let outcome = carry_out(&context, &backups, &copied).await;
                (copied, outcome)
            });
            running.insert(task.id(), work);
        }
        let next = backups.ledger().next_try();
        let wait = next.map(|at| at.duration_since(context.now()).try_into().unwrap_or_default()).unwrap_or(IDLE);
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = backups.wake.notified() => {}
            Some(ended) = copies.join_next_with_id() => {
                let (id, work, outcome) = outcome(ended, &running);
                running.remove(&id);
                if let Some(work) = work {
                    ended_with(&context, &backups, work, outcome);
                }
            }
            // A full set of copies is waited for by its next end.
            () = tokio::time::sleep(wait), if copies.len() < CONCURRENCY => {}
        }
    }
    let _ = tokio::time::timeout(LAST_COPIES, async { while copies.join_next().await.is_some() {} }).await;
}

/// What a task has ended with. One that has panicked is a failure of its work.
fn outcome(
    ended: Result<(Id, (Work, CopyOutcome)), JoinError>,
    running: &std::collections::HashMap<Id, Work>,
) -> (Id, Option<Work>, CopyOutcome) {
    match ended {
        Ok((id, (work, outcome))) => (id, Some(work), outcome),
        Err(error) => {
            let outcome = CopyOutcome::Failed("the copy has ended before its time".to_owned());
            (error.id(), running.get(&error.id()).cloned(), outcome)
        }
    }
}

async fn carry_out(context: &Context, backups: &Backups, work: &Work) -> CopyOutcome {
    match work {
        Work::State { namespace, workspace } => copy::state(context, backups, namespace, workspace).await,
        Work::Object { kind, namespace, name } => {
            objects::copy(context, backups, kind, namespace.as_deref(), name).await
        }
    }
}

/// Notes the end of a copy, and shows it where people look.
fn ended_with(context: &Context, backups: &Backups, work: Work, outcome: CopyOutcome) {
    let target = backups.archive.shown();
    let why = match &outcome {
        CopyOutcome::Unreachable(why) | CopyOutcome::Failed(why) => Some(why.clone()),
        _ => None,
    };
    context.metrics.copy_ended(why.is_some());
    if let Some(why) = &why {
        tracing::warn!(?work, why, "a copy has failed and is tried again");
    }
    let (change, late) = {
        let mut ledger = backups.ledger();
        let change = ledger.ended(work.clone(), outcome, context.now());
        let late: Vec<(String, String)> = match change {
            Change::WentAway | Change::CameBack => {
                ledger.late().map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect()
            }
            Change::None => Vec::new(),
        };
        (change, late)
    };
    for (namespace, workspace) in &late {
        context.ask.workspace(namespace, workspace);
    }
    if let Work::State { namespace, workspace } = &work {
        context.ask.workspace(namespace, workspace);
        if let Some(why) = why {
            record(
                context,
                namespace,
                workspace,
                true,
                reason::BACKUP_FAILED,
                format!("The state is not copied: {why}."),
            );
        } else if change == Change::CameBack {
            let message = format!("`{target}` can be reached again, and copies go on.");
            record(context, namespace, workspace, false, reason::BACKED_UP, message);
        }
    }
    match change {
        Change::WentAway => tracing::warn!(target = %target, "the target of backups cannot be reached"),
        Change::CameBack => tracing::info!(target = %target, "the target of backups can be reached again"),
        Change::None => {}
    }
}

/// Records an event of a Workspace.
pub(super) fn record(
    context: &Context,
    namespace: &str,
    workspace: &str,
    warning: bool,
    reason: &str,
    message: String,
) {
    if let Some(workspace) = context.caches.workspaces.named(namespace, workspace) {
        let object = Workspace::object_ref(&workspace, &());
        context.events.record(Event { warning, reason: reason.to_owned(), message }, object);
    }
}
