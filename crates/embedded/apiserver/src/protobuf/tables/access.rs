//! Who may do what: tokens, reviews of tokens and of access, roles and their bindings.

use super::meta::{LABEL_SELECTOR, LABEL_SELECTOR_REQUIREMENT, OBJECT_META};
use crate::protobuf::message::Type::{Bool, Int, Message, String, Strings, Time};
use crate::protobuf::message::{Table, keep, list, map, omit};

pub(super) static CLUSTER_ROLE_BINDING: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    list(2, "subjects", Message(&SUBJECT)),
    keep(3, "roleRef", Message(&ROLE_REF)),
];

pub(super) static ROLE_BINDING: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    list(2, "subjects", Message(&SUBJECT)),
    keep(3, "roleRef", Message(&ROLE_REF)),
];

pub(super) static ROLE_REF: Table = &[keep(1, "apiGroup", String), keep(2, "kind", String), keep(3, "name", String)];

pub(super) static SUBJECT: Table =
    &[keep(1, "kind", String), omit(2, "apiGroup", String), keep(3, "name", String), omit(4, "namespace", String)];

pub(super) static CLUSTER_ROLE: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    list(2, "rules", Message(&POLICY_RULE)),
    keep(3, "aggregationRule", Message(&AGGREGATION_RULE)),
];

pub(super) static AGGREGATION_RULE: Table = &[list(1, "clusterRoleSelectors", Message(&LABEL_SELECTOR))];

pub(super) static ROLE: Table = &[omit(1, "metadata", Message(&OBJECT_META)), list(2, "rules", Message(&POLICY_RULE))];

pub(super) static POLICY_RULE: Table = &[
    list(1, "verbs", String),
    list(2, "apiGroups", String),
    list(3, "resources", String),
    list(4, "resourceNames", String),
    list(5, "nonResourceURLs", String),
];

pub(super) static SELF_SUBJECT_RULES_REVIEW: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    keep(2, "spec", Message(&SELF_SUBJECT_RULES_REVIEW_SPEC)),
    omit(3, "status", Message(&SUBJECT_RULES_REVIEW_STATUS)),
];

pub(super) static SUBJECT_RULES_REVIEW_STATUS: Table = &[
    list(1, "resourceRules", Message(&RESOURCE_RULE)),
    list(2, "nonResourceRules", Message(&NON_RESOURCE_RULE)),
    keep(3, "incomplete", Bool),
    omit(4, "evaluationError", String),
];

pub(super) static NON_RESOURCE_RULE: Table = &[list(1, "verbs", String), list(2, "nonResourceURLs", String)];

pub(super) static RESOURCE_RULE: Table = &[
    list(1, "verbs", String),
    list(2, "apiGroups", String),
    list(3, "resources", String),
    list(4, "resourceNames", String),
];

pub(super) static SELF_SUBJECT_RULES_REVIEW_SPEC: Table = &[omit(1, "namespace", String)];

pub(super) static LOCAL_SUBJECT_ACCESS_REVIEW: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    keep(2, "spec", Message(&SUBJECT_ACCESS_REVIEW_SPEC)),
    omit(3, "status", Message(&SUBJECT_ACCESS_REVIEW_STATUS)),
];

pub(super) static SELF_SUBJECT_ACCESS_REVIEW: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    keep(2, "spec", Message(&SELF_SUBJECT_ACCESS_REVIEW_SPEC)),
    omit(3, "status", Message(&SUBJECT_ACCESS_REVIEW_STATUS)),
];

pub(super) static SELF_SUBJECT_ACCESS_REVIEW_SPEC: Table = &[
    keep(1, "resourceAttributes", Message(&RESOURCE_ATTRIBUTES)),
    keep(2, "nonResourceAttributes", Message(&NON_RESOURCE_ATTRIBUTES)),
];

pub(super) static SUBJECT_ACCESS_REVIEW: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    keep(2, "spec", Message(&SUBJECT_ACCESS_REVIEW_SPEC)),
    omit(3, "status", Message(&SUBJECT_ACCESS_REVIEW_STATUS)),
];

