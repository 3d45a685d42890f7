//! An object to apply.

use std::{fmt, sync::Arc};

use kube::{Resource, core::ApiResource};
use serde::Serialize;
use serde_json::Value;

/// An object cannot be serialized.
#[derive(Debug, thiserror::Error)]
#[error("cannot write an object as YAML: {0}")]
pub struct Error(#[from] serde_saphyr::SerializeError);

/// An object in its serialized form, with its API resource.
#[derive(Clone)]
pub struct Manifest {
    pub resource: ApiResource,
    pub value: Value,
    /// Serializes the typed object, which keeps the conventional order of its fields.
    write: Arc<dyn Fn() -> Result<String, Error> + Send + Sync>,
}

impl Manifest {
    pub fn of<K>(object: &K) -> Self
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + Send + Sync + 'static,
    {
        // These objects contain only strings, numbers and maps with string keys, so serialization cannot fail.
        let value = serde_json::to_value(object).unwrap_or_default();
        let object = object.clone();
        let write = move || {
            let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
            Ok(serde_saphyr::to_string_with_options(&object, options)?)
        };
        Self { resource: ApiResource::erase::<K>(&()), value, write: Arc::new(write) }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The namespace, or none for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.value["metadata"]["namespace"].as_str()
    }

    /// Kind and name in kubectl's format.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}/{}", self.resource.kind.to_lowercase(), self.name())
    }

    /// The object as a YAML document.
    ///
    /// # Errors
    /// If it cannot be serialized.
    pub fn yaml(&self) -> Result<String, Error> {
        (self.write)()
    }
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Manifest").field(&self.title()).finish()
    }
}
