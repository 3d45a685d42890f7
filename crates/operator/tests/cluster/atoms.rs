//! An Atom and its versions, as a person makes them.

use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::{Atom, AtomStatus, AtomVersion, atom::AtomPhase, names::label};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

use super::{DEADLINE, World};

/// One Atom in a [`World`].
pub struct Life<'a> {
    world: &'a World,
    name: &'static str,
    /// What its spec has beside the version.
    pub spec: Value,
}

impl<'a> Life<'a> {
    pub fn new(world: &'a World, name: &'static str) -> Self {
        Self { world, name, spec: json!({"deadline": "2s", "rollbackDeadline": "20s"}) }
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
        let api: Api<Atom> = self.world.api();
        let wanted = |atom: Option<&Atom>| atom.is_some_and(&is_so);
        match tokio::time::timeout(DEADLINE, await_condition(api.clone(), self.name, wanted)).await {
            Ok(atom) => atom.unwrap().unwrap(),
            Err(_) => panic!("never {what}: {:#?}", api.get_opt(self.name).await.unwrap().map(|atom| atom.status)),
        }
    }

    pub async fn delete(&self) {
        let api: Api<Atom> = self.world.api();
        api.delete(self.name, &DeleteParams::default()).await.unwrap();
        let gone = await_condition(api.clone(), self.name, |atom: Option<&Atom>| atom.is_none());
        if tokio::time::timeout(DEADLINE, gone).await.is_err() {
            panic!("never gone: {:#?}", api.get_opt(self.name).await.unwrap().map(|atom| atom.status));
        }
    }

    /// The data of a ConfigMap.
    pub async fn data(&self, name: &str) -> Option<Value> {
        let map = self.world.api::<ConfigMap>().get_opt(name).await.unwrap()?;
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
        let applied = self.world.api::<K>().patch(name, &params, &Patch::Apply(object)).await.unwrap();
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
