//! Every kind of content goes through the seal, and no content takes the place of another's.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::atom::AtomSpec;
use knoll_api::run::{Run, RunSpec};
use knoll_api::wire::JobVariable;
use knoll_api::{Atom, Digest, names};
use knoll_bundle::{File, Files, pack};
use knoll_core::atom::journal::Journal;
use knoll_core::identity::ObjectId;
use knoll_embedded::Cluster;
use knoll_storage::{Bundle, ContentKind, LogRange, Resolved, Seal, SealError, Storage, Subject};
use kube::api::{ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde_json::json;

const NAMESPACE: &str = "default";
/// In every content. It does not compress.
const SECRET: &str = "hunter2";

/// Inverts the bytes behind the name of their subject, and remembers whose it has sealed.
#[derive(Debug, Default)]
struct Inverted(Mutex<HashSet<ContentKind>>);

impl Seal for Inverted {
    fn seal(&self, subject: &Subject, bytes: Vec<u8>) -> Result<Vec<u8>, SealError> {
        self.0.lock().unwrap().insert(subject.kind);
        let inverted = bytes.into_iter().map(|byte| !byte);
        Ok(format!("{subject:?}").into_bytes().into_iter().chain(inverted).collect())
    }

    fn open(&self, subject: &Subject, bytes: Vec<u8>) -> Result<Vec<u8>, SealError> {
        let rest = bytes.strip_prefix(format!("{subject:?}").as_bytes());
        let rest = rest.ok_or_else(|| SealError("sealed for another".to_owned()))?;
        Ok(rest.iter().map(|byte| !byte).collect())
    }
}

fn run(name: &str) -> Run {
    let mut run = Run::new(name, RunSpec { workspace: "w".to_owned(), ..RunSpec::default() });
    run.metadata.namespace = Some(NAMESPACE.to_owned());
    run.metadata.uid = Some(format!("uid-of-{name}"));
    run
}

fn atom(name: &str) -> knoll_core::identity::Subject<Atom> {
    let mut atom = Atom::new(name, AtomSpec::default());
    atom.metadata.namespace = Some(NAMESPACE.to_owned());
    atom.metadata.uid = Some(format!("uid-of-{name}"));
    knoll_core::identity::Subject::new(Arc::new(atom)).unwrap()
}

fn state() -> String {
    json!({"version": 4, "serial": 1, "lineage": SECRET, "resources": [], "outputs": {}}).to_string()
}

fn module() -> Bundle {
    pack(&Files::from([("main.tf".into(), File::new(SECRET))])).unwrap()
}

/// What a storage has of an owner, by kind. Content that is missing, or cannot be read, is none.
async fn read(storage: &Storage, owner: &str) -> Vec<(ContentKind, Option<Vec<u8>>)> {
    let run = run(owner);
    let (name, atom) = (run.metadata.name.as_deref().unwrap(), atom(owner));
    let plan = storage.plans().get(NAMESPACE, name).await.ok().flatten();
    let upload = storage.uploads().get(NAMESPACE, name, &Digest::of(state())).await.ok().flatten();
    let log = storage.logs().read(&run, LogRange::WHOLE).await.ok().filter(|log| !log.is_empty());
    let journal = storage.journals().get(&atom, &names::journal_secret(owner, 1)).await.ok().flatten();
    let variables = storage.variables().get(NAMESPACE, &format!("variables-of-{owner}")).await.ok();
    vec![
        (ContentKind::Plan, plan.map(Into::into)),
        (ContentKind::Upload, upload.map(Into::into)),
        (ContentKind::Log, log),
        (ContentKind::Journal, journal.map(|journal| serde_json::to_vec(&journal).unwrap())),
        (ContentKind::Variables, variables.map(|all| serde_json::to_vec(&all.variables).unwrap())),
    ]
}

async fn write(storage: &Storage, owner: &str) -> Vec<(ContentKind, Option<Vec<u8>>)> {
    let (run, atom) = (run(owner), atom(owner));
    let state = state();
    let journal = Journal { since: 7, ..Journal::default() };
    let variable = JobVariable {
        key: "password".to_owned(),
        value: json!(SECRET),
        env: false,
        sensitive: true,
        expression: false,
    };
    let variables = Resolved { variables: vec![variable], ..Resolved::default() };
    storage.plans().put(&run, SECRET.as_bytes()).await.unwrap();
    storage.uploads().put(&run, state.as_bytes()).await.unwrap();
    storage
        .logs()
        .writer(&ObjectId::of(&run).unwrap(), &run.spec.workspace)
        .append(0, SECRET.as_bytes())
        .await
        .unwrap();
    storage.journals().put(&atom, 1, &journal).await.unwrap();
    let metadata = ObjectMeta { name: Some(format!("variables-of-{owner}")), ..ObjectMeta::default() };
    storage.variables().put(NAMESPACE, metadata, &variables).await.unwrap();
    vec![
        (ContentKind::Plan, Some(SECRET.into())),
        (ContentKind::Upload, Some(state.into())),
        (ContentKind::Log, Some(SECRET.into())),
        (ContentKind::Journal, Some(serde_json::to_vec(&journal).unwrap())),
        (ContentKind::Variables, Some(serde_json::to_vec(&variables.variables).unwrap())),
    ]
}

/// Every object of this kind that an owner has, as text without what the API adds.
async fn objects<K>(client: &Client, owner: &str) -> Vec<serde_json::Value>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
    K: serde::de::DeserializeOwned + serde::Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let all = api.list(&ListParams::default()).await.unwrap().items;
    let mut all: Vec<_> = all.iter().map(|object| serde_json::to_value(object).unwrap()).collect();
    all.retain(|object| object["metadata"]["name"].as_str().unwrap().contains(owner));
    for object in &mut all {
        for key in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            object["metadata"].as_object_mut().unwrap().remove(key);
        }
    }
    all
}

