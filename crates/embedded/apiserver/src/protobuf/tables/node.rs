//! Nodes.

use super::meta::OBJECT_META;
use crate::protobuf::message::Type::{Bool, Int, Message, Quantity, String, Time};
use crate::protobuf::message::{Table, keep, list, map, omit};

pub(super) static NODE: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    omit(2, "spec", Message(&NODE_SPEC)),
    omit(3, "status", Message(&NODE_STATUS)),
];

pub(super) static NODE_STATUS: Table = &[
    map(1, "capacity", Quantity),
    map(2, "allocatable", Quantity),
    omit(3, "phase", String),
    list(4, "conditions", Message(&NODE_CONDITION)),
    list(5, "addresses", Message(&NODE_ADDRESS)),
    omit(6, "daemonEndpoints", Message(&NODE_DAEMON_ENDPOINTS)),
    omit(7, "nodeInfo", Message(&NODE_SYSTEM_INFO)),
    list(8, "images", Message(&CONTAINER_IMAGE)),
    list(9, "volumesInUse", String),
    list(10, "volumesAttached", Message(&ATTACHED_VOLUME)),
    keep(11, "config", Message(&NODE_CONFIG_STATUS)),
    list(12, "runtimeHandlers", Message(&NODE_RUNTIME_HANDLER)),
    keep(13, "features", Message(&NODE_FEATURES)),
];

pub(super) static NODE_FEATURES: Table = &[keep(1, "supplementalGroupsPolicy", Bool)];

pub(super) static NODE_RUNTIME_HANDLER: Table =
    &[keep(1, "name", String), keep(2, "features", Message(&NODE_RUNTIME_HANDLER_FEATURES))];

pub(super) static NODE_RUNTIME_HANDLER_FEATURES: Table =
    &[keep(1, "recursiveReadOnlyMounts", Bool), keep(2, "userNamespaces", Bool)];

pub(super) static NODE_CONFIG_STATUS: Table = &[
    keep(1, "assigned", Message(&NODE_CONFIG_SOURCE)),
    keep(2, "active", Message(&NODE_CONFIG_SOURCE)),
    keep(3, "lastKnownGood", Message(&NODE_CONFIG_SOURCE)),
    omit(4, "error", String),
];

pub(super) static ATTACHED_VOLUME: Table = &[keep(1, "name", String), keep(2, "devicePath", String)];

pub(super) static CONTAINER_IMAGE: Table = &[list(1, "names", String), omit(2, "sizeBytes", Int)];

pub(super) static NODE_SYSTEM_INFO: Table = &[
    keep(1, "machineID", String),
    keep(2, "systemUUID", String),
    keep(3, "bootID", String),
    keep(4, "kernelVersion", String),
    keep(5, "osImage", String),
    keep(6, "containerRuntimeVersion", String),
    keep(7, "kubeletVersion", String),
    keep(8, "kubeProxyVersion", String),
    keep(9, "operatingSystem", String),
    keep(10, "architecture", String),
    keep(11, "swap", Message(&NODE_SWAP_STATUS)),
];

pub(super) static NODE_SWAP_STATUS: Table = &[keep(1, "capacity", Int)];

pub(super) static NODE_DAEMON_ENDPOINTS: Table = &[omit(1, "kubeletEndpoint", Message(&DAEMON_ENDPOINT))];

pub(super) static DAEMON_ENDPOINT: Table = &[keep(1, "Port", Int)];

pub(super) static NODE_ADDRESS: Table = &[keep(1, "type", String), keep(2, "address", String)];

pub(super) static NODE_CONDITION: Table = &[
    keep(1, "type", String),
    keep(2, "status", String),
    omit(3, "lastHeartbeatTime", Time),
    omit(4, "lastTransitionTime", Time),
    omit(5, "reason", String),
    omit(6, "message", String),
];

pub(super) static NODE_SPEC: Table = &[
    omit(1, "podCIDR", String),
    omit(2, "externalID", String),
    omit(3, "providerID", String),
    omit(4, "unschedulable", Bool),
    list(5, "taints", Message(&TAINT)),
    keep(6, "configSource", Message(&NODE_CONFIG_SOURCE)),
    list(7, "podCIDRs", String),
];

pub(super) static NODE_CONFIG_SOURCE: Table = &[keep(2, "configMap", Message(&CONFIG_MAP_NODE_CONFIG_SOURCE))];

pub(super) static CONFIG_MAP_NODE_CONFIG_SOURCE: Table = &[
    keep(1, "namespace", String),
    keep(2, "name", String),
    omit(3, "uid", String),
    omit(4, "resourceVersion", String),
    keep(5, "kubeletConfigKey", String),
];

pub(super) static TAINT: Table =
    &[keep(1, "key", String), omit(2, "value", String), keep(3, "effect", String), keep(4, "timeAdded", Time)];
