//! Which label keys and values there may be.

const NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const MOST_BYTES: usize = 63;
const MOST_SUBDOMAIN_BYTES: usize = 253;

/// What is wrong with a label key.
pub fn invalid_key(path: &str, key: &str) -> Option<String> {
    let name_rule = || {
        format!(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
             (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME}')"
        )
    };
    let mut errors = Vec::new();
    let mut parts = key.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(invalid_subdomain(prefix).into_iter().map(|error| format!("prefix part {error}")));
            }
            name
        }
        _ => {
            let why = format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                name_rule()
            );
            return Some(format!("{path}: Invalid value: {key:?}: {why}"));
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > MOST_BYTES {
        errors.push(format!("name part must be no more than {MOST_BYTES} characters"));
    }
    if !is_name(name) {
        errors.push(format!("name part {}", name_rule()));
    }
    (!errors.is_empty()).then(|| format!("{path}: Invalid value: {key:?}: {}", errors.join("; ")))
}

/// What is wrong with a label value.
pub fn invalid_value(path: &str, value: &str) -> Option<String> {
    let mut errors = Vec::new();
    if value.len() > MOST_BYTES {
        errors.push(format!("must be no more than {MOST_BYTES} characters"));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and \
             end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '({NAME})?')"
        ));
    }
    (!errors.is_empty()).then(|| format!("{path}: Invalid value: {value:?}: {}", errors.join("; ")))
}

fn invalid_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > MOST_SUBDOMAIN_BYTES {
        errors.push(format!("must be no more than {MOST_SUBDOMAIN_BYTES} characters"));
    }
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        matches!(label.as_bytes(), [first, middle @ .., last] if inner(*first) && inner(*last) && middle.iter().all(|byte| inner(*byte) || *byte == b'-'))
            || matches!(label.as_bytes(), [only] if inner(*only))
    };
    if !text.split('.').all(label) {
        errors.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
             end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
        ));
    }
    errors
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}
