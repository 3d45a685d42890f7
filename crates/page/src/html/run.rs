//! The page of a Run.

use maud::{Markup, html};

use super::layout::{self, Frame};
use super::pieces;
use crate::logs::{LogLine, LogSection, LogView};
use crate::view::run::{ApprovalView, FailureView, QueueView, RunView, StepView};

pub fn page(frame: &Frame, view: &RunView, log: &LogView, problem: Option<&str>) -> Markup {
    let path = format!("/runs/{}/{}", view.namespace, view.name);
    let from = format!("{}:{}", log.offset, log.lines);
    let events = (!view.finished).then(|| format!("{path}/events?from={from}"));
    layout::framed(
        frame,
        &html! {
            div id="live" data-events=[events] { (live(view, &frame.csrf)) }
            section.card.log {
                header.head {
                    h2 { "Log" }
                    span.tools {
                        button.quiet id="follow" type="button" aria-pressed="true" hidden { "Follow" }
                        a.button.quiet href={ (path) "/log" } { "Download" }
                    }
                }
                @if let Some(problem) = problem { p.notice.bad { (pieces::prose(problem)) } }
                div id="log" {
                    @for section in &log.sections { (fold(section, view)) }
                    @if log.sections.is_empty() && problem.is_none() {
                        p.empty.muted id="nolog" { @if view.finished { "This run has printed nothing." } @else { "Nothing was printed yet." } }
                    }
                }
            }
        },
    )
}

/// The top of the page, which changes while the run goes on.
pub fn live(view: &RunView, csrf: &str) -> Markup {
    let path = format!("/runs/{}/{}", view.namespace, view.name);
    html! {
        header.title {
            p.crumbs {
                a href={ "/runs?namespace=" (view.namespace) } { "Runs" } " / " (view.namespace)
                " / " a href={ "/workspaces/" (view.namespace) "/" (view.workspace) } { (view.workspace) }
            }
            div.head {
                h1 title=(view.name) { (view.name) }
                (pieces::badge(&view.status))
                span.tools {
                    @if view.plan.is_some_and(|plan| plan.changes) && !view.in_review { a.button href={ (path) "/plan" } { "Plan" } }
                    @if view.may_cancel {
                        form method="post" action={ (path) "/cancel" } {
                            input type="hidden" name="csrf" value=(csrf);
                            button.danger type="submit" { "Cancel run" }
                        }
                    }
                }
            }
            dl.facts {
                div { dt { "Command" } dd { code title=(view.words) { (view.words) } } }
                @if let Some(stack) = &view.stack { div { dt { "Stack" } dd { a href={ "/stacks/" (view.namespace) "/" (stack) } { (stack) } } } }
                @if let Some(by) = &view.requested_by { div { dt { "By" } dd title=(by) { (by) } } }
                @if let Some(created) = &view.created { div { dt { "Created" } dd { (pieces::ago(created)) } } }
                @if !view.took.is_empty() { div { dt { "Time" } dd { (view.took) } } }
                @if let Some(code) = view.exit_code { div { dt { "Exit code" } dd { (code) } } }
                @if let Some(plan) = &view.plan { div { dt { "Plan" } dd { (pieces::counts(plan)) } } }
            }
        }
        @if let Some(failure) = &view.failure { (why(failure)) }
        @if let Some(queue) = &view.queue { (waits(view, queue)) }
        @if view.in_review { (review(view, &path)) }
        @else if !view.finished && view.queue.is_none() {
            @if let Some(message) = &view.message { p.notice.busy role="status" { (pieces::prose(message)) } }
        }
        @if !view.undeclared_variables.is_empty() {
            p.notice.waits { "The module does not declare " (view.undeclared_variables.join(", ")) "; the values have no effect." }
        }
        @if !view.decisions.is_empty() { section.card { header.head { h2 { "Decisions" } } (decisions(&view.decisions)) } }
        @if !view.steps.is_empty() { section.card { header.head { h2 { "Steps" } } (timeline(&view.steps)) } }
    }
}

