//! The ConfigMaps and Secrets that a pod refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use futures::FutureExt;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};

/// Which kind an object is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ConfigMap,
    Secret,
}

/// The names of the objects that something refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs(BTreeSet<(Kind, String)>);

impl Needs {
    pub fn add(&mut self, kind: Kind, name: &str) {
        self.0.insert((kind, name.to_owned()));
    }
}

/// What the objects hold, as far as they exist.
#[derive(Clone, Debug, Default)]
pub struct Objects(BTreeMap<(Kind, String), BTreeMap<String, Vec<u8>>>);

/// Something that a container cannot start without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub kind: Kind,
    pub name: String,
    /// in it this key; `None` when all of it is missing.
    pub key: Option<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, key } = self;
        match (kind, key) {
            (Kind::ConfigMap, None) => write!(f, "configmap \"{name}\" not found"),
            (Kind::Secret, None) => write!(f, "secret \"{name}\" not found"),
            (Kind::ConfigMap, Some(key)) => {
                write!(f, "couldn't find key {key} in ConfigMap {name}")
            }
            (Kind::Secret, Some(key)) => write!(f, "couldn't find key {key} in Secret {name}"),
        }
    }
}

impl Objects {
    /// Reads what is needed, at once.
    pub async fn fetch(client: &Client, namespace: &str, needs: &Needs) -> Result<Self, kube::Error> {
        let read: Vec<_> = needs.0.iter().map(|(kind, name)| read(client, namespace, *kind, name).boxed()).collect();
        Ok(Self(try_join_all(read).await?.into_iter().flatten().collect()))
    }

    /// All keys of an object. A missing one that is optional has none.
    pub fn all(&self, kind: Kind, name: &str, optional: bool) -> Result<BTreeMap<String, Vec<u8>>, Missing> {
        match self.0.get(&(kind, name.to_owned())) {
            Some(content) => Ok(content.clone()),
            None if optional => Ok(BTreeMap::new()),
            None => Err(Missing { kind, name: name.to_owned(), key: None }),
        }
    }

    /// One key of an object; `None` when it is missing and optional.
    pub fn key(&self, kind: Kind, name: &str, key: &str, optional: bool) -> Result<Option<Vec<u8>>, Missing> {
        let content = self.all(kind, name, optional)?;
        match content.get(key) {
            Some(value) => Ok(Some(value.clone())),
            None if optional => Ok(None),
            None => Err(Missing { kind, name: name.to_owned(), key: Some(key.to_owned()) }),
        }
    }

    #[cfg(test)]
    pub fn with(mut self, kind: Kind, name: &str, content: &[(&str, &str)]) -> Self {
        let content = content.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        self.0.insert((kind, name.to_owned()), content);
        self
    }
}

type Entry = ((Kind, String), BTreeMap<String, Vec<u8>>);

async fn read(client: &Client, namespace: &str, kind: Kind, name: &str) -> Result<Option<Entry>, kube::Error> {
    let content = match kind {
        Kind::ConfigMap => Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(name).await?.map(config_map),
        Kind::Secret => Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await?.map(secret),
    };
    Ok(content.map(|content| ((kind, name.to_owned()), content)))
}

impl Missing {
    /// Waits until it is there.
    pub async fn appears(&self, client: &Client, namespace: &str) -> Result<(), kube::runtime::wait::Error> {
        let has = |content: BTreeMap<String, Vec<u8>>| self.key.as_ref().is_none_or(|key| content.contains_key(key));
        match self.kind {
            Kind::ConfigMap => {
                let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
                let there = |object: Option<&ConfigMap>| object.is_some_and(|object| has(config_map(object.clone())));
                await_condition(api, &self.name, there).await.map(drop)
            }
            Kind::Secret => {
                let api = Api::<Secret>::namespaced(client.clone(), namespace);
                let there = |object: Option<&Secret>| object.is_some_and(|object| has(secret(object.clone())));
                await_condition(api, &self.name, there).await.map(drop)
            }
        }
    }
}

fn config_map(object: ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = object.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
    let binary = object.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
    text.chain(binary).collect()
}

fn secret(object: Secret) -> BTreeMap<String, Vec<u8>> {
    object.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
}
