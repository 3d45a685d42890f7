//! Authorization: the masters may do everything, the rest is for roles to grant.

use http::Method;
use serde_json::{Value, json};

use crate::Server;
use crate::identity::Identity;
use crate::path::Target;
use crate::status::{ApiError, Result, Subject};
use knoll_kube_store::List;

const FOLDER: &str = "rbac.authorization.k8s.io";

/// What somebody wants to do, in the terms of roles.
#[derive(Clone, Copy, Debug)]
pub enum Wish<'a> {
    /// Something with a resource.
    Resource {
        /// `get`, `create` and the like.
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        /// `status` and the like.
        subresource: Option<&'a str>,
        name: Option<&'a str>,
        /// The namespace; none for the whole cluster.
        namespace: Option<&'a str>,
    },
    /// Something with a path that is no resource.
    Path {
        /// The method, in small letters.
        verb: &'a str,
        path: &'a str,
    },
}

impl Wish<'_> {
    fn granted_by(&self, rule: &Value) -> bool {
        let has = |key: &str, wanted: &str| rule[key].as_array().into_iter().flatten().any(|v| v == wanted || v == "*");
        match *self {
            Wish::Resource { verb, group, resource, subresource, name, .. } => {
                let what = match subresource {
                    Some(sub) => format!("{resource}/{sub}"),
                    None => resource.to_owned(),
                };
                let wildcard = subresource.is_some_and(|sub| has_exactly(&rule["resources"], &format!("*/{sub}")));
                let names = rule["resourceNames"].as_array().filter(|n| !n.is_empty());
                has("verbs", verb)
                    && has("apiGroups", group)
                    && (has("resources", &what) || wildcard)
                    && names.is_none_or(|names| name.is_some_and(|name| names.iter().any(|n| n == name)))
            }
            Wish::Path { verb, path } => {
                let fits = |url: &Value| {
                    url.as_str().is_some_and(|url| match url.strip_suffix('*') {
                        Some(start) => path.starts_with(start),
                        None => path == url,
                    })
                };
                has("verbs", verb) && rule["nonResourceURLs"].as_array().into_iter().flatten().any(fits)
            }
        }
    }

    fn namespace(&self) -> Option<&str> {
        match *self {
            Wish::Resource { namespace, .. } => namespace,
            Wish::Path { .. } => None,
        }
    }
}

/// Refuses what the user may not do.
pub fn authorize(server: &Server, user: &Identity, verb: &str, target: &Target) -> Result<()> {
    // A namespace is seen as its own content: a role in it can grant it.
    let own = target.group.is_empty() && target.resource == "namespaces";
    let namespace = if own { target.name.as_deref() } else { target.namespace.as_deref() };
    let wish = Wish::Resource {
        verb,
        group: &target.group,
        resource: &target.resource,
        subresource: target.subresource.as_deref(),
        name: target.name.as_deref(),
        namespace,
    };
    demand(server, user, &wish)
}

/// Refuses what the user may not do with a resource, or with a path.
pub fn demand(server: &Server, user: &Identity, wish: &Wish<'_>) -> Result<()> {
    if server.grants(user, wish).is_some() {
        return Ok(());
    }
    Err(match *wish {
        Wish::Resource { verb, group, resource, subresource, name, namespace } => {
            let what = match subresource {
                Some(sub) => format!("{resource}/{sub}"),
                None => resource.to_owned(),
            };
            let place = match namespace {
                Some(namespace) => format!("in the namespace \"{namespace}\""),
                None => "at the cluster scope".to_owned(),
            };
            let why =
                format!("User \"{}\" cannot {verb} resource \"{what}\" in API group \"{group}\" {place}", user.name);
            ApiError::forbidden(Subject { group, resource, name: name.unwrap_or_default() }, &why)
        }
        Wish::Path { verb, path } => {
            let message = format!("forbidden: User \"{}\" cannot {verb} path \"{path}\"", user.name);
            let mut error = ApiError::new(http::StatusCode::FORBIDDEN, "Forbidden", message);
            error.details = Some(json!({}));
            error
        }
    })
}

