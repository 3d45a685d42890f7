//! An Atom and its versions, as a person makes them.

use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::{Atom, AtomStatus, AtomVersion, atom::AtomPhase, names::label};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

use super::{DEADLINE, World};

/// One Atom in the namespace of a client.
pub struct Life {
    client: Client,
    name: &'static str,
    /// What its spec has beside the version.
    pub spec: Value,
}

impl Life {
    pub fn new(world: &World, name: &'static str) -> Self {
        Self::of(world.client.clone(), name)
    }

    pub fn of(client: Client, name: &'static str) -> Self {
        Self { client, name, spec: json!({"deadline": "2s", "rollbackDeadline": "20s"}) }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn version(&self, name: &str, template: &str) {
        let version = json!({
            "apiVersion": "knoll.dev/v1alpha1", "kind": "AtomVersion",
            "metadata": {"name": name, "labels": {label::ATOM: self.name}}, "spec": {"template": template},
        });
        self.apply::<AtomVersion>(name, version).await;
    }

    pub async fn wants(&self, version: &str) {
        let mut spec = self.spec.clone();
        spec["version"] = version.into();
        let atom = json!({
            "apiVersion": "knoll.dev/v1alpha1", "kind": "Atom", "metadata": {"name": self.name}, "spec": spec,
        });
        self.apply::<Atom>(self.name, atom).await;
    }

    /// The status at the end of what is wanted now: of this phase, with nothing left to do.
    pub async fn ends(&self, phase: AtomPhase) -> AtomStatus {
        self.until(phase.as_str(), |atom| {
            let status = atom.status.as_ref();
            status.is_some_and(|status| {
                status.phase == phase
                    && status.target_version.as_ref() == Some(&atom.spec.version)
                    && status.observed_generation == atom.metadata.generation
                    && (phase == AtomPhase::Failure || status.journal.is_none())
            })
        })
        .await
        .status
        .unwrap()
    }

    pub async fn until(&self, what: &str, is_so: impl Fn(&Atom) -> bool + Send) -> Atom {
        let api: Api<Atom> = self.api();
        let wanted = |atom: Option<&Atom>| atom.is_some_and(&is_so);
        match tokio::time::timeout(DEADLINE, await_condition(api.clone(), self.name, wanted)).await {
            Ok(atom) => atom.unwrap().unwrap(),
            Err(_) => panic!("never {what}: {:#?}", api.get_opt(self.name).await.unwrap().map(|atom| atom.status)),
        }
    }

    pub async fn delete(&self) {
        let api: Api<Atom> = self.api();
        api.delete(self.name, &DeleteParams::default()).await.unwrap();
        let gone = await_condition(api.clone(), self.name, |atom: Option<&Atom>| atom.is_none());
        if tokio::time::timeout(DEADLINE, gone).await.is_err() {
            panic!("never gone: {:#?}", api.get_opt(self.name).await.unwrap().map(|atom| atom.status));
        }
    }

    /// The data of a ConfigMap.
    pub async fn data(&self, name: &str) -> Option<Value> {
        let map = self.api::<ConfigMap>().get_opt(name).await.unwrap()?;
        Some(serde_json::to_value(map.data).unwrap())
    }

    async fn apply<K>(&self, name: &str, object: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let params = PatchParams { force: true, ..PatchParams::apply("test") };
        let applied = self.api::<K>().patch(name, &params, &Patch::Apply(object)).await.unwrap();
        assert_eq!(applied.name_any(), name);
    }
}

pub fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})
}

/// Objects as YAML documents: JSON is YAML.
pub fn documents(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("---\n{object}\n")).collect()
}

/// A ConfigMap that says itself that it will never be ready.
pub fn hopeless(name: &str) -> Value {
    let mut map = config_map(name, "1");
    map["metadata"]["annotations"] = json!({"knoll.dev/ready-when": "self.data.k"});
    map
}

/// The definition of a kind; its second form has a field more.
pub fn widgets(form: &str) -> Value {
    let mut spec = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    if form == "2" {
        spec["properties"]["colour"] = json!({"type": "string"});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}

impl Life {
    /// Another manager's fields of a ConfigMap.
    pub async fn somebody(&self, manager: &str, name: &str, data: Value) {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        let params = PatchParams::apply(manager);
        self.api::<ConfigMap>().patch(name, &params, &Patch::Apply(map)).await.unwrap();
    }

    pub async fn secret(&self, name: &str, data: Value) {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
        let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(secret).unwrap();
        self.api().create(&Default::default(), &secret).await.unwrap();
    }

    /// A service account that may do everything.
    pub async fn account(&self, name: &str) {
        use k8s_openapi::api::{core::v1::ServiceAccount, rbac::v1::ClusterRoleBinding};
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.api().create(&Default::default(), &account).await.unwrap();
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.client.default_namespace()}],
        }))
        .unwrap();
        Api::all(self.client.clone()).create(&Default::default(), &binding).await.unwrap();
    }

    /// What the API has at a path.
    pub async fn at(&self, path: &str) -> Option<Value> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.client.request(request).await.ok()
    }

    pub async fn is_there(&self, path: &str) -> bool {
        self.at(path).await.is_some()
    }

    pub async fn atom(&self) -> Atom {
        self.api().get(self.name).await.unwrap()
    }

    pub async fn versions(&self) -> Vec<String> {
        let list = self.api::<AtomVersion>().list(&Default::default()).await.unwrap();
        list.items.iter().map(ResourceExt::name_any).collect()
    }

    /// Takes the finalizers of a ConfigMap away.
    pub async fn release(&self, name: &str) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.api::<ConfigMap>().patch(name, &PatchParams::default(), &patch).await.unwrap();
        let gone = await_condition(self.api::<ConfigMap>(), name, |map: Option<&ConfigMap>| map.is_none());
        tokio::time::timeout(DEADLINE, gone).await.unwrap().unwrap();
    }
}
