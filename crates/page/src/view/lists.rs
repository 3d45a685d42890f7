//! Lists of Runs, Stacks, Workspaces and Atoms: searched, filtered and paged on the server.

use jiff::Timestamp;
use knoll_api::names::{condition, is_dns_label};
use knoll_api::{Atom, Run, Stack, Workspace};
use knoll_core::{conditions, times};
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::shown::{self, Moment, Status, Tone};
use crate::error::PageError;
use crate::user::User;

/// Rows of a page.
const ROWS: usize = 50;
/// Objects that one request to the API server brings: a Run can have a source of a megabyte in it.
const CHUNK: u32 = 50;
/// Objects that one list reads at most. Of each a row is kept.
const MOST: usize = 20_000;
/// The longest search, and the longest name of a phase. Every row is compared with them.
const LONGEST_SEARCH: usize = 200;

/// What a list is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListQuery {
    /// A namespace; all that the user may see when empty.
    pub namespace: String,
    /// Words that a row must have.
    pub q: String,
    /// A phase, as the rows show it.
    pub phase: String,
    /// The number of the page, counted from 1.
    pub page: usize,
}

/// One page of a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ListView {
    pub kind: ListKind,
    pub query: ListQuery,
    pub rows: Vec<RowView>,
    /// Rows on all pages.
    pub total: usize,
    pub pages: usize,
    /// The phases of all objects, before the filter of phases, with their counts.
    pub phases: Vec<PhaseCount>,
    /// Whether there are more objects than one list reads.
    pub truncated: bool,
}

/// The kind of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListKind {
    Runs,
    Stacks,
    Workspaces,
    Atoms,
}

impl ListKind {
    pub fn path(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Stacks => "stacks",
            Self::Workspaces => "workspaces",
            Self::Atoms => "atoms",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Runs => "Runs",
            Self::Stacks => "Stacks",
            Self::Workspaces => "Workspaces",
            Self::Atoms => "Atoms",
        }
    }
}

/// How many objects are in a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PhaseCount {
    pub phase: Status,
    pub count: usize,
}

/// An object in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RowView {
    pub namespace: String,
    pub name: String,
    pub status: Status,
    /// Labels and values, in the order of the columns.
    pub cells: Vec<CellView>,
    pub created: Option<Moment>,
    /// A sentence on what is wrong or missing.
    pub message: Option<String>,
}

/// A value of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CellView {
    pub label: String,
    pub value: String,
    /// The path of a page about the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub href: Option<String>,
}

fn cell(label: &str, value: impl Into<String>) -> CellView {
    CellView { label: label.to_owned(), value: value.into(), href: None }
}

fn link(label: &str, value: Option<&str>, kind: ListKind, namespace: &str) -> CellView {
    let href = value.map(|name| format!("/{}/{namespace}/{name}", kind.path()));
    CellView { label: label.to_owned(), value: value.unwrap_or_default().to_owned(), href }
}

/// Reads the objects of a kind that the user may list, in one namespace or in all, and keeps of each what `row` makes of it.
/// The second value is true when there are more than one list reads.
pub async fn all<K, R>(
    client: &Client,
    namespace: &str,
    row: impl Fn(&K) -> Option<R>,
) -> Result<(Vec<R>, bool), PageError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = match namespace {
        "" => Api::all(client.clone()),
        name if is_dns_label(name) => Api::namespaced(client.clone(), name),
        _ => return Err(PageError::Invalid("That is no name of a namespace.".to_owned())),
    };
    let (mut rows, mut read, mut params) = (Vec::new(), 0, ListParams::default().limit(CHUNK));
    loop {
        let list = api.list(&params).await?;
        read += list.items.len();
        rows.extend(list.items.iter().filter_map(&row));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(_) if read >= MOST => return Ok((rows, true)),
            Some(token) => params = params.continue_token(&token),
            None => return Ok((rows, false)),
        }
    }
}

