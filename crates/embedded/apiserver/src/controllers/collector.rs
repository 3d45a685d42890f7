//! Garbage collection: dependents go when the last of their owners has gone.
//!
//! The collector follows every object's metadata. It deletes by UID, and only after it has read the place where the
//! owner would be, so that a stale graph costs a read and never an object. A check that failed is repeated.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::{PAUSE, patch};
use crate::Server;
use crate::delete::{self, FOREGROUND, ORPHAN, Options};
use crate::kinds::Resource;
use crate::object::{self, Light, Owner};
use crate::status::{ApiError, Result};
use knoll_kube_store::{Event, EventKind, Extent, List, Watch};

/// What is known of all objects: who is there, and who depends on whom.
#[derive(Default)]
struct Graph {
    /// What is known of each object that has an owner or is on its way out, by its key.
    nodes: HashMap<String, Node>,
    /// The keys of the dependents of each owner, by the owner's UID.
    dependents: HashMap<String, BTreeSet<String>>,
    /// The key of each object. There are many of them, and of most nothing else is known.
    keys: HashMap<Uuid, Box<str>>,
}

/// A UID in little room; `None` when no object can have it.
fn short(uid: &str) -> Option<Uuid> {
    Uuid::try_parse(uid).ok().filter(|short| short.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()) == uid)
}

#[derive(Clone)]
struct Node {
    uid: String,
    owners: Vec<Owner>,
    finalizers: Vec<String>,
    deleting: bool,
}

