//! Turns API errors into messages that say what failed and what the user can do.

use anyhow::anyhow;

use super::kubeconfig::Origin;
use super::{Cluster, role};

/// Adds the failed operation and a hint to an API error.
pub trait Explain<T> {
    /// `what` is the failed operation: "cannot list the runs".
    fn explain(self, cluster: &Cluster, what: &str) -> anyhow::Result<T>;
}

impl<T> Explain<T> for Result<T, kube::Error> {
    fn explain(self, cluster: &Cluster, what: &str) -> anyhow::Result<T> {
        self.map_err(|error| explain(error, cluster, what))
    }
}

/// See [`Explain::explain`].
pub fn explain(error: kube::Error, cluster: &Cluster, what: &str) -> anyhow::Error {
    let server = &cluster.server;
    match error {
        kube::Error::Api(status) if status.code == 401 => anyhow!(
            "{what}: authentication failed at the cluster {server}\n  log in again, or use another kubeconfig with `--kubeconfig FILE`"
        ),
        // An admission policy says itself what to do; another role would not help.
        kube::Error::Api(status) if status.code == 403 && !status.message.contains(ADMISSION) => {
            anyhow!("{what}: {}\n  {}", status.message, role::ask_for(&status.message, cluster.role))
        }
        kube::Error::Api(status) if status.code == 404 && namespace_of(&status).is_some() => {
            let name = namespace_of(&status).unwrap_or_default();
            anyhow!("{what}: {}\n  `kubectl create namespace {name}` creates it", status.message)
        }
        kube::Error::Api(status) if status.code == 403 => anyhow!("{what}: {}", of_policy(&status.message)),
        // The 404 for a kind that is not served names no object.
        kube::Error::Api(status) if status.code == 404 && is_kind_missing(&status) => {
            anyhow!("{what}: Knoll is not installed in the cluster at {server}\n  run `knoll install` to install it")
        }
        kube::Error::Api(status) => anyhow!("{what}: {}", status.message),
        error @ (kube::Error::HyperError(_) | kube::Error::Service(_)) => {
            let why = innermost(&error);
            if why.contains("certificate") {
                let origin = &cluster.origin;
                return anyhow!(
                    "{what}: the certificate of the cluster at {server} cannot be verified ({why})\n  check \
                     `certificate-authority-data` in {origin}"
                );
            }
            let hint = match &cluster.origin {
                Origin::Up(_) => "this is the embedded cluster; start it with `knoll up --detach`".to_owned(),
                origin => format!("the address comes from {origin}; is the cluster running?"),
            };
            anyhow!("{what}: the cluster at {server} does not respond ({why})\n  {hint}")
        }
        error => anyhow::Error::new(error).context(what.to_owned()),
    }
}

/// How the API server begins the refusal of an admission policy.
const ADMISSION: &str = "ValidatingAdmissionPolicy";

/// What an admission policy of Knoll says. Before it, the API server names the object, the policy and its binding.
fn of_policy(refusal: &str) -> &str {
    refusal.split_once(" denied request: ").map_or(refusal, |(_, why)| why)
}

/// The namespace that does not exist.
fn namespace_of(status: &kube::core::Status) -> Option<&str> {
    let details = status.details.as_ref().filter(|details| details.kind == "namespaces")?;
    Some(details.name.as_str()).filter(|name| !name.is_empty())
}

fn is_kind_missing(status: &kube::core::Status) -> bool {
    let named = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    !named
}

/// The innermost cause, which is the network error.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_began_with_the_names_of_admission_policies() {
        let refusal = "runs.knoll.dev \"r\" is forbidden: ValidatingAdmissionPolicy 'knoll-x' with binding 'knoll-x' denied request: \
                       Policy `p` does not allow it.";
        assert_eq!(of_policy(refusal), "Policy `p` does not allow it.");
        assert_eq!(of_policy("something else"), "something else");
    }
}
