//! Messages for people about errors of others, without values that may be secret.

/// The message of an API error without its wrapping.
#[must_use]
pub fn message_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether the API refuses a new object because its namespace is being deleted.
#[must_use]
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether the API refuses an object as invalid, so that it refuses it each time.
#[must_use]
pub fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// Where and how a JSON text is wrong. The parser's own message can quote a value.
pub(crate) fn json_fault(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let fault = match error.classify() {
        Category::Io => "it cannot be read",
        Category::Syntax => "it is no JSON",
        Category::Data => "it has another form",
        Category::Eof => "it ends too early",
    };
    format!("{fault} (line {}, column {})", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_json_quotes_no_value() {
        let fault = |text: &str| serde_json::from_str::<u64>(text).err().map(|error| json_fault(&error));
        assert_eq!(fault("\"hunter2\"").as_deref(), Some("it has another form (line 1, column 9)"));
        assert_eq!(fault("hunter2").as_deref(), Some("it is no JSON (line 1, column 1)"));
        assert_eq!(fault("").as_deref(), Some("it ends too early (line 1, column 0)"));
    }
}
