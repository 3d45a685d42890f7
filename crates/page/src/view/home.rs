//! Home: what waits for a decision, what failed, what drifted, and what runs.

use std::collections::BTreeMap;

use jiff::Timestamp;
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
    pub runs: Vec<Run>,
    pub stacks: Vec<Stack>,
}

pub async fn observe(user: &User, namespace: &str) -> Result<HomeObserved, PageError> {
    let (runs, stacks) =
        tokio::join!(lists::all::<Run>(&user.client, namespace), lists::all::<Stack>(&user.client, namespace));
    Ok(HomeObserved { namespace: namespace.to_owned(), runs: runs?.0, stacks: stacks?.0 })
}

#[must_use]
pub fn view(seen: &HomeObserved, now: Timestamp) -> HomeView {
    let phase = |run: &Run| run.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let runs = |title: &str, none: &str, filter: &str, wanted: &dyn Fn(&Run) -> bool| {
        let found = seen.runs.iter().filter(|run| wanted(run)).map(|run| lists::run_row(run, now));
        section(
            title,
            none,
            &format!("/runs?phase={filter}&namespace={}", seen.namespace),
            lists::ListKind::Runs,
            found.collect(),
        )
    };
    let drifted = |stack: &&Stack| {
        let status = stack.status.as_ref();
        status.is_some_and(|status| conditions::holds(&status.conditions, condition::DRIFTED))
    };
    // A failure that a later run of the Workspace has made good is history.
    let mut newest = BTreeMap::new();
    for run in &seen.runs {
        let created = newest.entry((run.namespace(), &run.spec.workspace)).or_insert(&run.metadata.creation_timestamp);
        *created = (*created).max(&run.metadata.creation_timestamp);
    }
    let is_last = |run: &Run| {
        newest.get(&(run.namespace(), &run.spec.workspace)).copied() == Some(&run.metadata.creation_timestamp)
    };
    let review = |run: &Run| phase(run) == RunPhase::Review;
    let failed = |run: &Run| phase(run) == RunPhase::Failed && is_last(run);
    let drift = seen.stacks.iter().filter(drifted).map(|stack| lists::stack_row(stack, now)).collect();
    let stacks_path = format!("/stacks?q=Drifted&namespace={}", seen.namespace);
    let busy = |run: &Run| matches!(phase(run), RunPhase::Starting | RunPhase::Running);
    let waits = |run: &Run| matches!(phase(run), RunPhase::Queued | RunPhase::Pending);
    HomeView {
        namespace: seen.namespace.clone(),
        sections: vec![
            runs("Needs review", "No plan waits for a decision.", "Needs+review", &review),
            runs("Running", "Nothing runs right now.", "Running", &busy),
            runs("Queued", "Nothing waits for a lock.", "Queued", &waits),
            runs("Failed", "No workspace's last run has failed.", "Failed", &failed),
            section("Drifted", "No stack has drifted.", &stacks_path, lists::ListKind::Stacks, drift),
        ],
        runs: seen.runs.len(),
        stacks: seen.stacks.len(),
    }
}

fn section(title: &str, none: &str, href: &str, kind: lists::ListKind, mut rows: Vec<RowView>) -> HomeSection {
    rows.sort_by(|one, other| other.created.as_ref().map(|at| &at.at).cmp(&one.created.as_ref().map(|at| &at.at)));
    let total = rows.len();
    rows.truncate(ROWS);
    HomeSection { title: title.to_owned(), none: none.to_owned(), href: href.to_owned(), kind, total, rows }
}
