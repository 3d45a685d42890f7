//! Configuration and the objects around it: config maps, secrets, namespaces, service accounts.

use super::meta::{LOCAL_OBJECT_REFERENCE, OBJECT_META, OBJECT_REFERENCE};
use crate::protobuf::message::Type::{Bool, Bytes, Message, String, Time};
use crate::protobuf::message::{Table, keep, list, map, omit};

pub(super) static SERVICE_ACCOUNT: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    list(2, "secrets", Message(&OBJECT_REFERENCE)),
    list(3, "imagePullSecrets", Message(&LOCAL_OBJECT_REFERENCE)),
    keep(4, "automountServiceAccountToken", Bool),
];

pub(super) static NAMESPACE: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    omit(2, "spec", Message(&NAMESPACE_SPEC)),
    omit(3, "status", Message(&NAMESPACE_STATUS)),
];

pub(super) static NAMESPACE_STATUS: Table =
    &[omit(1, "phase", String), list(2, "conditions", Message(&NAMESPACE_CONDITION))];

pub(super) static NAMESPACE_CONDITION: Table = &[
    keep(1, "type", String),
    keep(2, "status", String),
    omit(4, "lastTransitionTime", Time),
    omit(5, "reason", String),
    omit(6, "message", String),
];

pub(super) static NAMESPACE_SPEC: Table = &[list(1, "finalizers", String)];

pub(super) static SECRET: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    map(2, "data", Bytes),
    omit(3, "type", String),
    map(4, "stringData", String),
    keep(5, "immutable", Bool),
];

pub(super) static CONFIG_MAP: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    map(2, "data", String),
    map(3, "binaryData", Bytes),
    keep(4, "immutable", Bool),
];
