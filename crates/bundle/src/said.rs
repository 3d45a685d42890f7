//! What the API says when it refuses, for people.

/// The sentence of an answer, without the form in which it came.
#[must_use]
pub fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
