//! Brings back what was there before an update, and deletes the objects of an Atom that goes.

use std::collections::HashMap;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::{
    Atom,
    atom::{AtomObject, ObjectKey},
};
use knoll_core::{
    atom::{
        Outcome,
        journal::{Entry, Journal, Owner, Undo, is_going, uid, undo},
        waves::Wave,
    },
    readiness::{self, Health},
};
use kube::{ResourceExt, api::PostParams};
use serde_json::Value;

use super::{
    kept,
    objects::{Halt, Objects, some_at_a_time},
};
use crate::{context::Context, controller::namespace_goes};

/// What became of one object.
enum Back {
    /// It is as it was.
    So(Value),
    /// It is gone, as it was before.
    Gone,
    /// Not yet.
    NotYet(String),
}

/// Goes once over everything that the updates since the last good version have touched.
pub(super) async fn run(context: &Context, atom: &Atom, objects: &Objects<'_>) -> Result<Outcome, Halt> {
    let status = atom.status.clone().unwrap_or_default();
    let secret = status.journal.map(|journal| journal.secret_name).unwrap_or_default();
    let journal = kept::read(context, atom, &secret).await?;
    let owner = Owner::of(atom);
    let keys: Vec<ObjectKey> = journal.entries.iter().map(|entry| entry.key.clone()).collect();
    let now = objects.fetch(&keys).await?;
    let mut found = Vec::new();
    // First what was there, then, the other way round, what was not.
    for wave in Wave::ALL {
        found.extend(one_wave(objects, &owner, &journal, &now, wave, true).await);
        if wave == Wave::Definitions {
            objects.forget_kinds();
        }
    }
    for wave in Wave::ALL.into_iter().rev() {
        found.extend(one_wave(objects, &owner, &journal, &now, wave, false).await);
    }
    Ok(Outcome::Restored { objects: found })
}

async fn one_wave(
    objects: &Objects<'_>,
    owner: &Owner,
    journal: &Journal,
    now: &HashMap<ObjectKey, Value>,
    wave: Wave,
    existed: bool,
) -> Vec<AtomObject> {
    let in_it = |entry: &&Entry| entry.before.is_some() == existed && Wave::of(&entry.key) == wave;
    let entries: Vec<&Entry> = journal.entries.iter().filter(in_it).collect();
    let work = entries.iter().map(|entry| back(objects, owner, journal.since, entry, now.get(&entry.key)).boxed());
    let results = some_at_a_time(work.collect::<Vec<_>>().into_iter()).await;
    entries.into_iter().zip(results).filter_map(|(entry, back)| tell(owner, entry, back)).collect()
}

/// How an object is, as the Atom's status says it; nothing of one that is not the Atom's, or not there any more.
fn tell(owner: &Owner, entry: &Entry, back: Back) -> Option<AtomObject> {
    let object = entry.key.clone();
    let now = match back {
        Back::Gone => return None,
        Back::NotYet(message) => return Some(AtomObject { object, message: Some(message), ..AtomObject::default() }),
        Back::So(now) => now,
    };
    // What was never the Atom's need not be ready to be back.
    if !entry.before.as_ref().is_some_and(|before| owner.has(before)) {
        return None;
    }
    let (ready, message) = match readiness::health(&now) {
        Health::Ready => (true, None),
        Health::Waiting(why) | Health::Failed(why) => (false, Some(why)),
    };
    Some(AtomObject { object, uid: uid(&now).map(str::to_owned), ready, message })
}

