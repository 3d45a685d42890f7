//! Label selectors of Policies. A selector that Kubernetes would refuse is an error, never a selector of nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Selector, SelectorExt};

use super::Labels;

/// Whether the selector selects an object with these labels. An absent one selects all.
pub(super) fn matches(selector: Option<&LabelSelector>, labels: &Labels) -> Result<bool, String> {
    let Some(selector) = selector else { return Ok(true) };
    for (key, value) in selector.match_labels.iter().flatten() {
        check_key(key)?;
        check_value(value)?;
    }
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
        check_key(&requirement.key)?;
        requirement.values.iter().flatten().try_for_each(|value| check_value(value))?;
    }
    let selector = Selector::try_from(selector.clone()).map_err(|error| error.to_string())?;
    Ok(selector.matches(labels))
}

/// The key of a label: a name, with the DNS name of its owner and `/` before it or not.
fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_dns = |prefix: &str| {
        let is_word = |word: &str| is_name(word) && !word.contains(['_', '.']) && word == word.to_lowercase();
        prefix.len() <= 253 && prefix.split('.').all(is_word)
    };
    if is_name(name) && prefix.is_none_or(is_dns) {
        return Ok(());
    }
    Err(format!("`{key}` is not the key of a label; write a key such as env or example.com/env"))
}

fn check_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(format!("`{value}` is not the value of a label; write at most 63 letters, digits, -, _ and ."))
}

/// Whether a text is what Kubernetes calls a qualified name: at most 63 characters, a letter or a digit first and last.
fn is_name(text: &str) -> bool {
    let is_end = |end: Option<char>| end.is_some_and(|end| end.is_ascii_alphanumeric());
    let mut chars = text.chars();
    text.len() <= 63
        && is_end(chars.next())
        && is_end(text.chars().next_back())
        && chars.all(|inner| inner.is_ascii_alphanumeric() || matches!(inner, '-' | '_' | '.'))
}