fn why(failure: &FailureView) -> Markup {
    html! {
        section.notice.bad role="alert" {
            h2 {
                (failure.reason)
                @if let Some(step) = &failure.step { " in step " a href={ "#step-" (step) } { (step) } }
            }
            p.wrap { (pieces::prose(&failure.message)) }
        }
    }
}

fn waits(view: &RunView, queue: &QueueView) -> Markup {
    let path = |run: &str| format!("/runs/{}/{run}", view.namespace);
    html! {
        section.notice.quiet role="status" {
            h2 { "Position " (queue.position) " in the queue" }
            p {
                @if let Some(holder) = &queue.holder {
                    a href=(path(holder)) { (holder) } " holds the lock of " code { (view.workspace) }
                    @if let Some(by) = &queue.holder_requested_by { ", started by " (by) }
                    @if let Some(since) = &queue.holder_since { ", " (pieces::ago(since)) }
                    "."
                } @else { "Waiting for the lock of " code { (view.workspace) } "." }
            }
            @if !queue.ahead.is_empty() {
                p { "Before it: " @for run in &queue.ahead { a href=(path(run)) { (run) } " " } }
            }
        }
    }
}

fn review(view: &RunView, path: &str) -> Markup {
    html! {
        section.notice.waits role="status" {
            div.head {
                div {
                    h2 { "The plan waits for a decision" }
                    @if let Some(plan) = &view.plan { p { (pieces::counts(plan)) } }
                }
                a.button.primary href={ (path) "/plan" } { @if view.may_decide { "Review plan" } @else { "See plan" } }
            }
        }
    }
}

/// Who decided, when and why.
pub fn decisions(all: &[ApprovalView]) -> Markup {
    html! {
        ul.decisions {
            @for one in all {
                li {
                    strong title=(one.by) { (one.by) } " "
                    @if one.decision == "Approve" { "approved" } @else { "discarded" }
                    @if let Some(at) = &one.at { " " span.muted { (pieces::ago(at)) } }
                    " " (pieces::badge(&one.effect))
                    @if let Some(comment) = &one.comment { blockquote.wrap { (comment) } }
                    @if let Some(message) = &one.message { p.muted.small { (pieces::prose(message)) } }
                }
            }
        }
    }
}

fn timeline(steps: &[StepView]) -> Markup {
    html! {
        ol.timeline {
            @for step in steps {
                li class=(step.status.tone.class()) {
                    a.step href={ "#step-" (step.name) } { (step.name) }
                    span.sr { (step.status.text) }
                    progress.share max="100" value=(step.share.max(1)) aria-hidden="true" {}
                    span.took { (step.took) }
                    span.detail {
                        @if step.attempts > 1 { span.muted { (step.attempts) " attempts" } " " }
                        @if let Some(code) = step.exit_code.filter(|code| *code != 0) { span.muted { "exit " (code) } " " }
                        @if let Some(message) = &step.message { span.text title=(message) { (pieces::prose(message)) } }
                    }
                }
            }
        }
    }
}

/// The log of one step. That of a failed step, of the last one, and of the work itself is open.
fn fold(section: &LogSection, view: &RunView) -> Markup {
    let step = view.steps.iter().find(|step| step.name == section.step);
    let is_last = view.steps.iter().rev().map(|step| step.name.as_str()).find(|name| *name != "outputs");
    let failed = step.is_some_and(|step| step.exit_code.is_some_and(|code| code != 0));
    let open = failed || is_last == Some(section.step.as_str()) || matches!(section.step.as_str(), "apply" | "command");
    html! {
        details.step id={ "step-" (section.step) } data-step=(section.step) open[open] {
            summary {
                span { (section.step) }
                @if let Some(step) = step { span.muted { (step.took) } }
            }
            @if section.omitted > 0 { p.omitted.muted { (section.omitted) " earlier lines are in the download." } }
            ol.lines { (lines(&section.lines)) }
        }
    }
}

/// Lines of a log. Their numbers are links, made by the style sheet.
pub fn lines(lines: &[LogLine]) -> Markup {
    html! {
        @for line in lines {
            li id={ "L" (line.number) } value=(line.number) { (pieces::spans(&line.spans)) }
        }
    }
}
