//! Scenarios that were played on kube-apiserver 1.34, and its answers.

use serde_json::{Map, Value, json};

use super::schemas::widget;
use crate::patch::apply::{ApplyError, Writer, apply, track_update};
use crate::patch::{conflict, merge_patch};
use crate::schema::Schema;

const RECORDED: &str = include_str!("../recorded/apply.json");

/// The status code, the message and the causes of a refusal.
type Refusal = (u16, String, Option<Vec<Value>>);

/// What an API server does around the functions under test: it keeps endpoints apart and fills in defaults.
struct Server {
    schema: Schema,
    live: Option<Value>,
    second: i64,
}

impl Server {
    fn play(&mut self, step: &Value) -> Result<Value, Refusal> {
        self.second += 1;
        let sub = step.get("sub").and_then(Value::as_str);
        let writer = Writer {
            manager: step["manager"].as_str().unwrap(),
            api_version: "example.com/v1",
            subresource: sub,
            reset: if sub.is_some() { &["spec"] } else { &["status"] },
            now: jiff::Timestamp::from_second(self.second).unwrap(),
        };
        let mut object = match step["op"].as_str().unwrap() {
            "apply" => apply(self.live.as_ref(), &step["body"], &self.schema, &writer, step["force"] == true).map_err(
                |error| {
                    let causes = match &error {
                        ApplyError::Conflicts(conflicts) => Some(conflict::causes(conflicts)),
                        _ => None,
                    };
                    (error.code(), error.to_string(), causes)
                },
            )?,
            "create" => {
                let mut object = step["body"].clone();
                fill(&mut object, &self.schema);
                tidy(&mut object);
                track_update(None, &mut object, &self.schema, &writer);
                object
            }
            "merge" => {
                let mut object = merge_patch(self.live.as_ref().unwrap(), &step["body"]).unwrap();
                fill(&mut object, &self.schema);
                tidy(&mut object);
                track_update(self.live.as_ref(), &mut object, &self.schema, &writer);
                object
            }
            other => panic!("no operation {other}"),
        };
        keep_apart(self.live.as_ref(), &mut object, sub);
        fill(&mut object, &self.schema);
        tidy(&mut object);
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && spec.get("any") == Some(&Value::Null)
        {
            // Without a type it is valid, but it is not kept, since it is not nullable.
            spec.remove("any");
        }
        refuse_null(&object["spec"])?;
        self.live = Some(object.clone());
        Ok(object)
    }
}

fn keep_apart(live: Option<&Value>, object: &mut Value, sub: Option<&str>) {
    let field = if sub.is_some() { "spec" } else { "status" };
    let object = object.as_object_mut().unwrap();
    match live.and_then(|live| live.get(field)) {
        Some(value) => object.insert(field.to_owned(), value.clone()),
        None => object.remove(field),
    };
}

/// The metadata of an object has no empty maps and lists.
fn tidy(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| *value != json!({}) && *value != json!([]) && !value.is_null());
    }
}

fn fill(object: &mut Value, schema: &Schema) {
    match object {
        Value::Object(fields) => {
            for (name, schema) in &schema.properties {
                match (fields.get_mut(name), &schema.default) {
                    (None, Some(default)) => {
                        fields.insert(name.clone(), default.clone());
                    }
                    (Some(value), _) => fill(value, schema),
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            items.iter_mut().zip(schema.items.iter().cycle()).for_each(|(item, schema)| fill(item, schema))
        }
        _ => {}
    }
}

/// The validation of the schema refuses `null` wherever it is not asked for.
fn refuse_null(value: &Value) -> Result<(), Refusal> {
    for (name, value) in value.as_object().into_iter().flatten() {
        if ["any", "free", "mixed"].contains(&name.as_str()) && !value.is_null() {
            continue;
        }
        if value.is_null() && name != "nothing" {
            return Err((422, "null\"".to_owned(), None));
        }
        refuse_null(value)?;
    }
    Ok(())
}

/// The recorded object without what identifies it, and with every time as `T`.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object().cloned().unwrap_or_default();
    let kept = ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"];
    let mut metadata: Map<_, _> = metadata.into_iter().filter(|(name, _)| kept.contains(&name.as_str())).collect();
    for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
        if entry.get("time").is_some() {
            entry["time"] = json!("T");
        }
    }
    // All of a scenario may have happened within one second or not, so the order of entries is not compared.
    if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
        entries.sort_by_key(|entry| format!("{}{}{}", entry["operation"], entry["manager"], entry["subresource"]));
    }
    object["metadata"] = Value::Object(metadata);
    object
}

#[test]
fn apply_and_update_answer_as_kubernetes_does() {
    let scenarios: Value = serde_json::from_str(RECORDED).unwrap();
    for scenario in scenarios.as_array().unwrap() {
        let mut server = Server { schema: widget(), live: None, second: 1_700_000_000 };
        for (at, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            let place = format!("{} step {at}: {} by {}", scenario["name"], step["op"], step["manager"]);
            let expect = &step["result"];
            match server.play(step) {
                Ok(object) => {
                    assert!(expect["code"].as_u64().unwrap() < 300, "{place} should be refused: {}", expect["message"]);
                    let (is, should) = (comparable(&object), comparable(&expect["object"]));
                    let print = |value: &Value| serde_json::to_string_pretty(value).unwrap();
                    assert!(is == should, "{place}\n-- is\n{}\n-- should be\n{}", print(&is), print(&should));
                }
                Err((code, message, causes)) => {
                    assert_eq!(
                        Some(u64::from(code)),
                        expect["code"].as_u64(),
                        "{place}: {message}, should be {}",
                        expect["message"]
                    );
                    let should = expect["message"].as_str().unwrap();
                    assert!(should.contains(&message), "{place}\n-- is\n{message}\n-- should be\n{should}");
                    if let Some(causes) = causes {
                        assert_eq!(causes.len(), expect["causes"].as_array().unwrap().len(), "{place}");
                        assert!(
                            causes.iter().all(|cause| expect["causes"].as_array().unwrap().contains(cause)),
                            "{place}: {causes:?}"
                        );
                    }
                }
            }
        }
    }
}
