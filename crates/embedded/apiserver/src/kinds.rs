//! The resources that the server has: what they are called and which rules each follows.
//!
//! Built-in resources stand in one table; a `CustomResourceDefinition` adds a [`Resource`] of the same form.

use std::sync::Arc;

use serde_json::Value;

use crate::path::Target;
use crate::status::Subject;
use knoll_kube_model::schema::{self, Schema};

/// One resource in one version.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    pub version: String,
    /// The Kind of its objects.
    pub kind: String,
    /// The Kind of its lists.
    pub list_kind: String,
    /// The plural name, as in paths.
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    /// Groups of resources that it is listed with, such as `all`.
    pub categories: Vec<String>,
    /// Its objects live in namespaces.
    pub namespaced: bool,
    /// Its objects are kept. `false` for reviews, which are answered and forgotten.
    pub stored: bool,
    /// The store's folder of its objects; resources that are views of one another share it.
    pub folder: String,
    /// `apiVersion` of the stored objects.
    pub storage_version: String,
    /// The rules of the kind.
    pub rules: Rules,
    /// `status` is a subresource: it is written apart from the rest.
    pub status: bool,
    /// Other subresources, for discovery: name, kind, group, version, verbs.
    pub subresources: &'static [Subresource],
    /// Field selectors beside `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<String>,
    /// The schema that objects are defaulted, pruned, validated and merged with.
    pub schema: SchemaSource,
    /// `additionalPrinterColumns` of a custom resource.
    pub columns: Option<Arc<Value>>,
    /// Where a custom resource keeps what its `scale` subresource shows.
    pub scale: Option<Arc<crate::scale::Paths>>,
    /// The UID of the CustomResourceDefinition that it comes from.
    pub crd: Option<Arc<CrdOrigin>>,
}

/// What the server keeps of a resource's CustomResourceDefinition.
#[derive(Debug)]
pub struct CrdOrigin {
    pub name: String,
    /// The version's `openAPIV3Schema`, as JSON, for OpenAPI documents.
    pub openapi: Value,
    /// The definition is being deleted: nothing new may be created.
    pub terminating: bool,
}

/// Where a schema comes from: built-in ones are made when first needed.
#[derive(Clone, Debug)]
pub enum SchemaSource {
    Builtin,
    Own(Arc<Schema>),
}

/// A subresource as discovery lists it.
#[derive(Debug)]
pub struct Subresource {
    /// `log`, `token` and the like.
    pub name: &'static str,
    /// Group, version and kind of what it takes or gives.
    pub kind: (&'static str, &'static str, &'static str),
    pub verbs: &'static [&'static str],
}

/// Which rules of its own a kind follows on a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    Custom,
    /// A custom resource definition.
    Crd,
    Namespace,
    ConfigMap,
    Secret,
    ServiceAccount,
    Pod,
    Node,
    /// Role, RoleBinding, ClusterRole, ClusterRoleBinding
    Role,
    /// Event, of either group.
    Event,
    Lease,
    Policy,
    /// A review: answered and forgotten.
    Review,
}

impl Rules {
    /// What is written to `status` may change the metadata too, as it may for the oldest kinds.
    pub fn keeps_metadata_in_status(self) -> bool {
        matches!(self, Self::Namespace | Self::Pod | Self::Node)
    }
}

impl Resource {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        join_version(&self.group, &self.version)
    }

    /// What an error about an object of that name is about.
    pub fn subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject { group: &self.group, resource: &self.plural, name }
    }

    /// The store's key of an object.
    pub fn key(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}/{name}", self.folder, namespace.unwrap_or_default())
    }

    /// The store's prefix of a namespace's objects, or of all.
    pub fn prefix(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{}/{namespace}/", self.folder),
            None => format!("{}/", self.folder),
        }
    }

    /// The schema of its objects.
    pub fn schema(&self) -> Arc<Schema> {
        match &self.schema {
            SchemaSource::Own(schema) => schema.clone(),
            SchemaSource::Builtin => schema::builtin(&self.group, &self.version, &self.kind).unwrap_or_default(),
        }
    }

    /// Writes of `spec` count in `metadata.generation`.
    pub fn has_generation(&self) -> bool {
        matches!(self.rules, Rules::Custom | Rules::Crd | Rules::Pod)
            || matches!(self.group.as_str(), "admissionregistration.k8s.io")
    }

    /// An update without a `resourceVersion` overwrites whatever is there.
    pub fn unconditional_update(&self) -> bool {
        !matches!(self.rules, Rules::Custom | Rules::Crd | Rules::Lease)
    }

    /// An update of an object that is not there creates it.
    pub fn create_on_update(&self) -> bool {
        matches!(self.rules, Rules::Lease | Rules::Event) || self.group == "rbac.authorization.k8s.io"
    }

    /// The verbs that discovery lists.
    pub fn verbs(&self) -> &'static [&'static str] {
        match self.rules {
            Rules::Review => &["create"],
            Rules::Namespace => &["create", "delete", "get", "list", "patch", "update", "watch"],
            Rules::Custom => &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
            _ => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        }
    }

    /// It is the resource that the path names.
    pub fn is(&self, target: &Target) -> bool {
        self.group == target.group && self.version == target.version && self.plural == target.resource
    }
}

/// `v1`, `apps/v1`.
pub fn join_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

