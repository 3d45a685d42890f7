//! Sees whether the objects of an Atom are ready, and what keeps those that are not.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use knoll_api::{
    Atom,
    atom::{AtomObject, ObjectKey},
};
use knoll_core::{
    atom::{Outcome, waves::Wave},
    readiness::{self, Health},
};
use kube::{
    Api,
    api::{ListParams, LogParams},
};
use serde_json::Value;

use super::objects::{Halt, Objects};
use crate::context::Context;

/// Of how many workloads the pods are looked at.
const WORKLOADS: usize = 10;

/// What a kubelet says in place of a log that is gone.
const NO_LOG: &str = "unable to retrieve container logs";

/// The longest line of a log that a message has.
const LINE: usize = 200;

/// The longest message about an object.
const MESSAGE: usize = 1024;

/// Looks at all objects.
pub(super) async fn run(context: &Context, atom: &Atom, objects: &Objects<'_>) -> Result<Outcome, Halt> {
    let status = atom.status.clone().unwrap_or_default();
    let keys: Vec<ObjectKey> = status.objects.iter().map(|object| object.object.clone()).collect();
    let now = current(context, atom, objects, &keys).await?;
    let mut failed = None;
    let mut asked = 0;
    let mut seen = Vec::new();
    for known in status.objects {
        let Some(object) = now.get(&known.object) else {
            let message = Some("It is not there; somebody has deleted it.".to_owned());
            seen.push(AtomObject { ready: false, message, ..known });
            continue;
        };
        let health = readiness::health(object);
        let (ready, mut message) = match &health {
            Health::Ready => (true, None),
            Health::Waiting(why) | Health::Failed(why) => (false, Some(why.clone())),
        };
        if !ready && Wave::of(&known.object) == Wave::Workloads && asked < WORKLOADS {
            asked += 1;
            if let Some(trouble) = of_pods(objects, &known.object, object).await {
                message = Some(format!("{} {trouble}", message.unwrap_or_default()));
            }
        }
        let message = message.map(|message| cut(&message, MESSAGE));
        if matches!(health, Health::Failed(_)) {
            failed.get_or_insert_with(|| format!("`{}`: {}", known.object, message.clone().unwrap_or_default()));
        }
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        seen.push(AtomObject { object: known.object, uid, ready, message });
    }
    Ok(Outcome::Seen { objects: seen, failed })
}

/// The objects as they are: from the watches when those have them all, else asked for.
pub(super) async fn current(
    context: &Context,
    atom: &Atom,
    objects: &Objects<'_>,
    keys: &[ObjectKey],
) -> Result<HashMap<ObjectKey, Value>, Halt> {
    match context.watches.read(atom, objects, keys).await {
        Some(found) => Ok(found),
        None => Ok(objects.fetch(keys).await?),
    }
}

/// What the pods of a workload say.
async fn of_pods(objects: &Objects<'_>, key: &ObjectKey, workload: &Value) -> Option<String> {
    let selector = match key.kind.as_str() {
        "Job" => format!("batch.kubernetes.io/job-name={}", key.name),
        "Pod" => return None,
        _ => {
            let labels = workload.pointer("/spec/selector/matchLabels")?.as_object()?;
            let all = labels.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
            all.collect::<Vec<_>>().join(",")
        }
    };
    let api: Api<Pod> = Api::namespaced(objects.client().clone(), key.namespace.as_deref()?);
    // Whoever may not read pods does without.
    let pods = api.list(&ListParams::default().labels(&selector).limit(100)).await.ok()?;
    let pods: Vec<Value> = pods.items.iter().filter_map(|pod| serde_json::to_value(pod).ok()).collect();
    let trouble = readiness::trouble(&pods)?;
    let line = match &trouble.log_of {
        Some((pod, container)) => last_line(&api, pod, container).await,
        None => None,
    };
    Some(match line {
        Some(line) => format!("{} Its last words: {}", trouble.message, cut(&line, LINE)),
        None => trouble.message,
    })
}

async fn last_line(api: &Api<Pod>, pod: &str, container: &str) -> Option<String> {
    // A container that waits to be started again shows what it last printed; one that runs again may not have yet.
    for previous in [false, true] {
        let params =
            LogParams { container: Some(container.to_owned()), previous, tail_lines: Some(1), ..LogParams::default() };
        if let Ok(text) = api.logs(pod, &params).await
            && let Some(line) = text.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with(NO_LOG))
        {
            return Some(line.trim().to_owned());
        }
    }
    None
}

fn cut(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rfind(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text[..end].to_owned()
}
