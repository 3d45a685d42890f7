//! What the spec of an Atom comes to: its version, its template and its inputs.
//!
//! *Guarantees.* Nothing is fetched again while nothing that an Atom refers to has changed, and no value of an input
//! stays in memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use knoll_api::{
    Atom, AtomVersion, Stack,
    names::{self, reason},
    variables::ValueFrom,
};
use knoll_core::{
    atom::{
        Wanted, needs,
        template::{self, Inputs},
    },
    status::Cause,
};
use knoll_storage::{Lookup, Store, VariablesError};
use kube::{ResourceExt, runtime::reflector::ObjectRef};
use serde_json::Value;

use crate::{context::Context, controller::Error, stack::inputs::version as version_of};

/// What the objects are made of.
pub struct Materials {
    /// What is wanted.
    pub wanted: Wanted,
    /// The text of the template.
    pub template: String,
    /// The values for it.
    pub inputs: Inputs,
}

/// What the spec of each Atom last came to, by the versions of all that it refers to.
#[derive(Debug, Default)]
pub struct Memory {
    known: Mutex<HashMap<ObjectRef<Atom>, (String, Wanted)>>,
}

impl Memory {
    /// Forgets an Atom that is gone.
    pub fn forget(&self, atom: &Atom) {
        self.lock().remove(&ObjectRef::from_obj(atom));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ObjectRef<Atom>, (String, Wanted)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds out what is wanted, from memory when nothing has changed.
pub async fn find(context: &Context, atom: &Atom) -> Result<Wanted, Error> {
    let namespace = atom.namespace().unwrap_or_default();
    // An Atom that goes wants nothing any more.
    if atom.metadata.deletion_timestamp.is_some() {
        return Ok(unknown(reason::DELETING, "It is being deleted.".to_owned(), false));
    }
    let here = |found: Option<&str>| found == Some(namespace.as_str());
    let stacks: Vec<Arc<Stack>> = context.caches.stacks.state_filter(|stack| here(stack.metadata.namespace.as_deref()));
    let atoms: Vec<Arc<Atom>> = context.caches.atoms.state_filter(|other| here(other.metadata.namespace.as_deref()));
    let stacks: Vec<&Stack> = stacks.iter().map(AsRef::as_ref).collect();
    let atoms: Vec<&Atom> = atoms.iter().map(AsRef::as_ref).collect();
    if let Some(waiting) = needs::waiting(atom, &stacks, &atoms) {
        return Ok(waiting);
    }
    let Some(version) = version(context, atom) else {
        let message = format!(
            "There is no AtomVersion `{}` in namespace `{namespace}`. Create it, or name another in spec.version.",
            atom.spec.version
        );
        return Ok(unknown(reason::VERSION_NOT_FOUND, message, true));
    };
    let versions = versions(context, atom, &version, &namespace);
    let known = context.wanted.lock().get(&ObjectRef::from_obj(atom)).cloned();
    if let Some((_, wanted)) = known.filter(|(of, _)| *of == versions) {
        return Ok(wanted);
    }
    let wanted = materials(context, atom).await?.wanted;
    context.wanted.lock().insert(ObjectRef::from_obj(atom), (versions, wanted.clone()));
    Ok(wanted)
}

/// Fetches everything.
pub async fn materials(context: &Context, atom: &Atom) -> Result<Materials, Error> {
    let namespace = atom.namespace().unwrap_or_default();
    let nothing = |wanted| Ok(Materials { wanted, template: String::new(), inputs: Inputs::new() });
    let Some(version) = version(context, atom) else {
        return nothing(unknown(reason::VERSION_NOT_FOUND, "Its version is gone.".to_owned(), true));
    };
    let store = Store::new(context.client.clone());
    let mut lookup = Lookup::new(&context.client, &store, &namespace);
    let template = match text(&mut lookup, &version).await? {
        Ok(template) => template,
        Err(cause) => return nothing(Wanted::Unknown { cause, stuck: true }),
    };
    let digest = needs::template_digest(&template);
    let first = version.status.as_ref().and_then(|status| status.digest.as_ref());
    if first.is_some_and(|first| *first != digest) {
        let message = format!(
            "The template of AtomVersion `{}` has changed since it was first used. A version never changes: create another one and name it in spec.version.",
            version.name_any()
        );
        return nothing(unknown(reason::TEMPLATE_INVALID, message, true));
    }
    let mut inputs = Inputs::new();
    for input in &atom.spec.inputs {
        let what = format!("the input `{}`", input.name);
        let value = if let Some(value) = &input.value {
            Ok(Value::String(value.clone()))
        } else if let Some(from) = &input.stack_ref {
            lookup.output(&from.name, &from.output, &what).await
        } else {
            let from = ValueFrom {
                secret_key_ref: input.secret_key_ref.clone(),
                config_map_key_ref: input.config_map_key_ref.clone(),
            };
            lookup.value_from(&from, &what).await.map(|(text, _)| Value::String(text))
        };
        let value = match value {
            Ok(value) => value,
            Err(VariablesError::Api(error)) => return Err(Error::api("cannot read the inputs of an Atom")(error)),
            Err(error) => return nothing(unknown(reason::INPUTS_FAILED, sentence(&error.to_string()), true)),
        };
        match template::typed(&input.name, value, input.type_) {
            Ok(value) => inputs.insert(input.name.clone(), value),
            Err(error) => return nothing(unknown(reason::INPUTS_FAILED, sentence(&error.to_string()), true)),
        };
    }
    let stacks: BTreeMap<String, String> = needs::stacks(atom)
        .into_iter()
        .filter_map(|name| {
            let stack = context.caches.stacks.get(&ObjectRef::new(name).within(&namespace))?;
            Some((name.to_owned(), stack.status.as_ref()?.revision.clone()?))
        })
        .collect();
    let wanted = Wanted::Known(needs::revision(atom, &digest, &inputs, stacks));
    Ok(Materials { wanted, template, inputs })
}

/// The text of a version's template, or why there is none.
pub async fn text(lookup: &mut Lookup<'_>, version: &AtomVersion) -> Result<Result<String, Cause>, Error> {
    if let Some(template) = &version.spec.template {
        return Ok(Ok(template.clone()));
    }
    let name = version.name_any();
    let Some(from) = &version.spec.template_from else {
        return Ok(Err(Cause::new(reason::TEMPLATE_INVALID, format!("AtomVersion `{name}` has no template."))));
    };
    match lookup.value_from(from, &format!("the AtomVersion `{name}`")).await {
        Ok((text, _)) => Ok(Ok(text)),
        Err(VariablesError::Api(error)) => Err(Error::api("cannot read the template of an AtomVersion")(error)),
        Err(error) => Ok(Err(Cause::new(reason::TEMPLATE_INVALID, sentence(&error.to_string())))),
    }
}

/// The names of the Secrets and of the ConfigMaps that an Atom and its version refer to.
pub fn references(context: &Context, atom: &Atom) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut secrets, mut config_maps) = (BTreeSet::new(), BTreeSet::new());
    for input in &atom.spec.inputs {
        secrets.extend(input.secret_key_ref.as_ref().map(|key| key.name.clone()));
        config_maps.extend(input.config_map_key_ref.as_ref().map(|key| key.name.clone()));
    }
    if let Some(from) = version(context, atom).and_then(|version| version.spec.template_from.clone()) {
        secrets.extend(from.secret_key_ref.map(|key| key.name));
        config_maps.extend(from.config_map_key_ref.map(|key| key.name));
    }
    (secrets, config_maps)
}

