//! The other kinds that `kubectl create` and `kubectl drain` write.

use super::meta::{CONDITION, DELETE_OPTIONS, LABEL_SELECTOR, OBJECT_META, OBJECT_REFERENCE};
use super::pod::POD_TEMPLATE_SPEC;
use crate::protobuf::message::Type::{Bool, Int, IntOrString, Message, Quantity, String, Time};
use crate::protobuf::message::{Table, keep, list, map, omit};

pub(super) static POD_DISRUPTION_BUDGET: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    omit(2, "spec", Message(&POD_DISRUPTION_BUDGET_SPEC)),
    omit(3, "status", Message(&POD_DISRUPTION_BUDGET_STATUS)),
];

pub(super) static POD_DISRUPTION_BUDGET_STATUS: Table = &[
    omit(1, "observedGeneration", Int),
    map(2, "disruptedPods", Time),
    keep(3, "disruptionsAllowed", Int),
    keep(4, "currentHealthy", Int),
    keep(5, "desiredHealthy", Int),
    keep(6, "expectedPods", Int),
    list(7, "conditions", Message(&CONDITION)),
];

pub(super) static POD_DISRUPTION_BUDGET_SPEC: Table = &[
    keep(1, "minAvailable", IntOrString),
    keep(2, "selector", Message(&LABEL_SELECTOR)),
    keep(3, "maxUnavailable", IntOrString),
    keep(4, "unhealthyPodEvictionPolicy", String),
];

pub(super) static EVICTION: Table =
    &[omit(1, "metadata", Message(&OBJECT_META)), keep(2, "deleteOptions", Message(&DELETE_OPTIONS))];

pub(super) static RESOURCE_QUOTA: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    omit(2, "spec", Message(&RESOURCE_QUOTA_SPEC)),
    omit(3, "status", Message(&RESOURCE_QUOTA_STATUS)),
];

pub(super) static RESOURCE_QUOTA_STATUS: Table = &[map(1, "hard", Quantity), map(2, "used", Quantity)];

pub(super) static RESOURCE_QUOTA_SPEC: Table =
    &[map(1, "hard", Quantity), list(2, "scopes", String), keep(3, "scopeSelector", Message(&SCOPE_SELECTOR))];

pub(super) static SCOPE_SELECTOR: Table =
    &[list(1, "matchExpressions", Message(&SCOPED_RESOURCE_SELECTOR_REQUIREMENT))];

pub(super) static SCOPED_RESOURCE_SELECTOR_REQUIREMENT: Table =
    &[keep(1, "scopeName", String), keep(2, "operator", String), list(3, "values", String)];

pub(super) static SERVICE: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    omit(2, "spec", Message(&SERVICE_SPEC)),
    omit(3, "status", Message(&SERVICE_STATUS)),
];

pub(super) static SERVICE_STATUS: Table =
    &[omit(1, "loadBalancer", Message(&LOAD_BALANCER_STATUS)), list(2, "conditions", Message(&CONDITION))];

pub(super) static LOAD_BALANCER_STATUS: Table = &[list(1, "ingress", Message(&LOAD_BALANCER_INGRESS))];

pub(super) static LOAD_BALANCER_INGRESS: Table = &[
    omit(1, "ip", String),
    omit(2, "hostname", String),
    keep(3, "ipMode", String),
    list(4, "ports", Message(&PORT_STATUS)),
];

pub(super) static PORT_STATUS: Table = &[keep(1, "port", Int), keep(2, "protocol", String), keep(3, "error", String)];

pub(super) static SERVICE_SPEC: Table = &[
    list(1, "ports", Message(&SERVICE_PORT)),
    map(2, "selector", String),
    omit(3, "clusterIP", String),
    omit(4, "type", String),
    list(5, "externalIPs", String),
    omit(7, "sessionAffinity", String),
    omit(8, "loadBalancerIP", String),
    list(9, "loadBalancerSourceRanges", String),
    omit(10, "externalName", String),
    omit(11, "externalTrafficPolicy", String),
    omit(12, "healthCheckNodePort", Int),
    omit(13, "publishNotReadyAddresses", Bool),
    keep(14, "sessionAffinityConfig", Message(&SESSION_AFFINITY_CONFIG)),
    keep(17, "ipFamilyPolicy", String),
    list(18, "clusterIPs", String),
    list(19, "ipFamilies", String),
    keep(20, "allocateLoadBalancerNodePorts", Bool),
    keep(21, "loadBalancerClass", String),
    keep(22, "internalTrafficPolicy", String),
    keep(23, "trafficDistribution", String),
];

pub(super) static SESSION_AFFINITY_CONFIG: Table = &[keep(1, "clientIP", Message(&CLIENT_IP_CONFIG))];

pub(super) static CLIENT_IP_CONFIG: Table = &[keep(1, "timeoutSeconds", Int)];

pub(super) static SERVICE_PORT: Table = &[
    omit(1, "name", String),
    omit(2, "protocol", String),
    keep(3, "port", Int),
    omit(4, "targetPort", IntOrString),
    omit(5, "nodePort", Int),
    keep(6, "appProtocol", String),
];

pub(super) static CRON_JOB: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    omit(2, "spec", Message(&CRON_JOB_SPEC)),
    omit(3, "status", Message(&CRON_JOB_STATUS)),
];

pub(super) static CRON_JOB_STATUS: Table = &[
    list(1, "active", Message(&OBJECT_REFERENCE)),
    keep(4, "lastScheduleTime", Time),
    keep(5, "lastSuccessfulTime", Time),
];