/// Reads the rows of a list.
pub async fn observe(user: &User, kind: ListKind, query: &ListQuery) -> Result<(Vec<RowView>, bool), PageError> {
    if query.q.len() > LONGEST_SEARCH || query.phase.len() > LONGEST_SEARCH {
        return Err(PageError::Invalid(format!("The search has more than {LONGEST_SEARCH} letters. Shorten it.")));
    }
    let now = Timestamp::now();
    let (client, namespace) = (&user.client, query.namespace.as_str());
    match kind {
        ListKind::Runs => all(client, namespace, |run: &Run| Some(run_row(run, now))).await,
        ListKind::Stacks => all(client, namespace, |stack: &Stack| Some(stack_row(stack, now))).await,
        ListKind::Workspaces => all(client, namespace, |found: &Workspace| Some(workspace_row(found, now))).await,
        ListKind::Atoms => all(client, namespace, |atom: &Atom| Some(atom_row(atom, now))).await,
    }
}

/// One page of the rows that match: what waits for a person first, then what failed, then the newest.
#[must_use]
pub fn view(kind: ListKind, query: ListQuery, mut rows: Vec<RowView>, truncated: bool) -> ListView {
    let found = |row: &RowView| {
        let cells = row.cells.iter().map(|cell| cell.value.as_str());
        let texts: Vec<&str> = [row.name.as_str(), &row.namespace, &row.status.text].into_iter().chain(cells).collect();
        shown::matches(&query.q, &texts)
    };
    rows.retain(found);
    let mut phases: Vec<PhaseCount> = Vec::new();
    for row in &rows {
        match phases.iter_mut().find(|known| known.phase == row.status) {
            Some(known) => known.count += 1,
            None => phases.push(PhaseCount { phase: row.status.clone(), count: 1 }),
        }
    }
    phases.sort_by_key(|known| (urgency(known.phase.tone), known.phase.text.clone()));
    rows.retain(|row| query.phase.is_empty() || row.status.text == query.phase);
    rows.sort_by(|one, other| {
        let key =
            |row: &RowView| (urgency(row.status.tone), std::cmp::Reverse(row.created.as_ref().map(|at| at.at.clone())));
        key(one).cmp(&key(other)).then_with(|| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)))
    });
    let (total, pages) = (rows.len(), rows.len().div_ceil(ROWS).max(1));
    let page = query.page.clamp(1, pages);
    let rows = rows.into_iter().skip((page - 1) * ROWS).take(ROWS).collect();
    ListView { kind, query: ListQuery { page, ..query }, rows, total, pages, phases, truncated }
}

/// Reviews and work under way are on top; all that is at rest is ordered by age.
fn urgency(tone: Tone) -> u8 {
    match tone {
        Tone::Waits => 0,
        Tone::Busy => 1,
        Tone::Bad | Tone::Good | Tone::Quiet => 2,
    }
}

pub fn run_row(run: &Run, now: Timestamp) -> RowView {
    let status = run.status.clone().unwrap_or_default();
    let namespace = run.namespace().unwrap_or_default();
    let plan = status.plan.as_ref().map(|plan| format!("+{} ~{} -{}", plan.add, plan.change, plan.destroy));
    let bad = status.phase == knoll_api::run::RunPhase::Failed;
    RowView {
        status: Status::of_run(status.phase),
        cells: vec![
            link("Workspace", Some(&run.spec.workspace), ListKind::Workspaces, &namespace),
            cell("Command", shown::command(run)),
            cell("Plan", plan.unwrap_or_default()),
            cell("Time", times::took(status.started_at.as_ref(), status.finished_at.as_ref(), now)),
            cell("By", run.spec.requested_by.clone().unwrap_or_default()),
        ],
        created: Moment::of_time(run.metadata.creation_timestamp.as_ref(), now),
        message: shown::ready_message(&status.conditions).filter(|_| bad),
        name: run.name_any(),
        namespace,
    }
}

pub fn stack_row(stack: &Stack, now: Timestamp) -> RowView {
    let status = stack.status.clone().unwrap_or_default();
    let namespace = stack.namespace().unwrap_or_default();
    let drifted = conditions::holds(&status.conditions, condition::DRIFTED);
    let revision: String = status.revision.clone().unwrap_or_default().chars().take(7).collect();
    let phase = Status::of_stack(status.phase);
    let message = shown::ready_message(&status.conditions).filter(|_| phase.tone != Tone::Good);
    RowView {
        cells: vec![
            cell("Revision", revision),
            cell("Drift", if drifted { "Drifted" } else { "" }),
            link("Last run", status.last_run.as_deref(), ListKind::Runs, &namespace),
        ],
        created: Moment::of_time(stack.metadata.creation_timestamp.as_ref(), now),
        message,
        status: phase,
        name: stack.name_any(),
        namespace,
    }
}

