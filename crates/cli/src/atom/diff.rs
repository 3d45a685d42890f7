//! `knoll atom diff`: shows the changes of an update, computed by a server-side dry run.

use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use knoll_api::Atom;
use knoll_api::atom::{AtomInput, ObjectKey};
use knoll_api::names::{annotation, atom_manager};
use knoll_api::variables::ValueFrom;
use knoll_core::atom::template::{self, InputValues};
use knoll_storage::Lookup;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde_json::Value;
use similar::TextDiff;

use super::files::FilesArgs;
use super::places::Located;
use crate::connect::{Connection, Explain};
use crate::output;
use crate::style;
use crate::workspace::Session;

/// The arguments of `knoll atom diff`.
#[derive(clap::Args)]
pub struct AtomDiffArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    files: FilesArgs,
}

/// Prints the changes. The exit code is 1 when there are any.
pub async fn run(args: AtomDiffArgs, outer: &Connection) -> Result<ExitCode> {
    let template = args.files.read()?;
    let session = Session::find(&args.connection.or(outer)).await?;
    let name = &template.atom;
    let atom = session.api::<Atom>().get_opt(name).await;
    let atom = atom.explain(&session.cluster, &format!("cannot read atom `{name}`"))?;
    let inputs = match &atom {
        Some(atom) => values(&session, &atom.spec.inputs).await?,
        None => InputValues::new(),
    };
    let objects = template.render(&inputs)?;
    let client = &session.cluster.client;
    let mut changed = false;
    let mut desired = Vec::new();
    for (mut object, Located { place, .. }) in objects.into_iter().zip(&template.objects) {
        let mut key = template::key(&object);
        let Some((resource, scope)) = kind(client, &key).await else {
            style::note(&format!("`{key}` would be created; the cluster does not serve its kind yet"));
            changed = true;
            continue;
        };
        key.namespace = match scope {
            Scope::Namespaced => Some(key.namespace.unwrap_or_else(|| session.namespace.clone())),
            Scope::Cluster => None,
        };
        if let Some(namespace) = &key.namespace {
            object["metadata"]["namespace"] = namespace.clone().into();
        }
        let api = api(client, &resource, &key);
        let now = api.get_opt(&key.name).await.explain(&session.cluster, &format!("cannot read `{key}`"))?;
        let params = PatchParams { dry_run: true, force: true, ..PatchParams::apply(&atom_manager(name)) };
        let then = match api.patch(&key.name, &params, &Patch::Apply(&object)).await {
            Ok(then) => plain(&then)?,
            // The change may touch an immutable field. A comparison with the template would show every default as removed.
            Err(error) if now.is_some() => {
                style::note(&format!("{place}: `{key}` cannot be changed: {}", refusal(&error)));
                changed = true;
                desired.push((key.kind, key.namespace, key.name));
                continue;
            }
            // The namespace may be created by the same version.
            Err(error) => {
                style::note(&format!("{place}: `{key}`: {}", refusal(&error)));
                object
            }
        };
        let now = now.as_ref().map(plain).transpose()?;
        changed |= show(&key, now.as_ref(), Some(&then))?;
        desired.push((key.kind, key.namespace, key.name));
    }
    let known = atom.and_then(|atom| atom.status).map(|status| status.objects).unwrap_or_default();
    for old in known.into_iter().map(|known| known.object) {
        if desired.contains(&(old.kind.clone(), old.namespace.clone(), old.name.clone())) {
            continue;
        }
        let Some((resource, _)) = kind(client, &old).await else { continue };
        let now = api(client, &resource, &old).get_opt(&old.name).await;
        if let Some(now) = now.explain(&session.cluster, &format!("cannot read `{old}`"))? {
            changed |= show(&old, Some(&plain(&now)?), None)?;
        }
    }
    if !changed {
        style::hint_aside("No changes.");
    }
    Ok(ExitCode::from(u8::from(changed)))
}

/// What the API server says to a change, and what helps where a field is immutable.
fn refusal(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else { return error.to_string() };
    // Each kind has its own words for it.
    let is_immutable =
        ["immutable", "may not change", "pod updates may not"].iter().any(|words| status.message.contains(words));
    if status.code != 422 || !is_immutable {
        return status.message.clone();
    }
    format!(
        "{}\n  with the annotation `{}: \"true\"` it is deleted and created again",
        status.message,
        annotation::REPLACE
    )
}

