//! The inputs of a Stack, read from the cluster.
//!
//! *Guarantees.* Nothing is read again while no object that a Stack refers to has changed, and no value of a variable stays
//! in memory.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use knoll_api::{
    Stack,
    names::{annotation, reason},
    stack::Fetched,
};
use knoll_core::{
    identity::Subject,
    stack::{Inputs, References, RemoteSource},
};
use knoll_storage::{Given, Lookup, Origin, Resolved, SourceError, VariablesError};
use kube::{Resource, ResourceExt, api::PartialObjectMeta, runtime::reflector::ObjectRef};

use crate::{context::Context, controller::Error, index::Cache};

/// The inputs of a Stack, with their contents if those were just read.
pub struct StackInputs {
    pub inputs: Inputs,
    pub contents: Option<Contents>,
}

impl From<Inputs> for StackInputs {
    fn from(inputs: Inputs) -> Self {
        Self { inputs, contents: None }
    }
}

/// The contents of a revision.
pub struct Contents {
    pub origin: Origin,
    pub variables: Resolved,
}

/// The versions of everything that the inputs of a Stack depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InputVersions {
    uid: String,
    generation: Option<i64>,
    request: Option<String>,
    fetched: Option<Fetched>,
    secrets: BTreeMap<String, String>,
    config_maps: BTreeMap<String, String>,
    /// The digests of the states of other Stacks.
    states: BTreeMap<String, Option<String>>,
}

impl InputVersions {
    fn of(context: &Context, stack: &Subject<Stack>, fetched: Option<&Fetched>) -> Self {
        let References { secrets, config_maps, stacks } = References::of(stack);
        let (caches, namespace) = (&context.caches, stack.namespace());
        let state = |name: &str| caches.state(namespace, name).map(|head| head.summary.digest);
        Self {
            uid: stack.uid().to_owned(),
            generation: stack.metadata.generation,
            request: stack.annotations().get(annotation::RECONCILE).cloned(),
            fetched: fetched.cloned(),
            secrets: secrets
                .into_iter()
                .map(|name| (name.clone(), version(&caches.secrets, namespace, &name)))
                .collect(),
            config_maps: config_maps
                .into_iter()
                .map(|name| (name.clone(), version(&caches.config_maps, namespace, &name)))
                .collect(),
            states: stacks.into_iter().map(|name| (name.clone(), state(&name))).collect(),
        }
    }
}

/// The inputs of each Stack, for as long as the versions stay the same.
#[derive(Debug, Default)]
pub struct InputCache {
    known: Mutex<HashMap<ObjectRef<Stack>, (InputVersions, Inputs)>>,
}

impl InputCache {
    /// Forgets a Stack that is gone.
    pub fn forget(&self, stack: &Stack) {
        self.lock().remove(&ObjectRef::from_obj(stack));
    }

    fn get(&self, stack: &Stack, versions: &InputVersions) -> Option<Inputs> {
        let known = self.lock();
        known.get(&ObjectRef::from_obj(stack)).filter(|(of, _)| of == versions).map(|(_, inputs)| inputs.clone())
    }

    fn put(&self, stack: &Stack, versions: InputVersions, inputs: Inputs) {
        self.lock().insert(ObjectRef::from_obj(stack), (versions, inputs));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<Stack>, (InputVersions, Inputs)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves the inputs, from memory if nothing has changed.
pub async fn resolve(
    context: &Context,
    stack: &Subject<Stack>,
    remote: Option<&RemoteSource>,
    related: &[Arc<Stack>],
) -> Result<StackInputs, Error> {
    let related: Vec<&Stack> = related.iter().map(AsRef::as_ref).collect();
    if let Some(inputs) = Inputs::known(stack, remote, &related) {
        return Ok(inputs.into());
    }
    let fetched = remote.and_then(|remote| remote.fetched.as_ref());
    let versions = InputVersions::of(context, stack, fetched);
    if let Some(inputs) = context.stack_inputs.get(stack, &versions) {
        return Ok(inputs.into());
    }
    let read = read(context, stack, fetched).await?;
    context.stack_inputs.put(stack, versions, read.inputs.clone());
    Ok(read)
}

/// Reads everything from the cluster. `fetched` has the files of a source outside of it.
pub async fn read(context: &Context, stack: &Subject<Stack>, fetched: Option<&Fetched>) -> Result<StackInputs, Error> {
    let namespace = stack.namespace();
    let origin = match fetched {
        Some(fetched) => fetched.bundle.parse().map(Origin::Stored).map_err(SourceError::from),
        None => context.sources.resolver().resolve(namespace, &stack.spec.source, None).await,
    };
    let origin = match origin {
        Ok(origin) => origin,
        Err(SourceError::Api(error)) => return Err(Error::api("cannot read the source of a Stack")(error)),
        Err(error) => return Ok(Inputs::unresolved(reason::SOURCE_FAILED, &error).into()),
    };
    let mut lookup = Lookup::new(&context.storage, namespace);
    let given = Given {
        workspace: &stack.spec.workspace.variables,
        from: &stack.spec.variables_from,
        values: &stack.spec.variables,
    };
    let variables = match lookup.resolve_given(stack.name(), given).await {
        Ok(variables) => variables,
        Err(VariablesError::Api(error)) => return Err(Error::api("cannot read the variables of a Stack")(error)),
        Err(error) => return Ok(Inputs::unresolved(reason::VARIABLES_FAILED, &error).into()),
    };
    let revision = fetched.map(|fetched| fetched.revision.clone());
    let inputs = Inputs::resolved(stack, origin.digest().to_string(), &variables, revision);
    Ok(StackInputs { inputs, contents: Some(Contents { origin, variables }) })
}

/// The UID and the version of an object.
pub fn version<K>(cache: &Cache<PartialObjectMeta<K>>, namespace: &str, name: &str) -> String
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    let found = cache.named(namespace, name);
    found.map(|object| format!("{:?} {:?}", object.metadata.uid, object.metadata.resource_version)).unwrap_or_default()
}
