//! What the source and the variables of a Stack come to.
//!
//! *Guarantees.* Nothing is fetched again while nothing that a Stack refers to has changed, and no value of a variable
//! stays in memory.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
};

use knoll_api::{
    Stack,
    names::{self, reason},
    source::SourceKind,
    stack::Snapshot,
};
use knoll_bundle::{Origin, SourceError, of_source};
use knoll_core::{
    stack::{Inputs, revision, unready, variables_digest},
    status::Cause,
};
use knoll_hub::{Given, Lookup, Resolved, Store, VariablesError};
use kube::{
    Resource, ResourceExt,
    api::PartialObjectMeta,
    runtime::reflector::{self, ObjectRef},
};

use crate::{context::Context, controller::Error};

/// What the inputs of a Stack came to, and what they are when they were just fetched.
pub struct Found {
    /// As the machine wants them.
    pub inputs: Inputs,
    /// What the revision is made of.
    pub made_of: Option<MadeOf>,
}

/// What a revision is made of.
pub struct MadeOf {
    /// The files.
    pub origin: Origin,
    /// The variables.
    pub variables: Resolved,
}

/// The objects that a Stack refers to.
pub struct References {
    /// Names of Secrets.
    pub secrets: BTreeSet<String>,
    /// Names of ConfigMaps.
    pub config_maps: BTreeSet<String>,
}

/// What a Stack refers to.
pub fn references(stack: &Stack) -> References {
    let mut found = References { secrets: BTreeSet::new(), config_maps: BTreeSet::new() };
    if let Some(SourceKind::ConfigMap(source)) = stack.spec.source.kind() {
        found.config_maps.insert(source.name.clone());
    }
    for from in &stack.spec.variables_from {
        found.secrets.extend(from.secret_ref.as_ref().map(|keys| keys.name.clone()));
        found.config_maps.extend(from.config_map_ref.as_ref().map(|keys| keys.name.clone()));
    }
    for from in stack.spec.workspace.variables.iter().filter_map(|variable| variable.value_from.as_ref()) {
        found.secrets.extend(from.secret_key_ref.as_ref().map(|key| key.name.clone()));
        found.config_maps.extend(from.config_map_key_ref.as_ref().map(|key| key.name.clone()));
    }
    found
}

/// What the inputs of each Stack last came to, by the versions of all that they refer to.
#[derive(Debug, Default)]
pub struct Memory {
    known: Mutex<HashMap<ObjectRef<Stack>, (String, Inputs)>>,
}

impl Memory {
    /// Forgets a Stack that is gone.
    pub fn forget(&self, stack: &Stack) {
        self.lock().remove(&ObjectRef::from_obj(stack));
    }

    fn get(&self, stack: &Stack, versions: &str) -> Option<Inputs> {
        let known = self.lock();
        known.get(&ObjectRef::from_obj(stack)).filter(|(of, _)| of == versions).map(|(_, inputs)| inputs.clone())
    }

    fn put(&self, stack: &Stack, versions: String, inputs: Inputs) {
        self.lock().insert(ObjectRef::from_obj(stack), (versions, inputs));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ObjectRef<Stack>, (String, Inputs)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds out what the inputs come to, from memory when nothing has changed.
pub async fn find(context: &Context, stack: &Stack, namespace: &str, others: &[&Stack]) -> Result<Found, Error> {
    // A Stack that goes is destroyed with what it has kept.
    if stack.metadata.deletion_timestamp.is_some() {
        return Ok(Found { inputs: Inputs::Waiting, made_of: None });
    }
    let used: BTreeSet<&str> =
        stack.spec.variables_from.iter().filter_map(|from| Some(from.stack_ref.as_ref()?.name.as_str())).collect();
    if unready(stack, others).iter().any(|wait| used.contains(wait.name.as_str())) {
        return Ok(Found { inputs: Inputs::Waiting, made_of: None });
    }
    let versions = versions(context, stack, namespace, &used);
    if let Some(inputs) = context.memory.get(stack, &versions) {
        return Ok(Found { inputs, made_of: None });
    }
    let found = fetch(context, stack, namespace).await?;
    context.memory.put(stack, versions, found.inputs.clone());
    Ok(found)
}

/// Fetches everything.
pub async fn fetch(context: &Context, stack: &Stack, namespace: &str) -> Result<Found, Error> {
    let unresolved = |reason: &str, message: String| {
        Ok(Found { inputs: Inputs::Unresolved(Cause::new(reason, sentence(&message))), made_of: None })
    };
    let origin = match of_source(&context.client, namespace, &stack.spec.source).await {
        Ok(origin) => origin,
        Err(SourceError::Api(error)) => return Err(Error::api("cannot read the source of a Stack")(error)),
        Err(error) => return unresolved(reason::SOURCE_FAILED, error.to_string()),
    };
    let store = Store::new(context.client.clone());
    let mut lookup = Lookup::new(&context.client, &store, namespace);
    let given = Given {
        workspace: &stack.spec.workspace.variables,
        from: &stack.spec.variables_from,
        values: &stack.spec.variables,
    };
    let variables = match lookup.resolve_given(&stack.name_any(), given).await {
        Ok(variables) => variables,
        Err(VariablesError::Api(error)) => return Err(Error::api("cannot read the variables of a Stack")(error)),
        Err(error) => return unresolved(reason::VARIABLES_FAILED, error.to_string()),
    };
    let bundle = match &origin {
        Origin::Files(bundle) => bundle.digest.clone(),
        Origin::Kept(digest) => digest.clone(),
    };
    let of_variables = variables_digest(stack, &variables);
    let snapshot = Snapshot {
        revision: revision(stack, &bundle, &of_variables),
        variables: names::variables_secret(&stack.name_any(), &of_variables),
        bundle,
    };
    let inputs = Inputs::Resolved { snapshot, source: None };
    Ok(Found { inputs, made_of: Some(MadeOf { origin, variables }) })
}

/// Everything that the inputs depend on, by its version.
fn versions(context: &Context, stack: &Stack, namespace: &str, used: &BTreeSet<&str>) -> String {
    let References { secrets, config_maps } = references(stack);
    let caches = &context.caches;
    let mut all = vec![format!(
        "{:?} {:?} {:?}",
        stack.uid(),
        stack.metadata.generation,
        stack.annotations().get(names::annotation::RECONCILE)
    )];
    all.extend(secrets.iter().map(|name| format!("Secret {name} {}", version(&caches.secrets, namespace, name))));
    all.extend(
        config_maps.iter().map(|name| format!("ConfigMap {name} {}", version(&caches.config_maps, namespace, name))),
    );
    for name in used {
        let head = ObjectRef::new(&names::state_secret(name)).within(namespace);
        let head = caches.heads.get(&head).and_then(|head| head.resource_version());
        all.push(format!("Stack {name} {}", head.unwrap_or_default()));
    }
    all.join("\n")
}

/// The UID and the version of an object.
pub fn version<K>(store: &reflector::Store<PartialObjectMeta<K>>, namespace: &str, name: &str) -> String
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let found = store.get(&ObjectRef::new(name).within(namespace));
    found.map(|object| format!("{:?} {:?}", object.metadata.uid, object.metadata.resource_version)).unwrap_or_default()
}

/// A message of an error as a sentence.
fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}