/// Gives the content of one owner to another, whose objects are named alike.
async fn move_content<K>(client: &Client, from: &str, to: &str) -> usize
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
    K: serde::de::DeserializeOwned + serde::Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let all = objects::<K>(client, from).await;
    for mut object in all.clone() {
        let metadata = object["metadata"].to_string().replace(from, to);
        object["metadata"] = serde_json::from_str(&metadata).unwrap();
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    all.len()
}

#[tokio::test]
async fn every_kind_of_content_goes_through_the_seal() {
    let cluster = Cluster::memory().await.unwrap();
    let client = cluster.client();
    let seal = Arc::new(Inverted::default());
    let plain = Storage::new(client.clone());
    let sealed = plain.clone().with_seal(seal.clone());

    let written = write(&sealed, "alpha").await;
    assert_eq!(read(&sealed, "alpha").await, written);
    for (kind, found) in read(&plain, "alpha").await {
        assert_eq!(found, None, "{kind:?} is not readable without the seal");
    }
    let bundle = module();
    sealed.bundles().store(NAMESPACE, &bundle).await.unwrap();
    assert_eq!(sealed.bundles().fetch(NAMESPACE, &bundle.digest).await.unwrap(), bundle.bytes);
    assert!(plain.bundles().fetch(NAMESPACE, &bundle.digest).await.is_err());
    let mut kinds: HashSet<ContentKind> = written.iter().map(|(kind, _)| *kind).collect();
    kinds.insert(ContentKind::Bundle);
    assert_eq!(*seal.0.lock().unwrap(), kinds);
}

#[tokio::test]
async fn content_that_was_sealed_for_one_owner_is_not_read_as_that_of_another() {
    let cluster = Cluster::memory().await.unwrap();
    let client = cluster.client();
    let plain = Storage::new(client.clone());
    let sealed = plain.clone().with_seal(Arc::new(Inverted::default()));
    // Without a seal the moved content is found, so the move is one.
    for (storage, from, to, readable) in [(&plain, "alpha", "gamma", true), (&sealed, "delta", "omega", false)] {
        let written = write(storage, from).await;
        let moved =
            move_content::<Secret>(&client, from, to).await + move_content::<ConfigMap>(&client, from, to).await;
        assert_eq!(moved, written.len());
        for ((kind, content), (_, found)) in written.into_iter().zip(read(storage, to).await) {
            assert_eq!(found, content.filter(|_| readable), "{kind:?}");
        }
    }
}
