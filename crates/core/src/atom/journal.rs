//! What an update is going to do and what was there before it, and how each object is written and brought back.
//!
//! *Guarantees.* A decision looks at the object as it is now, so that it can be taken again after any interruption: what
//! is done already is not done twice. Nothing is deleted but by the UID that was seen, and nothing that the Atom does
//! not own.

use knoll_api::{
    Atom,
    atom::ObjectKey,
    names::{annotation, atom_manager, label},
};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fields::{Fields, applied_by, extract, owners};

/// Managers of the cluster itself: what they own, they bring back themselves.
const CLUSTER: [&str; 4] = ["kube-controller-manager", "kube-scheduler", "kubelet", "kube-apiserver"];

/// What an update is going to do, and what was there before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// The number of the first update since the last good version. Each since then adds what it touches.
    pub since: u32,
    /// All objects that are touched, in the order of their writes.
    pub entries: Vec<Entry>,
}

/// One object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Which one.
    pub key: ObjectKey,
    /// As the version wants it; none when the version does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
    /// As it was before the first unproven update; none when it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The UID of the object that has to go before this one can be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace: Option<String>,
    /// The UID of the object that is deleted when all is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<String>,
    /// Whether it could not be checked before its kind or its namespace is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
    /// Whether the check found that writing it changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchanged: bool,
}

/// Who an Atom is to its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    namespace: String,
    name: String,
    uid: String,
    /// Its field manager.
    pub manager: String,
}

/// What brings an object back.
#[derive(Clone, Debug, PartialEq)]
pub enum Undo {
    /// It is as it was.
    Nothing,
    /// The object of this UID has to go.
    Delete(String),
    /// It is going already.
    Going,
    /// These configurations have to be applied, each by its manager, in this order.
    Apply(Vec<(String, Value)>),
}

impl Owner {
    /// This Atom.
    #[must_use]
    pub fn of(atom: &Atom) -> Self {
        let name = atom.name_any();
        let manager = atom_manager(&name);
        Self { namespace: atom.namespace().unwrap_or_default(), name, uid: atom.uid().unwrap_or_default(), manager }
    }

    /// Marks an object as the Atom's.
    pub fn mark(&self, object: &mut Value) {
        put(object, "labels", label::ATOM, &self.name);
        put(object, "annotations", annotation::OWNER, &format!("{}/{}", self.namespace, self.name));
        put(object, "annotations", annotation::ATOM_UID, &self.uid);
    }

    /// Whether an object is the Atom's.
    #[must_use]
    pub fn has(&self, object: &Value) -> bool {
        annotation_of(object, annotation::ATOM_UID) == Some(self.uid.as_str())
    }

    /// Why an object must not be touched, if so.
    #[must_use]
    pub fn refusal(&self, object: &Value) -> Option<String> {
        let key = super::template::key(object);
        let own = format!("{}/{}", self.namespace, self.name);
        if let Some(owner) = annotation_of(object, annotation::OWNER).filter(|owner| *owner != own) {
            return Some(format!(
                "`{key}` belongs to the Atom `{owner}`. Take it out of one of the two templates, or delete that Atom."
            ));
        }
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let knolls = labels.is_some_and(|labels| {
            labels.get(label::MANAGED_BY).and_then(Value::as_str) == Some(label::MANAGED_BY_KNOLL) && !self.has(object)
        });
        knolls.then(|| format!("`{key}` is Knoll's own. Give the object of the template another name."))
    }
}

/// The UID of an object.
#[must_use]
pub fn uid(object: &Value) -> Option<&str> {
    object.pointer("/metadata/uid").and_then(Value::as_str)
}

