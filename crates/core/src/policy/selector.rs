//! Label selectors of Policies. A selector that Kubernetes would refuse is an error, never a selector of nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Selector, SelectorExt};

use super::Labels;

/// Whether the selector selects an object with these labels. An absent one selects all.
pub(super) fn matches(selector: Option<&LabelSelector>, labels: &Labels) -> Result<bool, String> {
    let Some(selector) = selector else { return Ok(true) };
    for requirement in selector.match_expressions.iter().flatten() {
        let has_values = requirement.values.as_ref().is_some_and(|values| !values.is_empty());
        let wants_values = match requirement.operator.as_str() {
            "In" | "NotIn" => true,
            "Exists" | "DoesNotExist" => false,
            other => return Err(format!("`{other}` is not an operator; write In, NotIn, Exists or DoesNotExist")),
        };
        if has_values != wants_values {
            let (key, operator) = (&requirement.key, &requirement.operator);
            let with = if wants_values { "needs values" } else { "has no values" };
            return Err(format!("the operator `{operator}` of `{key}` {with}"));
        }
        if requirement.key.is_empty() {
            return Err("a requirement has no key".to_owned());
        }
    }
    let selector = Selector::try_from(selector.clone()).map_err(|error| error.to_string())?;
    Ok(selector.matches(labels))
}
