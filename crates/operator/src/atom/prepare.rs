//! Prepares an update: it checks all objects with dry runs, and stores the journal. It writes no object.

use std::collections::{BTreeSet, HashMap};

use futures::FutureExt;
use knoll_api::{Atom, atom::ObjectKey};
use knoll_core::{
    atom::{
        ActionError, AtomOutcome, Desired,
        hidden::HiddenValues,
        is_same,
        journal::WriteMode,
        owner::Owner,
        prepare::{self, DryRunVerdict, PlannedObject, Preparation, Scope, Scopes},
        template,
        waves::Wave,
    },
    identity::Subject,
};
use serde_json::Value;

use super::{
    desired::{self, Resolved},
    journal_store,
    objects::{Objects, bounded},
};
use crate::context::Context;

pub(super) async fn run(context: &Context, atom: &Subject<Atom>) -> Result<AtomOutcome, ActionError> {
    let objects = Objects::of(atom, &context.client, &context.kinds)?;
    let resolved = desired::resolve(context, atom).await?;
    let mut hidden = resolved.inputs.hidden();
    if resolved.has_secret_template {
        hidden.hide_template(&template::parse(&resolved.template).unwrap_or_default());
    }
    let prepared = prepare_objects(context, atom, &objects.hiding(hidden.clone()), resolved, hidden.clone()).await;
    // The template's own faults quote values as well.
    prepared.map_err(|error| hidden.clean_error(error))
}

async fn prepare_objects(
    context: &Context,
    atom: &Subject<Atom>,
    objects: &Objects<'_>,
    resolved: Resolved,
    hidden: HiddenValues,
) -> Result<AtomOutcome, ActionError> {
    let status = atom.status.clone().unwrap_or_default();
    let is_tried = match (&resolved.desired, &status.tried) {
        (Desired::Revision(now), Some(tried)) => is_same(now, tried),
        _ => false,
    };
    if !is_tried {
        return Err(ActionError::Retry("The inputs have just changed.".to_owned()));
    }
    let owner = Owner::of(&atom.id);
    let rendered = prepare::render(&resolved.template, &resolved.inputs).map_err(ActionError::Refused)?;
    let scopes = scopes(objects, &rendered).await?;
    let planned = prepare::plan(&owner, rendered, &scopes).map_err(ActionError::Refused)?;
    let earlier = match &status.journal {
        Some(_) => Some(journal_store::current(context, atom).await?),
        None => None,
    };
    let left_over = prepare::left_over(&planned, &status.objects, earlier.as_ref());
    let keys: Vec<ObjectKey> = planned.iter().map(|planned| &planned.key).chain(&left_over).cloned().collect();
    let now = objects.fetch(&keys).await?;
    prepare::check_existing(&owner, &planned, &now)?;
    let modes = dry_run(atom, objects, &owner, &planned, &now).await?;
    let planned = planned.into_iter().zip(modes).collect();
    let preparation =
        Preparation { owner: &owner, attempt: status.attempts, planned, left_over, earlier, now: &now, hidden };
    let (journal, listed) = preparation.record();
    let secret_name = journal_store::write(context, atom, &journal).await?;
    Ok(AtomOutcome::Prepared { secret_name, objects: listed })
}

/// The scopes of the kinds that the cluster has.
async fn scopes(objects: &Objects<'_>, rendered: &[Value]) -> Result<Scopes, ActionError> {
    let mut scopes = Scopes::new();
    for key in rendered.iter().map(template::key) {
        let id = (key.api_version.clone(), key.kind.clone());
        if scopes.contains_key(&id) {
            continue;
        }
        if let Some(kind) = objects.kind(&key).await? {
            scopes.insert(id, if kind.namespaced { Scope::Namespaced } else { Scope::Cluster });
        }
    }
    Ok(scopes)
}

/// Checks every object with a dry run. Definitions come first: objects of kinds that change cannot be checked yet.
async fn dry_run(
    atom: &Subject<Atom>,
    objects: &Objects<'_>,
    owner: &Owner,
    planned: &[PlannedObject],
    now: &HashMap<ObjectKey, Value>,
) -> Result<Vec<WriteMode>, ActionError> {
    let numbered = || planned.iter().enumerate();
    let is_definition = |planned: &PlannedObject| Wave::of(&planned.key) == Wave::Definitions;
    let mut unchanged: BTreeSet<&str> = BTreeSet::new();
    let mut results = Vec::new();
    for definitions in [true, false] {
        let part: Vec<_> = numbered().filter(|(_, planned)| is_definition(planned) == definitions).collect();
        let checks = part.iter().map(|(_, planned)| {
            let changes = planned.defined_by.as_ref().is_some_and(|name| !unchanged.contains(name.as_str()));
            check(atom, objects, owner, planned, changes, now.get(&planned.key)).boxed()
        });
        let done = bounded(checks.collect::<Vec<_>>().into_iter()).await;
        for ((number, planned), result) in part.into_iter().zip(done) {
            if definitions && result == Ok(WriteMode::Skip) {
                unchanged.insert(&planned.key.name);
            }
            results.push((number, result));
        }
    }
    results.sort_by_key(|(number, _)| *number);
    prepare::combine(results.into_iter().map(|(_, result)| result).collect())
}

async fn check(
    atom: &Subject<Atom>,
    objects: &Objects<'_>,
    owner: &Owner,
    planned: &PlannedObject,
    definition_changes: bool,
    now: Option<&Value>,
) -> Result<WriteMode, ActionError> {
    let PlannedObject { key, object, .. } = planned;
    if definition_changes && objects.kind(key).await?.is_none() {
        return Ok(WriteMode::CheckFirst);
    }
    let answer = objects.apply(key, object, &owner.manager, atom.spec.force, true).await;
    match (prepare::judge(planned, definition_changes, now, answer), now) {
        (DryRunVerdict::Write(mode), _) => Ok(mode),
        (DryRunVerdict::Fail(error), _) => Err(error),
        (DryRunVerdict::TryInOwnNamespace, _) => {
            let (key, object) = prepare::probe(planned, Some(atom.namespace()));
            let answer = objects.apply(&key, &object, &owner.manager, true, true).await;
            prepare::judge_in_own_namespace(planned, &key, answer)
        }
        (DryRunVerdict::TryAsNew(refusal), Some(now)) => {
            let (key, object) = prepare::probe(planned, planned.key.namespace.as_deref());
            let answer = objects.apply(&key, &object, &owner.manager, true, true).await;
            prepare::judge_as_new(planned, now, refusal, &answer)
        }
        (DryRunVerdict::TryAsNew(refusal), None) => Err(ActionError::Refused(refusal)),
    }
}
