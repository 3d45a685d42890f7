//! Authorization: administrators may do everything, everyone may look around, the rest is for roles to grant.

use http::Method;
use serde_json::Value;

use crate::server::Server;
use crate::server::identity::Identity;
use crate::server::path::Target;
use crate::server::status::{ApiError, Result, Subject};
use crate::store::List;

const FOLDER: &str = "rbac.authorization.k8s.io";

/// Refuses what the user may not do.
pub fn authorize(server: &Server, user: &Identity, verb: &str, target: &Target) -> Result<()> {
    let namespace = target.namespace.as_deref();
    let sub = target.subresource.as_deref();
    if server.allows(user, verb, &target.group, &target.resource, sub, target.name.as_deref(), namespace) {
        return Ok(());
    }
    let what = match sub {
        Some(sub) => format!("{}/{sub}", target.resource),
        None => target.resource.clone(),
    };
    let place = match namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let why =
        format!("User \"{}\" cannot {verb} resource \"{what}\" in API group \"{}\" {place}", user.name, target.group);
    let name = target.name.as_deref().unwrap_or_default();
    Err(ApiError::forbidden(Subject { group: &target.group, resource: &target.resource, name }, &why))
}

/// Refuses what the user may not look at: what is no resource is open to whoever is known, as far as it is there.
pub fn authorize_path(user: &Identity, method: &Method, path: &str) -> Result<()> {
    let open = ["/api", "/apis", "/openapi", "/healthz", "/livez", "/readyz", "/version"];
    let below = |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    if user.is_admin() || (method == Method::GET && user.is_authenticated() && open.iter().any(|root| below(root))) {
        return Ok(());
    }
    let verb = method.as_str().to_lowercase();
    let message = format!("forbidden: User \"{}\" cannot {verb} path \"{path}\"", user.name);
    let mut error = ApiError::new(http::StatusCode::FORBIDDEN, "Forbidden", message);
    error.details = Some(serde_json::json!({}));
    Err(error)
}

impl Server {
    /// The user may do that, by some role.
    #[allow(clippy::too_many_arguments, reason = "these are the attributes of a request that RBAC knows")]
    pub fn allows(
        &self,
        user: &Identity,
        verb: &str,
        group: &str,
        resource: &str,
        subresource: Option<&str>,
        name: Option<&str>,
        namespace: Option<&str>,
    ) -> bool {
        let about_self = resource.starts_with("selfsubject") && verb == "create";
        if user.is_admin() || about_self {
            return true;
        }
        let what = match subresource {
            Some(sub) => format!("{resource}/{sub}"),
            None => resource.to_owned(),
        };
        self.rules_for(user, namespace).iter().any(|rule| {
            let has =
                |key: &str, wanted: &str| rule[key].as_array().into_iter().flatten().any(|v| v == wanted || v == "*");
            let wildcard = subresource.is_some_and(|sub| has_exactly(&rule["resources"], &format!("*/{sub}")));
            let names = rule["resourceNames"].as_array().filter(|n| !n.is_empty());
            has("verbs", verb)
                && has("apiGroups", group)
                && (has("resources", &what) || wildcard)
                && names.is_none_or(|names| name.is_some_and(|name| names.iter().any(|n| n == name)))
        })
    }

    /// Every rule that some role grants the user in that namespace, or in the whole cluster.
    pub fn rules_for(&self, user: &Identity, namespace: Option<&str>) -> Vec<Value> {
        let mut rules = Vec::new();
        for binding in self.objects(&format!("{FOLDER}/clusterrolebindings/")) {
            if bound(&binding, user, "") {
                rules.extend(self.rules_of(&binding["roleRef"], None));
            }
        }
        if let Some(namespace) = namespace {
            for binding in self.objects(&format!("{FOLDER}/rolebindings/{namespace}/")) {
                if bound(&binding, user, namespace) {
                    rules.extend(self.rules_of(&binding["roleRef"], Some(namespace)));
                }
            }
        }
        rules
    }

    fn rules_of(&self, role: &Value, namespace: Option<&str>) -> Vec<Value> {
        let name = role["name"].as_str().unwrap_or_default();
        let key = match (role["kind"].as_str(), namespace) {
            (Some("Role"), Some(namespace)) => format!("{FOLDER}/roles/{namespace}/{name}"),
            (Some("ClusterRole"), _) => format!("{FOLDER}/clusterroles//{name}"),
            _ => return Vec::new(),
        };
        match self.read_key(&key) {
            Ok(Some(role)) => role["rules"].as_array().cloned().unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Every object below a prefix of the store.
    pub(crate) fn objects(&self, prefix: &str) -> Vec<Value> {
        let list = List { prefix, after: None, limit: None, at: None };
        let entries = self.store.list(list).map(|page| page.entries).unwrap_or_default();
        entries.iter().filter_map(|e| super::object::decode_entry(e).ok()).collect()
    }
}

fn has_exactly(list: &Value, wanted: &str) -> bool {
    list.as_array().into_iter().flatten().any(|v| v == wanted)
}

fn bound(binding: &Value, user: &Identity, namespace: &str) -> bool {
    binding["subjects"].as_array().into_iter().flatten().any(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("User") => user.name == name,
            Some("Group") => user.groups.iter().any(|g| g == name),
            Some("ServiceAccount") => {
                let namespace = subject["namespace"].as_str().unwrap_or(namespace);
                user.name == format!("system:serviceaccount:{namespace}:{name}")
            }
            _ => false,
        }
    })
}
