//! The objects of Atoms: any kind, read and written with the rights of the Atom's service account.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use http::{HeaderValue, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::{
    Atom,
    atom::ObjectKey,
    names::{is_dns_label, is_path_segment, reason},
    variables::ValueFrom,
};
use knoll_core::{
    atom::{
        ActionError,
        account::{self, MissingRight},
        hidden::{HiddenValues, NOT_SHOWN},
    },
    identity::Subject,
};
use kube::{
    Client, Resource,
    api::{
        ApiResource, DeleteParams, DynamicObject, GetParams, ListParams, Patch, PatchParams, Preconditions,
        ValidationDirective,
    },
    client::Body,
    core::{Status, response::StatusCause},
};
use serde_json::Value;

use crate::controller::{Error, code};

/// How many requests of one Atom are under way at a time.
const AT_ONCE: usize = 16;

/// How many faults of an object a message names.
const NAMED: usize = 5;

/// From how many objects of a kind on one list is better than one request each.
const LISTED: usize = 8;

/// What an administrator can do when the operator may not act as an account.
const IMPERSONATE: &str = "The operator may not act as this service account. Bind the ClusterRole `knoll-atoms` to the operator's service account in this namespace.";

/// Awaits all futures, [`AT_ONCE`] at a time, and returns their results in order.
pub async fn bounded<'a, T>(work: impl Iterator<Item = BoxFuture<'a, T>>) -> Vec<T> {
    let work: Vec<BoxFuture<'a, T>> = work.collect();
    stream::iter(work).buffered(AT_ONCE).collect().await
}

/// A kind of the cluster.
#[derive(Clone, Debug)]
pub struct Kind {
    pub resource: ApiResource,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

/// The kinds of the cluster that Atoms have used: a cache of the discovery API.
#[derive(Debug, Default)]
pub struct Kinds {
    known: Mutex<HashMap<String, Vec<Kind>>>,
}

impl Kinds {
    /// The kind, if the cluster has it. A kind that is not in the cache is looked up each time, because it may be new.
    pub async fn find(&self, client: &Client, api_version: &str, kind: &str) -> Result<Option<Kind>, Error> {
        let among = |kinds: &[Kind]| kinds.iter().find(|known| known.resource.kind == kind).cloned();
        if let Some(found) = self.lock().get(api_version).and_then(|kinds| among(kinds)) {
            return Ok(Some(found));
        }
        // It becomes a path; whatever cannot be one is no kind that the cluster has.
        if !api_version.splitn(2, '/').all(is_path_segment) {
            return Ok(None);
        }
        let listed = match api_version.split_once('/') {
            Some(_) => client.list_api_group_resources(api_version).await,
            None => client.list_core_api_resources(api_version).await,
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) if code(&error) == Some(404) => return Ok(None),
            Err(error) => return Err(Error::api("cannot ask for the kinds of the cluster")(error)),
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let whole = listed.resources.into_iter().filter(|resource| !resource.name.contains('/'));
        let kinds: Vec<Kind> = whole
            .map(|resource| Kind {
                resource: ApiResource {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    api_version: api_version.to_owned(),
                    kind: resource.kind,
                    plural: resource.name,
                },
                namespaced: resource.namespaced,
            })
            .collect();
        let found = among(&kinds);
        self.lock().insert(api_version.to_owned(), kinds);
        Ok(found)
    }

    /// Empties the cache, because definitions have changed.
    pub fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Kind>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Access to the objects of one Atom, as its service account.
///
/// *Guarantee.* No request for an object is sent with the operator's own rights, and no error has a hidden value.
pub struct Objects<'a> {
    client: Client,
    /// The namespace and the name of the account.
    account: (String, String),
    /// The values that no message may contain.
    hidden: HiddenValues,
    /// The operator's own client, for the discovery API that every account may read.
    own: &'a Client,
    kinds: &'a Kinds,
}

impl From<Error> for ActionError {
    fn from(error: Error) -> Self {
        Self::Retry(error.to_string())
    }
}

impl<'a> Objects<'a> {
    /// As the Atom's account; one whose name cannot be sent is refused.
    pub fn of(atom: &Subject<Atom>, client: &'a Client, kinds: &'a Kinds) -> Result<Self, ActionError> {
        let (namespace, account) = (atom.namespace(), account::of(atom));
        let acting = acting_as(client, namespace, account)?;
        let account = (namespace.to_owned(), account.to_owned());
        Ok(Self { client: acting, account, hidden: HiddenValues::default(), own: client, kinds })
    }

