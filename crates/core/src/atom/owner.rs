//! The marks that an Atom leaves on its objects, and what they say about an object.

use knoll_api::{
    Atom,
    names::{annotation, atom_manager, label},
};
use kube::ResourceExt;
use serde_json::{Value, json};

/// An Atom as the owner of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// The field manager that the Atom applies with.
    pub manager: String,
}

impl Owner {
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

    /// Whether an object carries the Atom's UID.
    #[must_use]
    pub fn owns(&self, object: &Value) -> bool {
        annotation_of(object, annotation::ATOM_UID) == Some(self.uid.as_str())
    }

    /// Why the Atom must not write an object that exists; none when it may.
    #[must_use]
    pub fn refusal(&self, object: &Value) -> Option<String> {
        let key = super::template::key(object);
        let own = format!("{}/{}", self.namespace, self.name);
        if let Some(owner) = annotation_of(object, annotation::OWNER).filter(|owner| *owner != own) {
            return Some(format!(
                "`{key}` belongs to the Atom `{owner}`. Remove it from one of the two templates, or delete that Atom."
            ));
        }
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let is_knolls = labels.is_some_and(|labels| {
            labels.get(label::MANAGED_BY).and_then(Value::as_str) == Some(label::MANAGED_BY_KNOLL) && !self.owns(object)
        });
        is_knolls.then(|| format!("`{key}` is managed by Knoll itself. Rename the object in the template."))
    }
}

#[must_use]
pub fn uid(object: &Value) -> Option<&str> {
    object.pointer("/metadata/uid").and_then(Value::as_str)
}

#[must_use]
pub fn is_being_deleted(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// Records on an object the number of the update that replaced it.
pub fn mark_replaced(object: &mut Value, attempt: u32) {
    put(object, "annotations", annotation::REPLACED_BY, &attempt.to_string());
}

/// Whether an object may be deleted and created again to change an immutable field.
#[must_use]
pub fn may_replace(object: &Value) -> bool {
    annotation_of(object, annotation::REPLACE) == Some("true")
}

/// The number of the update that replaced an object.
#[must_use]
pub fn replaced_by(object: &Value) -> Option<u32> {
    annotation_of(object, annotation::REPLACED_BY)?.parse().ok()
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

    fn owner(name: &str, uid: &str) -> Owner {
        let (namespace, manager) = ("default".to_owned(), atom_manager(name));
        Owner { namespace, name: name.to_owned(), uid: uid.to_owned(), manager }
    }

    #[test]
    fn an_object_of_another_owner_is_refused_with_its_owner() {
        let plain = || json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let web = owner("web", "atom");
        let mut object = plain();
        assert_eq!(web.refusal(&object), None);
        web.mark(&mut object);
        assert_eq!(web.refusal(&object), None);
        assert!(web.owns(&object));
        let refusal = owner("other", "x").refusal(&object).unwrap_or_default();
        assert!(refusal.starts_with("`ConfigMap a` belongs to the Atom `default/web`."), "{refusal}");
        let mut knolls = plain();
        knolls["metadata"]["labels"] = json!({label::MANAGED_BY: label::MANAGED_BY_KNOLL});
        assert!(web.refusal(&knolls).is_some());
    }
}
