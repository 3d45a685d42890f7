//! The page of a Stack, a Workspace or an Atom.

use maud::{Markup, html};

use super::layout::{self, Frame};
use super::lists::rows;
use super::pieces;
use crate::view::lists::ListKind;
use crate::view::objects::{Fact, ObjectView};
use crate::view::shown::Tone;

pub fn page(frame: &Frame, folder: &str, view: &ObjectView) -> Markup {
    layout::framed(
        frame,
        &html! {
            header.title {
                p.crumbs { a href={ "/" (folder) "?namespace=" (view.namespace) } { (view.kind) "s" } " / " (view.namespace) }
                div.head { h1 title=(view.name) { (view.name) } (pieces::badge(&view.status)) }
            }
            @if let Some(message) = &view.message {
                @if view.status.tone != Tone::Good { p.notice.wrap.(view.status.tone.class()) { (pieces::prose(message)) } }
            }
            @if !view.states.is_empty() {
                ol.machine aria-label="States" {
                    @for state in &view.states {
                        li.(state.status.tone.class()).lit[state.current] aria-current=[state.current.then_some("step")] { (state.status.text) }
                    }
                }
            }
            section.card { dl.facts.grid { @for fact in &view.facts { (entry(fact)) } } }
            @if !view.queue.is_empty() {
                section.card {
                    header.head { h2 { "Queue" } }
                    ol.queue { @for run in &view.queue { li { a href={ "/runs/" (view.namespace) "/" (run) } { (run) } } } }
                }
            }
            @if !view.outputs.is_empty() {
                section.card {
                    header.head { h2 { "Outputs" } span.muted.small { "without sensitive ones" } }
                    dl.covers { @for output in &view.outputs { div { dt { (output.label) } dd { pre.value { (output.value) } } } } }
                }
            }
            @if !view.objects.is_empty() {
                section.card {
                    header.head { h2 { "Objects" } }
                    table.list {
                        thead { tr { th scope="col" { "Object" } th scope="col" { "Ready" } th scope="col" { "Reason" } } }
                        tbody {
                            @for object in &view.objects {
                                tr {
                                    td.first { span.muted { (object.kind) } " " (object.name) }
                                    td data-label="Ready" {
                                        @if object.ready { span.badge.good { "Ready" } } @else { span.badge.busy { "Not ready" } }
                                    }
                                    td data-label="Reason" { (object.message.as_deref().unwrap_or_default()) }
                                }
                            }
                        }
                    }
                }
            }
            @if !view.policy.is_empty() {
                section.card {
                    header.head { h2 { "Policy" } }
                    dl.covers { @for fact in &view.policy { div { dt { (fact.label) } dd { (fact.value) } } } }
                }
            }
            @if !view.runs.is_empty() {
                section.card { header.head { h2 { "Runs" } } (rows(ListKind::Runs, &view.runs)) }
            } @else if view.kind != "Atom" {
                section.card.centre { p.muted { "No runs yet." } }
            }
        },
    )
}

fn entry(fact: &Fact) -> Markup {
    html! {
        div {
            dt { (fact.label) }
            dd title=(fact.value) { @if let Some(href) = &fact.href { a href=(href) { (fact.value) } } @else { (fact.value) } }
        }
    }
}