    /// The same, with these values in no message.
    pub fn hiding(self, hidden: HiddenValues) -> Self {
        Self { hidden, ..self }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The kind of an object; none when the cluster does not have it.
    pub async fn kind(&self, key: &ObjectKey) -> Result<Option<Kind>, Error> {
        self.kinds.find(self.own, &key.api_version, &key.kind).await
    }

    /// Empties the cache of kinds, because definitions have changed.
    pub fn forget_kinds(&self) {
        self.kinds.forget();
    }

    /// An object; none when it or its kind does not exist.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Value>, ActionError> {
        let Some(kind) = self.kind(key).await? else { return Ok(None) };
        let request = request(&kind, key).and_then(|request| request.get(&key.name, &GetParams::default()));
        match self.send(request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if code(&error) == Some(404) => Ok(None),
            Err(error) => Err(self.refusal(&kind, key, error)),
        }
    }

    /// Those of these objects that exist.
    pub async fn fetch(&self, keys: &[ObjectKey]) -> Result<HashMap<ObjectKey, Value>, ActionError> {
        // Sorted, so that of several errors the same one is reported each time.
        let mut groups: BTreeMap<(&str, &str, Option<&str>), Vec<&ObjectKey>> = BTreeMap::new();
        for key in keys {
            let group = (key.api_version.as_str(), key.kind.as_str(), key.namespace.as_deref());
            groups.entry(group).or_default().push(key);
        }
        let mut found = HashMap::new();
        let mut single: Vec<&ObjectKey> = Vec::new();
        for group in groups.into_values() {
            match (group.len() >= LISTED).then(|| self.list(group[0])) {
                None => single.extend(group),
                Some(listed) => match listed.await {
                    Ok(mut listed) => found.extend(
                        group.into_iter().filter_map(|key| Some((key.clone(), listed.remove(key.name.as_str())?))),
                    ),
                    // The account may be allowed to get each object and not to list them.
                    Err(_) => single.extend(group),
                },
            }
        }
        let single: Vec<ObjectKey> = single.into_iter().cloned().collect();
        for (key, object) in single.iter().zip(bounded(single.iter().map(|key| self.get(key).boxed())).await) {
            found.extend(object?.map(|object| (key.clone(), object)));
        }
        Ok(found)
    }

    /// All objects of the kind and the namespace of this one, by name.
    async fn list(&self, like: &ObjectKey) -> Result<HashMap<String, Value>, Error> {
        let Some(kind) = self.kind(like).await? else { return Ok(HashMap::new()) };
        let mut all = HashMap::new();
        let mut page = ListParams::default().limit(500);
        loop {
            let failed = Error::api("cannot list objects of an Atom");
            let mut list: Value =
                self.send(request(&kind, like).and_then(|request| request.list(&page))).await.map_err(failed)?;
            let next = list.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) {
                for mut item in items {
                    // The API server leaves these fields out of the items of a list.
                    item["apiVersion"] = like.api_version.clone().into();
                    item["kind"] = like.kind.clone().into();
                    let name = item.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
                    all.insert(name, item);
                }
            }
            if next.is_empty() {
                return Ok(all);
            }
            page = page.continue_token(&next);
        }
    }

    /// Applies a configuration, or does a dry run of it.
    pub async fn apply(
        &self,
        key: &ObjectKey,
        config: &Value,
        manager: &str,
        force: bool,
        dry_run: bool,
    ) -> Result<Value, ActionError> {
        let Some(kind) = self.kind(key).await? else {
            return Err(ActionError::Retry(format!(
                "The cluster has no kind `{}` in `{}` yet.",
                key.kind, key.api_version
            )));
        };
        let params = PatchParams {
            dry_run,
            force,
            field_manager: Some(manager.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
        };
        let request = request(&kind, key).and_then(|request| request.patch(&key.name, &params, &Patch::Apply(config)));
        self.send(request).await.map_err(|error| self.refusal(&kind, key, error))
    }

    /// Deletes the object of this UID. It is no error when that is gone.
    pub async fn delete(&self, key: &ObjectKey, uid: &str) -> Result<(), ActionError> {
        let Some(kind) = self.kind(key).await? else { return Ok(()) };
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match self.send(request(&kind, key).and_then(|request| request.delete(&key.name, &params))).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(self.refusal(&kind, key, error)),
        }
    }

