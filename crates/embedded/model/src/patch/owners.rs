//! Who owns which fields after a write.
//!
//! A plain write takes what it changes from everybody. An apply owns exactly what it names, may not change what others own
//! unless it is forced, and removes what it named before and names no more if nobody else owns it.

use serde_json::Value;

use super::conflict::Conflict;
use super::entries::{Operation, Owned, Owner, Owners};
use super::fields::Set;
use super::typed::compare::{self, Difference};
use super::typed::reconcile::{with_named_fields, with_schema};
use super::typed::{Problems, field_set, merge, remove};
use crate::schema::Schema;

/// What an apply or an update needs to know of the kind.
pub struct Rules<'a> {
    /// The schema of the kind.
    pub schema: &'a Schema,
    /// Fields that this endpoint does not write, and so nobody comes to own through it.
    pub reset: Set,
}

/// Why an apply is refused.
pub enum Refused {
    /// Others own fields that it would change.
    Conflicts(Vec<Conflict>),
    /// The objects cannot be merged.
    Unmergeable(Problems),
}

/// The most owners by update that are kept apart.
const MOST_UPDATERS: usize = 10;

/// Records that `owner` turned `old` into `new`.
pub fn update(
    old: &Value,
    new: &Value,
    rules: &Rules<'_>,
    owners: &mut Owners,
    owner: Owner,
    api_version: &str,
    time: &str,
) {
    reconcile(owners, rules.schema);
    let difference = compare::objects(old, new, rules.schema).without(&rules.reset);
    take(&difference, owners, None);
    let set = difference.modified.union(&difference.added).recursive_difference(&rules.reset).difference(stripped());
    if !set.is_empty() {
        let before = owners.remove(&owner).map(|owned| owned.set).unwrap_or_default();
        let owned = Owned { set: set.union(&before), api_version: api_version.to_owned(), time: Some(time.to_owned()) };
        owners.insert(owner, owned);
    }
    cap(owners);
}

/// Applies a configuration. The result is the merged object, or none if it is the live one.
pub fn apply(
    live: &Value,
    config: &Value,
    rules: &Rules<'_>,
    owners: &mut Owners,
    owner: &Owner,
    api_version: &str,
    force: bool,
) -> Result<Option<Value>, Refused> {
    reconcile(owners, rules.schema);
    let merged = merge::objects(live, config, rules.schema).map_err(Refused::Unmergeable)?;
    let set = field_set::of(config, rules.schema).recursive_difference(&rules.reset);
    let time = owners.get(owner).and_then(|owned| owned.time.clone());
    let last = owners.insert(owner.clone(), Owned { set, api_version: api_version.to_owned(), time });
    let merged = match last {
        Some(last) if !last.set.is_empty() => prune(merged, owners, &last.set, rules.schema),
        _ => merged,
    };
    let difference = compare::objects(live, &merged, rules.schema).without(&rules.reset);
    let conflicts = conflicts(&difference, owners, owner);
    if !force && !conflicts.is_empty() {
        return Err(Refused::Conflicts(conflicts));
    }
    take(&difference, owners, Some(owner));
    if let Some(owned) = owners.get_mut(owner) {
        owned.set = owned.set.difference(stripped());
        if owned.set.is_empty() {
            owners.remove(owner);
        }
    }
    Ok((!super::element::same(live, &merged)).then_some(merged))
}

/// Fields that identify an object or that only the server writes: nobody owns them.
fn stripped() -> &'static Set {
    static STRIPPED: std::sync::LazyLock<Set> = std::sync::LazyLock::new(|| {
        let metadata = [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ];
        let top = ["apiVersion", "kind", "metadata"].iter().map(|name| Set::named(&[name]));
        let below = metadata.iter().map(|name| Set::named(&["metadata", name]));
        let mut set = Set::default();
        top.chain(below).for_each(|path| set.absorb(path));
        set
    });
    &STRIPPED
}

fn reconcile(owners: &mut Owners, schema: &Schema) {
    for owned in owners.values_mut() {
        owned.set = with_schema(&owned.set, schema);
    }
}

/// Takes what changed from everybody but the one who changed it.
fn take(difference: &Difference, owners: &mut Owners, but: Option<&Owner>) {
    for (owner, owned) in owners.iter_mut() {
        if Some(owner) != but {
            owned.set = owned
                .set
                .difference(&difference.modified)
                .difference(&difference.added)
                .difference(&difference.removed);
        }
    }
    owners.retain(|_, owned| !owned.set.is_empty());
}

fn conflicts(difference: &Difference, owners: &Owners, but: &Owner) -> Vec<Conflict> {
    let changed = difference.modified.union(&difference.added);
    let others = owners.iter().filter(|(owner, _)| *owner != but);
    others
        .flat_map(|(owner, owned)| {
            owned.set.intersection(&changed).paths().into_iter().map(|path| Conflict {
                manager: owner.manager.clone(),
                applied: owner.operation == Operation::Apply,
                api_version: owned.api_version.clone(),
                subresource: owner.subresource.clone(),
                path,
            })
        })
        .collect()
}

/// Removes what the applier named before and names no more, unless somebody owns it.
fn prune(merged: Value, owners: &Owners, last: &Set, schema: &Schema) -> Value {
    let last = with_named_fields(last, schema);
    let mut managed = Set::default();
    owners.values().for_each(|owned| managed.absorb(owned.set.clone()));
    let managed = with_named_fields(&managed, schema);
    let all = with_named_fields(&field_set::of(&merged, schema), schema);

    let fields_of = |object: &Value| with_named_fields(&field_set::of(object, schema), schema);
    let without_last = remove::from(&merged, &last, schema);
    // Removing a field removes all below it, and some of that may belong to somebody.
    let owned_back = remove::from(&merged, &all.difference(&fields_of(&without_last).union(&managed)), schema);
    // And some of it may belong to nobody, but was not the applier's either.
    remove::from(&merged, &all.difference(&fields_of(&owned_back)).intersection(&last), schema)
}

/// Merges the oldest owners by update into one for each version, while there are too many.
fn cap(owners: &mut Owners) {
    let mut updaters: Vec<_> = owners
        .iter()
        .filter(|(owner, _)| owner.operation == Operation::Update)
        .map(|(owner, owned)| (super::entries::seconds(owned.time.as_deref()), owner.clone()))
        .collect();
    updaters.sort();
    let mut left = updaters.len();
    let mut first_of_version: std::collections::BTreeMap<String, Owner> = std::collections::BTreeMap::new();
    for (_, owner) in updaters {
        if left <= MOST_UPDATERS {
            break;
        }
        let Some(version) = owners.get(&owner).map(|owned| owned.api_version.clone()) else {
            continue;
        };
        let bucket = Owner {
            manager: "ancient-changes".to_owned(),
            operation: Operation::Update,
            api_version: Some(version.clone()),
            subresource: None,
        };
        let Some(first) = first_of_version.get(&version) else {
            first_of_version.insert(version, owner);
            continue;
        };
        if !owners.contains_key(&bucket)
            && let Some(owned) = owners.remove(first)
        {
            owners.insert(bucket.clone(), owned);
        }
        if owner != bucket
            && let (Some(owned), Some(ancient)) = (owners.remove(&owner), owners.get(&bucket))
        {
            // The merged entry is as recent as the latest that went into it.
            let set = owned.set.union(&ancient.set);
            owners.insert(bucket, Owned { set, ..owned });
            left -= 1;
        }
    }
}
