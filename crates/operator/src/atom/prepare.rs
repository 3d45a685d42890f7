//! Before the first write: the whole set is checked by the API itself, and what it would change is kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::FutureExt;
use k8s_openapi::ByteString;
use knoll_api::{
    Atom,
    atom::{AtomObject, ObjectKey},
    names::{annotation, is_path_segment, reason},
};
use knoll_core::{
    atom::{
        Outcome,
        journal::{Entry, Journal, Owner, is_going, mark_replaced, may_replace, uid},
        template,
        waves::Wave,
    },
    readiness,
    status::Cause,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    kept,
    objects::{Halt, Objects, some_at_a_time},
    wanted,
};
use crate::context::Context;

/// How many refusals a message names.
const NAMED: usize = 5;

/// The most objects that an Atom has: its status names each of them.
const MOST: usize = 4000;

/// One object of the version.
struct Planned {
    key: ObjectKey,
    object: Value,
    /// The definition of its kind, when that comes with the same version.
    defined: Option<String>,
    /// Its namespace comes with the same version.
    homeless: bool,
}

/// Checks the set and keeps the journal.
pub(super) async fn run(context: &Context, atom: &Atom, objects: &Objects<'_>) -> Result<Outcome, Halt> {
    let materials = wanted::materials(context, atom).await?;
    let status = atom.status.clone().unwrap_or_default();
    let tried = match &materials.wanted {
        knoll_core::atom::Wanted::Known(revision) => Some(revision),
        knoll_core::atom::Wanted::Unknown { .. } => None,
    };
    let same = tried.zip(status.tried.as_ref());
    if same.is_none_or(|(now, then)| now.template != then.template || now.inputs != then.inputs) {
        return Err(Halt::Later("Its inputs change while they are looked at.".to_owned()));
    }
    let owner = Owner::of(atom);
    let planned = plan(atom, objects, &owner, &materials).await?;
    let earlier = match &status.journal {
        Some(journal) => Some(kept::read(context, atom, &journal.secret_name).await?),
        None => None,
    };
    let old: Vec<ObjectKey> = {
        let inventory = status.objects.iter().map(|object| object.object.clone());
        let touched = earlier.iter().flat_map(|journal| journal.entries.iter().map(|entry| entry.key.clone()));
        let new: BTreeSet<Ident> = planned.iter().map(|planned| ident(&planned.key)).collect();
        let mut seen = BTreeSet::new();
        inventory.chain(touched).filter(|key| !new.contains(&ident(key)) && seen.insert(ident(key))).collect()
    };
    let keys: Vec<ObjectKey> = planned.iter().map(|planned| planned.key.clone()).chain(old.clone()).collect();
    let now = objects.fetch(&keys).await?;
    refuse_foreign(&owner, &planned, &now)?;
    let checks = check_all(atom, objects, &owner, &planned, &now).await?;

    let mut before: BTreeMap<Ident, Option<Value>> = BTreeMap::new();
    for entry in earlier.iter().flat_map(|journal| &journal.entries) {
        before.insert(ident(&entry.key), entry.before.clone());
    }
    let mut before_of = |key: &ObjectKey| before.remove(&ident(key)).unwrap_or_else(|| now.get(key).cloned());
    let mut entries: Vec<Entry> = Vec::new();
    for (planned, check) in planned.into_iter().zip(checks) {
        let Planned { key, mut object, .. } = planned;
        let replace = match check {
            Check::Replace => now.get(&key).and_then(uid).map(str::to_owned),
            _ => None,
        };
        if replace.is_some() {
            mark_replaced(&mut object, status.attempts);
        } else if let Some(by) =
            now.get(&key).and_then(|now| now["metadata"]["annotations"].get(annotation::REPLACED_BY))
        {
            // Whoever leaves it out takes it away, and what says how the object came to be has to stay.
            object["metadata"]["annotations"][annotation::REPLACED_BY] = by.clone();
        }
        entries.push(Entry {
            before: before_of(&key),
            replace,
            prune: None,
            unchecked: matches!(check, Check::Unchecked),
            unchanged: matches!(check, Check::Unchanged),
            object: Some(object),
            key,
        });
    }
    entries.sort_by_key(|entry| Wave::of(&entry.key));
    for key in old {
        let prune = now.get(&key).filter(|now| owner.has(now)).and_then(uid).map(str::to_owned);
        let before = before_of(&key);
        entries.push(Entry { before, prune, key, ..Entry::default() });
    }
    let since = earlier.map_or(status.attempts, |journal| journal.since);
    let listed = entries.iter().filter(|entry| entry.object.is_some()).map(|entry| AtomObject {
        object: entry.key.clone(),
        uid: now.get(&entry.key).and_then(uid).map(str::to_owned),
        ..AtomObject::default()
    });
    let listed: Vec<AtomObject> = listed.collect();
    let secret_name = kept::write(context, atom, &Journal { since, entries }).await?;
    Ok(Outcome::Prepared { secret_name, objects: listed })
}