/// Whether an object is being deleted.
#[must_use]
pub fn is_going(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// Notes on an object which update has replaced it.
pub fn mark_replaced(object: &mut Value, attempt: u32) {
    put(object, "annotations", annotation::REPLACED_BY, &attempt.to_string());
}

/// Whether an object says that it may be replaced.
#[must_use]
pub fn may_replace(object: &Value) -> bool {
    annotation_of(object, annotation::REPLACE) == Some("true")
}

/// What brings an object back to what it was before the first unproven update.
#[must_use]
pub fn undo(owner: &Owner, since: u32, entry: &Entry, now: Option<&Value>) -> Undo {
    let Some(before) = &entry.before else {
        return match now.filter(|now| owner.has(now)) {
            None => Undo::Nothing,
            Some(now) if is_going(now) => Undo::Going,
            Some(now) => Undo::Delete(uid(now).unwrap_or_default().to_owned()),
        };
    };
    let Some(now) = now else {
        return Undo::Apply(anew(owner, before));
    };
    if is_going(now) {
        return Undo::Going;
    }
    let own = applied_by(before, &owner.manager);
    if uid(now) != uid(before) {
        let replaced_by = annotation_of(now, annotation::REPLACED_BY).and_then(|number| number.parse::<u32>().ok());
        if replaced_by.is_some_and(|number| number >= since) {
            return Undo::Delete(uid(now).unwrap_or_default().to_owned());
        }
        // It was made anew, maybe in part.
        let back = extract(now, &applied_by(now, &owner.manager)) == extract(before, &own);
        return if back { Undo::Nothing } else { Undo::Apply(anew(owner, before)) };
    }
    let held = applied_by(now, &owner.manager);
    let mut writes = taken_over(owner, before, now, &own, &held);
    // Those whose fields were taken over get them back first: nobody else owns them when the Atom lets go.
    if extract(now, &held) != extract(before, &own) || held != own {
        writes.push((owner.manager.clone(), extract(before, &own)));
    }
    if writes.is_empty() { Undo::Nothing } else { Undo::Apply(writes) }
}

/// The fields that the Atom took over from others, to be given back to them with their values.
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
        // Whoever applies has to say all that he wants to keep.
        let kept: Fields =
            if other.applied { other.fields.intersection(&has_now).cloned().collect() } else { Fields::new() };
        writes.push((other.manager, extract(before, &kept.union(&lost).cloned().collect())));
    }
    writes
}

/// What makes an object anew that had to go.
fn anew(owner: &Owner, before: &Value) -> Vec<(String, Value)> {
    let own = applied_by(before, &owner.manager);
    if own.is_empty() {
        // It was somebody else's: all of it is written under the name of who had most of it.
        let most = owners(before).into_iter().max_by_key(|other| other.fields.len());
        let manager = most.map_or_else(|| owner.manager.clone(), |most| most.manager);
        return vec![(manager, bare(before))];
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

/// An object without what the API server alone writes.
fn bare(object: &Value) -> Value {
    let mut bare = object.clone();
    if let Some(fields) = bare.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = bare.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"] {
            metadata.remove(field);
        }
    }
    bare
}

fn annotation_of<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

fn put(object: &mut Value, map: &str, key: &str, value: &str) {
    if !object["metadata"][map].is_object() {
        object["metadata"][map] = json!({});
    }
    object["metadata"][map][key] = value.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            uid: "atom".to_owned(),
            manager: "knoll-atom-web".to_owned(),
        }
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
    fn every_object_is_brought_back_in_its_own_way() {
        let ours = json!({"annotations": {annotation::ATOM_UID: "atom"}});
        let going = json!({"annotations": {annotation::ATOM_UID: "atom"}, "deletionTimestamp": "now"});
        let replaced = |by: &str| json!({"annotations": {annotation::REPLACED_BY: by}});
        let one = [("k", "1", ATOM)];
        let two = [("k", "2", ATOM)];
        let before = map("u", &one, json!({}));
        let rows: Vec<(&str, Option<Value>, Option<Value>, Undo)> = vec![
            ("never made", None, None, Undo::Nothing),
            ("made by the update", None, Some(map("n", &one, ours.clone())), Undo::Delete("n".to_owned())),
            ("made by the update and going", None, Some(map("n", &one, going)), Undo::Going),
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
            let entry = Entry { before, ..Entry::default() };
            assert_eq!(undo(&owner(), 7, &entry, now.as_ref()), expect, "{what}");
        }
    }

    #[test]
    fn an_object_of_somebody_else_is_refused_with_its_owner() {
        let mut object = config(json!({}));
        assert_eq!(owner().refusal(&object), None);
        owner().mark(&mut object);
        assert_eq!(owner().refusal(&object), None);
        assert!(owner().has(&object));
        let other = Owner { name: "other".to_owned(), uid: "x".to_owned(), ..owner() };
        let refusal = other.refusal(&object).unwrap_or_default();
        assert!(refusal.starts_with("`ConfigMap a` belongs to the Atom `default/web`."), "{refusal}");
        let mut knolls = config(json!({}));
        knolls["metadata"]["labels"] = json!({label::MANAGED_BY: label::MANAGED_BY_KNOLL});
        assert!(owner().refusal(&knolls).is_some());
    }
}
