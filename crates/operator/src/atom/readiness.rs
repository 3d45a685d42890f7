//! Checks whether the objects of an Atom are ready, and finds out why those that are not are not.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use knoll_api::{
    Atom,
    atom::{AtomObject, ObjectKey},
};
use knoll_core::{
    atom::{ActionError, AtomOutcome, hidden::HiddenValues, waves::Wave},
    identity::Subject,
    readiness::{self, Health, PodProblem},
};
use kube::{
    Api,
    api::{ListParams, LogParams},
};
use serde_json::Value;

use super::{journal_store, objects::Objects};
use crate::{context::Context, controller::code};

/// The number of workloads whose pods are inspected.
const WORKLOADS: usize = 10;

/// The text of a kubelet in place of a log that is gone.
const NO_LOG: &str = "unable to retrieve container logs";

/// The longest log line in a message, in bytes.
const LINE: usize = 200;

/// The longest message about an object, in bytes.
const MESSAGE: usize = 1024;

pub(super) async fn run(context: &Context, atom: &Subject<Atom>) -> Result<AtomOutcome, ActionError> {
    let objects = &Objects::of(atom, &context.client, &context.kinds)?;
    let status = atom.status.clone().unwrap_or_default();
    let keys: Vec<ObjectKey> = status.objects.iter().map(|object| object.object.clone()).collect();
    let mut now = current(context, atom, objects, &keys).await?;
    let (found, existing): (Vec<ObjectKey>, Vec<Value>) = keys.iter().filter_map(|key| now.remove_entry(key)).unzip();
    let mut secrets = HiddenValues::default();
    existing.iter().for_each(|object| secrets.hide_secret(object));
    let healths = context.evaluations.health(existing.clone()).await;
    let known = existing.into_iter().zip(healths);
    let mut known: HashMap<ObjectKey, (Value, Health)> = found.into_iter().zip(known).collect();
    let mut failed = None;
    let mut inspected = 0;
    let mut checked = Vec::new();
    for listed in status.objects {
        let Some((object, health)) = known.remove(&listed.object) else {
            let message = Some("It does not exist any more.".to_owned());
            checked.push(AtomObject { ready: false, message, ..listed });
            continue;
        };
        let (ready, mut message) = match &health {
            Health::Ready => (true, None),
            Health::Waiting(why) | Health::Failed(why) => (false, Some(why.clone())),
        };
        if !ready && Wave::of(&listed.object) == Wave::Workloads && inspected < WORKLOADS {
            inspected += 1;
            if let Some(problem) = pod_problem(objects, &listed.object, &object).await {
                // The message of a pod is its problem without the log.
                let message_of_owner = message.filter(|_| listed.object.kind != "Pod").unwrap_or_default();
                message = Some(format!("{message_of_owner} {problem}").trim_start().to_owned());
            }
        }
        if matches!(health, Health::Failed(_)) {
            failed.get_or_insert(checked.len());
        }
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        checked.push(AtomObject { object: listed.object, uid, ready, message });
    }
    // Controllers and pods repeat values of objects. The journal knows which of them come from Secrets.
    if checked.iter().any(|object| object.message.is_some()) {
        let mut hidden = journal_store::current(context, atom).await?.hidden;
        hidden.extend(secrets);
        checked = hidden.clean_objects(checked);
    }
    for object in &mut checked {
        object.message = object.message.take().map(|message| cut(&message, MESSAGE));
    }
    let failed = failed
        .and_then(|at: usize| checked.get(at))
        .map(|object| format!("`{}`: {}", object.object, object.message.as_deref().unwrap_or_default()));
    Ok(AtomOutcome::ReadinessChecked { objects: checked, failed })
}

/// The objects as they are: from the watches if those have all of them, else from the API server.
async fn current(
    context: &Context,
    atom: &Atom,
    objects: &Objects<'_>,
    keys: &[ObjectKey],
) -> Result<HashMap<ObjectKey, Value>, ActionError> {
    match context.watches.read(atom, objects, keys).await {
        Some(found) => Ok(found),
        None => Ok(objects.fetch(keys).await?),
    }
}

/// What is wrong with the pods of a workload.
async fn pod_problem(objects: &Objects<'_>, key: &ObjectKey, workload: &Value) -> Option<String> {
    let api: Api<Pod> = Api::namespaced(objects.client().clone(), key.namespace.as_deref()?);
    let selector = match key.kind.as_str() {
        "Job" => format!("batch.kubernetes.io/job-name={}", key.name),
        "Pod" => return Some(with_log(&api, readiness::pod_problem(std::slice::from_ref(workload))?).await),
        _ => {
            let labels = workload.pointer("/spec/selector/matchLabels")?.as_object()?;
            let all = labels.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
            all.collect::<Vec<_>>().join(",")
        }
    };
    let pods = match api.list(&ListParams::default().labels(&selector).limit(100)).await {
        Ok(pods) => pods,
        Err(error) if code(&error) == Some(403) => {
            return Some("Why is not known: the Atom's service account may not list pods.".to_owned());
        }
        // The message does without them.
        Err(_) => return None,
    };
    let pods: Vec<Value> = pods.items.iter().filter_map(|pod| serde_json::to_value(pod).ok()).collect();
    Some(with_log(&api, readiness::pod_problem(&pods)?).await)
}

/// The message of a problem, with the last line of the log that says more.
async fn with_log(api: &Api<Pod>, problem: PodProblem) -> String {
    let line = match &problem.log_of {
        Some((pod, container)) => last_line(api, pod, container).await,
        None => None,
    };
    match line {
        Some(line) => format!("{} Last log line: {}", problem.message, cut(&line, LINE)),
        None => problem.message,
    }
}

async fn last_line(api: &Api<Pod>, pod: &str, container: &str) -> Option<String> {
    // The log of a container that has just been restarted may still be empty; then its previous log is read.
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
    text[..text.floor_char_boundary(most)].to_owned()
}
