//! The rollback, object by object.
//!
//! *Guarantees.* An object is deleted only by the UID that was observed, and only when the Atom owns it. Fields that
//! others wrote meanwhile stay.

use std::{cmp::Reverse, collections::BTreeSet};

use knoll_api::atom::{AtomObject, ObjectKey};
use serde_json::Value;

use super::{
    fields::{Fields, applied_by, extract, owners},
    hidden::HiddenValues,
    journal::{Entry, Journal},
    owner::{Owner, is_being_deleted, replaced_by, uid},
    waves::Wave,
};
use crate::readiness::Health;

/// Managers of the cluster itself. They write their fields again by themselves.
const CLUSTER: [&str; 4] = ["kube-controller-manager", "kube-scheduler", "kubelet", "kube-apiserver"];

/// The message of an object whose deletion is not done.
pub const STILL_DELETING: &str = "It is still being deleted.";

/// The next step to restore an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Undo {
    /// The object is restored.
    Nothing,
    /// Delete the object of this UID.
    Delete(String),
    /// Wait: the object is being deleted.
    Deleting,
    /// Apply these configurations in this order, each as its field manager.
    Apply(Vec<(String, Value)>),
}

/// What an attempt to restore an object came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Attempt {
    /// The object is as it was.
    Restored(Value),
    /// The object is gone, as it was before.
    Gone,
    /// Not done yet, and why.
    NotYet(String),
}

/// What to do with one object of an Atom that is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub enum Removal<'a> {
    /// Nothing: the object is gone, or is not the Atom's.
    Nothing,
    /// Wait: the object is being deleted.
    Deleting,
    /// Delete the object of this UID.
    Delete(String),
    /// Apply this configuration: the Atom adopted the object, and lets go of it.
    Release(Value),
    /// Restore the object: it belonged to another manager before the update that is under way.
    GiveBack(&'a Entry),
}

/// The entries of a journal in the order of a rollback: first the objects that existed, wave by wave, then those that did
/// not, in reverse. The entries of a batch can be restored at the same time.
#[must_use]
pub fn batches(journal: &Journal) -> Vec<(Wave, Vec<&Entry>)> {
    let batch = |wave: Wave, existed: bool| {
        let is_in = |entry: &&Entry| entry.before().is_some() == existed && Wave::of(entry.key()) == wave;
        (wave, journal.entries.iter().filter(is_in).collect::<Vec<_>>())
    };
    let existed = Wave::ALL.into_iter().map(|wave| batch(wave, true));
    let created = Wave::ALL.into_iter().rev().map(|wave| batch(wave, false));
    existed.chain(created).filter(|(_, entries)| !entries.is_empty()).collect()
}

/// The values that no message of a rollback may contain. The objects as they were have values of earlier versions, so the
/// content of their Secrets counts as well.
#[must_use]
pub fn hidden(journal: &Journal) -> HiddenValues {
    let mut hidden = journal.hidden.clone();
    journal.entries.iter().filter_map(Entry::before).for_each(|before| hidden.hide_secret(before));
    hidden
}

/// What it means that nothing is left to do for an object.
#[must_use]
pub fn done(entry: &Entry, now: Option<&Value>) -> Attempt {
    now.filter(|_| entry.before().is_some()).map_or(Attempt::Gone, |now| Attempt::Restored(now.clone()))
}

/// The object whose health [`report`] needs: one of the Atom's own that is restored. An object of another owner is restored
/// without being ready.
#[must_use]
pub fn own<'a>(owner: &Owner, entry: &Entry, attempt: &'a Attempt) -> Option<&'a Value> {
    match attempt {
        Attempt::Restored(now) if entry.before().is_some_and(|before| owner.owns(before)) => Some(now),
        _ => None,
    }
}

