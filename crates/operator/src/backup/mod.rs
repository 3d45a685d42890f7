//! Copies states, and the objects that belong to them, out of the cluster.
//!
//! *Guarantees.* No Run and no reconcile waits for a copy. The watches ask for copies, and the status of a Workspace says
//! how far they are, so a new leader goes on where the last one was. What was copied is not sent again: the target is
//! asked for what it has.

mod copy;
mod objects;
mod worker;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use knoll_api::{Digest, Workspace};
use knoll_backup::{Archive, ObjectAddress, Retention, Target};
use knoll_core::backup::{Copied, Ledger, StateBackup, Work};
use knoll_core::identity::ObjectId;
use knoll_storage::states;
use kube::{Resource, ResourceExt};
use tokio::sync::Notify;

use crate::context::Context;

pub use worker::until;

/// How many copies are under way at a time. Each holds one state in memory, a few times over while it is read.
const CONCURRENCY: usize = 2;

/// Where copies go, and how long they stay there.
#[derive(Clone, Debug)]
pub struct BackupSettings {
    pub target: Target,
    pub retention: Retention,
}

/// What is left to copy, and what the operator knows of the copies.
#[derive(Debug)]
pub struct Backups {
    archive: Archive,
    retention: Retention,
    ledger: Mutex<Ledger>,
    /// The objects that this process has copied, by the digest of what was copied.
    objects: Mutex<HashMap<ObjectAddress, Digest>>,
    /// Whether the caches have their first lists.
    has_begun: AtomicBool,
    /// Wakes the worker when there is more to do.
    wake: Notify,
}

/// What the metrics show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lag {
    pub versions: usize,
    pub time: Duration,
    pub is_reachable: bool,
}

impl Backups {
    #[must_use]
    pub fn new(settings: BackupSettings) -> Self {
        let BackupSettings { target, retention } = settings;
        let archive = Archive::new(target);
        Backups {
            archive,
            retention,
            ledger: Mutex::default(),
            objects: Mutex::default(),
            has_begun: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    /// What is known of the copies of a Workspace's state.
    #[must_use]
    pub fn state(&self, namespace: &str, workspace: &str) -> StateBackup {
        self.ledger().state(namespace, workspace, self.archive.shown())
    }

    #[must_use]
    pub fn lag(&self, now: Timestamp) -> Lag {
        let ledger = self.ledger();
        let (versions, since) = ledger.lag();
        let time = since.map(|since| now.duration_since(since)).and_then(|time| time.try_into().ok());
        Lag { versions, time: time.unwrap_or_default(), is_reachable: ledger.outage().is_none() }
    }

    fn ask(&self, work: Work) {
        self.ledger().ask(work);
        self.wake.notify_one();
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<ObjectAddress, Digest>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A head of a state has changed, or is gone.
pub fn on_head(context: &Context, namespace: &str, workspace: &str) {
    let Some(backups) = &context.backups else { return };
    let known = context.caches.workspaces.named(namespace, workspace);
    match context.caches.state(namespace, workspace) {
        Some(head) => head_changed(backups, namespace, workspace, &head, known.as_deref()),
        None if known.is_some() => backups.ledger().no_head(namespace, workspace, true),
        None => backups.ledger().forget(namespace, workspace),
    }
    backups.wake.notify_one();
}

/// A Workspace has changed, or is gone.
pub fn on_workspace(context: &Context, id: &ObjectId, workspace: &Workspace) {
    let Some(backups) = &context.backups else { return };
    let (namespace, name) = (id.namespace.as_str(), id.name.as_str());
    let is_there = context.caches.workspaces.named(namespace, name).is_some();
    match context.caches.state(namespace, name) {
        Some(head) => head_changed(backups, namespace, name, &head, Some(workspace)),
        // Before the first list of heads nobody knows which Workspaces have none.
        None if is_there && backups.has_begun.load(Ordering::Acquire) => {
            backups.ledger().no_head(namespace, name, false)
        }
        None if is_there => {}
        None => backups.ledger().forget(namespace, name),
    }
    on_object(context, id, workspace);
    backups.wake.notify_one();
}

/// An object that belongs to states has changed, or is gone.
pub fn on_object<K: Resource<DynamicType = ()>>(context: &Context, id: &ObjectId, object: &K) {
    let Some(backups) = &context.backups else { return };
    if let Some(kind) = objects::kind::<K>() {
        backups.ask(Work::Object { kind, namespace: object.namespace(), name: id.name.clone() });
    }
}

fn head_changed(
    backups: &Backups,
    namespace: &str,
    workspace: &str,
    head: &knoll_core::workspace::Head,
    known: Option<&Workspace>,
) {
    let summary = &head.summary;
    let status = known.and_then(|workspace| workspace.status.as_ref()?.backup.as_ref());
    let written_at = summary.updated_at.as_ref().map(|time| time.0).unwrap_or_default();
    let version = (summary.digest.as_str(), written_at);
    backups.ledger().head((namespace, workspace), version, summary.run.as_deref(), status.and_then(Copied::of));
}

/// Asks for what the watches brought before everything was known.
pub fn begin(context: &Context, backups: &Backups) {
    backups.has_begun.store(true, Ordering::Release);
    for workspace in context.caches.workspaces.all() {
        let (namespace, name) = (workspace.namespace().unwrap_or_default(), workspace.name_any());
        if context.caches.state(&namespace, &name).is_none() {
            backups.ledger().no_head(&namespace, &name, false);
        }
    }
    backups.wake.notify_one();
}

/// The time of a version as the head has it.
fn written_at(version: &states::Version) -> Timestamp {
    version.updated_at.parse().unwrap_or_default()
}

/// Shared by the watches, the worker and the metrics.
pub type Shared = Arc<Backups>;
