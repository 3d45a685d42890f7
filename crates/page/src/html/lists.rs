//! Lists with their search, their filters and their pages.

use maud::{Markup, html};

use super::layout::{self, Frame};
use super::{encoded, pieces};
use crate::view::lists::{CellView, ListKind, ListQuery, ListView, RowView};

pub fn page(frame: &Frame, view: &ListView) -> Markup {
    let query = &view.query;
    let folder = view.kind.path();
    layout::framed(
        frame,
        &html! {
            header.head {
                h1 { (view.kind.title()) " " span.muted.count { (view.total) } }
                @if view.kind == ListKind::Stacks {
                    span.tools { a.button href={ "/graph?namespace=" (encoded(&query.namespace)) } { "Dependencies" } }
                }
            }
            form.filters method="get" action={ "/" (folder) } role="search" {
                label.sr for="q" { "Search" }
                input id="q" type="search" name="q" value=(query.q) placeholder={ "Search " (folder) };
                label.sr for="namespace" { "Namespace" }
                input id="namespace" name="namespace" value=(query.namespace) placeholder="All namespaces";
                @if !query.phase.is_empty() { input type="hidden" name="phase" value=(query.phase); }
                button type="submit" { "Search" }
            }
            @if view.phases.len() > 1 || !query.phase.is_empty() {
                nav.chips aria-label="Phases" {
                    a.chip href=(address(folder, query, "", 1)) aria-current=[query.phase.is_empty().then_some("true")] { "All" }
                    @for known in &view.phases {
                        a.chip href=(address(folder, query, &known.phase.text, 1)) aria-current=[(known.phase.text == query.phase).then_some("true")] {
                            (pieces::badge(&known.phase)) " " (known.count)
                        }
                    }
                }
            }
            section.card {
                @if view.rows.is_empty() { (empty(view)) } @else { (rows(view.kind, &view.rows)) }
            }
            @if view.truncated { p.muted.small { "There are more objects than one list reads. Choose a namespace to see all of it." } }
            @if view.pages > 1 {
                nav.pages aria-label="Pages" {
                    @if query.page > 1 { a.button rel="prev" href=(address(folder, query, &query.phase, query.page - 1)) { "Previous" } }
                    span.muted { "Page " (query.page) " of " (view.pages) }
                    @if query.page < view.pages { a.button rel="next" href=(address(folder, query, &query.phase, query.page + 1)) { "Next" } }
                }
            }
        },
    )
}

fn address(folder: &str, query: &ListQuery, phase: &str, page: usize) -> String {
    let ListQuery { namespace, q, .. } = query;
    format!("/{folder}?namespace={}&q={}&phase={}&page={page}", encoded(namespace), encoded(q), encoded(phase))
}

fn empty(view: &ListView) -> Markup {
    let is_filtered = !view.query.q.is_empty() || !view.query.phase.is_empty();
    html! {
        div.centre {
            @if is_filtered {
                p.big { "Nothing matches." }
                p { a.button href={ "/" (view.kind.path()) "?namespace=" (encoded(&view.query.namespace)) } { "Show all" } }
            } @else {
                p.big { "No " (view.kind.path()) " yet." }
                p.muted {
                    @match view.kind {
                        ListKind::Runs => { code { "knoll plan" } " in the directory of a module starts one." }
                        ListKind::Stacks => { code { "kubectl apply -f stack.yaml" } " declares one." }
                        ListKind::Workspaces => { code { "knoll workspace new NAME" } " makes one." }
                        ListKind::Atoms => { code { "knoll atom apply" } " makes one." }
                    }
                }
            }
        }
    }
}

/// The table of objects of one kind.
pub fn rows(kind: ListKind, rows: &[RowView]) -> Markup {
    let labels: Vec<&str> =
        rows.first().map(|row| row.cells.iter().map(|cell| cell.label.as_str()).collect()).unwrap_or_default();
    html! {
        table.list {
            thead {
                tr {
                    th scope="col" { "Name" }
                    th scope="col" { "Status" }
                    @for label in labels { th scope="col" { (label) } }
                    th scope="col" { "Age" }
                }
            }
            tbody {
                @for row in rows {
                    tr {
                        td.first {
                            (pieces::link(&format!("/{}/{}/{}", kind.path(), row.namespace, row.name), &row.name))
                            span.place title=(row.namespace) { (row.namespace) }
                            @if let Some(message) = &row.message { p.why title=(message) { (pieces::prose(message)) } }
                        }
                        td data-label="Status" { (pieces::badge(&row.status)) }
                        @for cell in &row.cells { (value(cell)) }
                        td.age data-label="Age" { @if let Some(created) = &row.created { time datetime=(created.at) title=(created.at) { (created.age) } } }
                    }
                }
            }
        }
    }
}

fn value(cell: &CellView) -> Markup {
    html! {
        td.blank[cell.value.is_empty()] data-label=(cell.label) {
            @match &cell.href {
                Some(href) => (pieces::link(href, &cell.value)),
                None => span.value title=(cell.value) { (cell.value) },
            }
        }
    }
}
