//! Where a pod may run: affinity, tolerations, spread constraints, node selectors.

use super::meta::LABEL_SELECTOR;
use crate::protobuf::message::Type::{Int, Message, String};
use crate::protobuf::message::{Table, keep, list, omit};

pub(super) static TOPOLOGY_SPREAD_CONSTRAINT: Table = &[
    keep(1, "maxSkew", Int),
    keep(2, "topologyKey", String),
    keep(3, "whenUnsatisfiable", String),
    keep(4, "labelSelector", Message(&LABEL_SELECTOR)),
    keep(5, "minDomains", Int),
    keep(6, "nodeAffinityPolicy", String),
    keep(7, "nodeTaintsPolicy", String),
    list(8, "matchLabelKeys", String),
];

pub(super) static TOLERATION: Table = &[
    omit(1, "key", String),
    omit(2, "operator", String),
    omit(3, "value", String),
    omit(4, "effect", String),
    keep(5, "tolerationSeconds", Int),
];

pub(super) static AFFINITY: Table = &[
    keep(1, "nodeAffinity", Message(&NODE_AFFINITY)),
    keep(2, "podAffinity", Message(&POD_AFFINITY)),
    keep(3, "podAntiAffinity", Message(&POD_ANTI_AFFINITY)),
];

pub(super) static POD_ANTI_AFFINITY: Table = &[
    list(1, "requiredDuringSchedulingIgnoredDuringExecution", Message(&POD_AFFINITY_TERM)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Message(&WEIGHTED_POD_AFFINITY_TERM)),
];

pub(super) static POD_AFFINITY: Table = &[
    list(1, "requiredDuringSchedulingIgnoredDuringExecution", Message(&POD_AFFINITY_TERM)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Message(&WEIGHTED_POD_AFFINITY_TERM)),
];

pub(super) static WEIGHTED_POD_AFFINITY_TERM: Table =
    &[keep(1, "weight", Int), keep(2, "podAffinityTerm", Message(&POD_AFFINITY_TERM))];

pub(super) static POD_AFFINITY_TERM: Table = &[
    keep(1, "labelSelector", Message(&LABEL_SELECTOR)),
    list(2, "namespaces", String),
    keep(3, "topologyKey", String),
    keep(4, "namespaceSelector", Message(&LABEL_SELECTOR)),
    list(5, "matchLabelKeys", String),
    list(6, "mismatchLabelKeys", String),
];

pub(super) static NODE_AFFINITY: Table = &[
    keep(1, "requiredDuringSchedulingIgnoredDuringExecution", Message(&NODE_SELECTOR)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Message(&PREFERRED_SCHEDULING_TERM)),
];

pub(super) static PREFERRED_SCHEDULING_TERM: Table =
    &[keep(1, "weight", Int), keep(2, "preference", Message(&NODE_SELECTOR_TERM))];

pub(super) static NODE_SELECTOR: Table = &[list(1, "nodeSelectorTerms", Message(&NODE_SELECTOR_TERM))];

pub(super) static NODE_SELECTOR_TERM: Table = &[
    list(1, "matchExpressions", Message(&NODE_SELECTOR_REQUIREMENT)),
    list(2, "matchFields", Message(&NODE_SELECTOR_REQUIREMENT)),
];

pub(super) static NODE_SELECTOR_REQUIREMENT: Table =
    &[keep(1, "key", String), keep(2, "operator", String), list(3, "values", String)];
