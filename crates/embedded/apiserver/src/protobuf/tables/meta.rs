//! What many kinds share: metadata, label selectors, conditions, references, and the options of a delete.

use crate::protobuf::message::Type::{Bool, Int, Json, Message, String, Time};
use crate::protobuf::message::{Table, keep, list, map, omit};

pub(super) static TYPED_LOCAL_OBJECT_REFERENCE: Table =
    &[keep(1, "apiGroup", String), keep(2, "kind", String), keep(3, "name", String)];

pub(super) static LOCAL_OBJECT_REFERENCE: Table = &[omit(1, "name", String)];

pub(super) static OBJECT_REFERENCE: Table = &[
    omit(1, "kind", String),
    omit(2, "namespace", String),
    omit(3, "name", String),
    omit(4, "uid", String),
    omit(5, "apiVersion", String),
    omit(6, "resourceVersion", String),
    omit(7, "fieldPath", String),
];

pub(super) static LABEL_SELECTOR: Table =
    &[map(1, "matchLabels", String), list(2, "matchExpressions", Message(&LABEL_SELECTOR_REQUIREMENT))];

pub(super) static LABEL_SELECTOR_REQUIREMENT: Table =
    &[keep(1, "key", String), keep(2, "operator", String), list(3, "values", String)];

pub(super) static DELETE_OPTIONS: Table = &[
    keep(1, "gracePeriodSeconds", Int),
    keep(2, "preconditions", Message(&PRECONDITIONS)),
    keep(3, "orphanDependents", Bool),
    keep(4, "propagationPolicy", String),
    list(5, "dryRun", String),
    keep(6, "ignoreStoreReadErrorWithClusterBreakingPotential", Bool),
];

pub(super) static PRECONDITIONS: Table = &[keep(1, "uid", String), keep(2, "resourceVersion", String)];

pub(super) static OBJECT_META: Table = &[
    omit(1, "name", String),
    omit(2, "generateName", String),
    omit(3, "namespace", String),
    omit(4, "selfLink", String),
    omit(5, "uid", String),
    omit(6, "resourceVersion", String),
    omit(7, "generation", Int),
    omit(8, "creationTimestamp", Time),
    keep(9, "deletionTimestamp", Time),
    keep(10, "deletionGracePeriodSeconds", Int),
    map(11, "labels", String),
    map(12, "annotations", String),
    list(13, "ownerReferences", Message(&OWNER_REFERENCE)),
    list(14, "finalizers", String),
    list(17, "managedFields", Message(&MANAGED_FIELDS_ENTRY)),
];

pub(super) static MANAGED_FIELDS_ENTRY: Table = &[
    omit(1, "manager", String),
    omit(2, "operation", String),
    omit(3, "apiVersion", String),
    keep(4, "time", Time),
    omit(6, "fieldsType", String),
    keep(7, "fieldsV1", Json),
    omit(8, "subresource", String),
];

pub(super) static OWNER_REFERENCE: Table = &[
    keep(1, "kind", String),
    keep(3, "name", String),
    keep(4, "uid", String),
    keep(5, "apiVersion", String),
    keep(6, "controller", Bool),
    keep(7, "blockOwnerDeletion", Bool),
];
