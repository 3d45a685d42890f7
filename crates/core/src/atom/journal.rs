//! The journal of an update: what the update does to each object, and the object as it was before.

use knoll_api::atom::ObjectKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hidden::HiddenValues;

/// The journal of the updates since the last good version.
///
/// A journal with an unknown field or without an action is refused, never read in part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Journal {
    /// The number of the first update since the last good version. Each later one adds the objects that it touches.
    pub since: u32,
    /// All objects that are touched, in the order of their writes.
    pub entries: Vec<Entry>,
    /// The values of Secrets that these updates use: messages about the objects must not contain them.
    #[serde(default, skip_serializing_if = "HiddenValues::is_empty")]
    pub hidden: HiddenValues,
}

/// What an update does to one object. `before` is the object as it was before the first unproven update; none when it
/// did not exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase", deny_unknown_fields)]
pub enum Entry {
    /// The version has the object: it is written.
    Write {
        key: ObjectKey,
        /// The object as the version has it.
        object: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Value>,
        mode: WriteMode,
    },
    /// The version does not have the object: it is deleted when all others are ready.
    Prune {
        key: ObjectKey,
        uid: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Value>,
    },
    /// The version does not have the object, which the Atom had adopted: the Atom lets go of it when all others are ready.
    Release {
        key: ObjectKey,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Value>,
    },
    /// The version does not have the object, and there is nothing to delete. An earlier update touched it, so that a
    /// rollback restores it.
    Keep {
        key: ObjectKey,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Value>,
    },
}

/// How an object is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteMode {
    /// Server-side apply, which the dry run accepted.
    Apply,
    /// No write: the dry run found no difference.
    Skip,
    /// Another dry run first: the kind or the namespace of the object did not exist yet.
    CheckFirst,
    /// Delete the object of this UID first: an immutable field changes.
    Replace(String),
}

impl Entry {
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Write { key, .. } | Self::Prune { key, .. } | Self::Release { key, .. } | Self::Keep { key, .. } => {
                key
            }
        }
    }

    /// The object as it was before the first unproven update; none when it did not exist.
    #[must_use]
    pub fn before(&self) -> Option<&Value> {
        match self {
            Self::Write { before, .. }
            | Self::Prune { before, .. }
            | Self::Release { before, .. }
            | Self::Keep { before, .. } => before.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_journal_is_read_as_it_was_written_or_not_at_all() -> Result<(), serde_json::Error> {
        let key = ObjectKey { kind: "ConfigMap".to_owned(), name: "a".to_owned(), ..ObjectKey::default() };
        let before = Some(json!({"data": {"k": "1"}}));
        let write = |mode| Entry::Write { key: key.clone(), object: json!({}), before: before.clone(), mode };
        let journal = Journal {
            since: 7,
            entries: vec![
                write(WriteMode::Apply),
                write(WriteMode::Skip),
                write(WriteMode::CheckFirst),
                write(WriteMode::Replace("u".to_owned())),
                Entry::Prune { key: key.clone(), uid: "u".to_owned(), before: before.clone() },
                Entry::Release { key: key.clone(), before: before.clone() },
                Entry::Keep { key: key.clone(), before: None },
            ],
            ..Journal::default()
        };
        let mut stored = serde_json::to_value(&journal)?;
        assert_eq!(serde_json::from_value::<Journal>(stored.clone())?, journal);
        // Each of these has a meaning that this program does not know.
        let without_action = json!({"key": key, "object": {}, "prune": "u"});
        assert!(serde_json::from_value::<Journal>(json!({"since": 7, "entries": [without_action]})).is_err());
        stored["entries"][0]["other"] = json!(1);
        assert!(serde_json::from_value::<Journal>(stored).is_err());
        Ok(())
    }
}
