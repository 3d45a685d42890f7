//! The page of a plan, and the form with which a user decides on it.

use maud::{Markup, html};

use super::layout::{self, Frame};
use super::{pieces, run};
use crate::plan_blocks::{PlanLine, PlanMark};
use crate::view::plan::{ChangeGroup, ChangeView, PlanView};

/// Resources of a group that are open: more are folded, so that a plan with thousands of changes can be looked over.
const OPEN: usize = 20;

pub fn page(frame: &Frame, view: &PlanView) -> Markup {
    let run = &view.run;
    let path = format!("/runs/{}/{}", run.namespace, run.name);
    layout::framed(
        frame,
        &html! {
            header.title {
                p.crumbs {
                    a href={ "/runs?namespace=" (run.namespace) } { "Runs" } " / " (run.namespace) " / "
                    a href=(path) title=(run.name) { (run.name) } " / Plan"
                }
                div.head {
                    h1 { "Plan" }
                    (pieces::badge(&run.status))
                    @if let Some(counts) = &view.counts { (pieces::counts(counts)) }
                }
                p.muted {
                    code.wrap { (run.words) } " in workspace "
                    a href={ "/workspaces/" (run.namespace) "/" (run.workspace) } { (run.workspace) }
                    @if let Some(by) = &run.requested_by { ", asked for by " strong { (by) } }
                }
            }
            @if let Some(problem) = &view.problem {
                section.notice.bad role="alert" {
                    h2 { "terraform's text of the plan cannot be shown whole" }
                    p { (pieces::prose(problem)) ". On this page the plan can be discarded, and not approved." }
                }
            }
            @if view.groups.is_empty() && view.rest.is_empty() && view.problem.is_none() {
                section.card.centre {
                    @if view.counts.is_none() && view.digest.is_some() { p.big { "A command has no plan." } p.muted { "The decision is on its words, below." } }
                    @else if view.counts.is_none() { p.big { "There is no plan yet." } }
                    @else if view.counts.is_some_and(|counts| counts.changes) { p.big { "Only output values change." } }
                    @else { p.big { "No changes." } p.muted { "The infrastructure is as the module declares it." } }
                }
            }
            @for found in &view.groups { (group(found)) }
            @if view.omitted > 0 && view.problem.is_some() { p.muted { "And " (view.omitted) " more changes." } }
            @if !view.rest.is_empty() { section.card { header.head { h2 { "Outputs and summary" } } (diff(&view.rest)) } }
            @if !run.decisions.is_empty() { section.card { header.head { h2 { "Decisions" } } (run::decisions(&run.decisions)) } }
            @if let Some(digest) = &view.digest { (decide(frame, view, digest, &path)) }
            @else if !view.covers.is_empty() { section.card { header.head { h2 { "What the decision covered" } } (covers(view)) } }
        },
    )
}

fn group(group: &ChangeGroup) -> Markup {
    html! {
        section.card.changes.(group.tone.class()) {
            header.head {
                h2 { span.symbol aria-hidden="true" { (group.symbol) } " " (group.title) " " span.muted.count { (group.resources.len()) } }
            }
            @for (number, change) in group.resources.iter().enumerate() { (resource(change, number < OPEN)) }
        }
    }
}

fn resource(change: &ChangeView, open: bool) -> Markup {
    let short = change.module.as_ref().and_then(|module| change.address.strip_prefix(&format!("{module}.")));
    let heading = html! {
        span.address title=(change.address) {
            @if let Some(module) = &change.module { span.module { (module) "." } }
            (short.unwrap_or(&change.address))
        }
        @if !change.sentence.is_empty() { " " span.muted.sentence { (change.sentence) } }
    };
    html! {
        @if change.lines.is_empty() {
            div.resource {
                (heading)
                @if !change.attributes.is_empty() { p.muted.small { "Changes: " (change.attributes.join(", ")) } }
            }
        } @else {
            details.resource open[open] { summary { (heading) } (diff(&change.lines)) }
        }
    }
}

fn diff(lines: &[PlanLine]) -> Markup {
    html! {
        pre.diff tabindex="0" role="region" aria-label="Changes" {
            @for line in lines {
                span class=[class(line.mark)] { (line.text) "\n" }
            }
        }
    }
}

fn class(mark: PlanMark) -> Option<&'static str> {
    match mark {
        PlanMark::Add => Some("d-add"),
        PlanMark::Change => Some("d-change"),
        PlanMark::Remove => Some("d-remove"),
        PlanMark::Force => Some("d-force"),
        PlanMark::Note => Some("d-note"),
        PlanMark::None => None,
    }
}

fn covers(view: &PlanView) -> Markup {
    html! {
        dl.covers {
            @for field in &view.covers { div { dt { (field.label) } dd title=(field.value) { code { (field.value) } } } }
        }
    }
}

fn decide(frame: &Frame, view: &PlanView, digest: &str, path: &str) -> Markup {
    html! {
        section.card.decide {
            header.head { h2 { @if view.run.may_decide { "Your decision" } @else { "Waiting for a decision" } } }
            p { "What runs:" }
            pre.command.wrap { (view.run.words) }
            @if let Some(secret) = &view.run.input { p.muted { "Its variable files, values and piped input are in the Secret " code { (secret) } "." } }
            @if let Some(review) = &view.review { p.wrap { (pieces::prose(review)) } }
            @if view.run.may_decide {
                form method="post" action={ (path) "/decision" } {
                    input type="hidden" name="csrf" value=(frame.csrf);
                    input type="hidden" name="digest" value=(digest);
                    label.sr for="comment" { "Comment for the record" }
                    textarea id="comment" name="comment" rows="1" maxlength="4096" placeholder="Comment for the record (optional)" {}
                    div.actions {
                        @if view.problem.is_none() { button.primary type="submit" name="decision" value="Approve" { "Approve and apply" } }
                        button.danger type="submit" name="decision" value="Discard" { "Discard" }
                    }
                }
            } @else { p.muted { "You may not decide on plans in this namespace." } }
            details.covered {
                summary { "What the decision covers" }
                p.muted.small { "Exactly these bytes are applied, or nothing." }
                dl.covers { div { dt { "Digest" } dd title=(digest) { code { (digest) } } } }
                (covers(view))
            }
        }
    }
}
