//! Writes the objects of a version, wave by wave, and deletes what it no longer has.
//!
//! *Guarantee.* Everything here can be done again from the start: what is written is written again with the same
//! result, and what was deleted by its UID is not found any more.

use std::collections::HashMap;

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knoll_api::{
    Atom,
    atom::{AtomObject, ObjectKey},
};
use knoll_core::atom::{
    Outcome,
    journal::{Entry, Owner, uid},
    waves::Wave,
};
use kube::{
    Api,
    runtime::wait::{await_condition, conditions},
};
use serde_json::Value;

use super::{
    kept,
    objects::{Halt, Objects, SOON, some_at_a_time},
};
use crate::context::Context;

/// How long a wave waits for its definitions, or for an object that has to go, before others have their turn.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Writes everything.
pub(super) async fn run(context: &Context, atom: &Atom, objects: &Objects<'_>) -> Result<Outcome, Halt> {
    let status = atom.status.clone().unwrap_or_default();
    let secret = status.journal.map(|journal| journal.secret_name).unwrap_or_default();
    let journal = kept::read(context, atom, &secret).await?;
    let owner = Owner::of(atom);
    let mut written = Vec::new();
    for wave in Wave::ALL {
        let entries: Vec<&Entry> =
            journal.entries.iter().filter(|entry| entry.object.is_some() && Wave::of(&entry.key) == wave).collect();
        // What could not be checked before is checked now, all of it before any of it is written.
        let unchecked = entries.iter().filter(|entry| entry.unchecked);
        each(unchecked.map(|entry| check(atom, objects, &owner, entry).boxed())).await?;
        let known: HashMap<&ObjectKey, Option<String>> =
            status.objects.iter().map(|known| (&known.object, known.uid.clone())).collect();
        let work = entries.iter().map(|entry| {
            let known = known.get(&entry.key).cloned().flatten();
            one(atom, objects, &owner, entry, known).boxed()
        });
        let done = each(work).await?;
        let seen = entries.iter().zip(done).map(|(entry, uid)| AtomObject {
            object: entry.key.clone(),
            uid,
            ..AtomObject::default()
        });
        written.extend(seen);
        if wave == Wave::Definitions && !entries.is_empty() {
            established(objects, &entries).await?;
        }
    }
    Ok(Outcome::Written(written))
}

/// Deletes what the version no longer has, last what others need.
pub(super) async fn prune(context: &Context, atom: &Atom, objects: &Objects<'_>) -> Result<Outcome, Halt> {
    let status = atom.status.clone().unwrap_or_default();
    let secret = status.journal.map(|journal| journal.secret_name).unwrap_or_default();
    let journal = kept::read(context, atom, &secret).await?;
    for wave in Wave::ALL.into_iter().rev() {
        let entries: Vec<&Entry> =
            journal.entries.iter().filter(|entry| entry.prune.is_some() && Wave::of(&entry.key) == wave).collect();
        let old = entries.iter().filter_map(|entry| Some((&entry.key, entry.prune.as_deref()?)));
        each(old.map(|(key, uid)| objects.delete(key, uid).boxed())).await?;
    }
    Ok(Outcome::Pruned)
}

/// Does something for each, some at a time, and returns what came of it in their order. All are tried; a refusal counts
/// more than something that can be tried again.
async fn each<'a, T>(work: impl Iterator<Item = BoxFuture<'a, Result<T, Halt>>>) -> Result<Vec<T>, Halt> {
    let work: Vec<_> = work.collect();
    let (mut done, mut later) = (Vec::new(), None);
    for result in some_at_a_time(work.into_iter()).await {
        match result {
            Ok(value) => done.push(value),
            Err(Halt::Refused(cause)) => return Err(Halt::Refused(cause)),
            Err(Halt::Later(message)) => later = Some(message),
        }
    }
    match later {
        Some(message) => Err(Halt::Later(message)),
        None => Ok(done),
    }
}

/// Lets the API check an object whose kind or namespace has just come. It takes the API a moment until a definition that
/// was changed counts, so a refusal counts only when it stays.
async fn check(atom: &Atom, objects: &Objects<'_>, owner: &Owner, entry: &Entry) -> Result<(), Halt> {
    let fine = async {
        while matches!(apply(atom, objects, owner, entry, true).await, Err(Halt::Refused(_))) {
            tokio::time::sleep(SOON / 3).await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, fine).await;
    apply(atom, objects, owner, entry, true).await.map(drop)
}

/// Writes one object, and returns its UID.
async fn one(
    atom: &Atom,
    objects: &Objects<'_>,
    owner: &Owner,
    entry: &Entry,
    known: Option<String>,
) -> Result<Option<String>, Halt> {
    if entry.unchanged {
        return Ok(known);
    }
    make_room(objects, entry).await?;
    let object = apply(atom, objects, owner, entry, false).await?;
    Ok(uid(&object).map(str::to_owned))
}

async fn apply(atom: &Atom, objects: &Objects<'_>, owner: &Owner, entry: &Entry, dry_run: bool) -> Result<Value, Halt> {
    let nothing = Value::Null;
    let object = entry.object.as_ref().unwrap_or(&nothing);
    objects.apply(&entry.key, object, &owner.manager, atom.spec.force, dry_run).await
}

/// Deletes the object that this one takes the place of, and waits until it is gone.
async fn make_room(objects: &Objects<'_>, entry: &Entry) -> Result<(), Halt> {
    let Some(old) = &entry.replace else { return Ok(()) };
    let is_old = |now: &Value| uid(now) == Some(old.as_str());
    let Some(now) = objects.get(&entry.key).await?.filter(is_old) else { return Ok(()) };
    if !knoll_core::atom::journal::is_going(&now) {
        objects.delete(&entry.key, old).await?;
    }
    let gone = async {
        while objects.get(&entry.key).await?.is_some_and(|now| is_old(&now)) {
            tokio::time::sleep(SOON / 10).await;
        }
        Ok::<_, Halt>(())
    };
    match tokio::time::timeout(PATIENCE, gone).await {
        Ok(gone) => gone,
        Err(_) => Err(Halt::Later(format!("`{}` has to go before it is made anew, and is not gone yet.", entry.key))),
    }
}

/// Waits until the kinds can be used.
async fn established(objects: &Objects<'_>, entries: &[&Entry]) -> Result<(), Halt> {
    let api: Api<CustomResourceDefinition> = Api::all(objects.client().clone());
    for entry in entries {
        let established = await_condition(api.clone(), &entry.key.name, conditions::is_crd_established());
        match tokio::time::timeout(PATIENCE, established).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Halt::Later(format!("`{}`: {error}.", entry.key))),
            Err(_) => return Err(Halt::Later(format!("`{}` is not established yet.", entry.key))),
        }
    }
    objects.forget_kinds();
    Ok(())
}
