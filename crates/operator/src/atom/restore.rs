//! Restores the objects of a rollback, and deletes the objects of an Atom that is being deleted.

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::{
    Atom,
    atom::{AtomObject, ObjectKey},
};
use knoll_core::{
    atom::{
        ActionError, AtomOutcome,
        journal::{Entry, Journal},
        owner::{Owner, uid},
        restore::{self, Attempt, Removal, STILL_DELETING, Undo, undo},
        waves::Wave,
    },
    identity::Subject,
    readiness::Health,
};
use knoll_storage::is_namespace_terminating;
use kube::api::{ObjectMeta, PostParams};
use serde_json::Value;

use super::{
    journal_store,
    objects::{Objects, bounded},
};
use crate::context::Context;

/// Attempts once to restore every object that the updates since the last good version have touched.
pub(super) async fn run(context: &Context, atom: &Subject<Atom>) -> Result<AtomOutcome, ActionError> {
    let journal = journal_store::current(context, atom).await?;
    let hidden = restore::hidden(&journal);
    let objects = &Objects::of(atom, &context.client, &context.kinds)?.hiding(hidden.clone());
    let owner = Owner::of(&atom.id);
    let keys: Vec<ObjectKey> = journal.entries.iter().map(|entry| entry.key().clone()).collect();
    let now = objects.fetch(&keys).await?;
    let mut listed = Vec::new();
    for (wave, entries) in restore::batches(&journal) {
        let work =
            entries.iter().map(|entry| attempt(objects, &owner, journal.since, entry, now.get(entry.key())).boxed());
        let attempts = bounded(work.collect::<Vec<_>>().into_iter()).await;
        let restored = |(entry, attempt)| restore::own(&owner, entry, attempt).cloned();
        let restored: Vec<Option<Value>> = entries.iter().copied().zip(&attempts).map(restored).collect();
        let mut healths = context.evaluations.health(restored.iter().flatten().cloned().collect()).await.into_iter();
        let healths = restored.iter().map(|restored| restored.as_ref().and_then(|_| healths.next()));
        let healths: Vec<Option<Health>> = healths.collect();
        let done = entries.into_iter().zip(attempts).zip(healths);
        listed.extend(done.filter_map(|((entry, attempt), health)| restore::report(entry, attempt, health)));
        if wave == Wave::Definitions {
            objects.forget_kinds();
        }
    }
    Ok(AtomOutcome::Restored(hidden.clean_objects(listed)))
}

/// Attempts to restore one object. `now` is the object as it is.
async fn attempt(objects: &Objects<'_>, owner: &Owner, since: u32, entry: &Entry, now: Option<&Value>) -> Attempt {
    let attempt = try_restore(objects, owner, since, entry, now).await;
    attempt.unwrap_or_else(|error| Attempt::NotYet(error.into_message()))
}

async fn try_restore(
    objects: &Objects<'_>,
    owner: &Owner,
    since: u32,
    entry: &Entry,
    mut now: Option<&Value>,
) -> Result<Attempt, ActionError> {
    let still_deleting = || Attempt::NotYet(STILL_DELETING.to_owned());
    let mut next = undo(owner, since, entry, now);
    if let Undo::Delete(uid) = &next {
        objects.delete(entry.key(), uid).await?;
        if objects.get(entry.key()).await?.is_some() {
            return Ok(still_deleting());
        }
        now = None;
        next = undo(owner, since, entry, now);
    }
    match next {
        Undo::Nothing => Ok(restore::done(entry, now)),
        Undo::Deleting | Undo::Delete(_) => Ok(still_deleting()),
        Undo::Apply(writes) => {
            let mut last = Attempt::NotYet("It is not restored yet.".to_owned());
            for (manager, config) in writes {
                last = Attempt::Restored(objects.apply(entry.key(), &config, &manager, true, false).await?);
            }
            Ok(last)
        }
    }
}

/// Deletes the objects of an Atom that is being deleted. Objects that an unproven update took over go back to their
/// managers, and those that the Atom adopted stay as they are.
pub(super) async fn delete(context: &Context, atom: &Subject<Atom>) -> Result<AtomOutcome, ActionError> {
    let status = atom.status.clone().unwrap_or_default();
    let owner = Owner::of(&atom.id);
    let journal = match &status.journal {
        // Without the journal, objects of others would be deleted instead of given back.
        Some(journal) => journal_store::find(context, atom, &journal.secret_name).await?.unwrap_or_default(),
        None => Journal::default(),
    };
    let hidden = restore::hidden(&journal);
    let objects = &Objects::of(atom, &context.client, &context.kinds)?.hiding(hidden.clone());
    let mut keys = restore::deletion_order(&status.objects, &journal);
    let now = match objects.fetch(&keys).await {
        // When a namespace is deleted, the rights in it may go before its objects. Those are deleted with it.
        Err(ActionError::Refused(_)) if is_namespace_being_deleted(context, atom).await => {
            keys.retain(|key| key.namespace.as_deref() != Some(atom.namespace()));
            objects.fetch(&keys).await?
        }
        now => now?,
    };
    let mut left = Vec::new();
    for key in keys {
        let now = now.get(&key);
        let done = match restore::removal(&owner, &journal, &key, now) {
            Removal::Nothing => continue,
            Removal::Deleting => Ok(false),
            Removal::Delete(uid) => {
                objects.delete(&key, &uid).await?;
                objects.get(&key).await.map(|now| now.is_none())
            }
            Removal::Release(config) => objects.apply(&key, &config, &owner.manager, true, false).await.map(|_| true),
            Removal::GiveBack(entry) => match attempt(objects, &owner, journal.since, entry, now).await {
                Attempt::Restored(_) | Attempt::Gone => Ok(true),
                Attempt::NotYet(message) => Err(ActionError::Retry(message)),
            },
        };
        let message = match done {
            Ok(true) => continue,
            Ok(false) => STILL_DELETING.to_owned(),
            Err(error) => error.into_message(),
        };
        let uid = now.and_then(uid).map(str::to_owned);
        left.push(AtomObject { object: key, uid, ready: false, message: Some(message) });
    }
    Ok(AtomOutcome::ObjectsDeleted(hidden.clean_objects(left)))
}

/// Whether the Atom's own namespace is being deleted: the dry run of a create is refused for that reason.
async fn is_namespace_being_deleted(context: &Context, atom: &Subject<Atom>) -> bool {
    let probe = ConfigMap {
        metadata: ObjectMeta { generate_name: Some("knoll-".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let api = context.api::<ConfigMap>(atom.namespace());
    api.create(&params, &probe).await.is_err_and(|error| is_namespace_terminating(&error))
}
