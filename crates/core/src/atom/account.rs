//! The service account that an Atom acts as.
//!
//! *Guarantee.* An Atom always acts as an account of its own namespace: the operator has no rights of its own on the
//! objects of Atoms.

use knoll_api::{Atom, names::is_dns_label};

/// Every namespace has this account.
const DEFAULT: &str = "default";

/// The verbs that an Atom needs on a kind of its objects.
const VERBS: &str = "get,list,watch,create,patch,delete";

/// The kinds that the built-in role `edit` may write, by group.
const EDIT: &[(&str, &[&str])] = &[
    ("", &["configmaps", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts", "services"]),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
    ("networking.k8s.io", &["ingresses", "networkpolicies"]),
    ("policy", &["poddisruptionbudgets"]),
];

/// The account of an Atom. The operator sets the one that a Policy supplies before it asks (`policy::atom_account`).
#[must_use]
pub fn of(atom: &Atom) -> &str {
    atom.spec.service_account_name.as_deref().unwrap_or(DEFAULT)
}

/// A kind in a namespace, or in the whole cluster, that an account has no rights on.
#[derive(Clone, Copy, Debug)]
pub struct MissingRight<'a> {
    /// The namespace and the name of the account.
    pub account: (&'a str, &'a str),
    pub group: &'a str,
    /// The kind, as paths name it.
    pub plural: &'a str,
    /// The namespace of the object; none for a cluster-scoped one.
    pub namespace: Option<&'a str>,
}

impl MissingRight<'_> {
    /// The sentence that says which commands grant the right. A name that a shell could read in another way gets no
    /// command, because users paste it.
    #[must_use]
    pub fn advice(&self) -> String {
        let Self { account: (home, account), group, plural, namespace } = *self;
        let is_plain = |name: &str| name.split('.').all(is_dns_label);
        if ![home, account, plural, namespace.unwrap_or(DEFAULT)].into_iter().all(is_plain)
            || !(group.is_empty() || is_plain(group))
        {
            return "Grant the right to the Atom's service account.".to_owned();
        }
        let to = format!("--serviceaccount={home}:{account}");
        let (scope, place) = match namespace {
            Some(namespace) => ("", format!(" --namespace={namespace}")),
            None => ("cluster", String::new()),
        };
        let is_in_edit = EDIT.iter().any(|(known, plurals)| *known == group && plurals.contains(&plural));
        let grant = if namespace.is_some() && is_in_edit {
            format!("`kubectl create rolebinding {home}-{account}-edit --clusterrole=edit {to}{place}`")
        } else {
            let name = format!("{home}-{account}-{plural}");
            let resource = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
            format!(
                "`kubectl create {scope}role {name} --verb={VERBS} --resource={resource}{place}` and `kubectl create {scope}rolebinding {name} --{scope}role={name} {to}{place}`"
            )
        };
        format!(
            "Grant the right with {grant}, or name another account in spec.serviceAccountName; then `knoll atom apply` tries the version again."
        )
    }
}

#[cfg(test)]
mod tests {
    use knoll_api::AtomSpec;

    use super::*;

    #[test]
    fn an_atom_always_has_an_account() {
        let mut atom = Atom::new("web", AtomSpec::default());
        assert_eq!(of(&atom), "default");
        atom.spec.service_account_name = Some("deployer".to_owned());
        assert_eq!(of(&atom), "deployer");
    }

    #[test]
    fn the_command_grants_the_right_that_is_missing() {
        let check = |group, plural, namespace, expect: &str| {
            let advice = MissingRight { account: ("shop", "default"), group, plural, namespace }.advice();
            assert!(advice.contains(expect), "{advice}");
        };
        check(
            "apps",
            "deployments",
            Some("shop"),
            "`kubectl create rolebinding shop-default-edit --clusterrole=edit --serviceaccount=shop:default --namespace=shop`",
        );
        check("", "secrets", Some("other"), "--serviceaccount=shop:default --namespace=other`");
        check(
            "example.com",
            "widgets",
            Some("shop"),
            "--resource=widgets.example.com --namespace=shop` and `kubectl create rolebinding shop-default-widgets --role=shop-default-widgets --serviceaccount=shop:default --namespace=shop`",
        );
        check("", "namespaces", None, "`kubectl create clusterrole shop-default-namespaces --verb=get,");
        check("", "namespaces", None, "--clusterrole=shop-default-namespaces --serviceaccount=shop:default`");
        check("", "secrets", Some("shop"), "; then `knoll atom apply` tries the version again.");
        // Nobody is given a command that does something else.
        check("", "secrets", Some("x; rm -rf"), "Grant the right to the Atom's service account.");
        check("", "secrets", Some("$(id)"), "Grant the right to the Atom's service account.");
    }
}