/// What makes two keys the same object, whatever the version of its API.
type Ident = (String, String, Option<String>, String);

fn ident(key: &ObjectKey) -> Ident {
    let group = key.api_version.split_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), key.kind.clone(), key.namespace.clone(), key.name.clone())
}

fn refused(reason: &str, message: impl Into<String>) -> Halt {
    Halt::Refused(Cause::new(reason, message))
}

/// The objects of the template, each with its kind, its namespace and its owner.
async fn plan(
    atom: &Atom,
    objects: &Objects<'_>,
    owner: &Owner,
    materials: &wanted::Materials,
) -> Result<Vec<Planned>, Halt> {
    let home = atom.namespace().unwrap_or_default();
    let rendered = template::render(&materials.template, &materials.inputs)
        .map_err(|error| refused(reason::TEMPLATE_INVALID, wanted::sentence(&error.to_string())))?;
    if rendered.len() > MOST {
        let message = format!("The template has {} objects; an Atom has at most {MOST}.", rendered.len());
        return Err(refused(reason::TEMPLATE_INVALID, message));
    }
    let definitions: Vec<Defined> = rendered.iter().filter_map(Defined::read).collect();
    let namespaces: BTreeSet<String> = rendered
        .iter()
        .map(template::key)
        .filter(|key| Wave::of(key) == Wave::Namespaces)
        .map(|key| key.name)
        .collect();
    let mut planned = Vec::new();
    let mut seen = BTreeSet::new();
    for mut object in rendered {
        let mut key = template::key(&object);
        check_names(&key)?;
        readiness::check(&object).map_err(|error| refused(reason::TEMPLATE_INVALID, format!("`{key}`: {error}.")))?;
        let defined = definitions.iter().find(|defined| defined.is(&key));
        let namespaced = match (objects.kind(&key).await?, defined) {
            (Some(kind), _) => kind.namespaced,
            (None, Some(defined)) => defined.namespaced,
            (None, None) => {
                let message = format!(
                    "`{key}`: the cluster has no kind `{}` in `{}`. Add its CustomResourceDefinition to the template, or install it first.",
                    key.kind, key.api_version
                );
                return Err(refused(reason::TEMPLATE_INVALID, message));
            }
        };
        key.namespace = namespaced.then(|| key.namespace.take().unwrap_or_else(|| home.clone()));
        match &key.namespace {
            Some(namespace) => object["metadata"]["namespace"] = namespace.clone().into(),
            None => drop(object["metadata"].as_object_mut().and_then(|metadata| metadata.remove("namespace"))),
        }
        if atom.spec.service_account_name.is_none() && key.namespace.as_ref() != Some(&home) {
            let message = format!(
                "`{key}` is not in the namespace `{home}` of the Atom. Name a service account that may write it in spec.serviceAccountName."
            );
            return Err(refused(reason::FORBIDDEN, message));
        }
        if !seen.insert(ident(&key)) {
            return Err(refused(
                reason::TEMPLATE_INVALID,
                format!("The template has `{key}` twice. Keep one of them."),
            ));
        }
        to_data(&key, &mut object);
        owner.mark(&mut object);
        let homeless = key.namespace.as_ref().is_some_and(|namespace| namespaces.contains(namespace));
        planned.push(Planned { key, object, defined: defined.map(|defined| defined.name.clone()), homeless });
    }
    Ok(planned)
}

/// Refuses an object whose address would not be a path of the API.
fn check_names(key: &ObjectKey) -> Result<(), Halt> {
    let fields = [("metadata.name", Some(&key.name)), ("metadata.namespace", key.namespace.as_ref())];
    let bad = fields.into_iter().find_map(|(field, value)| Some((field, value.filter(|name| !is_path_segment(name))?)));
    bad.map_or(Ok(()), |(field, name)| {
        let message = format!("`{}`: {field} {name:?} cannot be the name of an object.", key.kind);
        Err(refused(reason::TEMPLATE_INVALID, message))
    })
}

