//! How the fields of built-in types merge: facts that the Kubernetes OpenAPI carries and `k8s-openapi` leaves out.

/// A field, named by its type and itself.
pub(super) struct Field {
    pub of: &'static str,
    pub name: &'static str,
    pub list: ListMerge,
    /// The object is owned as a whole by one manager.
    pub atomic: bool,
    /// `x-kubernetes-patch-strategy`.
    pub strategy: &'static str,
    /// `x-kubernetes-patch-merge-key`; empty for none.
    pub merge_key: &'static str,
}

/// How apply merges a list.
pub(super) enum ListMerge {
    Atomic,
    Set,
    Map(&'static [&'static str]),
}

use ListMerge::{Atomic, Map, Set};

const fn field(
    of: &'static str,
    name: &'static str,
    list: ListMerge,
    strategy: &'static str,
    merge_key: &'static str,
) -> Field {
    Field { of, name, list, atomic: false, strategy, merge_key }
}

const fn atomic_map(of: &'static str, name: &'static str) -> Field {
    Field { of, name, list: Atomic, atomic: true, strategy: "", merge_key: "" }
}

/// Every field that does not simply merge by name. Types are named without `io.k8s.`.
pub(super) const FIELDS: &[Field] = &[
    field("api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec", "validationActions", Set, "", ""),
    field(
        "api.admissionregistration.v1.ValidatingAdmissionPolicySpec",
        "matchConditions",
        Map(&["name"]),
        "merge",
        "name",
    ),
    field("api.admissionregistration.v1.ValidatingAdmissionPolicySpec", "variables", Map(&["name"]), "merge", "name"),
    field("api.admissionregistration.v1.ValidatingAdmissionPolicyStatus", "conditions", Map(&["type"]), "", ""),
    field("api.core.v1.Container", "env", Map(&["name"]), "merge", "name"),
    field("api.core.v1.Container", "ports", Map(&["containerPort", "protocol"]), "merge", "containerPort"),
    field("api.core.v1.Container", "volumeDevices", Map(&["devicePath"]), "merge", "devicePath"),
    field("api.core.v1.Container", "volumeMounts", Map(&["mountPath"]), "merge", "mountPath"),
    field("api.core.v1.ContainerRestartRuleOnExitCodes", "values", Set, "", ""),
    field("api.core.v1.ContainerStatus", "allocatedResourcesStatus", Map(&["name"]), "merge", "name"),
    field("api.core.v1.ContainerStatus", "volumeMounts", Map(&["mountPath"]), "merge", "mountPath"),
    field("api.core.v1.EphemeralContainer", "env", Map(&["name"]), "merge", "name"),
    field("api.core.v1.EphemeralContainer", "ports", Map(&["containerPort", "protocol"]), "merge", "containerPort"),
    field("api.core.v1.EphemeralContainer", "volumeDevices", Map(&["devicePath"]), "merge", "devicePath"),
    field("api.core.v1.EphemeralContainer", "volumeMounts", Map(&["mountPath"]), "merge", "mountPath"),
    field("api.core.v1.NamespaceStatus", "conditions", Map(&["type"]), "merge", "type"),
    field("api.core.v1.NodeSpec", "podCIDRs", Set, "merge", ""),
    field("api.core.v1.NodeStatus", "addresses", Map(&["type"]), "merge", "type"),
    field("api.core.v1.NodeStatus", "conditions", Map(&["type"]), "merge", "type"),
    field("api.core.v1.PodSpec", "containers", Map(&["name"]), "merge", "name"),
    field("api.core.v1.PodSpec", "ephemeralContainers", Map(&["name"]), "merge", "name"),
    field("api.core.v1.PodSpec", "hostAliases", Map(&["ip"]), "merge", "ip"),
    field("api.core.v1.PodSpec", "imagePullSecrets", Map(&["name"]), "merge", "name"),
    field("api.core.v1.PodSpec", "initContainers", Map(&["name"]), "merge", "name"),
    atomic_map("api.core.v1.PodSpec", "nodeSelector"),
    field("api.core.v1.PodSpec", "resourceClaims", Map(&["name"]), "merge,retainKeys", "name"),
    field("api.core.v1.PodSpec", "schedulingGates", Map(&["name"]), "merge", "name"),
    field(
        "api.core.v1.PodSpec",
        "topologySpreadConstraints",
        Map(&["topologyKey", "whenUnsatisfiable"]),
        "merge",
        "topologyKey",
    ),
    field("api.core.v1.PodSpec", "volumes", Map(&["name"]), "merge,retainKeys", "name"),
    field("api.core.v1.PodStatus", "conditions", Map(&["type"]), "merge", "type"),
    field("api.core.v1.PodStatus", "hostIPs", Atomic, "merge", "ip"),
    field("api.core.v1.PodStatus", "podIPs", Map(&["ip"]), "merge", "ip"),
    field("api.core.v1.PodStatus", "resourceClaimStatuses", Map(&["name"]), "merge,retainKeys", "name"),
    field("api.core.v1.ResourceRequirements", "claims", Map(&["name"]), "", ""),
    field("api.core.v1.ResourceStatus", "resources", Map(&["resourceID"]), "", ""),
    field("api.core.v1.ServiceAccount", "secrets", Map(&["name"]), "merge", "name"),
    field(
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        "conditions",
        Map(&["type"]),
        "",
        "",
    ),
    field(
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
        "x-kubernetes-validations",
        Map(&["rule"]),
        "merge",
        "rule",
    ),
    field("apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers", Set, "merge", ""),
    field("apimachinery.pkg.apis.meta.v1.ObjectMeta", "ownerReferences", Map(&["uid"]), "merge", "uid"),
];