/// The object as the Atom's status lists it after an attempt; none when it is gone, or was never the Atom's. `health` is
/// that of the object of [`own`].
#[must_use]
pub fn report(entry: &Entry, attempt: Attempt, health: Option<Health>) -> Option<AtomObject> {
    let object = entry.key().clone();
    let now = match attempt {
        Attempt::Gone => return None,
        Attempt::NotYet(message) => {
            return Some(AtomObject { object, message: Some(message), ..AtomObject::default() });
        }
        Attempt::Restored(now) => now,
    };
    let (ready, message) = match health? {
        Health::Ready => (true, None),
        Health::Waiting(why) | Health::Failed(why) => (false, Some(why)),
    };
    Some(AtomObject { object, uid: uid(&now).map(str::to_owned), ready, message })
}

/// The objects of an Atom that is being deleted, in the order of their deletion: those that others need come last.
#[must_use]
pub fn deletion_order(inventory: &[AtomObject], journal: &Journal) -> Vec<ObjectKey> {
    let inventory = inventory.iter().map(|object| object.object.clone());
    let touched = journal.entries.iter().map(|entry| entry.key().clone());
    let all: BTreeSet<(Reverse<Wave>, ObjectKey)> =
        inventory.chain(touched).map(|key| (Reverse(Wave::of(&key)), key)).collect();
    all.into_iter().map(|(_, key)| key).collect()
}

/// What to do with one object of an Atom that is being deleted.
#[must_use]
pub fn removal<'a>(owner: &Owner, journal: &'a Journal, key: &ObjectKey, now: Option<&Value>) -> Removal<'a> {
    let Some(now) = now.filter(|now| owner.owns(now)) else { return Removal::Nothing };
    let entry = journal.entries.iter().find(|entry| entry.key() == key);
    match entry.filter(|entry| entry.before().is_some_and(|before| !owner.owns(before))) {
        Some(entry) => Removal::GiveBack(entry),
        None if is_being_deleted(now) => Removal::Deleting,
        None if owner.has_adopted(now) => Removal::Release(owner.release(now)),
        None => Removal::Delete(uid(now).unwrap_or_default().to_owned()),
    }
}

/// The next step to restore an object. `now` is the object as it is; the decision can be taken again after any
/// interruption.
#[must_use]
pub fn undo(owner: &Owner, since: u32, entry: &Entry, now: Option<&Value>) -> Undo {
    let Some(before) = entry.before() else {
        return match now.filter(|now| owner.owns(now)) {
            None => Undo::Nothing,
            Some(now) if is_being_deleted(now) => Undo::Deleting,
            Some(now) => Undo::Delete(uid(now).unwrap_or_default().to_owned()),
        };
    };
    let Some(now) = now else {
        return Undo::Apply(recreate(owner, before));
    };
    if is_being_deleted(now) {
        return Undo::Deleting;
    }
    let own = applied_by(before, &owner.manager);
    if uid(now) != uid(before) {
        if replaced_by(now).is_some_and(|number| number >= since) {
            return Undo::Delete(uid(now).unwrap_or_default().to_owned());
        }
        // An earlier attempt of the rollback created it again, maybe only in part.
        let restored = extract(now, &applied_by(now, &owner.manager)) == extract(before, &own);
        return if restored { Undo::Nothing } else { Undo::Apply(recreate(owner, before)) };
    }
    let held = applied_by(now, &owner.manager);
    let mut writes = taken_over(owner, before, now, &own, &held);
    // Fields that were taken over go back to their managers first, so that each has an owner when the Atom lets go.
    if extract(now, &held) != extract(before, &own) || held != own {
        writes.push((owner.manager.clone(), extract(before, &own)));
    }
    if writes.is_empty() { Undo::Nothing } else { Undo::Apply(writes) }
}

/// The writes that give fields back to the managers that the Atom took them from, with their values.
fn taken_over(owner: &Owner, before: &Value, now: &Value, own: &Fields, held: &Fields) -> Vec<(String, Value)> {
    let taken: Fields = held.difference(own).cloned().collect();
    let others_now = owners(now);
    let mut writes = Vec::new();
    for other in owners(before).into_iter().filter(|other| other.manager != owner.manager) {
        let has_now = others_now.iter().find(|now| now.manager == other.manager);
        let has_now = has_now.map(|now| now.fields.clone()).unwrap_or_default();
        let lost: Fields = other.fields.intersection(&taken).filter(|path| !has_now.contains(*path)).cloned().collect();
        if lost.is_empty() {
            continue;
        }
        // An apply that leaves out a field gives it up, so it names all fields that the manager still owns.
        let kept: Fields =
            if other.applied { other.fields.intersection(&has_now).cloned().collect() } else { Fields::new() };
        writes.push((other.manager, extract(before, &kept.union(&lost).cloned().collect())));
    }
    writes
}

