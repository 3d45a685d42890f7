//! What a reconcile and an event touch among 10,000 objects of each kind.

use std::collections::BTreeSet;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::{approval::ApprovalSpec, names::label, run::RunSpec, workspace::WorkspaceSpec};
use knoll_core::identity::Subject;
use knoll_embedded::Cluster;
use kube::api::PartialObjectMeta;

use super::*;
use crate::{
    approval::Approvals,
    atom::{self, AtomVersions, Atoms},
    driver::{Observation, Reconciler},
    run::Runs,
    stack::Stacks,
    workspace::Workspaces,
};

/// How many objects of a kind there are. Ten of them depend on the first of the ten.
const MANY: usize = 10_000;
const A_WORKSPACE: usize = 10;
const TEN: usize = 10;

fn stored<K: Resource>(mut object: K, uid: usize) -> K {
    object.meta_mut().namespace = Some("default".to_owned());
    object.meta_mut().uid = Some(uid.to_string());
    object
}

/// How many objects of all kinds were read so far.
fn touched(caches: &Caches) -> u64 {
    let own = [caches.runs.touched(), caches.workspaces.touched(), caches.approvals.touched(), caches.stacks.touched()];
    let atoms = [caches.atoms.touched(), caches.atom_versions.touched()];
    let cluster = [caches.policies.touched(), caches.namespaces.touched()];
    let others =
        [caches.pods.touched(), caches.heads.touched(), caches.secrets.touched(), caches.config_maps.touched()];
    [own, others].iter().flatten().chain(atoms.iter().chain(&cluster)).sum()
}

#[tokio::test]
async fn runs_workspaces_and_approvals_touch_what_they_are_about_however_many_there_are() {
    let (context, writers, _requests) = context(silent());
    let caches = &context.caches;
    let mut runs = feed(writers.runs, &caches.runs, crate::on_run);
    let mut workspaces = feed(writers.workspaces, &caches.workspaces, crate::on_workspace);
    let mut approvals = feed(writers.approvals, &caches.approvals, crate::on_approval);
    for number in 0..MANY {
        let workspace = format!("w{}", number / A_WORKSPACE);
        let run = Run::new(&format!("r{number}"), RunSpec { workspace: workspace.clone(), ..RunSpec::default() });
        runs.take(&context, Event::Apply(Ok(stored(run, number))));
        let spec = ApprovalSpec { run: format!("r{number}"), ..ApprovalSpec::default() };
        approvals.take(&context, Event::Apply(Ok(stored(Approval::new(&format!("a{number}"), spec), number))));
        if number % A_WORKSPACE == 0 {
            let workspace = Workspace::new(&workspace, WorkspaceSpec::default());
            workspaces.take(&context, Event::Apply(Ok(stored(workspace, number))));
        }
    }
    let touched = || caches.runs.touched() + caches.workspaces.touched() + caches.approvals.touched();

    let before = touched();
    let run = Subject::new(caches.runs.named("default", "r77").unwrap()).unwrap();
    assert!(matches!(Runs::observe(&context, &run).await, Ok(Observation::Complete(_))));
    assert_eq!(touched() - before, 3, "the run, its Workspace and its Approval");

    let before = touched();
    let workspace = Subject::new(caches.workspaces.named("default", "w7").unwrap()).unwrap();
    assert!(matches!(Workspaces::observe(&context, &workspace).await, Ok(Observation::Complete(_))));
    assert_eq!(touched() - before, 1 + A_WORKSPACE as u64, "the Workspace and its Runs");

    let before = touched();
    let approval = Subject::new(caches.approvals.named("default", "a77").unwrap()).unwrap();
    assert!(matches!(Approvals::observe(&context, &approval).await, Ok(Observation::Complete(_))));
    assert_eq!(touched() - before, 4, "the Approval, its Run, its Workspace and the Approvals of the Run");

    let before = touched();
    runs.take(&context, Event::Apply(Ok(Run::clone(&run))));
    workspaces.take(&context, Event::Apply(Ok(Workspace::clone(&workspace))));
    assert!(touched() - before < 20, "an event touches what depends on its object");
}

