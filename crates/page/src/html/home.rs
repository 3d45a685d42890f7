//! The first page.

use maud::{Markup, html};

use super::layout::{self, Frame};
use super::lists::rows;
use crate::view::home::HomeView;

pub fn page(frame: &Frame, view: &HomeView) -> Markup {
    let nothing = view.runs == 0 && view.stacks == 0;
    layout::framed(
        frame,
        &html! {
            h1 { "Home" }
            @if nothing { (welcome()) } @else {
                div.tiles {
                    @for section in &view.sections {
                        a.tile.zero[section.total == 0] href=(section.href) {
                            span.number { (section.total) } span.label { (section.title) }
                        }
                    }
                }
                @for section in &view.sections {
                    @if section.total > 0 {
                        section.card {
                            header.head {
                                h2 { (section.title) }
                                @if section.total > section.rows.len() { a href=(section.href) { "All " (section.total) } }
                            }
                            (rows(section.kind, &section.rows))
                        }
                    }
                }
                @if view.sections.iter().all(|section| section.total == 0) {
                    section.card.centre {
                        p.big { "All is well." }
                        p.muted { "No plan waits, nothing runs, no workspace's last run has failed, and no stack has drifted." }
                        p { a.button href="/runs" { "All " (view.runs) " runs" } " " a.button href="/stacks" { "All " (view.stacks) " stacks" } }
                    }
                }
            }
        },
    )
}

fn welcome() -> Markup {
    html! {
        section.card.centre {
            p.big { "Nothing here yet." }
            p.muted { "Start a run in the directory of a module:" }
            pre.command { "knoll workspace new dev\nknoll apply --approval manual" }
            p.muted { "It appears here, step by step, and its plan waits for your decision." }
        }
    }
}