/// Writes the texts of a Secret where the API keeps them: who applies `stringData` owns a field that no object has, and
/// could not bring it back.
fn to_data(key: &ObjectKey, object: &mut Value) {
    if (key.api_version.as_str(), key.kind.as_str()) != ("v1", "Secret") {
        return;
    }
    let Some(Value::Object(texts)) = object.as_object_mut().and_then(|object| object.remove("stringData")) else {
        return;
    };
    if !object["data"].is_object() {
        object["data"] = json!({});
    }
    for (name, text) in texts {
        let bytes = text.as_str().map(|text| ByteString(text.as_bytes().to_vec()));
        // What is no text is for the API to refuse.
        object["data"][name] = bytes.and_then(|bytes| serde_json::to_value(bytes).ok()).unwrap_or(text);
    }
}

/// A kind that comes with the template.
struct Defined {
    name: String,
    group: String,
    kind: String,
    versions: Vec<String>,
    namespaced: bool,
}

impl Defined {
    fn read(object: &Value) -> Option<Self> {
        if Wave::of(&template::key(object)) != Wave::Definitions {
            return None;
        }
        let spec = object.get("spec")?;
        let versions = spec.get("versions")?.as_array()?.iter();
        Some(Self {
            name: template::key(object).name,
            group: spec.get("group")?.as_str()?.to_owned(),
            kind: spec.pointer("/names/kind")?.as_str()?.to_owned(),
            versions: versions.filter_map(|version| Some(version.get("name")?.as_str()?.to_owned())).collect(),
            namespaced: spec.get("scope").and_then(Value::as_str) != Some("Cluster"),
        })
    }

    fn is(&self, key: &ObjectKey) -> bool {
        let Some((group, version)) = key.api_version.split_once('/') else { return false };
        group == self.group && key.kind == self.kind && self.versions.iter().any(|known| known == version)
    }
}

fn refuse_foreign(owner: &Owner, planned: &[Planned], now: &HashMap<ObjectKey, Value>) -> Result<(), Halt> {
    let found = planned.iter().filter_map(|planned| now.get(&planned.key));
    let refusals: Vec<String> = found.clone().filter_map(|now| owner.refusal(now)).take(NAMED).collect();
    if !refusals.is_empty() {
        return Err(refused(reason::OBJECT_CONFLICT, refusals.join(" ")));
    }
    match found.into_iter().find(|now| is_going(now)) {
        Some(going) => Err(Halt::Later(format!("`{}` is still being deleted.", template::key(going)))),
        None => Ok(()),
    }
}

/// What the check of an object came to.
enum Check {
    /// It would be written.
    Fine,
    /// Nothing would change.
    Unchanged,
    /// It has to be deleted and made anew.
    Replace,
    /// It cannot be checked before its kind or its namespace is there.
    Unchecked,
}

/// Lets the API check every object. Nothing is refused alone: a message names the first few.
async fn check_all(
    atom: &Atom,
    objects: &Objects<'_>,
    owner: &Owner,
    planned: &[Planned],
    now: &HashMap<ObjectKey, Value>,
) -> Result<Vec<Check>, Halt> {
    let is_definition = |planned: &&(usize, &Planned)| Wave::of(&planned.1.key) == Wave::Definitions;
    let numbered: Vec<(usize, &Planned)> = planned.iter().enumerate().collect();
    // Definitions come first: objects of kinds that change cannot be checked yet.
    let (definitions, others): (Vec<_>, Vec<_>) =
        numbered.iter().partition::<Vec<&(usize, &Planned)>, _>(is_definition);
    let mut settled = BTreeSet::new();
    let mut results = Vec::new();
    for part in [definitions, others] {
        let checks = part.iter().map(|(_, planned)| {
            let changing = planned.defined.as_ref().is_some_and(|name| !settled.contains(name));
            check(atom, objects, owner, planned, changing, now.get(&planned.key)).boxed()
        });
        let done = some_at_a_time(checks.collect::<Vec<_>>().into_iter()).await;
        let done: Vec<_> = part.iter().map(|(number, _)| *number).zip(done).collect();
        let unchanged = done.iter().filter(|(_, check)| matches!(check, Ok(Check::Unchanged)));
        let unchanged: Vec<String> = unchanged.map(|(number, _)| planned[*number].key.name.clone()).collect();
        settled.extend(unchanged);
        results.extend(done);
    }
    results.sort_by_key(|(number, _)| *number);
    let (mut fine, mut refusals, mut later) = (Vec::new(), Vec::new(), None);
    for (_, result) in results {
        match result {
            Ok(check) => fine.push(check),
            Err(Halt::Refused(cause)) => refusals.push(cause),
            Err(Halt::Later(message)) => later = Some(message),
        }
    }
    if let Some(first) = refusals.first() {
        let named: Vec<&str> = refusals.iter().take(NAMED).map(|cause| cause.message.as_str()).collect();
        let more = refusals.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" And {more} more.") } else { String::new() };
        return Err(refused(&first.reason, format!("{}{more} Nothing was written.", named.join(" "))));
    }
    match later {
        Some(message) => Err(Halt::Later(message)),
        None => Ok(fine),
    }
}