/// The Stacks, Atoms and AtomVersions that somebody has asked for since the last time, each once.
fn asked(requests: &mut Requests) -> BTreeSet<String> {
    fn names<K: Resource<DynamicType = ()>>(
        requests: &mut UnboundedReceiver<ObjectRef<K>>,
    ) -> impl Iterator<Item = String> {
        std::iter::from_fn(|| requests.next().now_or_never().flatten()).map(|object| object.name)
    }
    let Requests { stacks, atoms, atom_versions, .. } = requests;
    names(stacks).chain(names(atoms)).chain(names(atom_versions)).collect()
}

/// The names of the ten that depend on the first of them.
fn ten(kind: &str, first: usize) -> impl Iterator<Item = String> {
    (first..first + TEN).map(move |number| format!("{kind}{number}"))
}

fn named<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

fn decoded<K: DeserializeOwned + Resource>(kind: &str, name: &str, spec: serde_json::Value, number: usize) -> K {
    let object = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    stored(serde_json::from_value(object).unwrap(), number)
}

fn metadata<K>(name: &str, number: usize) -> PartialObjectMeta<K>
where
    PartialObjectMeta<K>: Resource + Default,
{
    let mut object = PartialObjectMeta::<K>::default();
    object.meta_mut().name = Some(name.to_owned());
    stored(object, number)
}

