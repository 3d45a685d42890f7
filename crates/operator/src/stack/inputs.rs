//! What the source and the variables of a Stack come to.
//!
//! *Guarantees.* Nothing is fetched again while nothing that a Stack refers to has changed, and no value of a variable
//! stays in memory.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use knoll_api::{
    Stack,
    names::{self, reason},
    source::SourceKind,
    stack::{Fetched, Snapshot},
};
use knoll_core::{
    stack::{Elsewhere, Inputs, revision, unready, variables_digest},
    status::Cause,
};
use knoll_storage::{Given, Lookup, Origin, Resolved, SourceError, VariablesError};
use kube::{
    Resource, ResourceExt,
    api::PartialObjectMeta,
    runtime::reflector::{self, ObjectRef},
};

use super::sources;
use crate::{context::Context, controller::Error};

/// What the inputs of a Stack came to, and what they are when they were just fetched.
pub struct Found {
    /// As the machine wants them.
    pub inputs: Inputs,
    /// What the revision is made of.
    pub made_of: Option<MadeOf>,
    /// What is known of a source outside of the cluster.
    pub elsewhere: Option<Elsewhere>,
}

impl Found {
    /// What came from outside of the cluster.
    pub fn fetched(&self) -> Option<&Fetched> {
        self.elsewhere.as_ref()?.fetched.as_ref()
    }

    fn only(inputs: Inputs) -> Self {
        Self { inputs, made_of: None, elsewhere: None }
    }
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
    found.secrets.extend(sources::secret(&stack.spec.source).map(|secret| secret.name.clone()));
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
pub async fn find(context: &Arc<Context>, stack: &Stack, namespace: &str, others: &[&Stack]) -> Result<Found, Error> {
    // A Stack that goes is destroyed with what it has kept.
    if stack.metadata.deletion_timestamp.is_some() {
        return Ok(Found::only(Inputs::Waiting));
    }
    let secret = sources::secret(&stack.spec.source);
    let secret = secret.map(|secret| version(&context.caches.secrets, namespace, &secret.name)).unwrap_or_default();
    let elsewhere = sources::look(context, stack, &secret);
    let found = match &elsewhere {
        Some(Elsewhere { fetched: None, trouble: Some(trouble), .. }) => {
            Found::only(Inputs::Unresolved(Cause::new(reason::SOURCE_FAILED, trouble)))
        }
        Some(Elsewhere { fetched: None, trouble: None, .. }) => Found::only(Inputs::Fetching),
        elsewhere => {
            let fetched = elsewhere.as_ref().and_then(|elsewhere| elsewhere.fetched.as_ref());
            resolve(context, stack, namespace, others, fetched).await?
        }
    };
    Ok(Found { elsewhere, ..found })
}

async fn resolve(
    context: &Context,
    stack: &Stack,
    namespace: &str,
    others: &[&Stack],
    fetched: Option<&Fetched>,
) -> Result<Found, Error> {
    let used: BTreeSet<&str> =
        stack.spec.variables_from.iter().filter_map(|from| Some(from.stack_ref.as_ref()?.name.as_str())).collect();
    if unready(stack, others).iter().any(|wait| used.contains(wait.name.as_str())) {
        return Ok(Found::only(Inputs::Waiting));
    }
    let versions = versions(context, stack, namespace, &used, fetched);
    if let Some(inputs) = context.memory.get(stack, &versions) {
        return Ok(Found::only(inputs));
    }
    let found = fetch(context, stack, namespace, fetched).await?;
    context.memory.put(stack, versions, found.inputs.clone());
    Ok(found)
}

/// Fetches everything from the cluster; `fetched` is what came from elsewhere.
pub async fn fetch(
    context: &Context,
    stack: &Stack,
    namespace: &str,
    fetched: Option<&Fetched>,
) -> Result<Found, Error> {
    let unresolved =
        |reason: &str, message: String| Ok(Found::only(Inputs::Unresolved(Cause::new(reason, sentence(&message)))));
    let origin = match fetched {
        Some(fetched) => fetched.bundle.parse().map(Origin::Stored).map_err(SourceError::from),
        // A reconcile never waits for what is outside of the cluster.
        None if sources::is_outside(&stack.spec.source) => return Ok(Found::only(Inputs::Fetching)),
        None => context.sources.resolver().resolve(namespace, &stack.spec.source, None).await,
    };
    let origin = match origin {
        Ok(origin) => origin,
        Err(SourceError::Api(error)) => return Err(Error::api("cannot read the source of a Stack")(error)),
        Err(error) => return unresolved(reason::SOURCE_FAILED, error.to_string()),
    };
    let mut lookup = Lookup::new(&context.storage, namespace);
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
    let bundle = origin.digest().to_string();
    let of_variables = variables_digest(stack, &variables);
    let snapshot = Snapshot {
        revision: revision(stack, &bundle, &of_variables),
        variables: names::variables_secret(&stack.name_any(), &of_variables),
        bundle,
    };
    let inputs = Inputs::Resolved { snapshot, source: fetched.map(|fetched| fetched.revision.clone()) };
    Ok(Found { made_of: Some(MadeOf { origin, variables }), ..Found::only(inputs) })
}

/// Everything that the inputs depend on, by its version.
fn versions(
    context: &Context,
    stack: &Stack,
    namespace: &str,
    used: &BTreeSet<&str>,
    fetched: Option<&Fetched>,
) -> String {
    let References { secrets, config_maps } = references(stack);
    let caches = &context.caches;
    let mut all = vec![format!(
        "{:?} {:?} {:?}",
        stack.uid(),
        stack.metadata.generation,
        stack.annotations().get(names::annotation::RECONCILE)
    )];
    all.extend(fetched.map(|fetched| format!("{} {}", fetched.revision, fetched.bundle)));
    all.extend(secrets.iter().map(|name| format!("Secret {name} {}", version(&caches.secrets, namespace, name))));
    all.extend(
        config_maps.iter().map(|name| format!("ConfigMap {name} {}", version(&caches.config_maps, namespace, name))),
    );
    for name in used {
        let state = caches.state(namespace, name).map(|head| head.summary.digest);
        all.push(format!("Stack {name} {}", state.unwrap_or_default()));
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
pub(super) fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}