/// The writes that create an object again that was deleted.
fn recreate(owner: &Owner, before: &Value) -> Vec<(String, Value)> {
    let own = applied_by(before, &owner.manager);
    if own.is_empty() {
        // The Atom applied nothing of it: the manager with the most fields writes all of it.
        let most = owners(before).into_iter().max_by_key(|other| other.fields.len());
        let manager = most.map_or_else(|| owner.manager.clone(), |most| most.manager);
        return vec![(manager, without_server_fields(before))];
    }
    let mut writes = vec![(owner.manager.clone(), extract(before, &own))];
    for other in owners(before) {
        let fields: Fields = other.fields.difference(&own).cloned().collect();
        if other.manager != owner.manager && !CLUSTER.contains(&other.manager.as_str()) && !fields.is_empty() {
            writes.push((other.manager, extract(before, &fields)));
        }
    }
    writes
}

/// An object without the fields that only the API server writes.
fn without_server_fields(object: &Value) -> Value {
    let mut stripped = object.clone();
    if let Some(fields) = stripped.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = stripped.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"] {
            metadata.remove(field);
        }
    }
    stripped
}

#[cfg(test)]
mod tests {
    use knoll_api::names::annotation;
    use serde_json::json;

    use super::*;

    fn owner() -> Owner {
        let (namespace, name, uid) = ("default".to_owned(), "web".to_owned(), "atom".to_owned());
        Owner::of(&crate::identity::ObjectId { namespace, name, uid })
    }

