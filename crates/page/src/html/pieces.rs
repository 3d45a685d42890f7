//! Small things that many pages have.

use maud::{Markup, html};

use crate::ansi::Span;
use crate::view::shown::{Moment, PlanCounts, Status};

/// A status as a coloured word.
pub fn badge(status: &Status) -> Markup {
    html! { span class={ "badge " (status.tone.class()) } { (status.text) } }
}

/// How long ago something was, with the moment itself for the pointer.
pub fn ago(moment: &Moment) -> Markup {
    html! { time datetime=(moment.at) title=(moment.at) { (moment.age) " ago" } }
}

pub fn spans(spans: &[Span]) -> Markup {
    html! {
        @for span in spans {
            @if span.class.is_empty() { (span.text) } @else { span class=(span.class) { (span.text) } }
        }
    }
}

/// The counts of a plan with their signs.
pub fn counts(counts: &PlanCounts) -> Markup {
    html! {
        @if counts.changes {
            span.counts {
                span.add { "+" (counts.add) } " " span.change { "~" (counts.change) } " " span.remove { "\u{2212}" (counts.destroy) }
                span.sr { " (" (counts.add) " to add, " (counts.change) " to change, " (counts.destroy) " to destroy)" }
            }
        } @else { span.muted { "No changes" } }
    }
}

/// A text in which words between backticks are code.
pub fn prose(text: &str) -> Markup {
    html! {
        @for (number, piece) in text.split('`').enumerate() {
            @if number % 2 == 1 { code { (piece) } } @else { (piece) }
        }
    }
}

/// A name that is cut where there is no room; the pointer shows all of it.
pub fn link(href: &str, text: &str) -> Markup {
    html! { a.name href=(href) title=(text) { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let hostile = Span { class: String::new(), text: "<script>alert(1)</script>".to_owned() };
        let expect = "&lt;script&gt;alert(1)&lt;/script&gt;";
        assert_eq!(spans(&[hostile]).into_string(), expect);
        assert_eq!(prose("a `<b>` c").into_string(), "a <code>&lt;b&gt;</code> c");
        let status = Status::new("\"><img src=x>", crate::view::shown::Tone::Bad);
        assert!(!badge(&status).into_string().contains("<img"));
    }
}
