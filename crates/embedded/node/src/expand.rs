//! `$(VAR)` in commands, arguments and values of the environment.

use std::collections::BTreeMap;

/// Replaces `$(NAME)` by the variable's value. `$$` is a dollar, so `$$(NAME)` stays `$(NAME)`; a name that is not known stays as it is.
pub fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            result.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match variables.get(name) {
                Some(value) => result.push_str(value),
                None => {
                    result.push_str("$(");
                    result.push_str(name);
                    result.push(')');
                }
            }
            rest = tail;
        } else {
            result.push('$');
            rest = after;
        }
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_kubernetes_does() {
        let variables = [("A", "1"), ("B", "$(A)"), ("EMPTY", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (text, expect) in [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(A)z", "x1y1z"),
            ("$(B)", "$(A)"),
            ("$(EMPTY)", ""),
            ("$(NO)", "$(NO)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$A ${A} $", "$A ${A} $"),
            ("$(A", "$(A"),
            ("$()", "$()"),
            ("a$$b", "a$b"),
        ] {
            assert_eq!(expand(text, &variables), expect, "{text}");
        }
    }
}
