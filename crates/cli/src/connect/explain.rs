//! What the cluster's refusals mean for a person, and what to do about them.

use anyhow::anyhow;

use super::Cluster;
use super::kubeconfig::Origin;

/// Says what was tried, and what the cluster answered, in a sentence that can be acted on.
pub trait Explain<T> {
    /// `what` is what was tried: "cannot list the runs".
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
            "{what}: the cluster at {server} does not know you\n  renew your access, or name another kubeconfig with `--kubeconfig FILE`"
        ),
        kube::Error::Api(status) if status.code == 403 => {
            anyhow!("{what}: {}\n  ask for the role `{}` in that namespace", status.message, role(&status.message))
        }
        // A kind that is not served is answered without naming an object.
        kube::Error::Api(status) if status.code == 404 && is_kind_missing(&status) => {
            anyhow!("{what}: Knoll is not installed in the cluster at {server}\n  `knoll install` installs it")
        }
        kube::Error::Api(status) => anyhow!("{what}: {}", status.message),
        error @ (kube::Error::HyperError(_) | kube::Error::Service(_)) => {
            let why = innermost(&error);
            let hint = match &cluster.origin {
                Origin::Up(_) => "it is the cluster of `knoll up`; start it again with `knoll up --detach`".to_owned(),
                origin => format!("its address is from {origin}; is the cluster up?"),
            };
            anyhow!("{what}: the cluster at {server} does not answer ({why})\n  {hint}")
        }
        error => anyhow::Error::new(error).context(what.to_owned()),
    }
}

/// The role that allows what was refused with these words.
fn role(refusal: &str) -> &'static str {
    let says = |words: &str| refusal.contains(words);
    let looks = ["get", "list", "watch"].iter().any(|verb| says(&format!("cannot {verb} resource")));
    if says("resource \"approvals\"") && !looks {
        "knoll-approver"
    } else if looks && !says("resource \"secrets\"") && !says("resource \"pods/attach\"") {
        "knoll-viewer"
    } else {
        "knoll-user"
    }
}

fn is_kind_missing(status: &kube::core::Status) -> bool {
    let named = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    !named
}

/// The cause at the bottom, which is what the network said.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}
