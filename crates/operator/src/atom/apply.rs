//! Writes the objects of a version, wave by wave, and deletes those that it does not have any more.
//!
//! *Guarantee.* Both can be repeated from the start: an object that was written is written again with the same result,
//! and an object that was deleted by its UID is not found again.

use std::{collections::HashMap, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knoll_api::{
    Atom,
    atom::{AtomObject, ObjectKey},
    names::reason,
};
use knoll_core::{
    atom::{
        ActionError, AtomOutcome,
        journal::{Entry, WriteMode},
        owner::{Owner, is_being_deleted, uid},
        waves::Wave,
    },
    identity::Subject,
};
use kube::{
    Api,
    runtime::wait::{await_condition, conditions},
};
use serde_json::Value;

use super::{
    journal_store,
    objects::{Objects, bounded},
};
use crate::context::Context;

/// How long an action waits for definitions, or for an object that is deleted, before it gives way to other Atoms.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time between two checks of an object whose definition has changed.
const CHECK_AGAIN: Duration = Duration::from_millis(100);

/// The time between two reads of an object that is being deleted.
const GONE_AGAIN: Duration = Duration::from_millis(30);

/// Writes all objects of the version.
pub(super) async fn run(context: &Context, atom: &Subject<Atom>) -> Result<AtomOutcome, ActionError> {
    let journal = journal_store::current(context, atom).await?;
    let objects = &Objects::of(atom, &context.client, &context.kinds)?.hiding(journal.hidden.clone());
    let owner = Owner::of(&atom.id);
    let known: HashMap<&ObjectKey, Option<String>> =
        atom.status.iter().flat_map(|status| &status.objects).map(|known| (&known.object, known.uid.clone())).collect();
    let mut written = Vec::new();
    for wave in Wave::ALL {
        let writes: Vec<Write<'_>> =
            journal.entries.iter().filter_map(Write::of).filter(|write| Wave::of(write.key) == wave).collect();
        // All objects that could not be checked before are checked now, before any object of the wave is written.
        let unchecked = writes.iter().filter(|write| *write.mode == WriteMode::CheckFirst);
        each(unchecked.map(|write| check(atom, objects, &owner, write).boxed())).await?;
        check_new(objects, &owner, &writes).await?;
        let work = writes.iter().map(|write| {
            let known = known.get(write.key).cloned().flatten();
            write_one(atom, objects, &owner, write, known).boxed()
        });
        let uids = each(work).await?;
        written.extend(writes.iter().zip(uids).map(|(write, uid)| AtomObject {
            object: write.key.clone(),
            uid,
            ..AtomObject::default()
        }));
        if wave == Wave::Definitions && !writes.is_empty() {
            established(objects, &writes).await?;
        }
    }
    Ok(AtomOutcome::Applied(written))
}

/// Deletes the objects that the version does not have any more, in the reverse order of their writes.
pub(super) async fn prune(context: &Context, atom: &Subject<Atom>) -> Result<AtomOutcome, ActionError> {
    let journal = journal_store::current(context, atom).await?;
    let objects = &Objects::of(atom, &context.client, &context.kinds)?.hiding(journal.hidden.clone());
    let owner = Owner::of(&atom.id);
    for wave in Wave::ALL.into_iter().rev() {
        let pruned = journal.entries.iter().filter_map(|entry| match entry {
            Entry::Prune { key, uid, .. } if Wave::of(key) == wave => Some((key, uid)),
            _ => None,
        });
        each(pruned.map(|(key, uid)| objects.delete(key, uid).boxed())).await?;
        let released = journal.entries.iter().filter_map(|entry| match entry {
            Entry::Release { key, .. } if Wave::of(key) == wave => Some(key),
            _ => None,
        });
        each(released.map(|key| release(objects, &owner, key).boxed())).await?;
    }
    Ok(AtomOutcome::Pruned)
}

/// Lets go of an object that the Atom had adopted.
async fn release(objects: &Objects<'_>, owner: &Owner, key: &ObjectKey) -> Result<(), ActionError> {
    match objects.get(key).await?.filter(|now| owner.has_adopted(now) && !is_being_deleted(now)) {
        Some(now) => objects.apply(key, &owner.release(&now), &owner.manager, true, false).await.map(drop),
        None => Ok(()),
    }
}

/// Refuses objects that did not exist when the update was prepared, and that somebody else has created meanwhile: a
/// rollback would take them for the Atom's own.
async fn check_new(objects: &Objects<'_>, owner: &Owner, writes: &[Write<'_>]) -> Result<(), ActionError> {
    let is_new = |write: &&Write<'_>| write.is_new && *write.mode != WriteMode::Skip;
    let keys: Vec<ObjectKey> = writes.iter().filter(is_new).map(|write| write.key.clone()).collect();
    let now = objects.fetch(&keys).await?;
    let foreign = keys.iter().find(|key| now.get(key).is_some_and(|now| !owner.owns(now)));
    match foreign {
        Some(key) => Err(ActionError::refused(
            reason::OBJECT_CONFLICT,
            format!("`{key}` was created by another client during the update. Delete it, or rename the object."),
        )),
        None => Ok(()),
    }
}

