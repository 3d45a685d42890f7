//! Caches with a reverse index: from an object to those that refer to it.
//!
//! *Guarantee.* A lookup touches the objects that it returns and no others. Nothing scans a cache: it can be read by
//! name, by reference, or as a whole by the metrics.
//!
//! *Assumption.* References stay within a namespace, as all of Knoll's do.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Debug,
    hash::Hash,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use kube::{
    Resource,
    runtime::reflector::{ObjectRef, Store},
};

/// The kind of an object that others refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    Atom,
    AtomVersion,
    ConfigMap,
    /// The namespace that an object is in.
    Namespace,
    Run,
    Secret,
    Stack,
    /// A Workspace, as the unfinished Runs refer to it.
    UnfinishedRunsOf,
    Workspace,
}

/// The references of an object: kinds and names in its own namespace.
pub type References = BTreeSet<(Target, String)>;

/// A reverse index by reference.
///
/// Keys are a target's kind, namespace and name; values are the names of the objects that refer to it.
#[derive(Debug)]
pub struct Index<K> {
    references: fn(&K) -> References,
    entries: RwLock<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    referrers: HashMap<(Target, String, String), BTreeSet<String>>,
    references: HashMap<(String, String), References>,
}

impl<K: Resource> Index<K> {
    pub fn new(references: fn(&K) -> References) -> Self {
        Self { references, entries: RwLock::default() }
    }

    /// Takes in an object that came or changed.
    pub fn apply(&self, object: &K) {
        self.replace(object, (self.references)(object));
    }

    /// Removes an object that is gone.
    pub fn delete(&self, object: &K) {
        self.replace(object, References::new());
    }

    /// The names of the objects that refer to `name`.
    pub fn referrers(&self, target: Target, namespace: &str, name: &str) -> Vec<String> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let key = (target, namespace.to_owned(), name.to_owned());
        entries.referrers.get(&key).map(|names| names.iter().cloned().collect()).unwrap_or_default()
    }

    fn replace(&self, object: &K, new: References) {
        let meta = object.meta();
        let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let Entries { referrers, references } = &mut *entries;
        let id = (namespace.clone(), name.clone());
        let old = references.remove(&id).unwrap_or_default();
        for (target, gone) in old.difference(&new) {
            let key = (*target, namespace.clone(), gone.clone());
            if let Some(names) = referrers.get_mut(&key) {
                names.remove(&name);
                if names.is_empty() {
                    referrers.remove(&key);
                }
            }
        }
        for (target, came) in new.difference(&old) {
            referrers.entry((*target, namespace.clone(), came.clone())).or_default().insert(name.clone());
        }
        if !new.is_empty() {
            references.insert(id, new);
        }
    }
}

/// The cache of a kind together with its index.
#[derive(Debug)]
pub struct Cache<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    index: Arc<Index<K>>,
    touched: Arc<AtomicU64>,
}

impl<K: Resource<DynamicType = ()> + Clone> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), index: self.index.clone(), touched: self.touched.clone() }
    }
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    pub fn new(store: Store<K>, references: fn(&K) -> References) -> Self {
        Self { store, index: Arc::new(Index::new(references)), touched: Arc::default() }
    }

    pub fn index(&self) -> &Index<K> {
        &self.index
    }

    /// The store itself, for the queue of a controller: it reads the object of each request, and no other.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }

    pub fn get(&self, key: &ObjectRef<K>) -> Option<Arc<K>> {
        self.touched.fetch_add(1, Ordering::Relaxed);
        self.store.get(key)
    }

    pub fn named(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get(&ObjectRef::new(name).within(namespace))
    }

    /// The objects that refer to `name`.
    pub fn referring_to(&self, target: Target, namespace: &str, name: &str) -> Vec<Arc<K>> {
        let names = self.index.referrers(target, namespace, name);
        names.iter().filter_map(|name| self.named(namespace, name)).collect()
    }

    /// All objects: for the metrics, which count them when somebody reads them, and for kinds of which there are few.
    pub fn all(&self) -> Vec<Arc<K>> {
        let all = self.store.state();
        self.touched.fetch_add(all.len() as u64, Ordering::Relaxed);
        all
    }

    pub async fn wait_until_ready(&self) {
        // It fails only when the feed has ended, and then the operator ends as well.
        let _ = self.store.wait_until_ready().await;
    }

    /// How many objects were read so far.
    #[cfg(test)]
    pub fn touched(&self) -> u64 {
        self.touched.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use knoll_api::{Run, run::RunSpec};

    use super::*;

    fn run(name: &str, workspace: &str) -> Run {
        let mut run = Run::new(name, RunSpec { workspace: workspace.to_owned(), ..RunSpec::default() });
        run.metadata.namespace = Some("n".to_owned());
        run
    }

    #[test]
    fn the_index_follows_what_objects_refer_to() {
        let index: Index<Run> = Index::new(|run| [(Target::Workspace, run.spec.workspace.clone())].into());
        let check = |workspace: &str, expect: &[&str]| {
            assert_eq!(index.referrers(Target::Workspace, "n", workspace), expect, "{workspace}");
        };
        index.apply(&run("a", "net"));
        index.apply(&run("b", "net"));
        check("net", &["a", "b"]);
        index.apply(&run("a", "db"));
        check("net", &["b"]);
        check("db", &["a"]);
        index.delete(&run("b", "net"));
        check("net", &[]);
        assert_eq!(index.referrers(Target::Stack, "n", "db"), Vec::<String>::new());
        assert_eq!(index.referrers(Target::Workspace, "other", "db"), Vec::<String>::new());
        index.delete(&run("a", "db"));
        assert!(
            index.entries.read().is_ok_and(|entries| entries.referrers.is_empty() && entries.references.is_empty())
        );
    }
}
