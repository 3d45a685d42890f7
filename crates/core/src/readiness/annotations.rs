//! The annotations that say when an object is ready: conditions, and a CEL expression.

use knoll_api::names::annotation::{CONDITIONS, READY_WHEN};
use knoll_kube_model::{Budget, ConditionError, Expression};
use serde_json::Value;

use super::{Health, condition};

/// The longest expression, in bytes.
const LONGEST: usize = 4096;

/// Why an annotation is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadinessError {
    #[error(
        "the annotation {CONDITIONS} is `{0}`; write Type=Status or Type=Status/Reason, with commas between several"
    )]
    Conditions(String),
    #[error(
        "the annotation {READY_WHEN} is not a CEL expression: {0}; write one on `self`, such as self.status.phase == 'Done'"
    )]
    Expression(String),
}

/// Checks the annotations of an object.
///
/// # Errors
/// When one of them is not valid.
pub fn check(object: &Value) -> Result<(), ReadinessError> {
    if let Some(text) = annotation(object, CONDITIONS) {
        required(text)?;
    }
    if let Some(text) = annotation(object, READY_WHEN) {
        compiled(text)?;
    }
    Ok(())
}

/// Whether an object has an expression, which takes time to evaluate.
#[must_use]
pub fn has_expression(object: &Value) -> bool {
    annotation(object, READY_WHEN).is_some()
}

/// The health of an object by its annotations; none when it has none.
pub(super) fn health(object: &Value, budget: &mut Budget) -> Option<Health> {
    let (conditions, expression) = (annotation(object, CONDITIONS), annotation(object, READY_WHEN));
    if conditions.is_none() && expression.is_none() {
        return None;
    }
    let by_conditions = conditions.map_or(Health::Ready, |text| by_conditions(object, text));
    if by_conditions != Health::Ready {
        return Some(by_conditions);
    }
    Some(expression.map_or(Health::Ready, |text| by_expression(object, text, budget)))
}

struct Required<'a> {
    type_: &'a str,
    status: &'a str,
    reason: Option<&'a str>,
}

fn required(text: &str) -> Result<Vec<Required<'_>>, ReadinessError> {
    let wrong = || ReadinessError::Conditions(text.to_owned());
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let all = parts.map(|part| {
        let (type_, rest) = part.split_once('=').ok_or_else(wrong)?;
        let (status, reason) = match rest.split_once('/') {
            Some((status, reason)) => (status, Some(reason.trim())),
            None => (rest, None),
        };
        let (type_, status) = (type_.trim(), status.trim());
        let known = matches!(status, "True" | "False" | "Unknown");
        if type_.is_empty() || !known || reason == Some("") {
            Err(wrong())
        } else {
            Ok(Required { type_, status, reason })
        }
    });
    let all: Vec<_> = all.collect::<Result<_, _>>()?;
    if all.is_empty() { Err(wrong()) } else { Ok(all) }
}

fn by_conditions(object: &Value, text: &str) -> Health {
    let required = match required(text) {
        Ok(required) => required,
        Err(error) => return Health::Failed(format!("{error}.")),
    };
    for one in required {
        match condition(object, one.type_) {
            Some(found) if found.status == one.status && one.reason.is_none_or(|reason| reason == found.reason) => {}
            Some(found) => return Health::waiting(found.describe()),
            None => return Health::waiting(format!("It has no condition {} yet.", one.type_)),
        }
    }
    Health::Ready
}

fn compiled(text: &str) -> Result<Expression, ReadinessError> {
    if text.len() > LONGEST {
        return Err(ReadinessError::Expression(format!("it is longer than {LONGEST} bytes")));
    }
    Expression::compile_with(text, &["self"]).map_err(|error| {
        // The further lines show the place in the expression, which the reader has at hand.
        ReadinessError::Expression(error.lines().next().unwrap_or_default().trim().to_owned())
    })
}

fn by_expression(object: &Value, text: &str, budget: &mut Budget) -> Health {
    let expression = match compiled(text) {
        Ok(expression) => expression,
        Err(error) => return Health::Failed(format!("{error}.")),
    };
    match expression.holds_within(&[("self", object)], budget) {
        Ok(true) => Health::Ready,
        Ok(false) => Health::waiting(format!("`{text}` is not true yet.")),
        Err(ConditionError::NotABool) => Health::Failed(format!("`{text}` is neither true nor false.")),
        Err(ConditionError::TooExpensive) => Health::Failed(format!(
            "`{text}` is too expensive to evaluate. Write it with fewer nested `all`, `exists`, `map` and `filter`."
        )),
        // The fields that the expression reads may be set later.
        Err(ConditionError::NoValue(error)) => Health::waiting(format!("`{text}` cannot be evaluated yet: {error}.")),
    }
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}