struct Row(
    &'static str,            // group
    &'static str,            // kind
    &'static str,            // plural
    &'static [&'static str], // short names
    bool,                    // namespaced
    Rules,
    bool, // status
);

const ADMISSION: &str = "admissionregistration.k8s.io";
const AUTHN: &str = "authentication.k8s.io";
const AUTHZ: &str = "authorization.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row("", "ConfigMap", "configmaps", &["cm"], true, Rules::ConfigMap, false),
    Row("", "Event", "events", &["ev"], true, Rules::Event, false),
    Row("", "Namespace", "namespaces", &["ns"], false, Rules::Namespace, true),
    Row("", "Node", "nodes", &["no"], false, Rules::Node, true),
    Row("", "Pod", "pods", &["po"], true, Rules::Pod, true),
    Row("", "Secret", "secrets", &[], true, Rules::Secret, false),
    Row("", "ServiceAccount", "serviceaccounts", &["sa"], true, Rules::ServiceAccount, false),
    Row(ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", &[], false, Rules::Policy, true),
    Row(ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", &[], false, Rules::Policy, false),
    Row("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", &["crd", "crds"], false, Rules::Crd, true),
    Row(AUTHN, "SelfSubjectReview", "selfsubjectreviews", &[], false, Rules::Review, false),
    Row(AUTHN, "TokenReview", "tokenreviews", &[], false, Rules::Review, false),
    Row(AUTHZ, "LocalSubjectAccessReview", "localsubjectaccessreviews", &[], true, Rules::Review, false),
    Row(AUTHZ, "SelfSubjectAccessReview", "selfsubjectaccessreviews", &[], false, Rules::Review, false),
    Row(AUTHZ, "SelfSubjectRulesReview", "selfsubjectrulesreviews", &[], false, Rules::Review, false),
    Row(AUTHZ, "SubjectAccessReview", "subjectaccessreviews", &[], false, Rules::Review, false),
    Row("coordination.k8s.io", "Lease", "leases", &[], true, Rules::Lease, false),
    Row("events.k8s.io", "Event", "events", &["ev"], true, Rules::Event, false),
    Row(RBAC, "ClusterRole", "clusterroles", &[], false, Rules::Role, false),
    Row(RBAC, "ClusterRoleBinding", "clusterrolebindings", &[], false, Rules::Role, false),
    Row(RBAC, "Role", "roles", &[], true, Rules::Role, false),
    Row(RBAC, "RoleBinding", "rolebindings", &[], true, Rules::Role, false),
];

const POD: &[Subresource] = &[
    Subresource { name: "attach", kind: ("", "", "PodAttachOptions"), verbs: &["create", "get"] },
    Subresource { name: "exec", kind: ("", "", "PodExecOptions"), verbs: &["create", "get"] },
    Subresource { name: "log", kind: ("", "", "Pod"), verbs: &["get"] },
];
const TOKEN: &[Subresource] = &[Subresource { name: "token", kind: (AUTHN, "v1", "TokenRequest"), verbs: &["create"] }];
const FINALIZE: &[Subresource] = &[Subresource { name: "finalize", kind: ("", "", "Namespace"), verbs: &["update"] }];

pub fn builtin() -> impl Iterator<Item = Resource> {
    ROWS.iter().map(|&Row(group, kind, plural, short, namespaced, rules, status)| {
        let own = |words: &[&str]| words.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
        let (selectable, subresources): (&[&str], &'static [Subresource]) = match rules {
            Rules::Pod => (
                &[
                    "spec.nodeName",
                    "spec.restartPolicy",
                    "spec.schedulerName",
                    "spec.serviceAccountName",
                    "spec.hostNetwork",
                    "status.phase",
                    "status.podIP",
                    "status.nominatedNodeName",
                ],
                POD,
            ),
            Rules::Namespace => (&["status.phase"], FINALIZE),
            Rules::Secret => (&["type"], &[]),
            Rules::ServiceAccount => (&[], TOKEN),
            Rules::Event => (
                &[
                    "involvedObject.kind",
                    "involvedObject.namespace",
                    "involvedObject.name",
                    "involvedObject.uid",
                    "involvedObject.apiVersion",
                    "involvedObject.resourceVersion",
                    "involvedObject.fieldPath",
                    "reason",
                    "reportingComponent",
                    "source",
                    "type",
                ],
                &[],
            ),
            _ if kind == "Node" => (&["spec.unschedulable"], &[]),
            _ => (&[], &[]),
        };
        let categories: &[&str] = match kind {
            "Pod" => &["all"],
            "CustomResourceDefinition" | "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding" => {
                &["api-extensions"]
            }
            _ => &[],
        };
        let folder = match (group, rules) {
            // Both groups of events are views of the same objects.
            ("", _) | (_, Rules::Event) => format!("core/{plural}"),
            _ => format!("{group}/{plural}"),
        };
        let storage = if rules == Rules::Event { "v1".to_owned() } else { join_version(group, "v1") };
        Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: own(short),
            categories: own(categories),
            namespaced,
            stored: rules != Rules::Review,
            folder,
            storage_version: storage,
            rules,
            status,
            subresources,
            selectable: own(selectable),
            schema: SchemaSource::Builtin,
            columns: None,
            scale: None,
            crd: None,
        }
    })
}
