//! The dependencies of Stacks as a picture, and as a table for those who do not see it.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::layout::{self, Frame};
use super::pieces;
use crate::view::graph::{GraphNode, GraphView, MOST};

/// The size of a box, and the room between two.
const BOX: (usize, usize) = (200, 48);
const GAP: (usize, usize) = (72, 20);
/// Letters of a name that fit into a box.
const LETTERS: usize = 24;

pub fn page(frame: &Frame, view: &GraphView) -> Markup {
    layout::framed(
        frame,
        &html! {
            header.title {
                p.crumbs { a href={ "/stacks?namespace=" (view.namespace) } { "Stacks" } " / Dependencies" }
                h1 { "Dependencies" }
            }
            @if view.total == 0 {
                section.card.centre { p.big { "No stacks yet." } }
            } @else {
                @if view.total <= MOST { section.card.graph tabindex="0" role="region" aria-label="Picture of the dependencies" { (picture(view)) } }
                section.card {
                    table.list {
                        thead { tr { th scope="col" { "Stack" } th scope="col" { "Status" } th scope="col" { "Waits for" } } }
                        tbody {
                            @for node in view.layers.iter().flatten().filter(|node| node.exists) {
                                tr {
                                    td.first { (pieces::link(&path(node), &node.name)) span.place { (node.namespace) } }
                                    td data-label="Status" { (pieces::badge(&node.status)) }
                                    td data-label="Waits for" { (node.needs.join(", ")) }
                                }
                            }
                        }
                    }
                }
            }
        },
    )
}

fn path(node: &GraphNode) -> String {
    format!("/stacks/{}/{}", node.namespace, node.name)
}

fn picture(view: &GraphView) -> Markup {
    let mut places: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    for (column, layer) in view.layers.iter().enumerate() {
        for (row, node) in layer.iter().enumerate() {
            places.insert((&node.namespace, &node.name), (column * (BOX.0 + GAP.0) + 4, row * (BOX.1 + GAP.1) + 4));
        }
    }
    let rows = view.layers.iter().map(Vec::len).max().unwrap_or_default();
    let (width, height) = (view.layers.len() * (BOX.0 + GAP.0) - GAP.0 + 8, rows * (BOX.1 + GAP.1) - GAP.1 + 8);
    let place =
        |node: &GraphNode, name: &str| places.get(&(node.namespace.as_str(), name)).copied().unwrap_or_default();
    let line = |(x, y): (usize, usize), (to_x, to_y): (usize, usize)| {
        let (x, y, to_y) = (x + BOX.0, y + BOX.1 / 2, to_y + BOX.1 / 2);
        let middle = (x + to_x) / 2;
        format!("M{x} {y} C{middle} {y} {middle} {to_y} {to_x} {to_y}")
    };
    html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height) viewBox=(format!("0 0 {width} {height}")) role="img" aria-label="What waits for what; the table below has the same" {
            @for node in view.layers.iter().flatten() {
                @for needed in &node.needs { path.edge d=(line(place(node, needed), place(node, &node.name))) {} }
            }
            @for node in view.layers.iter().flatten() {
                @let (x, y) = place(node, &node.name);
                a href=(path(node)) {
                    title { (node.namespace) "/" (node.name) ": " (node.status.text) }
                    rect.node x=(x) y=(y) width=(BOX.0) height=(BOX.1) rx="8" {}
                    circle.dot.(node.status.tone.class()) cx=(x + 16) cy=(y + 18) r="5" {}
                    text.label x=(x + 30) y=(y + 22) { (short(&node.name)) }
                    text.note x=(x + 30) y=(y + 38) { (short(&node.status.text)) }
                }
            }
        }
    }
}

fn short(text: &str) -> String {
    if text.chars().count() <= LETTERS {
        return text.to_owned();
    }
    text.chars().take(LETTERS - 1).chain(['\u{2026}']).collect()
}
