//! Which resources there are right now: the built-in ones and those of the installed CustomResourceDefinitions.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::kinds::{self, Resource};
use crate::path::Target;

/// A set of resources that is replaced as a whole, so that a request sees one state of it.
pub struct Registry {
    builtin: Vec<Arc<Resource>>,
    current: RwLock<Arc<Resources>>,
}

/// One state of the registry.
#[derive(Default)]
pub struct Resources {
    by_path: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    /// The built-in resources alone.
    pub fn new() -> Self {
        let builtin: Vec<_> = kinds::builtin().map(Arc::new).collect();
        let registry = Self { builtin, current: RwLock::default() };
        registry.replace(Vec::new());
        registry
    }

    /// The resources of now.
    pub fn current(&self) -> Arc<Resources> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts these custom resources in the place of those there were.
    pub fn replace(&self, custom: Vec<Arc<Resource>>) {
        let mut by_path = BTreeMap::new();
        // A custom resource never hides a built-in one: built-in rows are inserted last.
        for resource in custom.into_iter().chain(self.builtin.iter().cloned()) {
            by_path.insert((resource.group.clone(), resource.version.clone(), resource.plural.clone()), resource);
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Resources { by_path });
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Resources {
    /// The resource that a path names.
    pub fn find(&self, target: &Target) -> Option<Arc<Resource>> {
        let key = (target.group.clone(), target.version.clone(), target.resource.clone());
        self.by_path.get(&key).cloned()
    }

    /// A built-in resource of that group and version is there.
    pub fn has_builtin(&self, group: &str, version: &str) -> bool {
        self.by_path.values().any(|r| r.crd.is_none() && r.group == group && r.version == version)
    }

    /// A resource by its group, version and kind.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.by_path.values().find(|r| r.group == group && r.version == version && r.kind == kind).cloned()
    }

    /// All, ordered by group, version and plural name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_path.values()
    }

    /// Every resource once, whatever its versions: those whose objects are stored in that version.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.all().filter(|r| r.stored && r.api_version() == r.storage_version)
    }
}