/// Refuses a path that is no resource and that the user may not look at.
pub fn authorize_path(server: &Server, user: &Identity, method: &Method, path: &str) -> Result<()> {
    let verb = method.as_str().to_lowercase();
    demand(server, user, &Wish::Path { verb: &verb, path })
}

/// A rule that somebody has, and by what.
pub struct Granted {
    pub rule: Value,
    /// Which binding gives it to whom.
    pub reason: String,
}

impl Server {
    /// Why the user may do that; `None` where no role grants it. The masters need no reason.
    pub fn grants(&self, user: &Identity, wish: &Wish<'_>) -> Option<String> {
        if user.is_admin() {
            return Some(String::new());
        }
        let granted = self.rules_for(user, wish.namespace());
        granted.into_iter().find(|granted| wish.granted_by(&granted.rule)).map(|granted| granted.reason)
    }

    /// Every rule that some role grants the user in that namespace, or in the whole cluster.
    pub(crate) fn rules_for(&self, user: &Identity, namespace: Option<&str>) -> Vec<Granted> {
        let mut rules = Vec::new();
        for binding in self.objects(&format!("{FOLDER}/clusterrolebindings/")) {
            rules.extend(self.granted(&binding, user, None));
        }
        if let Some(namespace) = namespace {
            for binding in self.objects(&format!("{FOLDER}/rolebindings/{namespace}/")) {
                rules.extend(self.granted(&binding, user, Some(namespace)));
            }
        }
        rules
    }

    fn granted(&self, binding: &Value, user: &Identity, namespace: Option<&str>) -> Vec<Granted> {
        let Some(subject) = bound(binding, user, namespace.unwrap_or_default()) else { return Vec::new() };
        let name = super::object::meta(binding, "name");
        let place = match namespace {
            Some(namespace) => format!("RoleBinding \"{name}/{namespace}\""),
            None => format!("ClusterRoleBinding \"{name}\""),
        };
        let role = &binding["roleRef"];
        let text = |key: &str| role[key].as_str().unwrap_or_default();
        let reason = format!("RBAC: allowed by {place} of {} \"{}\" to {subject}", text("kind"), text("name"));
        let rules = self.role(role, namespace).ok().flatten().map(|mut role| role["rules"].take());
        let rules = rules.as_ref().and_then(Value::as_array).into_iter().flatten();
        rules.map(|rule| Granted { rule: rule.clone(), reason: reason.clone() }).collect()
    }

    /// The role that a binding in this namespace, or in none, refers to.
    pub(crate) fn role(&self, reference: &Value, namespace: Option<&str>) -> Result<Option<Value>> {
        let name = reference["name"].as_str().unwrap_or_default();
        let (resource, place) = match reference["kind"].as_str() {
            Some("ClusterRole") => ("clusterroles", Some("")),
            _ => ("roles", namespace),
        };
        match place {
            Some(place) => self.read_key(&format!("{FOLDER}/{resource}/{place}/{name}")),
            None => Ok(None),
        }
    }

    /// Every object below a prefix of the store.
    pub(crate) fn objects(&self, prefix: &str) -> Vec<Value> {
        let list = List { prefix, ..List::default() };
        let entries = self.store.list(list).map(|page| page.entries).unwrap_or_default();
        entries.iter().filter_map(|e| super::object::decode_entry(e).ok()).collect()
    }
}

fn has_exactly(list: &Value, wanted: &str) -> bool {
    list.as_array().into_iter().flatten().any(|v| v == wanted)
}

/// The subject of the binding that the user is.
fn bound(binding: &Value, user: &Identity, namespace: &str) -> Option<String> {
    binding["subjects"].as_array().into_iter().flatten().find_map(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        let kind = subject["kind"].as_str().unwrap_or_default();
        let found = match kind {
            "User" => user.name == name,
            "Group" => user.groups.iter().any(|g| g == name),
            "ServiceAccount" => {
                let namespace = subject["namespace"].as_str().unwrap_or(namespace);
                if user.name == format!("system:serviceaccount:{namespace}:{name}") {
                    return Some(format!("ServiceAccount \"{name}/{namespace}\""));
                }
                false
            }
            _ => false,
        };
        found.then(|| format!("{kind} \"{name}\""))
    })
}
