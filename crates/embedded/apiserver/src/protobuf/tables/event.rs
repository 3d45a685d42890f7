//! What happened and who leads: both kinds of event, and leases.

use super::meta::{OBJECT_META, OBJECT_REFERENCE};
use crate::protobuf::message::Type::{Int, Message, MicroTime, String, Time};
use crate::protobuf::message::{Table, keep, omit};

pub(super) static LEASE: Table = &[omit(1, "metadata", Message(&OBJECT_META)), omit(2, "spec", Message(&LEASE_SPEC))];

pub(super) static LEASE_SPEC: Table = &[
    keep(1, "holderIdentity", String),
    keep(2, "leaseDurationSeconds", Int),
    keep(3, "acquireTime", MicroTime),
    keep(4, "renewTime", MicroTime),
    keep(5, "leaseTransitions", Int),
    keep(6, "strategy", String),
    keep(7, "preferredHolder", String),
];

pub(super) static EVENTS_EVENT: Table = &[
    keep(1, "metadata", Message(&OBJECT_META)),
    keep(2, "eventTime", MicroTime),
    keep(3, "series", Message(&EVENTS_EVENT_SERIES)),
    omit(4, "reportingController", String),
    omit(5, "reportingInstance", String),
    omit(6, "action", String),
    omit(7, "reason", String),
    omit(8, "regarding", Message(&OBJECT_REFERENCE)),
    keep(9, "related", Message(&OBJECT_REFERENCE)),
    omit(10, "note", String),
    omit(11, "type", String),
    omit(12, "deprecatedSource", Message(&EVENT_SOURCE)),
    omit(13, "deprecatedFirstTimestamp", Time),
    omit(14, "deprecatedLastTimestamp", Time),
    omit(15, "deprecatedCount", Int),
];

pub(super) static EVENTS_EVENT_SERIES: Table = &[keep(1, "count", Int), keep(2, "lastObservedTime", MicroTime)];

pub(super) static EVENT: Table = &[
    keep(1, "metadata", Message(&OBJECT_META)),
    keep(2, "involvedObject", Message(&OBJECT_REFERENCE)),
    omit(3, "reason", String),
    omit(4, "message", String),
    omit(5, "source", Message(&EVENT_SOURCE)),
    omit(6, "firstTimestamp", Time),
    omit(7, "lastTimestamp", Time),
    omit(8, "count", Int),
    omit(9, "type", String),
    omit(10, "eventTime", MicroTime),
    keep(11, "series", Message(&EVENT_SERIES)),
    omit(12, "action", String),
    keep(13, "related", Message(&OBJECT_REFERENCE)),
    keep(14, "reportingComponent", String),
    keep(15, "reportingInstance", String),
];

pub(super) static EVENT_SERIES: Table = &[omit(1, "count", Int), omit(2, "lastObservedTime", MicroTime)];

pub(super) static EVENT_SOURCE: Table = &[omit(1, "component", String), omit(2, "host", String)];
