//! Pods: what they should be, what they are, and their binding to a node.

use super::container::{
    APP_ARMOR_PROFILE, CONTAINER, EPHEMERAL_CONTAINER, RESOURCE_REQUIREMENTS, SE_LINUX_OPTIONS, SECCOMP_PROFILE,
    WINDOWS_SECURITY_CONTEXT_OPTIONS,
};
use super::meta::{LOCAL_OBJECT_REFERENCE, OBJECT_META};
use super::scheduling::{AFFINITY, TOLERATION, TOPOLOGY_SPREAD_CONSTRAINT};
use super::volume::VOLUME;
use crate::protobuf::message::Type::{Bool, Int, Message, Quantity, String, Time};
use crate::protobuf::message::{Table, keep, list, map, omit};

pub(super) static POD: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    omit(2, "spec", Message(&POD_SPEC)),
    omit(3, "status", Message(&POD_STATUS)),
];

pub(super) static POD_STATUS: Table = &[
    omit(1, "phase", String),
    list(2, "conditions", Message(&POD_CONDITION)),
    omit(3, "message", String),
    omit(4, "reason", String),
    omit(5, "hostIP", String),
    omit(6, "podIP", String),
    keep(7, "startTime", Time),
    list(8, "containerStatuses", Message(&CONTAINER_STATUS)),
    omit(9, "qosClass", String),
    list(10, "initContainerStatuses", Message(&CONTAINER_STATUS)),
    omit(11, "nominatedNodeName", String),
    list(12, "podIPs", Message(&POD_IP)),
    list(13, "ephemeralContainerStatuses", Message(&CONTAINER_STATUS)),
    omit(14, "resize", String),
    list(15, "resourceClaimStatuses", Message(&POD_RESOURCE_CLAIM_STATUS)),
    list(16, "hostIPs", Message(&HOST_IP)),
    omit(17, "observedGeneration", Int),
    keep(18, "extendedResourceClaimStatus", Message(&POD_EXTENDED_RESOURCE_CLAIM_STATUS)),
];

pub(super) static POD_EXTENDED_RESOURCE_CLAIM_STATUS: Table =
    &[list(1, "requestMappings", Message(&CONTAINER_EXTENDED_RESOURCE_REQUEST)), keep(2, "resourceClaimName", String)];

pub(super) static CONTAINER_EXTENDED_RESOURCE_REQUEST: Table =
    &[keep(1, "containerName", String), keep(2, "resourceName", String), keep(3, "requestName", String)];

pub(super) static POD_RESOURCE_CLAIM_STATUS: Table = &[keep(1, "name", String), keep(2, "resourceClaimName", String)];

pub(super) static CONTAINER_STATUS: Table = &[
    keep(1, "name", String),
    omit(2, "state", Message(&CONTAINER_STATE)),
    omit(3, "lastState", Message(&CONTAINER_STATE)),
    keep(4, "ready", Bool),
    keep(5, "restartCount", Int),
    keep(6, "image", String),
    keep(7, "imageID", String),
    omit(8, "containerID", String),
    keep(9, "started", Bool),
    map(10, "allocatedResources", Quantity),
    keep(11, "resources", Message(&RESOURCE_REQUIREMENTS)),
    list(12, "volumeMounts", Message(&VOLUME_MOUNT_STATUS)),
    keep(13, "user", Message(&CONTAINER_USER)),
    list(14, "allocatedResourcesStatus", Message(&RESOURCE_STATUS)),
    keep(15, "stopSignal", String),
];

pub(super) static RESOURCE_STATUS: Table = &[keep(1, "name", String), list(2, "resources", Message(&RESOURCE_HEALTH))];

pub(super) static RESOURCE_HEALTH: Table = &[keep(1, "resourceID", String), omit(2, "health", String)];

pub(super) static CONTAINER_USER: Table = &[keep(1, "linux", Message(&LINUX_CONTAINER_USER))];

pub(super) static LINUX_CONTAINER_USER: Table =
    &[keep(1, "uid", Int), keep(2, "gid", Int), list(3, "supplementalGroups", Int)];

pub(super) static VOLUME_MOUNT_STATUS: Table = &[
    keep(1, "name", String),
    keep(2, "mountPath", String),
    omit(3, "readOnly", Bool),
    keep(4, "recursiveReadOnly", String),
];

pub(super) static CONTAINER_STATE: Table = &[
    keep(1, "waiting", Message(&CONTAINER_STATE_WAITING)),
    keep(2, "running", Message(&CONTAINER_STATE_RUNNING)),
    keep(3, "terminated", Message(&CONTAINER_STATE_TERMINATED)),
];

pub(super) static CONTAINER_STATE_TERMINATED: Table = &[
    keep(1, "exitCode", Int),
    omit(2, "signal", Int),
    omit(3, "reason", String),
    omit(4, "message", String),
    omit(5, "startedAt", Time),
    omit(6, "finishedAt", Time),
    omit(7, "containerID", String),
];

