//! The messages of the Kubernetes API, for people.

/// The message of an API error without its wrapping.
#[must_use]
pub fn message_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
