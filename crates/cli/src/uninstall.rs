//! `knoll uninstall`: removes Knoll from a cluster. It never deletes a state.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use knoll_api::names::{annotation, content, label};
use knoll_deploy::{Manifest, Settings};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PartialObjectMeta};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::connect::{Cluster, Connection, Explain};
use crate::install::{self, ClusterArgs, apply};
use crate::style;

/// The arguments of `knoll uninstall`.
#[derive(clap::Args)]
pub struct UninstallArgs {
    /// The namespace of the operator [default: where it is installed]
    #[arg(long, short, env = "KNOLL_INSTALL_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Remove only the operator; keep the CRDs and all their objects
    #[arg(long, env = "KNOLL_KEEP_OBJECTS", conflicts_with = "delete_objects")]
    keep_objects: bool,
    /// Also delete all Workspaces, Runs and other objects of Knoll's CRDs, as `kubectl delete` would
    #[arg(long, env = "KNOLL_DELETE_OBJECTS")]
    delete_objects: bool,
    /// How long to wait for the deletion to complete
    #[arg(long, env = "KNOLL_TIMEOUT", default_value = "3m", value_parser = install::duration, value_name = "DURATION")]
    timeout: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub async fn run(args: UninstallArgs, outer: &Connection) -> Result<ExitCode> {
    let cluster = args.cluster.cluster(outer).await?;
    match tokio::time::timeout(args.timeout, uninstall(&args, &cluster)).await {
        Ok(result) => result,
        Err(_) => bail!(
            "some objects still exist after {} s; one may be waiting for its finalizer. It is safe to run `knoll uninstall` again",
            args.timeout.as_secs()
        ),
    }
}

async fn uninstall(args: &UninstallArgs, cluster: &Cluster) -> Result<ExitCode> {
    install::version::check(cluster).await?;
    let namespace = match &args.namespace {
        Some(namespace) => namespace.clone(),
        None => install::installed_in(cluster).await?.unwrap_or_else(|| Settings::default().namespace),
    };
    let settings = Settings { namespace, ..Settings::default() };
    let kinds = knoll_deploy::kinds();
    let objects = objects(cluster).await?;
    if !objects.is_empty() && !args.keep_objects && !args.delete_objects {
        let counts =
            objects.iter().map(|kind| count(kind.list.len(), &kind.resource.plural)).collect::<Vec<_>>().join(", ");
        bail!(
            "the cluster still has {counts}\n  `--keep-objects` keeps them and removes only the operator\n  `--delete-objects` deletes them, as `kubectl delete` does; states are kept"
        );
    }
    let mut manifests: Vec<Manifest> = knoll_deploy::operator(&settings);
    if !args.keep_objects {
        manifests.extend(knoll_deploy::cluster_rules(&settings));
        manifests.extend(kinds.iter().cloned());
    }
    install::allowed(cluster, "delete", &manifests).await?;
    style::say("Uninstalling", &format!("Knoll from {}", cluster.server));

    // Objects are deleted first, while the operator can still remove their finalizers.
    if !args.keep_objects {
        delete_objects(cluster, &objects).await?;
    }
    let mut states = list_stored::<Secret>(cluster, content::STATE).await?;
    // A head without a serial was claimed and never written, so it holds no state.
    states.retain(|head| head.annotations().contains_key(annotation::SERIAL));
    let keep_namespace = reason_to_keep_namespace(cluster, &settings.namespace, &states).await?;
    // The operator goes before the objects it depends on, and its namespace goes last.
    manifests.sort_by_key(|manifest| match manifest.resource.kind.as_str() {
        "Deployment" => 0,
        "Namespace" => 2,
        _ => 1,
    });
    for manifest in &manifests {
        if manifest.resource.kind == "Namespace" && keep_namespace.is_some() {
            continue;
        }
        delete(cluster, manifest).await?;
    }
    style::say("Uninstalled:", &format!("the operator was removed from namespace `{}`", settings.namespace));
    let bundles =
        if args.keep_objects { Vec::new() } else { list_stored::<ConfigMap>(cluster, content::BUNDLE).await? };
    leftovers(args, &states, &bundles, keep_namespace.as_deref());
    Ok(ExitCode::SUCCESS)
}

struct Objects {
    resource: ApiResource,
    list: Vec<PartialObjectMeta<DynamicObject>>,
}

/// All objects of Knoll's kinds. Kinds that are not installed, or have no objects, are omitted.
async fn objects(cluster: &Cluster) -> Result<Vec<Objects>> {
    let mut found = Vec::new();
    for crd in knoll_api::crds() {
        let version = crd.spec.versions.first().map(|version| version.name.clone()).unwrap_or_default();
        let resource = ApiResource {
            api_version: format!("{}/{version}", crd.spec.group),
            group: crd.spec.group,
            version,
            kind: crd.spec.names.kind,
            plural: crd.spec.names.plural,
        };
        let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
        match api.list_metadata(&ListParams::default()).await {
            Ok(list) if list.items.is_empty() => {}
            Ok(list) => found.push(Objects { resource, list: list.items }),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            error => drop(install::administrator(error, cluster, &format!("cannot list the {}", resource.plural))?),
        }
    }
    Ok(found)
}

async fn delete_objects(cluster: &Cluster, objects: &[Objects]) -> Result<()> {
    for Objects { resource, list } in objects {
        for object in list {
            let client = cluster.client.clone();
            let api: Api<DynamicObject> = match &object.metadata.namespace {
                Some(namespace) => Api::namespaced_with(client, namespace, resource),
                None => Api::all_with(client, resource),
            };
            gone(cluster, &api, &object.name_any()).await?;
        }
        style::field("deleted", &count(list.len(), &resource.plural));
    }
    Ok(())
}

async fn delete(cluster: &Cluster, manifest: &Manifest) -> Result<()> {
    let api = apply::api(&cluster.client, manifest);
    let was_there = gone(cluster, &api, manifest.name()).await?;
    style::field(if was_there { "deleted" } else { "not found" }, &manifest.title());
    Ok(())
}

/// Deletes an object and its dependents, and waits until it is gone. Returns whether it existed.
async fn gone(cluster: &Cluster, api: &Api<DynamicObject>, name: &str) -> Result<bool> {
    let object = match api.delete(name, &DeleteParams::foreground()).await {
        Ok(answer) => answer.left(),
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
        error => return install::administrator(error.map(|_| true), cluster, &format!("cannot delete `{name}`")),
    };
    if let Some(uid) = object.and_then(|object| object.uid()) {
        await_condition(api.clone(), name, conditions::is_deleted(&uid)).await?;
    }
    Ok(true)
}

/// All Secrets or ConfigMaps with this `knoll.dev/content` label.
async fn list_stored<K>(cluster: &Cluster, content: &str) -> Result<Vec<PartialObjectMeta<K>>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all(cluster.client.clone());
    let params = ListParams::default().labels(&format!("{}={content}", label::CONTENT));
    let what = format!("cannot list the objects labelled `{content}`");
    Ok(install::administrator(api.list_metadata(&params).await, cluster, &what)?.items)
}

