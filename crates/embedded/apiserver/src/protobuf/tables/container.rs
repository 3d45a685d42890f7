//! Containers: environment, ports, probes, lifecycle, security, resources.

use super::meta::LOCAL_OBJECT_REFERENCE;
use super::volume::{OBJECT_FIELD_SELECTOR, RESOURCE_FIELD_SELECTOR};
use crate::protobuf::message::Type::{Bool, Int, IntOrString, Message, Quantity, String};
use crate::protobuf::message::{Table, inline, keep, list, map, omit};

pub(super) static EPHEMERAL_CONTAINER: Table =
    &[inline(1, &EPHEMERAL_CONTAINER_COMMON), omit(2, "targetContainerName", String)];

pub(super) static EPHEMERAL_CONTAINER_COMMON: Table = &[
    keep(1, "name", String),
    omit(2, "image", String),
    list(3, "command", String),
    list(4, "args", String),
    omit(5, "workingDir", String),
    list(6, "ports", Message(&CONTAINER_PORT)),
    list(7, "env", Message(&ENV_VAR)),
    omit(8, "resources", Message(&RESOURCE_REQUIREMENTS)),
    list(9, "volumeMounts", Message(&VOLUME_MOUNT)),
    keep(10, "livenessProbe", Message(&PROBE)),
    keep(11, "readinessProbe", Message(&PROBE)),
    keep(12, "lifecycle", Message(&LIFECYCLE)),
    omit(13, "terminationMessagePath", String),
    omit(14, "imagePullPolicy", String),
    keep(15, "securityContext", Message(&SECURITY_CONTEXT)),
    omit(16, "stdin", Bool),
    omit(17, "stdinOnce", Bool),
    omit(18, "tty", Bool),
    list(19, "envFrom", Message(&ENV_FROM_SOURCE)),
    omit(20, "terminationMessagePolicy", String),
    list(21, "volumeDevices", Message(&VOLUME_DEVICE)),
    keep(22, "startupProbe", Message(&PROBE)),
    list(23, "resizePolicy", Message(&CONTAINER_RESIZE_POLICY)),
    keep(24, "restartPolicy", String),
    list(25, "restartPolicyRules", Message(&CONTAINER_RESTART_RULE)),
];

pub(super) static CONTAINER: Table = &[
    keep(1, "name", String),
    omit(2, "image", String),
    list(3, "command", String),
    list(4, "args", String),
    omit(5, "workingDir", String),
    list(6, "ports", Message(&CONTAINER_PORT)),
    list(7, "env", Message(&ENV_VAR)),
    omit(8, "resources", Message(&RESOURCE_REQUIREMENTS)),
    list(9, "volumeMounts", Message(&VOLUME_MOUNT)),
    keep(10, "livenessProbe", Message(&PROBE)),
    keep(11, "readinessProbe", Message(&PROBE)),
    keep(12, "lifecycle", Message(&LIFECYCLE)),
    omit(13, "terminationMessagePath", String),
    omit(14, "imagePullPolicy", String),
    keep(15, "securityContext", Message(&SECURITY_CONTEXT)),
    omit(16, "stdin", Bool),
    omit(17, "stdinOnce", Bool),
    omit(18, "tty", Bool),
    list(19, "envFrom", Message(&ENV_FROM_SOURCE)),
    omit(20, "terminationMessagePolicy", String),
    list(21, "volumeDevices", Message(&VOLUME_DEVICE)),
    keep(22, "startupProbe", Message(&PROBE)),
    list(23, "resizePolicy", Message(&CONTAINER_RESIZE_POLICY)),
    keep(24, "restartPolicy", String),
    list(25, "restartPolicyRules", Message(&CONTAINER_RESTART_RULE)),
];