pub fn workspace_row(workspace: &Workspace, now: Timestamp) -> RowView {
    let status = workspace.status.clone().unwrap_or_default();
    let namespace = workspace.namespace().unwrap_or_default();
    let phase = format!("{:?}", status.phase);
    let tone = if status.active.is_some() { Tone::Busy } else { Tone::Quiet };
    let state = status.state.unwrap_or_default();
    RowView {
        status: Status::new(phase, tone),
        cells: vec![
            link("Lock", status.active.as_deref(), ListKind::Runs, &namespace),
            cell("Queue", status.queue.len().to_string()),
            cell("Resources", state.resources.to_string()),
            cell("Serial", state.serial.to_string()),
            cell(
                "Tool",
                format!("{} {}", workspace.spec.tool.program(), workspace.spec.version.clone().unwrap_or_default()),
            ),
        ],
        created: Moment::of_time(workspace.metadata.creation_timestamp.as_ref(), now),
        message: None,
        name: workspace.name_any(),
        namespace,
    }
}

pub fn atom_row(atom: &Atom, now: Timestamp) -> RowView {
    let status = atom.status.clone().unwrap_or_default();
    let namespace = atom.namespace().unwrap_or_default();
    let phase = atom_status(status.phase);
    let ready = status.objects.iter().filter(|object| object.ready).count();
    let message = shown::ready_message(&status.conditions).filter(|_| phase.tone == Tone::Bad);
    RowView {
        cells: vec![
            cell("Version", status.current_version.clone().unwrap_or_default()),
            cell("Target", status.target_version.clone().unwrap_or_default()),
            cell("Ready", format!("{ready}/{}", status.objects.len())),
        ],
        created: Moment::of_time(atom.metadata.creation_timestamp.as_ref(), now),
        message,
        status: phase,
        name: atom.name_any(),
        namespace,
    }
}

/// The phase of an Atom and its colour.
pub fn atom_status(phase: knoll_api::atom::AtomPhase) -> Status {
    use knoll_api::atom::AtomPhase as Phase;
    let tone = match phase {
        Phase::Pending => Tone::Quiet,
        Phase::Updating | Phase::Rollback | Phase::Cancelled => Tone::Busy,
        Phase::Running => Tone::Good,
        Phase::Deadline | Phase::Error | Phase::Reverted | Phase::Failure => Tone::Bad,
    };
    Status::new(phase.as_str(), tone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, tone: Tone) -> RowView {
        let created = Some(Moment { at: name.to_owned(), age: String::new() });
        RowView { name: name.to_owned(), status: Status::new(format!("{tone:?}"), tone), created, ..RowView::default() }
    }

    #[test]
    fn a_list_is_searched_counted_sorted_and_paged() {
        let rows: Vec<RowView> = (0..120)
            .map(|n| row(&format!("net-{n:03}"), if n == 7 { Tone::Waits } else { Tone::Good }))
            .chain([row("web", Tone::Bad)])
            .collect();
        let ask = |query: ListQuery| view(ListKind::Runs, query, rows.clone(), false);
        let first = ask(ListQuery { q: "NET".into(), ..ListQuery::default() });
        assert_eq!((first.total, first.pages, first.rows.len()), (120, 3, 50));
        assert_eq!(first.rows[0].name, "net-007", "a review is on top");
        assert_eq!(first.rows[1].name, "net-119", "then the newest");
        assert_eq!(first.phases.iter().map(|known| known.count).collect::<Vec<_>>(), [1, 119]);
        let last = ask(ListQuery { page: 99, q: "net".into(), ..ListQuery::default() });
        assert_eq!((last.query.page, last.rows.len()), (3, 20));
        let bad = ask(ListQuery { phase: "Bad".into(), ..ListQuery::default() });
        assert_eq!((bad.total, bad.phases.len()), (1, 3));
        assert_eq!(ask(ListQuery { q: "nothing".into(), ..ListQuery::default() }).pages, 1);
    }
}