impl Graph {
    fn put(&mut self, key: &str, node: Node) {
        self.unlink(key);
        if let Some(uid) = short(&node.uid) {
            self.keys.insert(uid, key.into());
        }
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(key.to_owned());
        }
        if node.matters() {
            self.nodes.insert(key.to_owned(), node);
        }
    }

    fn remove(&mut self, key: &str, node: &Node) {
        self.unlink(key);
        if let Some(uid) = short(&node.uid) {
            self.keys.remove(&uid);
        }
    }

    /// Forgets on whom an object depended.
    fn unlink(&mut self, key: &str) {
        for owner in self.nodes.remove(key).into_iter().flat_map(|node| node.owners) {
            if let Some(set) = self.dependents.get_mut(&owner.uid) {
                set.remove(key);
                if set.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    fn key_of(&self, uid: &str) -> Option<&str> {
        self.keys.get(&short(uid)?).map(Box::as_ref)
    }

    fn dependents_of(&self, uid: &str) -> Vec<String> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Takes note of a change; which objects have to be looked at for it.
    ///
    /// The order of changes counts: whoever comes to depend on an owner that waits for its dependents already was not
    /// there when it asked them to go, and stays as long as the owner does.
    fn note(&mut self, event: &Event) -> Vec<String> {
        let Ok(light) = object::light(&event.value) else { return Vec::new() };
        let (node, before) = (Node::from(light), self.nodes.get(&event.key).cloned());
        if event.kind != EventKind::Put {
            self.remove(&event.key, &node);
            let owners = before.as_ref().map_or(&node.owners, |before| &before.owners);
            let waiting = owners.iter().filter_map(|owner| Some(self.key_of(&owner.uid)?.to_owned()));
            return waiting.chain(self.dependents_of(&node.uid)).collect();
        }
        self.put(&event.key, node.clone());
        let mut dirty = Vec::new();
        if let Some(before) = &before {
            let freed = before.owners.iter().filter(|owner| before.blocks(&owner.uid) && !node.blocks(&owner.uid));
            dirty.extend(freed.filter_map(|owner| Some(self.key_of(&owner.uid)?.to_owned())));
        }
        let begins =
            |finalizer| node.goes_by(finalizer) && !before.as_ref().is_some_and(|node| node.goes_by(finalizer));
        if begins(FOREGROUND) {
            dirty.extend(self.dependents_of(&node.uid));
            dirty.push(event.key.clone());
        } else if begins(ORPHAN) || node.owners.iter().any(|owner| self.key_of(&owner.uid).is_none()) {
            dirty.push(event.key.clone());
        }
        dirty
    }
}

impl From<Light> for Node {
    fn from(light: Light) -> Self {
        let meta = light.metadata;
        Node {
            uid: meta.uid,
            owners: meta.owner_references,
            finalizers: meta.finalizers,
            deleting: meta.deletion_timestamp.is_some(),
        }
    }
}

impl Node {
    /// Whether anything can follow from it: it has an owner or is on its way out.
    fn matters(&self) -> bool {
        !self.owners.is_empty() || self.deleting
    }

    /// Whether it is being deleted, and has to be let go by this finalizer.
    fn goes_by(&self, finalizer: &str) -> bool {
        self.deleting && self.finalizers.iter().any(|held| held == finalizer)
    }

    /// Whether that owner has to wait for it.
    fn blocks(&self, owner: &str) -> bool {
        self.owners.iter().any(|reference| reference.uid == owner && reference.block_owner_deletion)
    }
}

pub async fn run(server: Server) -> Result<()> {
    let mut graph = Graph::default();
    let mut dirty: Vec<String> = Vec::new();
    let (mut at, mut after) = (None, None::<String>);
    let revision = loop {
        let list = List { prefix: "", after: after.as_deref(), extent: Extent::Piece, at };
        let page = server.store.list(list).map_err(ApiError::internal)?;
        (at, after) = (Some(page.revision), page.entries.last().map(|entry| entry.key.clone()));
        for entry in page.entries {
            let Ok(light) = object::light(&entry.value) else { continue };
            let node = Node::from(light);
            if node.matters() {
                dirty.push(entry.key.clone());
            }
            graph.put(&entry.key, node);
        }
        if !page.more {
            break page.revision;
        }
    };
    let watch = server.store.watch("", revision).map_err(ApiError::internal)?;
    follow(watch, graph, dirty, &server, PAUSE).await
}

/// Does what follows for one object from the graph.
trait Checker {
    fn check(&self, graph: &Graph, key: &str) -> impl Future<Output = Result<()>> + Send;
}

impl Checker for Server {
    async fn check(&self, graph: &Graph, key: &str) -> Result<()> {
        check(self, graph, key).await
    }
}

/// Checks the objects of `dirty` and those that each event concerns. A check that failed is repeated after
/// `retry`, or with the next event.
async fn follow(
    mut watch: Watch,
    mut graph: Graph,
    mut dirty: Vec<String>,
    checker: &impl Checker,
    retry: Duration,
) -> Result<()> {
    loop {
        let mut done = HashSet::new();
        let mut failed = Vec::new();
        for key in dirty.drain(..) {
            if !done.insert(key.clone()) {
                continue;
            }
            if let Err(error) = checker.check(&graph, &key).await {
                tracing::debug!(key, %error, "garbage collection of one object failed");
                failed.push(key);
            }
        }
        dirty = failed;
        let events = if dirty.is_empty() {
            watch.next().await
        } else {
            match tokio::time::timeout(retry, watch.next()).await {
                Ok(events) => events,
                Err(_) => continue,
            }
        };
        for event in events.map_err(ApiError::internal)? {
            dirty.extend(graph.note(&event));
        }
    }
}

async fn check(server: &Server, graph: &Graph, key: &str) -> Result<()> {
    let Some(node) = graph.nodes.get(key) else { return Ok(()) };
    let Some((resource, namespace, name)) = locate(server, key) else { return Ok(()) };
    let namespace = resource.namespaced.then_some(namespace);
    if node.goes_by(ORPHAN) {
        for dependent in graph.dependents_of(&node.uid) {
            disown(server, graph, &dependent, &[&node.uid]).await?;
        }
        return let_go(server, &resource, namespace, name, node, ORPHAN).await;
    }
    if node.goes_by(FOREGROUND) {
        return foreground(server, graph, (&resource, namespace, name), node).await;
    }
    judge(server, graph, key).await
}

/// Deletes an object whose owners have all gone or wait for it; of others, only the references to those go.
async fn judge(server: &Server, graph: &Graph, key: &str) -> Result<()> {
    let Some(node) = graph.nodes.get(key).filter(|node| !node.deleting && !node.owners.is_empty()) else {
        return Ok(());
    };
    let Some((resource, namespace, name)) = locate(server, key) else { return Ok(()) };
    let namespace = resource.namespaced.then_some(namespace);
    let (mut there, mut waiting, mut loose) = (false, false, Vec::new());
    for owner in &node.owners {
        match owner_state(server, graph, owner, namespace) {
            State::There => there = true,
            State::Waiting => {
                waiting = true;
                loose.push(owner.uid.as_str());
            }
            State::Gone => loose.push(&owner.uid),
        }
    }
    if there {
        // One owner is enough to stay; the others are forgotten.
        return if loose.is_empty() { Ok(()) } else { disown(server, graph, key, &loose).await };
    }
    let options = if waiting { Options::foreground(&node.uid) } else { Options::background(&node.uid) };
    ignore_gone(delete::delete(server, &resource, namespace, name, &options).await.map(|_| ()))
}

enum State {
    There,
    /// It is being deleted and waits for its dependents.
    Waiting,
    Gone,
}

/// Whether an owner is there: by what the graph knows, else by a look at where it would be.
fn owner_state(server: &Server, graph: &Graph, owner: &Owner, namespace: Option<&str>) -> State {
    if let Some(key) = graph.key_of(&owner.uid) {
        let waits = graph.nodes.get(key).is_some_and(|node| node.goes_by(FOREGROUND));
        return if waits { State::Waiting } else { State::There };
    }
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let Some(resource) = server.registry.current().by_kind(group, version, &owner.kind) else {
        // A kind that is not served may be served again: its objects are not judged.
        return State::There;
    };
    let place = resource.namespaced.then_some(namespace).flatten();
    match server.read(&resource, place, &owner.name) {
        Ok(Some(found)) if object::meta(&found, "uid") == owner.uid => State::There,
        Ok(_) => State::Gone,
        Err(_) => State::There,
    }
}

/// Deletes the dependents that an owner waits for, and lets it go when there are none.
async fn foreground(
    server: &Server,
    graph: &Graph,
    (resource, namespace, name): (&Resource, Option<&str>, &str),
    node: &Node,
) -> Result<()> {
    let is_blocking = |key: &String| graph.nodes.get(key).is_some_and(|dependent| dependent.blocks(&node.uid));
    let blocking: Vec<String> = graph.dependents_of(&node.uid).into_iter().filter(is_blocking).collect();
    if blocking.is_empty() {
        return let_go(server, resource, namespace, name, node, FOREGROUND).await;
    }
    for key in &blocking {
        judge(server, graph, key).await?;
    }
    Ok(())
}

async fn let_go(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
    node: &Node,
    finalizer: &str,
) -> Result<()> {
    let rest: Vec<&String> = node.finalizers.iter().filter(|f| *f != finalizer).collect();
    let change = json!({"metadata": {"uid": node.uid, "finalizers": rest}});
    ignore_gone(patch(server, resource, namespace, name, None, &change).await)
}

/// Takes owners out of a dependent's references.
async fn disown(server: &Server, graph: &Graph, key: &str, owners: &[&str]) -> Result<()> {
    let Some(node) = graph.nodes.get(key) else { return Ok(()) };
    let Some((resource, namespace, name)) = locate(server, key) else { return Ok(()) };
    let namespace = resource.namespaced.then_some(namespace);
    let Some(live) = server.read(&resource, namespace, name)? else { return Ok(()) };
    let references = live["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let rest: Vec<_> = references.into_iter().filter(|r| !owners.iter().any(|uid| r["uid"] == *uid)).collect();
    let change = json!({"metadata": {"uid": node.uid, "ownerReferences": rest}});
    ignore_gone(patch(server, &resource, namespace, name, None, &change).await)
}

/// The resource, namespace and name behind a key.
fn locate<'a>(server: &Server, key: &'a str) -> Option<(std::sync::Arc<Resource>, &'a str, &'a str)> {
    let (rest, name) = key.rsplit_once('/')?;
    let (folder, namespace) = rest.rsplit_once('/')?;
    let resource = server.registry.current().stored().find(|r| r.folder == folder).cloned()?;
    Some((resource, namespace, name))
}

/// An object that is gone, or is another one by now, needs nothing more.
fn ignore_gone(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if matches!(error.code.as_u16(), 404 | 409) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use knoll_kube_store::Store;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;

    /// Fails three times, then passes the key on.
    struct FailsAtFirst {
        checks: AtomicUsize,
        passed: UnboundedSender<String>,
    }

    impl Checker for FailsAtFirst {
        async fn check(&self, _: &Graph, key: &str) -> Result<()> {
            if self.checks.fetch_add(1, Ordering::Relaxed) < 3 {
                return Err(ApiError::internal("not yet"));
            }
            let _ = self.passed.send(key.to_owned());
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_check_that_failed_is_repeated_without_an_event() {
        let (passed, mut keys) = unbounded_channel();
        let checker = FailsAtFirst { checks: AtomicUsize::new(0), passed };
        let store = Store::memory();
        let watch = store.watch("", store.revision()).unwrap_or_else(|error| panic!("{error}"));
        let key = "core/configmaps/default/a";
        tokio::select! {
            result = follow(watch, Graph::default(), vec![key.to_owned()], &checker, Duration::from_millis(1)) => panic!("{result:?}"),
            passed = keys.recv() => assert_eq!(passed.as_deref(), Some(key)),
        }
        assert_eq!(checker.checks.load(Ordering::Relaxed), 4);
    }
}