pub(super) static SUBJECT_ACCESS_REVIEW_STATUS: Table =
    &[keep(1, "allowed", Bool), omit(2, "reason", String), omit(3, "evaluationError", String), omit(4, "denied", Bool)];

pub(super) static SUBJECT_ACCESS_REVIEW_SPEC: Table = &[
    keep(1, "resourceAttributes", Message(&RESOURCE_ATTRIBUTES)),
    keep(2, "nonResourceAttributes", Message(&NON_RESOURCE_ATTRIBUTES)),
    omit(3, "user", String),
    list(4, "groups", String),
    map(5, "extra", Strings),
    omit(6, "uid", String),
];

pub(super) static NON_RESOURCE_ATTRIBUTES: Table = &[omit(1, "path", String), omit(2, "verb", String)];

pub(super) static RESOURCE_ATTRIBUTES: Table = &[
    omit(1, "namespace", String),
    omit(2, "verb", String),
    omit(3, "group", String),
    omit(4, "version", String),
    omit(5, "resource", String),
    omit(6, "subresource", String),
    omit(7, "name", String),
    keep(8, "fieldSelector", Message(&FIELD_SELECTOR_ATTRIBUTES)),
    keep(9, "labelSelector", Message(&LABEL_SELECTOR_ATTRIBUTES)),
];

pub(super) static LABEL_SELECTOR_ATTRIBUTES: Table =
    &[omit(1, "rawSelector", String), list(2, "requirements", Message(&LABEL_SELECTOR_REQUIREMENT))];

pub(super) static FIELD_SELECTOR_ATTRIBUTES: Table =
    &[omit(1, "rawSelector", String), list(2, "requirements", Message(&FIELD_SELECTOR_REQUIREMENT))];

pub(super) static FIELD_SELECTOR_REQUIREMENT: Table =
    &[keep(1, "key", String), keep(2, "operator", String), list(3, "values", String)];

pub(super) static SELF_SUBJECT_REVIEW: Table =
    &[omit(1, "metadata", Message(&OBJECT_META)), omit(2, "status", Message(&SELF_SUBJECT_REVIEW_STATUS))];

pub(super) static SELF_SUBJECT_REVIEW_STATUS: Table = &[omit(1, "userInfo", Message(&USER_INFO))];

pub(super) static TOKEN_REVIEW: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    keep(2, "spec", Message(&TOKEN_REVIEW_SPEC)),
    omit(3, "status", Message(&TOKEN_REVIEW_STATUS)),
];

pub(super) static TOKEN_REVIEW_STATUS: Table = &[
    omit(1, "authenticated", Bool),
    omit(2, "user", Message(&USER_INFO)),
    omit(3, "error", String),
    list(4, "audiences", String),
];

pub(super) static USER_INFO: Table =
    &[omit(1, "username", String), omit(2, "uid", String), list(3, "groups", String), map(4, "extra", Strings)];

pub(super) static TOKEN_REVIEW_SPEC: Table = &[omit(1, "token", String), list(2, "audiences", String)];

pub(super) static TOKEN_REQUEST: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    keep(2, "spec", Message(&TOKEN_REQUEST_SPEC)),
    omit(3, "status", Message(&TOKEN_REQUEST_STATUS)),
];

pub(super) static TOKEN_REQUEST_STATUS: Table = &[keep(1, "token", String), keep(2, "expirationTimestamp", Time)];

pub(super) static TOKEN_REQUEST_SPEC: Table = &[
    list(1, "audiences", String),
    keep(3, "boundObjectRef", Message(&BOUND_OBJECT_REFERENCE)),
    keep(4, "expirationSeconds", Int),
];

pub(super) static BOUND_OBJECT_REFERENCE: Table =
    &[omit(1, "kind", String), omit(2, "apiVersion", String), omit(3, "name", String), omit(4, "uid", String)];