/// Types whose objects are owned as a whole by one manager.
pub(super) const ATOMIC: &[&str] = &[
    "api.admissionregistration.v1.MatchResources",
    "api.admissionregistration.v1.NamedRuleWithOperations",
    "api.admissionregistration.v1.ParamKind",
    "api.admissionregistration.v1.ParamRef",
    "api.admissionregistration.v1.Variable",
    "api.core.v1.ConfigMapKeySelector",
    "api.core.v1.FileKeySelector",
    "api.core.v1.LocalObjectReference",
    "api.core.v1.NodeSelector",
    "api.core.v1.NodeSelectorTerm",
    "api.core.v1.ObjectFieldSelector",
    "api.core.v1.ObjectReference",
    "api.core.v1.ResourceFieldSelector",
    "api.core.v1.SecretKeySelector",
    "api.core.v1.TypedLocalObjectReference",
    "api.rbac.v1.RoleRef",
    "api.rbac.v1.Subject",
    "apimachinery.pkg.apis.meta.v1.LabelSelector",
    "apimachinery.pkg.apis.meta.v1.OwnerReference",
];

/// Defaults of fields that tell the items of a list apart.
pub(super) const KEY_DEFAULTS: &[(&str, &str, &str)] = &[
    ("api.core.v1.ContainerPort", "protocol", "TCP"),
    ("api.core.v1.Container", "name", ""),
    ("api.core.v1.EnvVar", "name", ""),
    ("api.core.v1.Volume", "name", ""),
];

/// Types that hold any JSON at all.
pub(super) const ANYTHING: &[&str] = &[
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    "apimachinery.pkg.apis.meta.v1.FieldsV1",
    "apimachinery.pkg.runtime.RawExtension",
];

/// Fields that the OpenAPI calls required and the API server does not insist on.
pub(super) const NOT_REQUIRED: &[(&str, &str)] = &[
    ("api.authentication.v1.TokenRequestSpec", "audiences"),
    ("api.core.v1.LocalObjectReference", "name"),
    ("api.core.v1.Container", "name"),
    ("api.core.v1.EnvVar", "name"),
    ("api.core.v1.Volume", "name"),
    ("api.rbac.v1.PolicyRule", "verbs"),
    ("api.rbac.v1.RoleRef", "name"),
    ("api.rbac.v1.RoleRef", "kind"),
    ("api.rbac.v1.RoleRef", "apiGroup"),
    ("api.rbac.v1.Subject", "name"),
    ("api.rbac.v1.Subject", "kind"),
];