async fn check(
    atom: &Atom,
    objects: &Objects<'_>,
    owner: &Owner,
    planned: &Planned,
    changing: bool,
    now: Option<&Value>,
) -> Result<Check, Halt> {
    let Planned { key, object, defined: _, homeless } = planned;
    if changing && objects.kind(key).await?.is_none() {
        return Ok(Check::Unchecked);
    }
    let answer = objects.apply(key, object, &owner.manager, atom.spec.force, true).await;
    let cause = match answer {
        Ok(would_be) => {
            return Ok(if now.is_some_and(|now| is_same(now, &would_be)) { Check::Unchanged } else { Check::Fine });
        }
        Err(Halt::Refused(cause)) => cause,
        Err(later) => return Err(later),
    };
    // Its definition changes with the same version, and then decides on it.
    if changing {
        return Ok(Check::Unchecked);
    }
    if *homeless && now.is_none() {
        return elsewhere(atom, objects, owner, planned).await.map(|()| Check::Unchecked);
    }
    if now.is_some() && cause.reason == reason::TEMPLATE_INVALID && is_immutable(objects, owner, planned, &cause).await
    {
        if may_replace(object) {
            return Ok(Check::Replace);
        }
        let message = format!(
            "{} The field cannot be changed: give the object the annotation {}: \"true\" to have it deleted and made anew, or another name.",
            cause.message,
            annotation::REPLACE
        );
        return Err(refused(reason::IMMUTABLE, message));
    }
    Err(Halt::Refused(cause))
}

/// An object whose namespace is not there yet is checked in the Atom's own, under another name.
async fn elsewhere(atom: &Atom, objects: &Objects<'_>, owner: &Owner, planned: &Planned) -> Result<(), Halt> {
    let home = atom.namespace().unwrap_or_default();
    let (key, object) = under_another_name(planned, Some(home));
    match objects.apply(&key, &object, &owner.manager, true, true).await {
        Err(Halt::Refused(cause)) if cause.reason != reason::FORBIDDEN => {
            let message = cause.message.replace(&key.to_string(), &planned.key.to_string());
            Err(refused(&cause.reason, message))
        }
        Err(Halt::Later(message)) => Err(Halt::Later(message)),
        _ => Ok(()),
    }
}

/// Whether an object would be fine if it were a new one: then only what cannot be changed is in its way.
async fn is_immutable(objects: &Objects<'_>, owner: &Owner, planned: &Planned, cause: &Cause) -> bool {
    let words = ["immutable", "may not change", "Forbidden: updates to", "cannot be changed"];
    if words.iter().any(|word| cause.message.contains(word)) {
        return true;
    }
    let (key, object) = under_another_name(planned, planned.key.namespace.clone());
    objects.apply(&key, &object, &owner.manager, true, true).await.is_ok()
}

fn under_another_name(planned: &Planned, namespace: Option<String>) -> (ObjectKey, Value) {
    let (mut key, mut object) = (planned.key.clone(), planned.object.clone());
    let base: String = key.name.chars().take(40).collect();
    key.name = format!("{}-knoll-check", base.trim_end_matches(['-', '.']));
    key.namespace = namespace;
    object["metadata"]["name"] = key.name.clone().into();
    if let Some(namespace) = &key.namespace {
        object["metadata"]["namespace"] = namespace.clone().into();
    }
    (key, object)
}

/// Whether two objects differ in nothing but when somebody wrote them.
fn is_same(now: &Value, then: &Value) -> bool {
    let plain = |object: &Value| {
        let mut plain = object.clone();
        if let Some(metadata) = plain["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
            metadata.remove("generation");
            for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
                entry["time"] = json!(null);
            }
        }
        plain
    };
    plain(now) == plain(then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_a_secret_are_kept_as_data() {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "b"}, "data": {"c": "ZA=="}});
        to_data(&template::key(&secret.clone()), &mut secret);
        assert_eq!(secret["data"], json!({"a": "Yg==", "c": "ZA=="}));
        assert_eq!(secret.get("stringData"), None);
    }
}