    /// A ConfigMap with who owns which key.
    fn map(uid: &str, data: &[(&str, &str, &str)], extra: Value) -> Value {
        let mut managers: std::collections::BTreeMap<&str, Value> = std::collections::BTreeMap::new();
        for (key, _, manager) in data {
            let fields = managers.entry(manager).or_insert_with(|| json!({"f:data": {}}));
            fields["f:data"][format!("f:{key}")] = json!({});
        }
        let managed: Vec<Value> = managers
            .into_iter()
            .map(|(manager, fields)| json!({"manager": manager, "operation": "Apply", "fieldsV1": fields}))
            .collect();
        let values: serde_json::Map<String, Value> =
            data.iter().map(|(key, value, _)| ((*key).to_owned(), json!(value))).collect();
        let mut object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "uid": uid, "managedFields": managed}, "data": values,
        });
        if let (Some(metadata), Some(extra)) = (object["metadata"].as_object_mut(), extra.as_object()) {
            metadata.extend(extra.clone());
        }
        object
    }

    const ATOM: &str = "knoll-atom-web";

    fn config(data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
    }

    #[test]
    fn every_object_is_restored_in_its_own_way() {
        let ours = json!({"annotations": {annotation::ATOM_UID: "atom"}});
        let going = json!({"annotations": {annotation::ATOM_UID: "atom"}, "deletionTimestamp": "now"});
        let replaced = |by: &str| json!({"annotations": {annotation::REPLACED_BY: by}});
        let one = [("k", "1", ATOM)];
        let two = [("k", "2", ATOM)];
        let before = map("u", &one, json!({}));
        let rows: Vec<(&str, Option<Value>, Option<Value>, Undo)> = vec![
            ("never made", None, None, Undo::Nothing),
            ("made by the update", None, Some(map("n", &one, ours.clone())), Undo::Delete("n".to_owned())),
            ("made by the update and going", None, Some(map("n", &one, going)), Undo::Deleting),
            ("made by somebody else meanwhile", None, Some(map("n", &one, json!({}))), Undo::Nothing),
            ("not touched", Some(before.clone()), Some(before.clone()), Undo::Nothing),
            (
                "changed",
                Some(before.clone()),
                Some(map("u", &two, json!({}))),
                Undo::Apply(vec![(ATOM.to_owned(), config(json!({"k": "1"})))]),
            ),
            (
                "a field more",
                Some(before.clone()),
                Some(map("u", &[("k", "1", ATOM), ("l", "1", ATOM)], json!({}))),
                Undo::Apply(vec![(ATOM.to_owned(), config(json!({"k": "1"})))]),
            ),
            ("gone", Some(before.clone()), None, Undo::Apply(vec![(ATOM.to_owned(), config(json!({"k": "1"})))])),
            ("replaced", Some(before.clone()), Some(map("n", &two, replaced("7"))), Undo::Delete("n".to_owned())),
            ("made anew", Some(before.clone()), Some(map("n", &one, json!({}))), Undo::Nothing),
            ("made anew, replaced long ago", Some(before.clone()), Some(map("n", &one, replaced("6"))), Undo::Nothing),
            (
                "a field of somebody else is left alone",
                Some(before.clone()),
                Some(map("u", &[("k", "1", ATOM), ("x", "9", "hpa")], json!({}))),
                Undo::Nothing,
            ),
            (
                "a field that was taken over goes back to its owner, who keeps what else is his",
                Some(map("u", &[("k", "1", ATOM), ("x", "1", "kubectl"), ("y", "1", "kubectl")], json!({}))),
                Some(map("u", &[("k", "1", ATOM), ("x", "2", ATOM), ("y", "1", "kubectl")], json!({}))),
                Undo::Apply(vec![
                    ("kubectl".to_owned(), config(json!({"x": "1", "y": "1"}))),
                    (ATOM.to_owned(), config(json!({"k": "1"}))),
                ]),
            ),
            (
                "an object that was somebody else's",
                Some(map("u", &[("x", "1", "kubectl")], json!({}))),
                Some(map("u", &[("k", "1", ATOM), ("x", "1", "kubectl")], json!({}))),
                Undo::Apply(vec![(
                    ATOM.to_owned(),
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
                )]),
            ),
            (
                "one that is made anew has all its fields",
                Some(map("u", &[("k", "1", ATOM), ("x", "1", "kubectl"), ("z", "1", "kubelet")], json!({}))),
                None,
                Undo::Apply(vec![
                    (ATOM.to_owned(), config(json!({"k": "1"}))),
                    ("kubectl".to_owned(), config(json!({"x": "1"}))),
                ]),
            ),
        ];
        for (what, before, now, expect) in rows {
            let entry = Entry::Keep { key: ObjectKey::default(), before };
            assert_eq!(undo(&owner(), 7, &entry, now.as_ref()), expect, "{what}");
        }
    }

    fn key(api_version: &str, kind: &str, name: &str) -> ObjectKey {
        let (api_version, kind, name) = (api_version.to_owned(), kind.to_owned(), name.to_owned());
        ObjectKey { api_version, kind, namespace: None, name }
    }

    #[test]
    fn what_existed_is_restored_first_and_what_did_not_is_deleted_in_reverse() {
        let keep = |key, existed: bool| Entry::Keep { key, before: existed.then(|| json!({})) };
        let (config, workload) = (|| key("v1", "ConfigMap", "c"), || key("apps/v1", "Deployment", "d"));
        let journal = Journal {
            since: 1,
            entries: vec![
                keep(workload(), true),
                keep(config(), false),
                keep(workload(), false),
                keep(config(), true),
                keep(key("v1", "Secret", "s"), true),
            ],
            ..Journal::default()
        };
        let order: Vec<(Wave, Vec<(&str, bool)>)> = batches(&journal)
            .into_iter()
            .map(|(wave, entries)| {
                (wave, entries.iter().map(|entry| (entry.key().name.as_str(), entry.before().is_some())).collect())
            })
            .collect();
        let expect = vec![
            (Wave::Config, vec![("c", true), ("s", true)]),
            (Wave::Workloads, vec![("d", true)]),
            (Wave::Workloads, vec![("d", false)]),
            (Wave::Config, vec![("c", false)]),
        ];
        assert_eq!(order, expect);
    }

    #[test]
    fn the_status_lists_what_is_the_atoms_and_what_is_not_restored() {
        let ours = || map("u", &[("k", "1", ATOM)], json!({"annotations": {annotation::ATOM_UID: "atom"}}));
        let theirs = || map("u", &[("k", "1", "kubectl")], json!({}));
        let entry = |before| Entry::Keep { key: key("v1", "ConfigMap", "a"), before };
        let listed = |ready: bool, message: Option<&str>| AtomObject {
            object: key("v1", "ConfigMap", "a"),
            uid: message.is_none().then(|| "u".to_owned()),
            ready,
            message: message.map(str::to_owned),
        };
        let rows = [
            ("restored", entry(Some(ours())), Attempt::Restored(ours()), Some(listed(true, None))),
            ("given back", entry(Some(theirs())), Attempt::Restored(theirs()), None),
            ("gone", entry(None), Attempt::Gone, None),
            ("not yet", entry(None), Attempt::NotYet("No.".to_owned()), Some(listed(false, Some("No.")))),
        ];
        for (what, entry, attempt, expect) in rows {
            let health = own(&owner(), &entry, &attempt).map(|_| Health::Ready);
            assert_eq!(report(&entry, attempt, health), expect, "{what}");
        }
        assert_eq!(done(&entry(None), Some(&theirs())), Attempt::Gone);
        assert_eq!(done(&entry(Some(ours())), None), Attempt::Gone);
        assert_eq!(done(&entry(Some(ours())), Some(&ours())), Attempt::Restored(ours()));
    }

    #[test]
    fn a_deleted_atom_deletes_its_own_objects_and_gives_others_back() {
        let ours = json!({"annotations": {annotation::ATOM_UID: "atom"}});
        let deleting = json!({"annotations": {annotation::ATOM_UID: "atom"}, "deletionTimestamp": "now"});
        let adopted = json!({"annotations": {annotation::ATOM_UID: "atom", annotation::ADOPTED: "true"}});
        let one = [("k", "1", ATOM)];
        let at = key("v1", "ConfigMap", "a");
        let given = Entry::Keep { key: at.clone(), before: Some(map("u", &[("k", "1", "kubectl")], json!({}))) };
        let own = Entry::Keep { key: at.clone(), before: Some(map("u", &one, ours.clone())) };
        let rows: Vec<(&str, Option<&Entry>, Option<Value>, Removal<'_>)> = vec![
            ("gone", None, None, Removal::Nothing),
            ("not the Atom's", Some(&own), Some(map("u", &one, json!({}))), Removal::Nothing),
            ("its own", None, Some(map("u", &one, ours.clone())), Removal::Delete("u".to_owned())),
            ("its own before", Some(&own), Some(map("n", &one, ours.clone())), Removal::Delete("n".to_owned())),
            ("being deleted", None, Some(map("u", &one, deleting)), Removal::Deleting),
            ("adopted", None, Some(map("u", &one, adopted)), Removal::Release(config(json!({"k": "1"})))),
            ("taken over", Some(&given), Some(map("u", &one, ours)), Removal::GiveBack(&given)),
        ];
        for (what, entry, now, expect) in rows {
            let journal = Journal { since: 1, entries: entry.cloned().into_iter().collect(), ..Journal::default() };
            let found = removal(&owner(), &journal, &at, now.as_ref());
            assert_eq!(format!("{found:?}"), format!("{expect:?}"), "{what}");
        }
        let listed = |key: ObjectKey| AtomObject { object: key, ..AtomObject::default() };
        let journal = Journal { since: 1, entries: vec![given], ..Journal::default() };
        let inventory =
            [listed(at.clone()), listed(key("v1", "Namespace", "n")), listed(key("apps/v1", "Deployment", "d"))];
        let names: Vec<String> = deletion_order(&inventory, &journal).into_iter().map(|key| key.name).collect();
        assert_eq!(names, ["d", "a", "n"]);
    }
}
