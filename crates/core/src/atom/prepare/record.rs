//! The journal of an update, made of the checked objects and of an earlier journal.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use knoll_api::{
    atom::{AtomObject, ObjectKey},
    names::annotation,
};
use serde_json::Value;

use super::{Identity, PlannedObject, identity};
use crate::atom::{
    hidden::HiddenValues,
    journal::{Entry, Journal, WriteMode},
    owner::{Owner, mark_replaced, uid},
    waves::Wave,
};

/// The objects that the version does not have, and that the Atom has or that an earlier, unproven update touched.
#[must_use]
pub fn left_over(planned: &[PlannedObject], inventory: &[AtomObject], earlier: Option<&Journal>) -> Vec<ObjectKey> {
    let mut seen: BTreeSet<Identity> = planned.iter().map(|planned| identity(&planned.key)).collect();
    let inventory = inventory.iter().map(|object| &object.object);
    let touched = earlier.into_iter().flat_map(|journal| journal.entries.iter().map(Entry::key));
    inventory.chain(touched).filter(|key| seen.insert(identity(key))).cloned().collect()
}

/// A checked update that is not recorded yet.
#[derive(Debug)]
pub struct Preparation<'a> {
    pub owner: &'a Owner,
    /// The number of the update.
    pub attempt: u32,
    pub planned: Vec<(PlannedObject, WriteMode)>,
    /// The objects of [`left_over`].
    pub left_over: Vec<ObjectKey>,
    /// The journal of earlier, unproven updates.
    pub earlier: Option<Journal>,
    /// All of these objects that exist.
    pub now: &'a HashMap<ObjectKey, Value>,
    /// The values of Secrets that the update uses.
    pub hidden: HiddenValues,
}

impl Preparation<'_> {
    /// The journal of the update, and the objects of the version as the Atom's status lists them.
    ///
    /// What an earlier journal has as the object before its update stays; other objects are recorded as they are now.
    #[must_use]
    pub fn record(self) -> (Journal, Vec<AtomObject>) {
        let Self { owner, attempt, planned, left_over, earlier, now, mut hidden } = self;
        hidden.extend(earlier.as_ref().map(|journal| journal.hidden.clone()).unwrap_or_default());
        let since = earlier.as_ref().map_or(attempt, |journal| journal.since);
        let mut recorded: BTreeMap<Identity, Option<Value>> = BTreeMap::new();
        for entry in earlier.iter().flat_map(|journal| &journal.entries) {
            recorded.insert(identity(entry.key()), entry.before().cloned());
        }
        let mut before = |key: &ObjectKey| recorded.remove(&identity(key)).unwrap_or_else(|| now.get(key).cloned());
        let mut entries: Vec<Entry> = Vec::new();
        for (PlannedObject { key, mut object, .. }, mode) in planned {
            keep_replaced_by(&mut object, &mode, attempt, now.get(&key));
            owner.mark_adopted(&mut object, now.get(&key));
            entries.push(Entry::Write { before: before(&key), key, object, mode });
        }
        entries.sort_by_key(|entry| Wave::of(entry.key()));
        let inventory = entries.iter().map(|entry| AtomObject {
            object: entry.key().clone(),
            uid: now.get(entry.key()).and_then(uid).map(str::to_owned),
            ..AtomObject::default()
        });
        let inventory = inventory.collect();
        for key in left_over {
            let before = before(&key);
            let now = now.get(&key).filter(|now| owner.owns(now));
            entries.push(match now.and_then(uid) {
                Some(_) if now.is_some_and(|now| owner.has_adopted(now)) => Entry::Release { key, before },
                Some(uid) => Entry::Prune { uid: uid.to_owned(), key, before },
                None => Entry::Keep { key, before },
            });
        }
        (Journal { since, entries, hidden }, inventory)
    }
}

/// Records which update replaced an object. An apply that leaves the annotation out would remove it, and a rollback needs
/// it to tell a replaced object from a restored one.
fn keep_replaced_by(object: &mut Value, mode: &WriteMode, attempt: u32, now: Option<&Value>) {
    let recorded = now.and_then(|now| now["metadata"]["annotations"].get(annotation::REPLACED_BY));
    if let WriteMode::Replace(_) = mode {
        mark_replaced(object, attempt);
    } else if let Some(recorded) = recorded {
        object["metadata"]["annotations"][annotation::REPLACED_BY] = recorded.clone();
    }
}