    async fn send(&self, request: Result<Request<Vec<u8>>, kube::core::request::Error>) -> Result<Value, kube::Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.client.request(request).await
    }

    /// The refusal to read an input or a template.
    pub fn forbidden(&self, from: &ValueFrom, error: kube::Error) -> ActionError {
        let (kind, resource, reference) = match &from.secret_key_ref {
            Some(key) => ("Secret", ApiResource::erase::<Secret>(&()), Some(key)),
            None => ("ConfigMap", ApiResource::erase::<ConfigMap>(&()), from.config_map_key_ref.as_ref()),
        };
        let key = ObjectKey {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: Some(self.account.0.clone()),
            name: reference.map(|key| key.name.clone()).unwrap_or_default(),
        };
        self.refusal(&Kind { resource, namespaced: true }, &key, error)
    }

    /// The meaning of an error of the API server for the Atom.
    fn refusal(&self, kind: &Kind, key: &ObjectKey, error: kube::Error) -> ActionError {
        let kube::Error::Api(status) = &error else {
            return ActionError::Retry(self.hidden.clean(format!("`{key}`: {error}.")));
        };
        let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
        let conflicts: Vec<_> = causes.iter().filter(|cause| cause.reason == "FieldManagerConflict").collect();
        let message = self.quoted(status, causes);
        let refused = |reason: &str, message: String| ActionError::refused(reason, message);
        match status.code {
            409 if !conflicts.is_empty() => {
                let named = conflicts.iter().map(|cause| {
                    let manager = cause.message.split('"').nth(1).unwrap_or("unknown");
                    format!("`{}` belongs to the manager `{manager}`", cause.field)
                });
                let named = named.collect::<Vec<_>>().join(", ");
                let message =
                    format!("`{key}`: {named}. Remove the field from the template, or set spec.force to take it over.");
                refused(reason::FIELD_CONFLICT, self.hidden.clean(message))
            }
            401 | 408 | 409 | 429 => ActionError::Retry(format!("`{key}`: {message}.")),
            403 => {
                let advice = self.advice(kind, key, &status.message);
                refused(reason::FORBIDDEN, format!("`{key}`: {message}. {advice}").trim_end().to_owned())
            }
            500.. if !status.message.contains("failed to create typed patch object") => {
                ActionError::Retry(format!("`{key}`: {message}."))
            }
            _ => refused(reason::TEMPLATE_INVALID, format!("The API server refuses `{key}`: {message}.")),
        }
    }

    /// The message of the API server, or where it finds what kind of fault if the message may contain a hidden value.
    fn quoted(&self, status: &Status, causes: &[StatusCause]) -> String {
        let message = status.message.trim_end_matches('.');
        if self.hidden.may_quote(message) {
            return message.to_owned();
        }
        let faults = causes.iter().map(|cause| format!("{} at `{}`", cause.reason, cause.field));
        let faults: Vec<String> = faults.filter(|fault| self.hidden.is_clean(fault)).take(NAMED).collect();
        let what = if faults.is_empty() { format!("{} ({})", status.reason, status.code) } else { faults.join(", ") };
        format!("{what}. {NOT_SHOWN} `knoll atom diff` shows it to users who may read the inputs")
    }

    /// What a user can do about a refusal by RBAC. Admission also forbids, and no right helps against that.
    fn advice(&self, kind: &Kind, key: &ObjectKey, message: &str) -> String {
        let (home, account) = (self.account.0.as_str(), self.account.1.as_str());
        if message.contains(" cannot impersonate ") {
            return IMPERSONATE.to_owned();
        }
        if !message.contains(&format!("User \"system:serviceaccount:{home}:{account}\" cannot ")) {
            return String::new();
        }
        let ApiResource { group, plural, .. } = &kind.resource;
        MissingRight { account: (home, account), group, plural, namespace: key.namespace.as_deref() }.advice()
    }
}

/// The requests for an object. Names are pasted into paths as they are, so one that is no segment of a path gets none.
fn request(kind: &Kind, key: &ObjectKey) -> Result<kube::core::Request, kube::core::request::Error> {
    let names = [Some(key.name.as_str()), key.namespace.as_deref()];
    match names.into_iter().flatten().find(|name| !is_path_segment(name)) {
        Some(name) => {
            Err(kube::core::request::Error::Validation(format!("`{name:?}` cannot be the name of an object")))
        }
        None => Ok(kube::core::Request::new(DynamicObject::url_path(&kind.resource, key.namespace.as_deref()))),
    }
}