/// One write of the journal.
struct Write<'a> {
    key: &'a ObjectKey,
    object: &'a Value,
    mode: &'a WriteMode,
    /// Whether the object did not exist before the update.
    is_new: bool,
}

impl<'a> Write<'a> {
    fn of(entry: &'a Entry) -> Option<Self> {
        match entry {
            Entry::Write { key, object, mode, before } => Some(Self { key, object, mode, is_new: before.is_none() }),
            Entry::Prune { .. } | Entry::Release { .. } | Entry::Keep { .. } => None,
        }
    }
}

/// Awaits all futures, and returns their results in order. A refusal counts more than an error that can be retried.
async fn each<'a, T>(work: impl Iterator<Item = BoxFuture<'a, Result<T, ActionError>>>) -> Result<Vec<T>, ActionError> {
    let work: Vec<_> = work.collect();
    let (mut done, mut later) = (Vec::new(), None);
    for result in bounded(work.into_iter()).await {
        match result {
            Ok(value) => done.push(value),
            Err(ActionError::Refused(cause)) => return Err(ActionError::Refused(cause)),
            Err(ActionError::Retry(message)) => later = Some(message),
        }
    }
    match later {
        Some(message) => Err(ActionError::Retry(message)),
        None => Ok(done),
    }
}

/// Checks an object whose kind or namespace is new. A changed definition takes effect after a moment, so a refusal counts
/// only when it lasts.
async fn check(atom: &Atom, objects: &Objects<'_>, owner: &Owner, write: &Write<'_>) -> Result<(), ActionError> {
    let accepted = async {
        while matches!(apply(atom, objects, owner, write, true).await, Err(ActionError::Refused(_))) {
            tokio::time::sleep(CHECK_AGAIN).await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, accepted).await;
    apply(atom, objects, owner, write, true).await.map(drop)
}

/// Writes one object, and returns its UID; `known` is the UID of an object that does not change.
async fn write_one(
    atom: &Atom,
    objects: &Objects<'_>,
    owner: &Owner,
    write: &Write<'_>,
    known: Option<String>,
) -> Result<Option<String>, ActionError> {
    match write.mode {
        WriteMode::Skip => return Ok(known),
        WriteMode::Replace(old) => delete_replaced(objects, write.key, old).await?,
        WriteMode::Apply | WriteMode::CheckFirst => {}
    }
    let object = apply(atom, objects, owner, write, false).await?;
    Ok(uid(&object).map(str::to_owned))
}

async fn apply(
    atom: &Atom,
    objects: &Objects<'_>,
    owner: &Owner,
    write: &Write<'_>,
    dry_run: bool,
) -> Result<Value, ActionError> {
    objects.apply(write.key, write.object, &owner.manager, atom.spec.force, dry_run).await
}

/// Deletes the object that is replaced, and waits until it is gone.
async fn delete_replaced(objects: &Objects<'_>, key: &ObjectKey, old: &str) -> Result<(), ActionError> {
    let is_old = |now: &Value| uid(now) == Some(old);
    let Some(now) = objects.get(key).await?.filter(is_old) else { return Ok(()) };
    if !is_being_deleted(&now) {
        objects.delete(key, old).await?;
    }
    let gone = async {
        while objects.get(key).await?.is_some_and(|now| is_old(&now)) {
            tokio::time::sleep(GONE_AGAIN).await;
        }
        Ok::<_, ActionError>(())
    };
    match tokio::time::timeout(PATIENCE, gone).await {
        Ok(gone) => gone,
        Err(_) => Err(ActionError::Retry(format!("`{key}` is replaced, and the old object is not deleted yet."))),
    }
}

/// Waits until the API server serves the new kinds.
async fn established(objects: &Objects<'_>, writes: &[Write<'_>]) -> Result<(), ActionError> {
    let api: Api<CustomResourceDefinition> = Api::all(objects.client().clone());
    for Write { key, .. } in writes {
        let established = await_condition(api.clone(), &key.name, conditions::is_crd_established());
        match tokio::time::timeout(PATIENCE, established).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(ActionError::Retry(format!("`{}`: {error}.", key))),
            Err(_) => return Err(ActionError::Retry(format!("`{}` is not established yet.", key))),
        }
    }
    objects.forget_kinds();
    Ok(())
}