fn version(context: &Context, atom: &Atom) -> Option<Arc<AtomVersion>> {
    let namespace = atom.namespace().unwrap_or_default();
    context.caches.atom_versions.get(&ObjectRef::new(&atom.spec.version).within(&namespace))
}

/// Everything that the wish depends on, by its version.
fn versions(context: &Context, atom: &Atom, version: &AtomVersion, namespace: &str) -> String {
    let caches = &context.caches;
    let (secrets, config_maps) = references(context, atom);
    let digest = version.status.as_ref().and_then(|status| status.digest.clone());
    let mut all = vec![format!(
        "{:?} {:?} {:?} {:?} {:?} {digest:?}",
        atom.uid(),
        atom.metadata.generation,
        atom.annotations().get(names::annotation::RECONCILE),
        version.uid(),
        version.metadata.generation,
    )];
    all.extend(secrets.iter().map(|name| format!("Secret {name} {}", version_of(&caches.secrets, namespace, name))));
    all.extend(
        config_maps.iter().map(|name| format!("ConfigMap {name} {}", version_of(&caches.config_maps, namespace, name))),
    );
    for name in needs::stacks(atom) {
        let state = caches.state(namespace, name).map(|head| head.summary.digest);
        let stack = caches.stacks.get(&ObjectRef::new(name).within(namespace));
        let revision = stack.and_then(|stack| stack.status.as_ref()?.revision.clone());
        all.push(format!("Stack {name} {} {}", state.unwrap_or_default(), revision.unwrap_or_default()));
    }
    all.join("\n")
}

fn unknown(reason: &str, message: String, stuck: bool) -> Wanted {
    Wanted::Unknown { cause: Cause::new(reason, message), stuck }
}

/// A message of an error as a sentence.
pub fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}