/// A client that acts as a service account, and never as anybody else: without the header there is no client.
fn acting_as(client: &Client, namespace: &str, account: &str) -> Result<Client, ActionError> {
    let user = HeaderValue::from_str(&format!("system:serviceaccount:{namespace}:{account}"));
    let user = user.ok().filter(|_| is_dns_label(namespace) && is_dns_label(account)).ok_or_else(|| {
        let message = format!("spec.serviceAccountName: {account:?} is not the name of a service account.");
        ActionError::refused(reason::FORBIDDEN, message)
    })?;
    let (client, home) = (client.clone(), namespace.to_owned());
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let client = client.clone();
        request.headers_mut().insert("impersonate-user", user.clone());
        async move { client.send(request).await }
    });
    Ok(Client::new(service, home))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Response;

    use super::*;

    /// Names that somebody could write who wants to be somebody else, or to go elsewhere.
    fn bad_names() -> Vec<String> {
        let short = ["", "x\n", "x\t", "x\0", "d\u{e9}", "..", ".", "a:b", "a/b", "a%2fb", "a?b", "A"];
        short.into_iter().map(str::to_owned).chain(["a".repeat(300)]).collect()
    }

    /// A client that notes whom each request is sent as.
    fn noting() -> (Client, Arc<Mutex<Vec<Option<HeaderValue>>>>) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let notes = sent.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            notes
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(request.headers().get("impersonate-user").cloned());
            async { Ok::<_, std::convert::Infallible>(Response::new(Body::from(b"{}".to_vec()))) }
        });
        (Client::new(service, "default"), sent)
    }

    fn object(name: &str, namespace: Option<&str>) -> ObjectKey {
        let namespace = namespace.map(str::to_owned);
        ObjectKey { api_version: "v1".to_owned(), kind: "ConfigMap".to_owned(), namespace, name: name.to_owned() }
    }

    fn atom(account: Option<&str>) -> Subject<Atom> {
        let mut atom = Atom::new("web", knoll_api::AtomSpec::default());
        atom.metadata.namespace = Some("default".to_owned());
        atom.metadata.uid = Some("uid".to_owned());
        atom.spec.service_account_name = account.map(str::to_owned);
        Subject::new(Arc::new(atom)).unwrap_or_else(|error| panic!("{error}"))
    }

    #[tokio::test]
    async fn an_atom_without_an_account_is_sent_as_the_default_one() {
        let (client, sent) = noting();
        let kinds = kinds();
        let objects = Objects::of(&atom(None), &client, &kinds).ok().unwrap_or_else(|| panic!("the default account"));
        let _ = objects.get(&object("a", Some("default"))).await;
        let user = HeaderValue::from_static("system:serviceaccount:default:default");
        assert_eq!(*sent.lock().unwrap_or_else(PoisonError::into_inner), [Some(user)]);
    }

    fn kinds() -> Kinds {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
        let kinds = Kinds::default();
        kinds.lock().insert("v1".to_owned(), vec![Kind { resource, namespaced: true }]);
        kinds
    }

    #[tokio::test]
    async fn nothing_is_sent_as_an_account_that_cannot_be_named() {
        let (client, sent) = noting();
        let kinds = kinds();
        for account in bad_names() {
            let refused = Objects::of(&atom(Some(&account)), &client, &kinds).err();
            assert!(matches!(refused, Some(ActionError::Refused(_))), "{account:?}");
        }
        let objects =
            Objects::of(&atom(Some("deployer")), &client, &kinds).ok().unwrap_or_else(|| panic!("a plain account"));
        let _ = objects.get(&object("a", Some("default"))).await;
        let _ = objects.delete(&object("a", Some("default")), "1").await;
        let user = HeaderValue::from_static("system:serviceaccount:default:deployer");
        assert_eq!(*sent.lock().unwrap_or_else(PoisonError::into_inner), [Some(user.clone()), Some(user)]);
    }

    #[tokio::test]
    async fn nothing_is_sent_to_a_path_that_leads_elsewhere() {
        let (client, sent) = noting();
        let kinds = kinds();
        let objects =
            Objects::of(&atom(Some("deployer")), &client, &kinds).ok().unwrap_or_else(|| panic!("a plain account"));
        for name in bad_names().iter().filter(|name| !is_path_segment(name)) {
            for key in [object(name, Some("default")), object("a", Some(name))] {
                assert!(objects.get(&key).await.is_err(), "{key:?}");
                assert!(objects.apply(&key, &Value::Null, "m", false, false).await.is_err(), "{key:?}");
                assert!(objects.delete(&key, "1").await.is_err(), "{key:?}");
            }
            let found = kinds.find(&client, &format!("v1/{name}"), "X").await;
            assert!(matches!(found, Ok(None)), "{name:?}");
            assert!(matches!(kinds.find(&client, &format!("{name}/v1"), "X").await, Ok(None)), "{name:?}");
        }
        assert!(sent.lock().unwrap_or_else(PoisonError::into_inner).is_empty());
    }
}
