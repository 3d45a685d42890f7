//! A namespace of a test's own: what is in it goes with it.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::NamespaceResourceScope;
use knoll_api::Run;
use knoll_api::run::RunPhase;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::{PATIENCE, Said, World, evidence};

/// See [`World::namespace`].
#[derive(Debug)]
pub struct Namespace {
    world: &'static World,
    client: ClientOf,
    /// Its name.
    pub name: String,
}

/// A client says nothing about itself.
struct ClientOf(Client);

impl Debug for ClientOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// Somebody who is bound to a role in a namespace, and acts by kubectl.
#[derive(Debug)]
pub struct Person<'a> {
    namespace: &'a Namespace,
    /// The name of the user.
    pub user: String,
}

impl Namespace {
    pub(crate) async fn new(world: &'static World) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-{}-{count}", std::process::id());
        let _ = world.kubectl(&["create", "namespace", &name]).ok();
        let client = ClientOf(world.client().await);
        // Pods need the account that the cluster puts into a new namespace.
        let _ = world.kubectl(&["-n", &name, "wait", "--for=create", "serviceaccount/default", "--timeout=60s"]).ok();
        Namespace { world, client, name }
    }

    /// The objects of a kind in it.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.0.clone(), &self.name)
    }

    /// Calls kubectl in it, as the administrator.
    #[track_caller]
    pub fn kubectl(&self, words: &[&str]) -> Said {
        self.kubectl_with("", words)
    }

    /// Calls kubectl in it with this on its standard input.
    #[track_caller]
    pub fn kubectl_with(&self, input: &str, words: &[&str]) -> Said {
        self.world.kubectl_with(input, &[&["--namespace", self.name.as_str()], words].concat())
    }

    /// Creates what a manifest describes, and returns its name.
    #[track_caller]
    pub fn create(&self, manifest: &str) -> String {
        let said = self.kubectl_with(manifest, &["create", "-f", "-", "-o", "jsonpath={.metadata.name}"]);
        said.ok()
    }

    /// Calls knoll in it, as the administrator.
    #[track_caller]
    pub fn knoll(&self, words: &[&str]) -> Said {
        self.world.knoll(&[&["--namespace", self.name.as_str()], words].concat())
    }

    /// Waits until an object is as it should be.
    ///
    /// # Panics
    /// When it never is: with all that is known about why.
    pub async fn until<K>(&self, name: &str, what: &str, is_so: impl Fn(&K) -> bool + Send) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let wanted = |object: Option<&K>| object.is_some_and(&is_so);
        let waiting = await_condition(self.api::<K>(), name, wanted);
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(Ok(Some(object))) => object,
            Ok(Ok(None)) => unreachable!("the condition asks for an object"),
            Ok(Err(error)) => panic!("`{name}` cannot be watched: {error}"),
            Err(_) => panic!("`{name}` never {what}\n{}", evidence::of(self.world, &self.name)),
        }
    }

    /// Waits until a Run is in this phase.
    ///
    /// # Panics
    /// When it ends in another one.
    pub async fn run_in(&self, name: &str, phase: RunPhase) -> Run {
        let of = |run: &Run| run.status.as_ref().map(|status| status.phase).unwrap_or_default();
        let what = format!("was {}", phase.as_str());
        let run: Run = self.until(name, &what, |run| of(run) == phase || of(run).is_finished()).await;
        let found = of(&run);
        assert_eq!(found, phase, "`{name}` ended\n{}", evidence::of(self.world, &self.name));
        run
    }

    /// Somebody with these roles of Knoll's in this namespace, and no others.
    #[track_caller]
    pub fn person(&self, name: &str, roles: &[&str]) -> Person<'_> {
        let user = format!("{name}@{}.example.com", self.name);
        for role in roles {
            let words = ["create", "rolebinding", &format!("{name}-{role}"), "--clusterrole", role, "--user", &user];
            let _ = self.kubectl(&words).ok();
        }
        Person { namespace: self, user }
    }
}

impl Person<'_> {
    /// Calls kubectl as this person.
    #[track_caller]
    pub fn kubectl(&self, words: &[&str]) -> Said {
        self.kubectl_with("", words)
    }

    /// Calls kubectl as this person with this on its standard input.
    #[track_caller]
    pub fn kubectl_with(&self, input: &str, words: &[&str]) -> Said {
        self.namespace.kubectl_with(input, &[&["--as", self.user.as_str()], words].concat())
    }

    /// Whether the cluster would let this person do that; `resource` may be a part of one, such as `pods/log`.
    #[track_caller]
    pub fn may(&self, verb: &str, resource: &str) -> bool {
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        self.kubectl(&["auth", "can-i", verb, resource, "--subresource", part]).stdout.trim() == "yes"
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // In a namespace that goes, nothing can be started any more, so nothing could be destroyed.
        let orphan = ["annotate", "stacks", "--all", "knoll.dev/force-orphan=yes", "--namespace", &self.name];
        let _ = self.world.kubectl(&orphan);
        let runs = ["delete", "namespace", &self.name, "--wait=false", "--ignore-not-found"];
        let _ = self.world.kubectl(&runs);
    }
}
