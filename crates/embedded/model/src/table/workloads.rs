//! Columns of what makes pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::builtin::labels;
use super::{Column, age, condition, count, list, or_none, text};
use crate::select::LabelSelector;

fn with_template(mut columns: Vec<Column>, selector: bool) -> Vec<Column> {
    columns.push(Column::text("Containers", "Names of each container in the template.").wide());
    columns.push(Column::text("Images", "Images referenced by each container in the template.").wide());
    if selector {
        columns.push(Column::text("Selector", "The labels of the pods that belong to it.").wide());
    }
    columns
}

/// The names and the images of the containers of a pod template.
fn containers(object: &Value, pointer: &str) -> [Value; 2] {
    let joined = |field: &str| {
        let values: Vec<_> = list(object, &format!("{pointer}/spec/containers"))
            .iter()
            .map(|container| text(container, field))
            .collect();
        json!(values.join(","))
    };
    [joined("/name"), joined("/image")]
}

fn selector(object: &Value, pointer: &str) -> String {
    match LabelSelector::from_object(object.pointer(pointer)) {
        Ok(selector) => or_none(&selector.unwrap_or_default().to_string()).to_owned(),
        Err(_) => "<error>".to_owned(),
    }
}

pub fn deployment_columns() -> Vec<Column> {
    let columns = vec![
        Column::name(),
        Column::text("Ready", "Number of the pod with ready state"),
        Column::text("Up-to-date", "The number of pods of the current template."),
        Column::text("Available", "The number of pods that are ready for long enough."),
        Column::age(),
    ];
    with_template(columns, true)
}

pub fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/template");
    let selector = match LabelSelector::from_object(object.pointer("/spec/selector")) {
        Ok(selector) => selector.unwrap_or_default().to_string(),
        Err(_) => "<invalid>".to_owned(),
    };
    vec![
        json!(text(object, "/metadata/name")),
        json!(format!("{}/{}", count(object, "/status/readyReplicas"), count(object, "/spec/replicas"))),
        json!(count(object, "/status/updatedReplicas")),
        json!(count(object, "/status/availableReplicas")),
        age(object, now),
        names,
        images,
        json!(selector),
    ]
}

pub fn replica_set_columns() -> Vec<Column> {
    let columns = vec![
        Column::name(),
        Column::integer("Desired", "The number of pods that there should be."),
        Column::integer("Current", "The number of pods that there are."),
        Column::integer("Ready", "The number of pods that are ready."),
        Column::age(),
    ];
    with_template(columns, true)
}

pub fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/template");
    vec![
        json!(text(object, "/metadata/name")),
        json!(count(object, "/spec/replicas")),
        json!(count(object, "/status/replicas")),
        json!(count(object, "/status/readyReplicas")),
        age(object, now),
        names,
        images,
        json!(selector(object, "/spec/selector")),
    ]
}

pub fn stateful_set_columns() -> Vec<Column> {
    with_template(
        vec![Column::name(), Column::text("Ready", "Number of the pod with ready state"), Column::age()],
        false,
    )
}

pub fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/template");
    let ready = format!("{}/{}", count(object, "/status/readyReplicas"), count(object, "/spec/replicas"));
    vec![json!(text(object, "/metadata/name")), json!(ready), age(object, now), names, images]
}

pub fn daemon_set_columns() -> Vec<Column> {
    let columns = vec![
        Column::name(),
        Column::integer("Desired", "The number of nodes that should run the pod."),
        Column::integer("Current", "The number of nodes that run the pod."),
        Column::integer("Ready", "The number of nodes whose pod is ready."),
        Column::integer("Up-to-date", "The number of nodes with a pod of the current template."),
        Column::integer("Available", "The number of nodes whose pod is ready for long enough."),
        Column::text("Node Selector", "The labels of the nodes."),
        Column::age(),
    ];
    with_template(columns, true)
}

pub fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/template");
    vec![
        json!(text(object, "/metadata/name")),
        json!(count(object, "/status/desiredNumberScheduled")),
        json!(count(object, "/status/currentNumberScheduled")),
        json!(count(object, "/status/numberReady")),
        json!(count(object, "/status/updatedNumberScheduled")),
        json!(count(object, "/status/numberAvailable")),
        json!(labels(object.pointer("/spec/template/spec/nodeSelector"))),
        age(object, now),
        names,
        images,
        json!(selector(object, "/spec/selector")),
    ]
}

pub fn job_columns() -> Vec<Column> {
    let columns = vec![
        Column::name(),
        Column::text("Status", "Status of the job."),
        Column::text("Completions", "The number of pods that succeeded."),
        Column::text("Duration", "Time required to complete the job."),
        Column::age(),
    ];
    with_template(columns, true)
}

pub fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/template");
    let succeeded = count(object, "/status/succeeded");
    let completions =
        match (object.pointer("/spec/completions").and_then(Value::as_i64), count(object, "/spec/parallelism")) {
            (Some(completions), _) => format!("{succeeded}/{completions}"),
            (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            (None, _) => format!("{succeeded}/1"),
        };
    let time = |pointer: &str| text(object, pointer).parse::<Timestamp>().ok();
    let duration = time("/status/startTime")
        .map(|start| super::age::human(time("/status/completionTime").unwrap_or(now).duration_since(start).as_secs()));
    let has = |ty: &str| condition(object, ty) == Some("True");
    let status = match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if object.pointer("/metadata/deletionTimestamp").is_some() => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    vec![
        json!(text(object, "/metadata/name")),
        json!(status),
        json!(completions),
        json!(duration.unwrap_or_default()),
        age(object, now),
        names,
        images,
        json!(selector(object, "/spec/selector")),
    ]
}

pub fn cron_job_columns() -> Vec<Column> {
    let columns = vec![
        Column::name(),
        Column::text("Schedule", "When jobs are made, in Cron format."),
        Column::text("Timezone", "The time zone of the schedule."),
        Column { ty: "boolean".into(), ..Column::text("Suspend", "No more jobs are made.") },
        Column::integer("Active", "The number of running jobs."),
        Column::text("Last Schedule", "When a job was last made."),
        Column::age(),
    ];
    with_template(columns, true)
}

pub fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/jobTemplate/spec/template");
    let last = match object.pointer("/status/lastScheduleTime").and_then(Value::as_str) {
        Some(time) => super::age::since(Some(time), now),
        None => "<none>".to_owned(),
    };
    let suspend = match object.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    vec![
        json!(text(object, "/metadata/name")),
        json!(text(object, "/spec/schedule")),
        json!(or_none(text(object, "/spec/timeZone"))),
        json!(suspend),
        json!(list(object, "/status/active").len()),
        json!(last),
        age(object, now),
        names,
        images,
        json!(selector(object, "/spec/jobTemplate/spec/selector")),
    ]
}
