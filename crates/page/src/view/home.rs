//! Home: what waits for a decision, what failed, what drifted, and what runs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use knoll_api::names::condition;
use knoll_api::run::RunPhase;
use knoll_api::{Run, Stack};
use knoll_core::conditions;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;

use super::lists::{self, RowView};
use crate::error::PageError;
use crate::user::User;

/// Rows of a section; the rest is behind its link.
const ROWS: usize = 6;

/// What has to be done, and what goes on.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct HomeView {
    /// The namespace that is shown; all when empty.
    pub namespace: String,
    pub sections: Vec<HomeSection>,
    pub runs: usize,
    pub stacks: usize,
}

/// Objects that have something in common.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HomeSection {
    pub title: String,
    /// What to read when there are none.
    pub none: String,
    /// The path of the list, with its filter.
    pub href: String,
    /// The kind that the rows are of, as in their paths.
    pub kind: lists::ListKind,
    pub total: usize,
    pub rows: Vec<RowView>,
}

/// What was read for the first page.
pub struct HomeObserved {
    pub namespace: String,
    pub runs: Vec<RunSeen>,
    pub stacks: usize,
    /// Rows of the Stacks that have drifted.
    pub drifted: Vec<RowView>,
}

/// What the first page needs to know of a Run.
pub struct RunSeen {
    phase: RunPhase,
    workspace: (String, String),
    created: Option<Time>,
    /// None for a Run that has ended well, which is not shown.
    row: Option<RowView>,
}

impl RunSeen {
    fn of(run: &Run, now: Timestamp) -> Self {
        let phase = run.status.as_ref().map(|status| status.phase).unwrap_or_default();
        let is_shown = !phase.is_finished() || phase == RunPhase::Failed;
        Self {
            phase,
            workspace: (run.namespace().unwrap_or_default(), run.spec.workspace.clone()),
            created: run.metadata.creation_timestamp.clone(),
            row: is_shown.then(|| lists::run_row(run, now)),
        }
    }
}

pub async fn observe(user: &User, namespace: &str, now: Timestamp) -> Result<HomeObserved, PageError> {
    let runs = lists::all(&user.client, namespace, |run: &Run| Some(RunSeen::of(run, now))).await?.0;
    let drifts = |stack: &Stack| {
        let status = stack.status.as_ref();
        let drifts = status.is_some_and(|status| conditions::holds(&status.conditions, condition::DRIFTED));
        Some(drifts.then(|| lists::stack_row(stack, now)))
    };
    let stacks = lists::all(&user.client, namespace, drifts).await?.0;
    let (count, drifted) = (stacks.len(), stacks.into_iter().flatten().collect());
    Ok(HomeObserved { namespace: namespace.to_owned(), runs, stacks: count, drifted })
}

#[must_use]
pub fn view(seen: &HomeObserved) -> HomeView {
    let runs = |title: &str, none: &str, filter: &str, wanted: &dyn Fn(&RunSeen) -> bool| {
        let found = seen.runs.iter().filter(|run| wanted(run)).filter_map(|run| run.row.clone());
        section(
            title,
            none,
            &format!("/runs?phase={filter}&namespace={}", seen.namespace),
            lists::ListKind::Runs,
            found.collect(),
        )
    };
    // A failure that a later run of the Workspace has made good is history.
    let mut newest = BTreeMap::new();
    for run in &seen.runs {
        let created = newest.entry(&run.workspace).or_insert(&run.created);
        *created = (*created).max(&run.created);
    }
    let is_last = |run: &RunSeen| newest.get(&run.workspace).copied() == Some(&run.created);
    let review = |run: &RunSeen| run.phase == RunPhase::Review;
    let failed = |run: &RunSeen| run.phase == RunPhase::Failed && is_last(run);
    let stacks_path = format!("/stacks?q=Drifted&namespace={}", seen.namespace);
    let busy = |run: &RunSeen| matches!(run.phase, RunPhase::Starting | RunPhase::Running);
    let waits = |run: &RunSeen| matches!(run.phase, RunPhase::Queued | RunPhase::Pending);
    HomeView {
        namespace: seen.namespace.clone(),
        sections: vec![
            runs("Needs review", "No plan waits for a decision.", "Needs+review", &review),
            runs("Running", "Nothing runs right now.", "Running", &busy),
            runs("Queued", "Nothing waits for a lock.", "Queued", &waits),
            runs("Failed", "No workspace's last run has failed.", "Failed", &failed),
            section("Drifted", "No stack has drifted.", &stacks_path, lists::ListKind::Stacks, seen.drifted.clone()),
        ],
        runs: seen.runs.len(),
        stacks: seen.stacks,
    }
}

fn section(title: &str, none: &str, href: &str, kind: lists::ListKind, mut rows: Vec<RowView>) -> HomeSection {
    rows.sort_by(|one, other| other.created.as_ref().map(|at| &at.at).cmp(&one.created.as_ref().map(|at| &at.at)));
    let total = rows.len();
    rows.truncate(ROWS);
    HomeSection { title: title.to_owned(), none: none.to_owned(), href: href.to_owned(), kind, total, rows }
}
