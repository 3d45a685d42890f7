//! What an object says itself that makes it ready: conditions, and an expression.

use std::{collections::HashMap, sync::Arc};

use cel::{Context, Program, objects::Key};
use knoll_api::names::annotation::{CONDITIONS, READY_WHEN};
use serde_json::Value;

use super::{Health, condition};

/// The longest expression.
const LONGEST: usize = 4096;

/// What is wrong with such an annotation.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no list of conditions.
    #[error(
        "the annotation {CONDITIONS} is `{0}`; write Type=Status or Type=Status/Reason, with commas between several"
    )]
    Conditions(String),
    /// It is no expression.
    #[error(
        "the annotation {READY_WHEN} is no CEL expression: {0}; write one on `self`, such as self.status.phase == 'Done'"
    )]
    Expression(String),
}

/// Whether what an object asks for can be understood.
///
/// # Errors
/// When it cannot.
pub fn check(object: &Value) -> Result<(), Error> {
    if let Some(text) = annotation(object, CONDITIONS) {
        wanted(text)?;
    }
    if let Some(text) = annotation(object, READY_WHEN) {
        compiled(text)?;
    }
    Ok(())
}

/// How an object is by what it asks for; none when it asks for nothing.
pub(super) fn health(object: &Value) -> Option<Health> {
    let (conditions, expression) = (annotation(object, CONDITIONS), annotation(object, READY_WHEN));
    if conditions.is_none() && expression.is_none() {
        return None;
    }
    let by_conditions = conditions.map_or(Health::Ready, |text| by_conditions(object, text));
    if by_conditions != Health::Ready {
        return Some(by_conditions);
    }
    Some(expression.map_or(Health::Ready, |text| by_expression(object, text)))
}

struct Wish<'a> {
    type_: &'a str,
    status: &'a str,
    reason: Option<&'a str>,
}

fn wanted(text: &str) -> Result<Vec<Wish<'_>>, Error> {
    let wrong = || Error::Conditions(text.to_owned());
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let wishes = parts.map(|part| {
        let (type_, rest) = part.split_once('=').ok_or_else(wrong)?;
        let (status, reason) = match rest.split_once('/') {
            Some((status, reason)) => (status, Some(reason.trim())),
            None => (rest, None),
        };
        let (type_, status) = (type_.trim(), status.trim());
        let known = matches!(status, "True" | "False" | "Unknown");
        if type_.is_empty() || !known || reason == Some("") { Err(wrong()) } else { Ok(Wish { type_, status, reason }) }
    });
    let wishes: Vec<_> = wishes.collect::<Result<_, _>>()?;
    if wishes.is_empty() { Err(wrong()) } else { Ok(wishes) }
}

fn by_conditions(object: &Value, text: &str) -> Health {
    let wishes = match wanted(text) {
        Ok(wishes) => wishes,
        Err(error) => return Health::Failed(format!("{error}.")),
    };
    for wish in wishes {
        match condition(object, wish.type_) {
            Some(said) if said.status == wish.status && wish.reason.is_none_or(|reason| reason == said.reason) => {}
            Some(said) => return Health::waiting(said.tell()),
            None => return Health::waiting(format!("It has no condition {} yet.", wish.type_)),
        }
    }
    Health::Ready
}

fn compiled(text: &str) -> Result<Program, Error> {
    if text.len() > LONGEST {
        return Err(Error::Expression(format!("it is longer than {LONGEST} bytes")));
    }
    Program::compile(text).map_err(|error| Error::Expression(error.to_string().trim().replace('\n', " ")))
}

fn by_expression(object: &Value, text: &str) -> Health {
    let program = match compiled(text) {
        Ok(program) => program,
        Err(error) => return Health::Failed(format!("{error}.")),
    };
    let mut context = Context::default();
    context.add_variable_from_value("self", to_cel(object));
    match program.execute(&context) {
        Ok(cel::Value::Bool(true)) => Health::Ready,
        Ok(cel::Value::Bool(false)) => Health::waiting(format!("`{text}` is not true yet.")),
        Ok(_) => Health::Failed(format!("`{text}` is neither true nor false.")),
        // What the expression needs may come.
        Err(error) => Health::waiting(format!("`{text}` cannot be told yet: {error}.")),
    }
}

/// JSON as CEL has it: whole numbers are `int`, as literals are.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => cel::Value::Int(whole),
            (None, part) => cel::Value::Float(part.unwrap_or_default()),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let map: HashMap<Key, cel::Value> =
                fields.iter().map(|(key, value)| (Key::String(Arc::new(key.clone())), to_cel(value))).collect();
            cel::Value::Map(map.into())
        }
    }
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}
