//! The identity of an object, validated once a reconcile.

use std::{fmt, ops::Deref, sync::Arc};

use kube::Resource;

/// The namespace, name and UID of an object that the API server has stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// Empty if, and only if, the kind is cluster-scoped.
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// An object without a namespace, a name or a UID. The API server stores none, so it comes from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object has no `metadata.{0}`")]
pub struct Unidentified(&'static str);

impl ObjectId {
    /// Reads the identity of `object`, whose kind is namespaced.
    ///
    /// # Errors
    /// When a part of the identity is missing or empty.
    pub fn of<K: Resource>(object: &K) -> Result<Self, Unidentified> {
        let namespace = field(object.meta().namespace.as_ref(), "namespace")?;
        Ok(Self { namespace, ..Self::of_cluster_scoped(object)? })
    }

    /// Reads the identity of `object`, whose kind is cluster-scoped.
    ///
    /// # Errors
    /// When a part of the identity is missing or empty.
    pub fn of_cluster_scoped<K: Resource>(object: &K) -> Result<Self, Unidentified> {
        let meta = object.meta();
        let (name, uid) = (field(meta.name.as_ref(), "name")?, field(meta.uid.as_ref(), "uid")?);
        Ok(Self { namespace: String::new(), name, uid })
    }
}

fn field(value: Option<&String>, field: &'static str) -> Result<String, Unidentified> {
    value.filter(|value| !value.is_empty()).cloned().ok_or(Unidentified(field))
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object together with its identity: the subject of one reconcile. It dereferences to the object.
#[derive(Debug)]
pub struct Subject<K> {
    pub id: ObjectId,
    object: Arc<K>,
}

impl<K: Resource> Subject<K> {
    /// # Errors
    /// When a part of the object's identity is missing.
    pub fn new(object: Arc<K>) -> Result<Self, Unidentified> {
        Ok(Self { id: ObjectId::of(object.as_ref())?, object })
    }

    /// The subject of this identity, which was read from the object.
    #[must_use]
    pub fn identified(id: ObjectId, object: Arc<K>) -> Self {
        Self { id, object }
    }

    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.id.namespace
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.id.name
    }

    #[must_use]
    pub fn uid(&self) -> &str {
        &self.id.uid
    }
}

impl<K: Clone> Subject<K> {
    /// The same subject with other fields. Its identity stays.
    #[must_use]
    pub fn map(&self, change: impl FnOnce(K) -> K) -> Self {
        Self { id: self.id.clone(), object: Arc::new(change((*self.object).clone())) }
    }
}

// Not derived: the object itself need not be `Clone`.
impl<K> Clone for Subject<K> {
    fn clone(&self) -> Self {
        Self { id: self.id.clone(), object: self.object.clone() }
    }
}

impl<K> Deref for Subject<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.object
    }
}

#[cfg(test)]
mod tests {
    use knoll_api::{Run, run::RunSpec};

    use super::*;

    #[test]
    fn an_identity_is_complete_or_refused() {
        let run = |namespace: Option<&str>, uid: Option<&str>| {
            let mut run = Run::new("r", RunSpec::default());
            run.metadata.namespace = namespace.map(str::to_owned);
            run.metadata.uid = uid.map(str::to_owned);
            Subject::new(Arc::new(run)).map(|subject| subject.id.to_string())
        };
        assert_eq!(run(Some("n"), Some("u")), Ok("n/r".to_owned()));
        assert_eq!(run(None, Some("u")), Err(Unidentified("namespace")));
        assert_eq!(run(Some(""), Some("u")), Err(Unidentified("namespace")));
        assert_eq!(run(Some("n"), None), Err(Unidentified("uid")));
    }
}