pub(super) static SECURITY_CONTEXT: Table = &[
    keep(1, "capabilities", Message(&CAPABILITIES)),
    keep(2, "privileged", Bool),
    keep(3, "seLinuxOptions", Message(&SE_LINUX_OPTIONS)),
    keep(4, "runAsUser", Int),
    keep(5, "runAsNonRoot", Bool),
    keep(6, "readOnlyRootFilesystem", Bool),
    keep(7, "allowPrivilegeEscalation", Bool),
    keep(8, "runAsGroup", Int),
    keep(9, "procMount", String),
    keep(10, "windowsOptions", Message(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    keep(11, "seccompProfile", Message(&SECCOMP_PROFILE)),
    keep(12, "appArmorProfile", Message(&APP_ARMOR_PROFILE)),
];

pub(super) static APP_ARMOR_PROFILE: Table = &[keep(1, "type", String), keep(2, "localhostProfile", String)];

pub(super) static SECCOMP_PROFILE: Table = &[keep(1, "type", String), keep(2, "localhostProfile", String)];

pub(super) static WINDOWS_SECURITY_CONTEXT_OPTIONS: Table = &[
    keep(1, "gmsaCredentialSpecName", String),
    keep(2, "gmsaCredentialSpec", String),
    keep(3, "runAsUserName", String),
    keep(4, "hostProcess", Bool),
];

pub(super) static SE_LINUX_OPTIONS: Table =
    &[omit(1, "user", String), omit(2, "role", String), omit(3, "type", String), omit(4, "level", String)];

pub(super) static CAPABILITIES: Table = &[list(1, "add", String), list(2, "drop", String)];

pub(super) static LIFECYCLE: Table = &[
    keep(1, "postStart", Message(&LIFECYCLE_HANDLER)),
    keep(2, "preStop", Message(&LIFECYCLE_HANDLER)),
    keep(3, "stopSignal", String),
];

pub(super) static LIFECYCLE_HANDLER: Table = &[
    keep(1, "exec", Message(&EXEC_ACTION)),
    keep(2, "httpGet", Message(&HTTP_GET_ACTION)),
    keep(3, "tcpSocket", Message(&TCP_SOCKET_ACTION)),
    keep(4, "sleep", Message(&SLEEP_ACTION)),
];

pub(super) static SLEEP_ACTION: Table = &[keep(1, "seconds", Int)];

pub(super) static PROBE: Table = &[
    inline(1, &PROBE_HANDLER),
    omit(2, "initialDelaySeconds", Int),
    omit(3, "timeoutSeconds", Int),
    omit(4, "periodSeconds", Int),
    omit(5, "successThreshold", Int),
    omit(6, "failureThreshold", Int),
    keep(7, "terminationGracePeriodSeconds", Int),
];

pub(super) static PROBE_HANDLER: Table = &[
    keep(1, "exec", Message(&EXEC_ACTION)),
    keep(2, "httpGet", Message(&HTTP_GET_ACTION)),
    keep(3, "tcpSocket", Message(&TCP_SOCKET_ACTION)),
    keep(4, "grpc", Message(&GRPC_ACTION)),
];

pub(super) static GRPC_ACTION: Table = &[keep(1, "port", Int), keep(2, "service", String)];

pub(super) static TCP_SOCKET_ACTION: Table = &[keep(1, "port", IntOrString), omit(2, "host", String)];

pub(super) static HTTP_GET_ACTION: Table = &[
    omit(1, "path", String),
    keep(2, "port", IntOrString),
    omit(3, "host", String),
    omit(4, "scheme", String),
    list(5, "httpHeaders", Message(&HTTP_HEADER)),
];

pub(super) static HTTP_HEADER: Table = &[keep(1, "name", String), keep(2, "value", String)];

pub(super) static EXEC_ACTION: Table = &[list(1, "command", String)];

pub(super) static VOLUME_DEVICE: Table = &[keep(1, "name", String), keep(2, "devicePath", String)];

pub(super) static VOLUME_MOUNT: Table = &[
    keep(1, "name", String),
    omit(2, "readOnly", Bool),
    keep(3, "mountPath", String),
    omit(4, "subPath", String),
    keep(5, "mountPropagation", String),
    omit(6, "subPathExpr", String),
    keep(7, "recursiveReadOnly", String),
];

pub(super) static CONTAINER_RESTART_RULE: Table =
    &[omit(1, "action", String), keep(2, "exitCodes", Message(&CONTAINER_RESTART_RULE_ON_EXIT_CODES))];

pub(super) static CONTAINER_RESTART_RULE_ON_EXIT_CODES: Table = &[omit(1, "operator", String), list(2, "values", Int)];

pub(super) static CONTAINER_RESIZE_POLICY: Table = &[keep(1, "resourceName", String), keep(2, "restartPolicy", String)];

pub(super) static RESOURCE_REQUIREMENTS: Table =
    &[map(1, "limits", Quantity), map(2, "requests", Quantity), list(3, "claims", Message(&RESOURCE_CLAIM))];

pub(super) static RESOURCE_CLAIM: Table = &[keep(1, "name", String), omit(2, "request", String)];

pub(super) static ENV_VAR: Table =
    &[keep(1, "name", String), omit(2, "value", String), keep(3, "valueFrom", Message(&ENV_VAR_SOURCE))];

pub(super) static ENV_VAR_SOURCE: Table = &[
    keep(1, "fieldRef", Message(&OBJECT_FIELD_SELECTOR)),
    keep(2, "resourceFieldRef", Message(&RESOURCE_FIELD_SELECTOR)),
    keep(3, "configMapKeyRef", Message(&CONFIG_MAP_KEY_SELECTOR)),
    keep(4, "secretKeyRef", Message(&SECRET_KEY_SELECTOR)),
    keep(5, "fileKeyRef", Message(&FILE_KEY_SELECTOR)),
];

pub(super) static FILE_KEY_SELECTOR: Table =
    &[keep(1, "volumeName", String), keep(2, "path", String), keep(3, "key", String), keep(4, "optional", Bool)];

pub(super) static SECRET_KEY_SELECTOR: Table =
    &[inline(1, &LOCAL_OBJECT_REFERENCE), keep(2, "key", String), keep(3, "optional", Bool)];

pub(super) static CONFIG_MAP_KEY_SELECTOR: Table =
    &[inline(1, &LOCAL_OBJECT_REFERENCE), keep(2, "key", String), keep(3, "optional", Bool)];

pub(super) static ENV_FROM_SOURCE: Table = &[
    omit(1, "prefix", String),
    keep(2, "configMapRef", Message(&CONFIG_MAP_ENV_SOURCE)),
    keep(3, "secretRef", Message(&SECRET_ENV_SOURCE)),
];

pub(super) static SECRET_ENV_SOURCE: Table = &[inline(1, &LOCAL_OBJECT_REFERENCE), keep(2, "optional", Bool)];

pub(super) static CONFIG_MAP_ENV_SOURCE: Table = &[inline(1, &LOCAL_OBJECT_REFERENCE), keep(2, "optional", Bool)];

pub(super) static CONTAINER_PORT: Table = &[
    omit(1, "name", String),
    omit(2, "hostPort", Int),
    keep(3, "containerPort", Int),
    omit(4, "protocol", String),
    omit(5, "hostIP", String),
];
