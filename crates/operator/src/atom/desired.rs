//! Resolves the spec of an Atom to a revision: its version, its template and its inputs.
//!
//! *Guarantees.* Nothing is fetched again while no object that the Atom refers to has changed. No value of an input stays
//! in memory.

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
        ActionError, Desired, account, needs,
        template::{self, InputValues, sentence},
        version::check_unchanged,
    },
    identity::Subject,
    status::Cause,
};
use knoll_storage::{Lookup, Storage, VariablesError};
use kube::{ResourceExt, runtime::reflector::ObjectRef};
use serde_json::Value;

use super::objects::Objects;
use crate::{
    context::Context,
    controller::{Error, code},
    stack::inputs::version as version_of,
};

/// A revision with the text and the values that it is made of. They are empty when the revision is unresolved.
pub struct Resolved {
    pub desired: Desired,
    pub template: String,
    /// Whether the template comes from a Secret.
    pub has_secret_template: bool,
    pub inputs: InputValues,
}

/// The last resolved revision of each Atom, with the resource versions of all objects that it was made of.
#[derive(Debug, Default)]
pub struct RevisionCache {
    known: Mutex<HashMap<ObjectRef<Atom>, (String, Desired)>>,
}

impl RevisionCache {
    /// Forgets an Atom that is gone.
    pub fn forget(&self, atom: &Atom) {
        self.lock().remove(&ObjectRef::from_obj(atom));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ObjectRef<Atom>, (String, Desired)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds the desired revision, in the cache when nothing has changed.
pub async fn find(context: &Context, atom: &Subject<Atom>) -> Result<Desired, Error> {
    let namespace = atom.namespace();
    // An Atom that is being deleted needs no revision.
    if atom.metadata.deletion_timestamp.is_some() {
        return Ok(missing(reason::DELETING, "The Atom is being deleted.".to_owned(), false));
    }
    let stacks: Vec<Arc<Stack>> =
        needs::stacks(atom).into_iter().filter_map(|name| context.caches.stacks.named(namespace, name)).collect();
    let atoms = dependencies(context, atom);
    let stacks: Vec<&Stack> = stacks.iter().map(AsRef::as_ref).collect();
    let atoms: Vec<&Atom> = atoms.iter().map(AsRef::as_ref).collect();
    if let Some(waiting) = needs::waiting(atom, &stacks, &atoms) {
        return Ok(waiting);
    }
    let Some(version) = version(context, atom) else {
        return Ok(version_not_found(atom));
    };
    let versions = versions(context, atom, &version);
    let known = context.revisions.lock().get(&ObjectRef::from_obj(atom)).cloned();
    if let Some((_, desired)) = known.filter(|(of, _)| *of == versions) {
        return Ok(desired);
    }
    let desired = resolve(context, atom).await?.desired;
    // A right that is missing can be granted without any change of these objects.
    if matches!(&desired, Desired::Unresolved { cause, .. } if cause.reason == reason::FORBIDDEN) {
        return Ok(desired);
    }
    context.revisions.lock().insert(ObjectRef::from_obj(atom), (versions, desired.clone()));
    Ok(desired)
}

/// Resolves the spec, with a read of everything that it refers to. Secrets and ConfigMaps are read as the Atom's account;
/// outputs of Stacks are Knoll's own.
pub async fn resolve(context: &Context, atom: &Subject<Atom>) -> Result<Resolved, Error> {
    let namespace = atom.namespace();
    let unresolved = |desired| {
        Ok(Resolved { desired, template: String::new(), has_secret_template: false, inputs: InputValues::new() })
    };
    let refused = |error: ActionError| match error {
        ActionError::Refused(cause) => unresolved(Desired::Unresolved { cause, stalled: true }),
        ActionError::Retry(message) => unresolved(missing(reason::RETRYING, message, false)),
    };
    let Some(version) = version(context, atom) else {
        return unresolved(version_not_found(atom));
    };
    let objects = match Objects::of(atom, &context.client, &context.kinds) {
        Ok(objects) => objects,
        Err(error) => return refused(error),
    };
    let acting = Storage::new(objects.client().clone());
    let (mut lookup, own) = (Lookup::new(&acting, namespace), Lookup::new(&context.storage, namespace));
    let template = match template_text(&mut lookup, &version).await {
        Ok(Ok(template)) => template,
        Ok(Err(cause)) => return unresolved(Desired::Unresolved { cause, stalled: true }),
        Err(Error::Api { source, .. }) if code(&source) == Some(403) => {
            let from = version.spec.template_from.clone().unwrap_or_default();
            return refused(objects.forbidden(&from, *source));
        }
        Err(error) => return Err(error),
    };
    let has_secret_template = version.spec.template_from.as_ref().is_some_and(|from| from.secret_key_ref.is_some());
    let digest = template::digest(&template);
    let first = version.status.as_ref().and_then(|status| status.digest.as_deref());
    if let Err(cause) = check_unchanged(first, &digest) {
        return unresolved(Desired::Unresolved { cause, stalled: true });
    }
    let mut inputs = InputValues::new();
    for input in &atom.spec.inputs {
        let what = format!("the input `{}`", input.name);
        let from = ValueFrom {
            secret_key_ref: input.secret_key_ref.clone(),
            config_map_key_ref: input.config_map_key_ref.clone(),
        };
        let value = if let Some(value) = &input.value {
            Ok((Value::String(value.clone()), false))
        } else if let Some(from) = &input.stack_ref {
            own.output(&from.name, &from.output, &what).await
        } else {
            lookup.value_from(&from, &what).await.map(|(text, is_secret)| (Value::String(text), is_secret))
        };
        let (value, is_secret) = match value {
            Ok(value) => value,
            Err(VariablesError::Api(error)) if input.stack_ref.is_none() && code(&error) == Some(403) => {
                return refused(objects.forbidden(&from, error));
            }
            Err(VariablesError::Api(error)) => return Err(Error::api("cannot read the inputs of an Atom")(error)),
            Err(error) => return unresolved(missing(reason::INPUTS_FAILED, sentence(&error.to_string()), true)),
        };
        match template::typed(&input.name, value, input.type_) {
            Ok(value) => inputs.insert(input.name.clone(), value, is_secret),
            Err(error) => return unresolved(missing(reason::INPUTS_FAILED, sentence(&error.to_string()), true)),
        };
    }
    let stacks: BTreeMap<String, String> = needs::stacks(atom)
        .into_iter()
        .filter_map(|name| {
            let stack = context.caches.stacks.named(namespace, name)?;
            Some((name.to_owned(), stack.status.as_ref()?.revision.clone()?))
        })
        .collect();
    let desired = Desired::Revision(needs::revision(atom, &digest, &inputs, stacks));
    Ok(Resolved { desired, template, has_secret_template, inputs })
}

/// The text of a version's template, or why it cannot be read.
pub async fn template_text(lookup: &mut Lookup<'_>, version: &AtomVersion) -> Result<Result<String, Cause>, Error> {
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
fn references(context: &Context, atom: &Subject<Atom>) -> (BTreeSet<String>, BTreeSet<String>) {
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

/// The Atoms that an Atom depends on, directly or through others.
fn dependencies(context: &Context, atom: &Subject<Atom>) -> Vec<Arc<Atom>> {
    let names = |atom: &Atom| needs::atoms(atom).into_iter().map(str::to_owned).collect::<Vec<String>>();
    let mut open = names(atom);
    let mut found: BTreeMap<String, Arc<Atom>> = BTreeMap::new();
    while let Some(name) = open.pop() {
        if found.contains_key(&name) {
            continue;
        }
        if let Some(other) = context.caches.atoms.named(atom.namespace(), &name) {
            open.extend(names(&other));
            found.insert(name, other);
        }
    }
    found.into_values().collect()
}

/// The AtomVersion that the spec names.
fn version(context: &Context, atom: &Subject<Atom>) -> Option<Arc<AtomVersion>> {
    context.caches.atom_versions.named(atom.namespace(), &atom.spec.version)
}

/// The versions of all objects that the revision is made of.
fn versions(context: &Context, atom: &Subject<Atom>, version: &AtomVersion) -> String {
    let (caches, namespace) = (&context.caches, atom.namespace());
    let (secrets, config_maps) = references(context, atom);
    let digest = version.status.as_ref().and_then(|status| status.digest.clone());
    let mut all = vec![format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {digest:?}",
        atom.uid(),
        atom.metadata.generation,
        account::of(atom),
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
        let stack = caches.stacks.named(namespace, name);
        let revision = stack.and_then(|stack| stack.status.as_ref()?.revision.clone());
        all.push(format!("Stack {name} {} {}", state.unwrap_or_default(), revision.unwrap_or_default()));
    }
    all.join("\n")
}

fn version_not_found(atom: &Subject<Atom>) -> Desired {
    let message = format!(
        "AtomVersion `{}` does not exist in namespace `{}`. Create it, or name another one in spec.version.",
        atom.spec.version,
        atom.namespace()
    );
    missing(reason::VERSION_NOT_FOUND, message, true)
}

fn missing(reason: &str, message: String, stalled: bool) -> Desired {
    Desired::Unresolved { cause: Cause::new(reason, message), stalled }
}