/// Why the operator's namespace must not be deleted, if so.
async fn reason_to_keep_namespace(
    cluster: &Cluster,
    namespace: &str,
    states: &[PartialObjectMeta<Secret>],
) -> Result<Option<String>> {
    if states.iter().any(|state| state.namespace().as_deref() == Some(namespace)) {
        return Ok(Some(format!("the namespace `{namespace}`, because it contains states")));
    }
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let found = namespaces.get_metadata_opt(namespace).await.explain(cluster, "cannot read the namespace")?;
    let ours = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get(label::MANAGED_BY).is_some_and(|by| by == label::MANAGED_BY_KNOLL)
    };
    let foreign = found.is_some_and(|found| !ours(found.labels()));
    Ok(foreign.then(|| format!("the namespace `{namespace}`, because it was not created by `knoll install`")))
}

/// Prints the objects that remain in the cluster.
fn leftovers(
    args: &UninstallArgs,
    states: &[PartialObjectMeta<Secret>],
    bundles: &[PartialObjectMeta<ConfigMap>],
    namespace: Option<&str>,
) {
    let mut left = Vec::new();
    if args.keep_objects {
        left.push(
            "the CRDs with all their objects, and the roles and the admission policy that belong to them".to_owned(),
        );
    }
    left.extend(stored_summary(states, "states", "Secrets", content::STATE));
    left.extend(stored_summary(bundles, "bundles of modules", "ConfigMaps", content::BUNDLE));
    left.extend(namespace.map(str::to_owned));
    if left.is_empty() {
        return;
    }
    style::hint("Not deleted:");
    for what in left {
        style::hint(&format!("  {what}"));
    }
}

/// How many objects of a content are stored, in which namespaces, and the label to find them by.
fn stored_summary<K>(list: &[PartialObjectMeta<K>], what: &str, kind: &str, content: &str) -> Option<String> {
    let places: BTreeSet<&str> = list.iter().filter_map(|object| object.metadata.namespace.as_deref()).collect();
    let places = places.into_iter().collect::<Vec<_>>().join(", ");
    let number = list.len();
    (number > 0).then(|| format!("{what}: {number} {kind} in {places} (label {}={content})", label::CONTENT))
}

/// `1 run`, `2 runs`.
fn count(number: usize, plural: &str) -> String {
    match number {
        1 => format!("1 {}", plural.strip_suffix('s').unwrap_or(plural)),
        _ => format!("{number} {plural}"),
    }
}
