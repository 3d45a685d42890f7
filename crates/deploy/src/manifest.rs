//! One object to be applied, with all that is needed to apply it.

use std::{fmt, sync::Arc};

use kube::{Resource, core::ApiResource};
use serde::Serialize;
use serde_json::Value;

/// An object that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write an object as YAML: {0}")]
pub struct Error(#[from] serde_saphyr::SerializeError);

/// An object as it is written in a file, and where in the API it belongs.
#[derive(Clone)]
pub struct Manifest {
    /// Its kind.
    pub resource: ApiResource,
    /// The object.
    pub value: Value,
    /// Writes the typed object, whose fields have an order that people know.
    write: Arc<dyn Fn() -> Result<String, Error> + Send + Sync>,
}

impl Manifest {
    /// The manifest of a typed object.
    pub fn of<K>(object: &K) -> Self
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + Send + Sync + 'static,
    {
        // What is made of strings, numbers and maps of strings can be written as JSON.
        let value = serde_json::to_value(object).unwrap_or_default();
        let object = object.clone();
        let write = move || {
            let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
            Ok(serde_saphyr::to_string_with_options(&object, options)?)
        };
        Self { resource: ApiResource::erase::<K>(&()), value, write: Arc::new(write) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Its namespace; `None` for what belongs to the whole cluster.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.value["metadata"]["namespace"].as_str()
    }

    /// Kind and name, as kubectl shows them.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}/{}", self.resource.kind.to_lowercase(), self.name())
    }

    /// The object as a YAML document.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn yaml(&self) -> Result<String, Error> {
        (self.write)()
    }
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Manifest").field(&self.title()).finish()
    }
}
