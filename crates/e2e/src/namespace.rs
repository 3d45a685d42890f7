//! A namespace for one test, deleted with all of its content afterwards.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::NamespaceResourceScope;
use knoll_api::Run;
use knoll_api::run::RunPhase;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::{CommandResult, TIMEOUT, World, evidence};

/// See [`World::namespace`].
#[derive(Debug)]
pub struct Namespace {
    world: &'static World,
    client: ClientOf,
    pub name: String,
}

/// Implements `Debug` for a client.
struct ClientOf(Client);

impl Debug for ClientOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// A user who is bound to roles in a namespace, and uses kubectl.
#[derive(Debug)]
pub struct Person<'a> {
    namespace: &'a Namespace,
    pub user: String,
}

impl Namespace {
    pub(crate) async fn new(world: &'static World) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-{}-{count}", std::process::id());
        let _ = world.kubectl(&["create", "namespace", &name]).ok();
        let client = ClientOf(world.client().await);
        // Pods need the default service account.
        let _ = world.kubectl(&["-n", &name, "wait", "--for=create", "serviceaccount/default", "--timeout=60s"]).ok();
        Namespace { world, client, name }
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.0.clone(), &self.name)
    }

    /// Calls kubectl in this namespace as the administrator.
    #[track_caller]
    pub fn kubectl(&self, words: &[&str]) -> CommandResult {
        self.kubectl_with("", words)
    }

    /// Calls kubectl in this namespace with `input` as its standard input.
    #[track_caller]
    pub fn kubectl_with(&self, input: &str, words: &[&str]) -> CommandResult {
        self.world.kubectl_with(input, &[&["--namespace", self.name.as_str()], words].concat())
    }

    /// Creates the object of a manifest, and returns its name.
    #[track_caller]
    pub fn create(&self, manifest: &str) -> String {
        let said = self.kubectl_with(manifest, &["create", "-f", "-", "-o", "jsonpath={.metadata.name}"]);
        said.ok()
    }

    /// Calls knoll in this namespace as the administrator.
    #[track_caller]
    pub fn knoll(&self, words: &[&str]) -> CommandResult {
        self.world.knoll(&[&["--namespace", self.name.as_str()], words].concat())
    }

    /// Waits until an object satisfies the condition.
    ///
    /// # Panics
    /// On timeout, with status, events and logs.
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
        match tokio::time::timeout(TIMEOUT, waiting).await {
            Ok(Ok(Some(object))) => object,
            Ok(Ok(None)) => unreachable!("the condition asks for an object"),
            Ok(Err(error)) => panic!("`{name}` cannot be watched: {error}"),
            Err(_) => panic!("`{name}` never {what}\n{}", evidence::of(self.world, &self.name)),
        }
    }

    /// Waits until a Run is in this phase.
    ///
    /// # Panics
    /// If it ends in another phase.
    pub async fn run_in(&self, name: &str, phase: RunPhase) -> Run {
        let of = |run: &Run| run.status.as_ref().map(|status| status.phase).unwrap_or_default();
        let what = format!("was {}", phase.as_str());
        let run: Run = self.until(name, &what, |run| of(run) == phase || of(run).is_finished()).await;
        let found = of(&run);
        assert_eq!(found, phase, "`{name}` ended\n{}", evidence::of(self.world, &self.name));
        run
    }

    /// A user with only these roles in this namespace.
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
    #[track_caller]
    pub fn kubectl(&self, words: &[&str]) -> CommandResult {
        self.kubectl_with("", words)
    }

    /// Calls kubectl as this user with `input` as its standard input.
    #[track_caller]
    pub fn kubectl_with(&self, input: &str, words: &[&str]) -> CommandResult {
        self.namespace.kubectl_with(input, &[&["--as", self.user.as_str()], words].concat())
    }

    /// Whether the user has this permission. `resource` may have a subresource, such as `pods/log`.
    #[track_caller]
    pub fn may(&self, verb: &str, resource: &str) -> bool {
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        self.kubectl(&["auth", "can-i", verb, resource, "--subresource", part]).stdout.trim() == "yes"
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // No Run can start in a terminating namespace, so Stacks are orphaned first.
        let orphan = ["annotate", "stacks", "--all", "knoll.dev/force-orphan=yes", "--namespace", &self.name];
        let _ = self.world.kubectl(&orphan);
        let runs = ["delete", "namespace", &self.name, "--wait=false", "--ignore-not-found"];
        let _ = self.world.kubectl(&runs);
    }
}
