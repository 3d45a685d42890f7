//! Property names as identifiers: CEL reserves words and characters that Kubernetes uses as field names.

use std::borrow::Cow;

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const SEQUENCES: [(&str, &str); 4] =
    [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];

/// The identifier under which a rule sees the property `name`; absent where no rule can see it.
pub(crate) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let sequence = SEQUENCES.iter().find(|(_, plain)| rest.starts_with(plain));
        if let Some((escaped, plain)) = sequence {
            out.push_str(escaped);
            rest = &rest[plain.len()..];
        } else if c.is_ascii_alphanumeric() || c == '_' {
            out.push(c);
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(out)
}

/// The property that an identifier means.
pub(crate) fn unescape(identifier: &str) -> Cow<'_, str> {
    if !identifier.contains("__") {
        return Cow::Borrowed(identifier);
    }
    let inner = identifier.strip_prefix("__").and_then(|i| i.strip_suffix("__"));
    if let Some(word) = inner.filter(|word| RESERVED.contains(word)) {
        return Cow::Borrowed(word);
    }
    let mut out = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(c) = rest.chars().next() {
        match SEQUENCES.iter().find(|(escaped, _)| rest.starts_with(escaped)) {
            Some((escaped, plain)) => {
                out.push_str(plain);
                rest = &rest[escaped.len()..];
            }
            None => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_kubernetes_escapes_them() {
        for (name, identifier) in [
            ("namespace", Some("__namespace__")),
            ("a-b", Some("a__dash__b")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("a__b", Some("a__underscores__b")),
            ("a_b", Some("a_b")),
            ("1a", None),
            ("a b", None),
            ("", None),
        ] {
            assert_eq!(escape(name).as_deref(), identifier);
            if let Some(identifier) = identifier {
                assert_eq!(unescape(identifier), name);
            }
        }
    }
}
