//! The marks that an Atom leaves on its objects, and what they say about an object.

use knoll_api::names::{annotation, atom_manager, label};
use serde_json::{Value, json};

use super::fields::{applied_by, extract};
use crate::identity::ObjectId;

/// An Atom as the owner of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub(super) id: ObjectId,
    /// The field manager that the Atom applies with.
    pub manager: String,
}

impl Owner {
    #[must_use]
    pub fn of(id: &ObjectId) -> Self {
        Self { id: id.clone(), manager: atom_manager(&id.name) }
    }

    /// Marks an object as the Atom's.
    pub fn mark(&self, object: &mut Value) {
        put(object, "labels", label::ATOM, &self.id.name);
        put(object, "annotations", annotation::OWNER, &self.id.to_string());
        put(object, "annotations", annotation::ATOM_UID, &self.id.uid);
    }

    /// Whether an object carries the Atom's UID.
    #[must_use]
    pub fn owns(&self, object: &Value) -> bool {
        annotation_of(object, annotation::ATOM_UID) == Some(self.id.uid.as_str())
    }

    /// Why the Atom must not write an object that exists; none when it may. `planned` is the object of the template.
    #[must_use]
    pub fn refusal(&self, planned: &Value, object: &Value) -> Option<String> {
        if self.owns(object) {
            return None;
        }
        let key = super::template::key(object);
        let own = self.id.to_string();
        if let Some(owner) = annotation_of(object, annotation::OWNER).filter(|owner| *owner != own) {
            return Some(format!(
                "`{key}` belongs to the Atom `{owner}`. Remove it from one of the two templates, or delete that Atom."
            ));
        }
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let is_knolls = labels.is_some_and(|labels| {
            labels.get(label::MANAGED_BY).and_then(Value::as_str) == Some(label::MANAGED_BY_KNOLL)
        });
        if is_knolls {
            return Some(format!("`{key}` is managed by Knoll itself. Rename the object in the template."));
        }
        (!may_adopt(planned)).then(|| {
            format!(
                "`{key}` exists and is not the Atom's own. Set the annotation {}: \"true\" on the object in the template to take it over, or rename it.",
                annotation::ADOPT
            )
        })
    }

    /// Whether the Atom has to let go of an object instead of deleting it: it existed before the Atom adopted it.
    #[must_use]
    pub fn has_adopted(&self, object: &Value) -> bool {
        self.owns(object) && annotation_of(object, annotation::ADOPTED) == Some("true")
    }

    /// Records on an object of the version whether it is adopted. `now` is the object that exists.
    pub fn mark_adopted(&self, object: &mut Value, now: Option<&Value>) {
        if now.is_some_and(|now| !self.owns(now) || self.has_adopted(now)) {
            put(object, "annotations", annotation::ADOPTED, "true");
        } else if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            annotations.remove(annotation::ADOPTED);
        }
    }

    /// The fields of an object that the Atom applied, without its marks: an apply of it lets go of the object.
    #[must_use]
    pub fn release(&self, now: &Value) -> Value {
        let mut config = extract(now, &applied_by(now, &self.manager));
        let marks = [
            ("labels", vec![label::ATOM]),
            (
                "annotations",
                vec![
                    annotation::OWNER,
                    annotation::ATOM_UID,
                    annotation::ADOPT,
                    annotation::ADOPTED,
                    annotation::REPLACED_BY,
                ],
            ),
        ];
        for (map, names) in marks {
            let Some(metadata) = config["metadata"].as_object_mut() else { continue };
            let Some(marked) = metadata.get_mut(map).and_then(Value::as_object_mut) else { continue };
            names.into_iter().for_each(|name| drop(marked.remove(name)));
            if marked.is_empty() {
                metadata.remove(map);
            }
        }
        config
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

/// Whether an object of a template may take over an object that exists.
fn may_adopt(object: &Value) -> bool {
    annotation_of(object, annotation::ADOPT) == Some("true")
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
        Owner::of(&ObjectId { namespace: "default".to_owned(), name: name.to_owned(), uid: uid.to_owned() })
    }

    #[test]
    fn an_object_of_another_owner_is_refused_with_its_owner() {
        let plain = || json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let mut adopts = plain();
        put(&mut adopts, "annotations", annotation::ADOPT, "true");
        let web = owner("web", "atom");
        let mut object = plain();
        let refusal = web.refusal(&plain(), &object).unwrap_or_default();
        assert!(refusal.starts_with("`ConfigMap a` exists and is not the Atom's own."), "{refusal}");
        assert!(refusal.contains("knoll.dev/adopt: \"true\""), "{refusal}");
        assert_eq!(web.refusal(&adopts, &object), None);
        web.mark(&mut object);
        assert_eq!(web.refusal(&plain(), &object), None);
        assert!(web.owns(&object));
        // An Atom of the same name that is gone was another one.
        assert!(owner("web", "later").refusal(&plain(), &object).is_some());
        assert_eq!(owner("web", "later").refusal(&adopts, &object), None);
        let refusal = owner("other", "x").refusal(&adopts, &object).unwrap_or_default();
        assert!(refusal.starts_with("`ConfigMap a` belongs to the Atom `default/web`."), "{refusal}");
        let mut knolls = plain();
        knolls["metadata"]["labels"] = json!({label::MANAGED_BY: label::MANAGED_BY_KNOLL});
        assert!(web.refusal(&adopts, &knolls).is_some());
    }

    #[test]
    fn an_adopted_object_stays_adopted_and_is_released_with_its_values() {
        let web = owner("web", "atom");
        let adopted = |object: &Value| web.has_adopted(object);
        let written = |now: Option<&Value>| {
            let mut object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "annotations": {annotation::ADOPT: "true", annotation::ADOPTED: "true", "mine": "1"}},
                "data": {"k": "1"},
            });
            web.mark(&mut object);
            web.mark_adopted(&mut object, now);
            object
        };
        assert!(!adopted(&written(None)), "a template cannot say so itself");
        let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let first = written(Some(&theirs));
        assert!(adopted(&first));
        assert!(adopted(&written(Some(&first))), "a later version knows it");
        assert!(!adopted(&written(Some(&written(None)))));

        let mut now = first;
        now["metadata"]["managedFields"] = json!([{"manager": "knoll-atom-web", "operation": "Apply", "fieldsV1": {
            "f:metadata": {
                "f:labels": {"f:knoll.dev/atom": {}},
                "f:annotations": {"f:knoll.dev/adopt": {}, "f:knoll.dev/adopted": {}, "f:knoll.dev/owner": {},
                    "f:knoll.dev/atom-uid": {}, "f:mine": {}},
            },
            "f:data": {"f:k": {}},
        }}]);
        let expect = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"mine": "1"}},
            "data": {"k": "1"},
        });
        assert_eq!(web.release(&now), expect);
    }
}