pub(super) static CONTAINER_STATE_RUNNING: Table = &[omit(1, "startedAt", Time)];

pub(super) static CONTAINER_STATE_WAITING: Table = &[omit(1, "reason", String), omit(2, "message", String)];

pub(super) static POD_IP: Table = &[keep(1, "ip", String)];

pub(super) static HOST_IP: Table = &[keep(1, "ip", String)];

pub(super) static POD_CONDITION: Table = &[
    keep(1, "type", String),
    keep(2, "status", String),
    omit(3, "lastProbeTime", Time),
    omit(4, "lastTransitionTime", Time),
    omit(5, "reason", String),
    omit(6, "message", String),
    omit(7, "observedGeneration", Int),
];

pub(super) static POD_SPEC: Table = &[
    list(1, "volumes", Message(&VOLUME)),
    list(2, "containers", Message(&CONTAINER)),
    omit(3, "restartPolicy", String),
    keep(4, "terminationGracePeriodSeconds", Int),
    keep(5, "activeDeadlineSeconds", Int),
    omit(6, "dnsPolicy", String),
    map(7, "nodeSelector", String),
    omit(8, "serviceAccountName", String),
    omit(9, "serviceAccount", String),
    omit(10, "nodeName", String),
    omit(11, "hostNetwork", Bool),
    omit(12, "hostPID", Bool),
    omit(13, "hostIPC", Bool),
    keep(14, "securityContext", Message(&POD_SECURITY_CONTEXT)),
    list(15, "imagePullSecrets", Message(&LOCAL_OBJECT_REFERENCE)),
    omit(16, "hostname", String),
    omit(17, "subdomain", String),
    keep(18, "affinity", Message(&AFFINITY)),
    omit(19, "schedulerName", String),
    list(20, "initContainers", Message(&CONTAINER)),
    keep(21, "automountServiceAccountToken", Bool),
    list(22, "tolerations", Message(&TOLERATION)),
    list(23, "hostAliases", Message(&HOST_ALIAS)),
    omit(24, "priorityClassName", String),
    keep(25, "priority", Int),
    keep(26, "dnsConfig", Message(&POD_DNS_CONFIG)),
    keep(27, "shareProcessNamespace", Bool),
    list(28, "readinessGates", Message(&POD_READINESS_GATE)),
    keep(29, "runtimeClassName", String),
    keep(30, "enableServiceLinks", Bool),
    keep(31, "preemptionPolicy", String),
    map(32, "overhead", Quantity),
    list(33, "topologySpreadConstraints", Message(&TOPOLOGY_SPREAD_CONSTRAINT)),
    list(34, "ephemeralContainers", Message(&EPHEMERAL_CONTAINER)),
    keep(35, "setHostnameAsFQDN", Bool),
    keep(36, "os", Message(&POD_OS)),
    keep(37, "hostUsers", Bool),
    list(38, "schedulingGates", Message(&POD_SCHEDULING_GATE)),
    list(39, "resourceClaims", Message(&POD_RESOURCE_CLAIM)),
    keep(40, "resources", Message(&RESOURCE_REQUIREMENTS)),
    keep(41, "hostnameOverride", String),
];

pub(super) static POD_RESOURCE_CLAIM: Table =
    &[keep(1, "name", String), keep(3, "resourceClaimName", String), keep(4, "resourceClaimTemplateName", String)];

pub(super) static POD_SCHEDULING_GATE: Table = &[keep(1, "name", String)];

pub(super) static POD_OS: Table = &[keep(1, "name", String)];

pub(super) static POD_READINESS_GATE: Table = &[keep(1, "conditionType", String)];

pub(super) static POD_DNS_CONFIG: Table =
    &[list(1, "nameservers", String), list(2, "searches", String), list(3, "options", Message(&POD_DNS_CONFIG_OPTION))];

pub(super) static POD_DNS_CONFIG_OPTION: Table = &[omit(1, "name", String), keep(2, "value", String)];

pub(super) static HOST_ALIAS: Table = &[keep(1, "ip", String), list(2, "hostnames", String)];

pub(super) static POD_SECURITY_CONTEXT: Table = &[
    keep(1, "seLinuxOptions", Message(&SE_LINUX_OPTIONS)),
    keep(2, "runAsUser", Int),
    keep(3, "runAsNonRoot", Bool),
    list(4, "supplementalGroups", Int),
    keep(5, "fsGroup", Int),
    keep(6, "runAsGroup", Int),
    list(7, "sysctls", Message(&SYSCTL)),
    keep(8, "windowsOptions", Message(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    keep(9, "fsGroupChangePolicy", String),
    keep(10, "seccompProfile", Message(&SECCOMP_PROFILE)),
    keep(11, "appArmorProfile", Message(&APP_ARMOR_PROFILE)),
    keep(12, "supplementalGroupsPolicy", String),
    keep(13, "seLinuxChangePolicy", String),
];

pub(super) static SYSCTL: Table = &[keep(1, "name", String), keep(2, "value", String)];