/// Stack, Atom and AtomVersion N use the Secret and the ConfigMap `iN`, and the template in `tN`. Nine of ten also use an
/// output of the first of the ten.
#[tokio::test]
async fn stacks_and_atoms_touch_what_they_refer_to_however_many_there_are() {
    let cluster = Cluster::memory().await.unwrap();
    let (context, writers, mut requests) = context(cluster.client());
    let caches = &context.caches;
    let mut stacks = feed(writers.stacks, &caches.stacks, crate::on_stack);
    let mut atoms = feed(writers.atoms, &caches.atoms, atom::on_atom);
    let mut versions = feed(writers.atom_versions, &caches.atom_versions, atom::on_version);
    let mut secrets = feed(writers.secrets, &caches.secrets, crate::on_secret);
    let mut config_maps = feed(writers.config_maps, &caches.config_maps, crate::on_config_map);
    for number in 0..MANY {
        let (input, first) = (format!("i{number}"), number - number % TEN);
        let mut from = vec![json!({"secretRef": {"name": input}}), json!({"configMapRef": {"name": input}})];
        let key = json!({"name": input, "key": "k"});
        let mut inputs = vec![json!({"name": "a", "secretKeyRef": key}), json!({"name": "b", "configMapKeyRef": key})];
        if number != first {
            let stack = format!("s{first}");
            from.push(json!({"stackRef": {"name": stack, "outputs": {"x": "y"}}}));
            inputs.push(json!({"name": "c", "stackRef": {"name": stack, "output": "y"}}));
        }
        let stack = json!({"source": {"inline": {"main.tf": ""}}, "variablesFrom": from});
        stacks.take(&context, Event::Apply(Ok(decoded("Stack", &format!("s{number}"), stack, number))));
        let atom = json!({"version": format!("v{number}"), "inputs": inputs});
        atoms.take(&context, Event::Apply(Ok(decoded("Atom", &format!("a{number}"), atom, number))));
        let version = json!({"templateFrom": {"configMapKeyRef": {"name": format!("t{number}"), "key": "k"}}});
        let mut version: AtomVersion = decoded("AtomVersion", &format!("v{number}"), version, number);
        version.labels_mut().insert(label::ATOM.to_owned(), format!("a{number}"));
        versions.take(&context, Event::Apply(Ok(version)));
        secrets.take(&context, Event::Apply(Ok(metadata::<Secret>(&input, number))));
        config_maps.take(&context, Event::Apply(Ok(metadata::<ConfigMap>(&input, number))));
    }
    asked(&mut requests);

    // Each event, the objects that it asks for, and how many it reads.
    let mut check = |what: &str, before: u64, expect: (BTreeSet<String>, u64)| {
        assert_eq!((asked(&mut requests), touched(caches) - before), expect, "{what}");
    };
    let before = touched(caches);
    secrets.take(&context, Event::Apply(Ok(metadata::<Secret>("i77", 77))));
    check("a Secret", before, (named(["s77", "a77"]), 0));
    let before = touched(caches);
    config_maps.take(&context, Event::Delete(Ok(metadata::<ConfigMap>("i77", 77))));
    check("a ConfigMap that goes", before, (named(["s77", "a77"]), 0));
    let before = touched(caches);
    config_maps.take(&context, Event::Apply(Ok(metadata::<ConfigMap>("t77", 77))));
    check("a template", before, (named(["a77", "v77"]), 0));
    let before = touched(caches);
    secrets.take(&context, Event::Apply(Ok(metadata::<Secret>("of nobody", MANY))));
    check("a Secret of nobody", before, (BTreeSet::new(), 0));

    let first = caches.stacks.named("default", "s70").unwrap();
    let before = touched(caches);
    stacks.take(&context, Event::Apply(Ok(Stack::clone(&first))));
    let related = ten("s", 70).chain(ten("a", 71).take(TEN - 1)).collect();
    check("a Stack with outputs", before, (related, 1));
    let one = caches.stacks.named("default", "s77").unwrap();
    let before = touched(caches);
    stacks.take(&context, Event::Apply(Ok(Stack::clone(&one))));
    check("a Stack that depends on another", before, (named(["s70", "s77"]), 1));
    let atom = caches.atoms.named("default", "a77").unwrap();
    let before = touched(caches);
    atoms.take(&context, Event::Apply(Ok(Atom::clone(&atom))));
    check("an Atom", before, (named(["a77"]), 1));
    let version = caches.atom_versions.named("default", "v77").unwrap();
    let before = touched(caches);
    versions.take(&context, Event::Apply(Ok(AtomVersion::clone(&version))));
    check("an AtomVersion", before, (named(["a77", "v77"]), 1));

    // Each reconcile, and how many objects it reads.
    let before = touched(caches);
    assert!(matches!(Stacks::observe(&context, &Subject::new(one).unwrap()).await, Ok(Observation::Complete(_))));
    assert_eq!(touched(caches) - before, 3, "the Stack that it waits for, its Workspace and its state");
    let before = touched(caches);
    let subject = Subject::new(first.clone()).unwrap();
    assert!(matches!(Stacks::observe(&context, &subject).await, Ok(Observation::Complete(_))));
    assert_eq!(touched(caches) - before, 4, "its Secret, its ConfigMap, its Workspace and its state");
    let mut deleted = Stack::clone(&first);
    deleted.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(context.now()));
    let before = touched(caches);
    let subject = Subject::new(Arc::new(deleted)).unwrap();
    assert!(matches!(Stacks::observe(&context, &subject).await, Ok(Observation::Complete(_))));
    assert_eq!(touched(caches) - before, 11, "the nine that depend on it, its Workspace and its state");
    let before = touched(caches);
    assert!(matches!(Atoms::observe(&context, &Subject::new(atom).unwrap()).await, Ok(Observation::Complete(_))));
    assert_eq!(touched(caches) - before, 1, "the Stack that it waits for");
    let before = touched(caches);
    let atom = Subject::new(caches.atoms.named("default", "a70").unwrap()).unwrap();
    assert!(matches!(Atoms::observe(&context, &atom).await, Ok(Observation::Complete(_))));
    assert!(touched(caches) - before < 10, "its version, its inputs and its template");
    let before = touched(caches);
    let version = Subject::new(version).unwrap();
    assert!(matches!(AtomVersions::observe(&context, &version).await, Ok(Observation::Complete(_))));
    assert_eq!(touched(caches) - before, 0, "nothing: the template is read from the API");
}