async fn back(objects: &Objects<'_>, owner: &Owner, since: u32, entry: &Entry, now: Option<&Value>) -> Back {
    let tried = match undo(owner, since, entry, now) {
        Undo::Nothing => return now.filter(|_| entry.before.is_some()).map_or(Back::Gone, |now| Back::So(now.clone())),
        Undo::Going => return Back::NotYet("It is still being deleted.".to_owned()),
        Undo::Delete(uid) => match objects.delete(&entry.key, &uid).await {
            Ok(()) => match objects.get(&entry.key).await {
                Ok(None) if entry.before.is_none() => return Back::Gone,
                Ok(None) => apply_all(objects, entry, undo(owner, since, entry, None)).await,
                Ok(Some(_)) => return Back::NotYet("It is still being deleted.".to_owned()),
                Err(error) => Err(error.into()),
            },
            Err(halt) => Err(halt),
        },
        apply @ Undo::Apply(_) => apply_all(objects, entry, apply).await,
    };
    match tried {
        Ok(Some(object)) => Back::So(object),
        Ok(None) => Back::NotYet("It is not back yet.".to_owned()),
        Err(Halt::Refused(cause)) => Back::NotYet(cause.message),
        Err(Halt::Later(message)) => Back::NotYet(message),
    }
}

async fn apply_all(objects: &Objects<'_>, entry: &Entry, undo: Undo) -> Result<Option<Value>, Halt> {
    let Undo::Apply(writes) = undo else { return Ok(None) };
    let mut last = None;
    for (manager, config) in writes {
        last = Some(objects.apply(&entry.key, &config, &manager, true, false).await?);
    }
    Ok(last)
}

/// Deletes the objects of an Atom that goes. What was somebody else's before an update that is under way goes back to
/// them.
pub(super) async fn delete(context: &Context, atom: &Atom, objects: &Objects<'_>) -> Result<Outcome, Halt> {
    let status = atom.status.clone().unwrap_or_default();
    let owner = Owner::of(atom);
    let journal = match &status.journal {
        Some(journal) => kept::read(context, atom, &journal.secret_name).await.unwrap_or_default(),
        None => Journal::default(),
    };
    let mut keys: Vec<ObjectKey> = status.objects.into_iter().map(|object| object.object).collect();
    keys.extend(journal.entries.iter().map(|entry| entry.key.clone()));
    keys.sort_by_key(|key| (std::cmp::Reverse(Wave::of(key)), key.clone()));
    keys.dedup();
    let now = match objects.fetch(&keys).await.map_err(Halt::from) {
        // Rights go first when a namespace is deleted, and all that is in it goes with it.
        Err(Halt::Refused(_)) if is_namespace_going(context, atom).await => {
            keys.retain(|key| key.namespace != atom.namespace());
            objects.fetch(&keys).await?
        }
        now => now?,
    };
    let mut left = Vec::new();
    for key in keys {
        let Some(object) = now.get(&key).filter(|object| owner.has(object)) else { continue };
        let entry = journal.entries.iter().find(|entry| entry.key == key);
        let foreign = entry.filter(|entry| entry.before.as_ref().is_some_and(|before| !owner.has(before)));
        let done = match foreign {
            Some(entry) => {
                apply_all(objects, entry, undo(&owner, journal.since, entry, Some(object))).await.map(|_| true)
            }
            None if is_going(object) => Ok(false),
            None => {
                objects.delete(&key, uid(object).unwrap_or_default()).await?;
                objects.get(&key).await.map(|now| now.is_none()).map_err(Halt::from)
            }
        };
        let message = match done {
            Ok(true) => continue,
            Ok(false) => "It is still being deleted.".to_owned(),
            Err(Halt::Refused(cause)) => cause.message,
            Err(Halt::Later(message)) => message,
        };
        left.push(AtomObject {
            object: key,
            uid: uid(object).map(str::to_owned),
            ready: false,
            message: Some(message),
        });
    }
    Ok(Outcome::Deleted { left })
}

/// Whether the Atom's own namespace is being deleted: whoever would create something there is told.
async fn is_namespace_going(context: &Context, atom: &Atom) -> bool {
    let probe = ConfigMap {
        metadata: kube::api::ObjectMeta { generate_name: Some("knoll-".to_owned()), ..Default::default() },
        ..ConfigMap::default()
    };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let api = context.api::<ConfigMap>(&atom.namespace().unwrap_or_default());
    api.create(&params, &probe).await.is_err_and(|error| namespace_goes(&error))
}