pub(super) static CRON_JOB_SPEC: Table = &[
    keep(1, "schedule", String),
    keep(2, "startingDeadlineSeconds", Int),
    omit(3, "concurrencyPolicy", String),
    keep(4, "suspend", Bool),
    keep(5, "jobTemplate", Message(&JOB_TEMPLATE_SPEC)),
    keep(6, "successfulJobsHistoryLimit", Int),
    keep(7, "failedJobsHistoryLimit", Int),
    keep(8, "timeZone", String),
];

pub(super) static JOB_TEMPLATE_SPEC: Table =
    &[omit(1, "metadata", Message(&OBJECT_META)), omit(2, "spec", Message(&JOB_SPEC))];

pub(super) static JOB: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    omit(2, "spec", Message(&JOB_SPEC)),
    omit(3, "status", Message(&JOB_STATUS)),
];

pub(super) static JOB_STATUS: Table = &[
    list(1, "conditions", Message(&JOB_CONDITION)),
    keep(2, "startTime", Time),
    keep(3, "completionTime", Time),
    omit(4, "active", Int),
    omit(5, "succeeded", Int),
    omit(6, "failed", Int),
    omit(7, "completedIndexes", String),
    keep(8, "uncountedTerminatedPods", Message(&UNCOUNTED_TERMINATED_PODS)),
    keep(9, "ready", Int),
    keep(10, "failedIndexes", String),
    keep(11, "terminating", Int),
];

pub(super) static UNCOUNTED_TERMINATED_PODS: Table = &[list(1, "succeeded", String), list(2, "failed", String)];

pub(super) static JOB_CONDITION: Table = &[
    keep(1, "type", String),
    keep(2, "status", String),
    omit(3, "lastProbeTime", Time),
    omit(4, "lastTransitionTime", Time),
    omit(5, "reason", String),
    omit(6, "message", String),
];

pub(super) static JOB_SPEC: Table = &[
    keep(1, "parallelism", Int),
    keep(2, "completions", Int),
    keep(3, "activeDeadlineSeconds", Int),
    keep(4, "selector", Message(&LABEL_SELECTOR)),
    keep(5, "manualSelector", Bool),
    keep(6, "template", Message(&POD_TEMPLATE_SPEC)),
    keep(7, "backoffLimit", Int),
    keep(8, "ttlSecondsAfterFinished", Int),
    keep(9, "completionMode", String),
    keep(10, "suspend", Bool),
    keep(11, "podFailurePolicy", Message(&POD_FAILURE_POLICY)),
    keep(12, "backoffLimitPerIndex", Int),
    keep(13, "maxFailedIndexes", Int),
    keep(14, "podReplacementPolicy", String),
    keep(15, "managedBy", String),
    keep(16, "successPolicy", Message(&SUCCESS_POLICY)),
];

pub(super) static SUCCESS_POLICY: Table = &[list(1, "rules", Message(&SUCCESS_POLICY_RULE))];

pub(super) static SUCCESS_POLICY_RULE: Table = &[keep(1, "succeededIndexes", String), keep(2, "succeededCount", Int)];

pub(super) static POD_FAILURE_POLICY: Table = &[list(1, "rules", Message(&POD_FAILURE_POLICY_RULE))];

pub(super) static POD_FAILURE_POLICY_RULE: Table = &[
    keep(1, "action", String),
    keep(2, "onExitCodes", Message(&POD_FAILURE_POLICY_ON_EXIT_CODES_REQUIREMENT)),
    list(3, "onPodConditions", Message(&POD_FAILURE_POLICY_ON_POD_CONDITIONS_PATTERN)),
];

pub(super) static POD_FAILURE_POLICY_ON_POD_CONDITIONS_PATTERN: Table =
    &[keep(1, "type", String), keep(2, "status", String)];

pub(super) static POD_FAILURE_POLICY_ON_EXIT_CODES_REQUIREMENT: Table =
    &[keep(1, "containerName", String), keep(2, "operator", String), list(3, "values", Int)];

pub(super) static DEPLOYMENT: Table = &[
    omit(1, "metadata", Message(&OBJECT_META)),
    omit(2, "spec", Message(&DEPLOYMENT_SPEC)),
    omit(3, "status", Message(&DEPLOYMENT_STATUS)),
];

pub(super) static DEPLOYMENT_STATUS: Table = &[
    omit(1, "observedGeneration", Int),
    omit(2, "replicas", Int),
    omit(3, "updatedReplicas", Int),
    omit(4, "availableReplicas", Int),
    omit(5, "unavailableReplicas", Int),
    list(6, "conditions", Message(&DEPLOYMENT_CONDITION)),
    omit(7, "readyReplicas", Int),
    keep(8, "collisionCount", Int),
    keep(9, "terminatingReplicas", Int),
];

pub(super) static DEPLOYMENT_CONDITION: Table = &[
    keep(1, "type", String),
    keep(2, "status", String),
    omit(4, "reason", String),
    omit(5, "message", String),
    omit(6, "lastUpdateTime", Time),
    omit(7, "lastTransitionTime", Time),
];

pub(super) static DEPLOYMENT_SPEC: Table = &[
    keep(1, "replicas", Int),
    keep(2, "selector", Message(&LABEL_SELECTOR)),
    keep(3, "template", Message(&POD_TEMPLATE_SPEC)),
    omit(4, "strategy", Message(&DEPLOYMENT_STRATEGY)),
    omit(5, "minReadySeconds", Int),
    keep(6, "revisionHistoryLimit", Int),
    omit(7, "paused", Bool),
    keep(9, "progressDeadlineSeconds", Int),
];

pub(super) static DEPLOYMENT_STRATEGY: Table =
    &[omit(1, "type", String), keep(2, "rollingUpdate", Message(&ROLLING_UPDATE_DEPLOYMENT))];

pub(super) static ROLLING_UPDATE_DEPLOYMENT: Table =
    &[keep(1, "maxUnavailable", IntOrString), keep(2, "maxSurge", IntOrString)];
