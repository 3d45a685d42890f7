//! `spec.windows` of a Policy: when changes may start.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration::Duration, rules};

/// When changes may start. A Run that may not start now waits, and says until when. Its plan is made and reviewed
/// meanwhile if it is reviewed. Runs that cannot change the state start at any time, and nothing stops a Run that has
/// started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowRules {
    /// The times at which changes may start; at any time when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub open: Vec<OpenWindow>,
    /// The times at which no change may start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub freezes: Vec<Freeze>,
    /// The groups whose users may start a Run at any time, with a reason (`startNow` of the Run). Nobody when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    pub override_groups: Vec<String>,
}

/// A time at which changes may start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenWindow {
    /// When the window opens, as cron has it: minute, hour, day of the month, month, day of the week.
    #[schemars(length(min = 9, max = 256))]
    #[x_kube(validation = schedule())]
    pub schedule: String,
    /// The time zone of the schedule, by its name in the IANA database.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = time_zone())]
    pub time_zone: String,
    /// How long the window is open, at most 31 days.
    #[x_kube(validation = at_most_a_month())]
    pub duration: Duration,
    /// The changes that the window is for; all that have no window of their own when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub changes: Vec<Change>,
}

/// A time at which no change may start: a schedule with a duration, or `from` and `until`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube_core::Rule::new("has(self.schedule) == has(self.duration) && has(self.from) == has(self.until) && has(self.schedule) != has(self.from)")
    .message("write schedule and duration, or from and until"))]
pub struct Freeze {
    /// The reason, for the users whose Runs wait.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// When the freeze begins, as cron has it: minute, hour, day of the month, month, day of the week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 256))]
    #[x_kube(validation = schedule())]
    pub schedule: Option<String>,
    /// The time zone of the schedule, by its name in the IANA database.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = time_zone())]
    pub time_zone: String,
    /// How long the freeze holds, at most 31 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = at_most_a_month())]
    pub duration: Option<Duration>,
    /// When the freeze begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,
    /// When the freeze ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The changes that the freeze is for; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub changes: Vec<Change>,
}

/// A kind of change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum Change {
    /// A Run that may change the state and is none of the others: `apply`, `refresh`, or a command.
    #[default]
    Apply,
    /// A Run with `operation: destroy`.
    Destroy,
    /// A Run by which a Stack corrects drift.
    Drift,
}

impl Change {
    /// The serialized name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Destroy => "Destroy",
            Self::Drift => "Drift",
        }
    }
}

fn utc() -> String {
    "UTC".to_owned()
}

fn schedule() -> kube_core::Rule {
    rules::form(
        "^[0-9A-Za-z*,/-]+( [0-9A-Za-z*,/-]+){4}$",
        "write five fields such as 0 9 * * mon-fri: minute, hour, day of the month, month, day of the week",
    )
}

fn time_zone() -> kube_core::Rule {
    rules::form(
        "^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$",
        "write the name of a time zone such as Europe/Berlin or UTC",
    )
}

fn at_most_a_month() -> kube_core::Rule {
    rules::at_most("744h")
}
