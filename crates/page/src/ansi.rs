//! The colours of a terminal as classes of a style sheet: for logs, and not for anything that is decided on. Pure.
//!
//! *Guarantee.* The text of a [`Span`] has no control character and no mark of text direction, and its class is one of
//! those that the style sheet knows. Every other escape sequence is left out: none moves a cursor, and none is shown as
//! text.

use knoll_core::visible::is_invisible;
use schemars::JsonSchema;
use serde::Serialize;

/// A longer line is cut; the download has all of it.
pub const LONGEST_LINE: usize = 4000;

/// A piece of a line in one style.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Span {
    /// Classes of the style sheet; empty for plain text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    pub text: String,
}

/// The style that is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Style {
    /// An index of [`COLOURS`].
    colour: Option<u8>,
    bold: bool,
    dim: bool,
    underline: bool,
}

const COLOURS: [&str; 16] = [
    "a-black",
    "a-red",
    "a-green",
    "a-yellow",
    "a-blue",
    "a-magenta",
    "a-cyan",
    "a-white",
    "a-grey",
    "a-red",
    "a-green",
    "a-yellow",
    "a-blue",
    "a-magenta",
    "a-cyan",
    "a-white",
];

impl Style {
    fn class(self) -> String {
        let colour = self.colour.and_then(|colour| COLOURS.get(usize::from(colour)).copied());
        let words =
            [colour, self.bold.then_some("a-bold"), self.dim.then_some("a-dim"), self.underline.then_some("a-line")];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// Applies the parameters of a colour sequence.
    fn apply(&mut self, parameters: &str) {
        let mut codes = parameters.split([';', ':']).map(|code| code.parse::<u16>().unwrap_or_default());
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Style::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                4 => self.underline = true,
                22 => (self.bold, self.dim) = (false, false),
                24 => self.underline = false,
                30..=37 => self.colour = u8::try_from(code - 30).ok(),
                90..=97 => self.colour = u8::try_from(code - 90 + 8).ok(),
                39 => self.colour = None,
                // A colour of 256 or of three parts has parameters of its own; of the first kind, 16 are known here.
                38 | 48 => match codes.next() {
                    Some(5) => {
                        let colour = codes.next().and_then(|colour| u8::try_from(colour).ok());
                        if code == 38 {
                            self.colour = colour.filter(|colour| *colour < 16);
                        }
                    }
                    Some(2) => drop(codes.by_ref().take(3).count()),
                    _ => {}
                },
                _ => {}
            }
        }
    }
}

/// The spans of one line. What a program overwrote after a carriage return is left out, as a terminal shows it.
#[must_use]
pub fn spans(line: &str) -> Vec<Span> {
    let line = line.trim_end_matches(['\r', '\n']);
    let line = line.rsplit('\r').find(|piece| !piece.is_empty()).unwrap_or_default();
    let mut spans: Vec<Span> = Vec::new();
    let (mut style, mut count) = (Style::default(), 0);
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' || c == '\u{9b}' {
            if let Some(parameters) = sequence(c, &mut rest) {
                style.apply(&parameters);
            }
            continue;
        }
        let Some(text) = shown(c) else { continue };
        if count == LONGEST_LINE {
            let text = " ... the line goes on: download the log to see all of it".to_owned();
            spans.push(Span { class: "a-dim".to_owned(), text });
            return spans;
        }
        count += 1;
        let class = style.class();
        match spans.last_mut().filter(|span| span.class == class) {
            Some(span) => span.text.push_str(&text),
            None => spans.push(Span { class, text }),
        }
    }
    spans
}

/// A character of a log as it is shown; `None` for one that is left out.
fn shown(c: char) -> Option<String> {
    match c {
        '\t' => Some("    ".to_owned()),
        c if c.is_control() => None,
        // Marks of text direction reorder what is shown, and others are not shown at all.
        c if is_invisible(c) => Some(c.escape_unicode().to_string()),
        c => Some(c.to_string()),
    }
}

/// Reads an escape sequence to its end. Returns the parameters of one that sets colours.
fn sequence(first: char, rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    let kind = if first == '\u{9b}' { Some('[') } else { rest.next() };
    match kind {
        Some('[') => {
            let mut parameters = String::new();
            for c in rest.by_ref() {
                match c {
                    '\u{40}'..='\u{7e}' => return (c == 'm').then_some(parameters),
                    c => parameters.push(c),
                }
            }
            None
        }
        // A string, such as the address of a link or a title, ends with BEL or ESC \.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(c) = rest.next() {
                if c == '\u{7}' || c == '\u{9c}' {
                    break;
                }
                if c == '\u{1b}' {
                    rest.next_if_eq(&'\\');
                    break;
                }
            }
            None
        }
        Some('(' | ')' | '#' | ' ') => {
            rest.next();
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expect: &[(&str, &str)]) {
        let found: Vec<_> = spans(line).into_iter().map(|span| (span.class, span.text)).collect();
        let expect: Vec<_> = expect.iter().map(|(class, text)| ((*class).to_owned(), (*text).to_owned())).collect();
        assert_eq!(found, expect, "{line:?}");
    }

    #[test]
    fn colours_become_classes() {
        check(
            "\u{1b}[0m\u{1b}[1m\u{1b}[32mApply complete!\u{1b}[0m done",
            &[("a-green a-bold", "Apply complete!"), ("", " done")],
        );
        check("\u{1b}[38;5;9mred\u{1b}[39m \u{1b}[38;2;1;2;3mplain", &[("a-red", "red"), ("", " plain")]);
        check("\u{1b}[38;5;200mx\u{1b}[48;5;1my", &[("", "xy")]);
        check("\u{1b}[90mgrey", &[("a-grey", "grey")]);
    }

    #[test]
    fn nothing_but_colours_is_left_of_escape_sequences() {
        check("a\u{1b}[2Kb\u{1b}[1Ac\u{1b}[?25ld", &[("", "abcd")]);
        check("\u{1b}]8;;https://evil.example\u{7}link\u{1b}]8;;\u{1b}\\ end", &[("", "link end")]);
        check("\u{1b}]0;title", &[]);
        check("\u{1b}[31", &[]);
        check("a\u{0}b\u{7}c\u{8}d", &[("", "abcd")]);
        check("\u{202e}gpj.exe", &[("", "\\u{202e}gpj.exe")]);
    }

    #[test]
    fn a_carriage_return_shows_what_was_written_last() {
        check("10%\r50%\r100%\r\n", &[("", "100%")]);
        check("<script>alert(1)</script>", &[("", "<script>alert(1)</script>")]);
    }

    #[test]
    fn a_line_is_never_too_long() {
        let spans = spans(&"x".repeat(10 << 20));
        let shown: usize = spans.iter().map(|span| span.text.len()).sum();
        assert!(shown < LONGEST_LINE + 100, "{shown}");
    }
}