fn show(key: &ObjectKey, now: Option<&Value>, then: Option<&Value>) -> Result<bool> {
    let text = |object: Option<&Value>| object.map(output::yaml).transpose().map(Option::unwrap_or_default);
    let (now, then) = (text(now)?, text(then)?);
    if now == then {
        return Ok(false);
    }
    let diff = TextDiff::from_lines(&now, &then);
    let head = |there: bool| if there { key.to_string() } else { "/dev/null".to_owned() };
    let (from, to) = (head(!now.is_empty()), head(!then.is_empty()));
    output::print(&diff.unified_diff().context_radius(3).header(&from, &to).to_string())?;
    Ok(true)
}

/// An object without server-managed fields. The values of a Secret are replaced by digests.
fn plain(object: &DynamicObject) -> Result<Value> {
    let mut value = serde_json::to_value(object)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["managedFields", "resourceVersion", "uid", "generation", "creationTimestamp"] {
            metadata.remove(field);
        }
        for (map, knolls) in [("labels", "knoll.dev/"), ("annotations", "knoll.dev/")] {
            let own = ["knoll.dev/atom", "knoll.dev/owner", "knoll.dev/atom-uid", "knoll.dev/replaced-by"];
            let emptied = metadata.get_mut(map).and_then(Value::as_object_mut).is_some_and(|all| {
                all.retain(|name, _| !name.starts_with(knolls) || !own.contains(&name.as_str()));
                all.is_empty()
            });
            if emptied {
                metadata.remove(map);
            }
        }
    }
    if value["kind"] == "Secret" && value["apiVersion"] == "v1" {
        for field in ["data", "stringData"] {
            for hidden in
                value.get_mut(field).and_then(Value::as_object_mut).into_iter().flat_map(|data| data.values_mut())
            {
                let digest = template::digest(&hidden.to_string());
                *hidden = format!("(hidden, {})", digest.chars().take(15).collect::<String>()).into();
            }
        }
    }
    Ok(value)
}

async fn kind(client: &Client, key: &ObjectKey) -> Option<(ApiResource, Scope)> {
    let (group, version) = key.api_version.split_once('/').unwrap_or(("", &key.api_version));
    let kind = GroupVersionKind::gvk(group, version, &key.kind);
    let (resource, capabilities) = pinned_kind(client, &kind).await.ok()?;
    Some((resource, capabilities.scope))
}

fn api(client: &Client, resource: &ApiResource, key: &ObjectKey) -> Api<DynamicObject> {
    match &key.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// The values of the Atom's inputs, read with the user's permissions.
async fn values(session: &Session, inputs: &[AtomInput]) -> Result<InputValues> {
    let storage = session.storage();
    let mut lookup = Lookup::new(&storage, &session.namespace);
    let mut found = InputValues::new();
    for input in inputs {
        let what = format!("the input `{}`", input.name);
        let (value, is_secret) = if let Some(value) = &input.value {
            (Value::String(value.clone()), false)
        } else if let Some(from) = &input.stack_ref {
            lookup.output(&from.name, &from.output, &what).await.with_context(|| format!("{what} has no value"))?
        } else {
            let from = ValueFrom {
                secret_key_ref: input.secret_key_ref.clone(),
                config_map_key_ref: input.config_map_key_ref.clone(),
            };
            let text = lookup.value_from(&from, &what).await.map_err(|error| anyhow!("{error}"))?;
            (Value::String(text.0), text.1)
        };
        found.insert(input.name.clone(), template::typed(&input.name, value, input.type_)?, is_secret);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_dry_run_was_printed_in_the_debug_form() {
        let error = |code: u16, message: &str| {
            let status = kube::core::Status::failure(message, "Invalid").with_code(code);
            refusal(&kube::Error::Api(status.boxed()))
        };
        let said = error(422, "Pod \"shop\" is invalid: spec: Forbidden: pod updates may not change fields");
        assert!(said.starts_with("Pod \"shop\" is invalid: spec"), "{said}");
        assert!(said.contains("`knoll.dev/replace: \"true\"`") && !said.contains("Status {"), "{said}");
        assert_eq!(error(404, "namespaces \"n\" not found"), "namespaces \"n\" not found");
        assert_eq!(error(422, "x is invalid"), "x is invalid");
    }
}
