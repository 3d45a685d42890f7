//! Makes text of others harmless in a terminal and in a browser.
//!
//! *Guarantee.* No text that passes through here moves the cursor, changes a colour, hides a part of a line or changes the
//! order in which it is read, and nothing of it is left out. What passes twice is as it was after the first time. Arguments
//! of Runs, addresses of resources, messages and names come from users and from modules, and an approver decides by what
//! the terminal or the page shows.

use std::fmt::Write;

/// The text with every character written out that a terminal does not show as itself. Line breaks and tabs stay.
#[must_use]
pub fn visible(text: &str) -> String {
    written_out(text, |c| matches!(c, '\n' | '\t'))
}

/// The same for a text that is one line: its line breaks and tabs are written out, too.
#[must_use]
pub fn visible_line(text: &str) -> String {
    written_out(text, |_| false)
}

fn written_out(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if stays(c) => out.push(c),
            '\n' | '\r' | '\t' => out.extend(c.escape_default()),
            c if is_invisible(c) => {
                let _ = write!(out, "{}", c.escape_unicode());
            }
            c => out.push(c),
        }
    }
    out
}

/// Whether a character controls a terminal, reorders the text around it, or is not shown at all.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    let is_mark = matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0e}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    c.is_control() || is_mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_controls_the_terminal() {
        let text = "a\u{1b}[2K\u{1b}[1Ab\r\u{7}\u{9b}8m\u{202e}c\u{200b}d\n\te\u{fc}";
        let shown = "a\\u{1b}[2K\\u{1b}[1Ab\\r\\u{7}\\u{9b}8m\\u{202e}c\\u{200b}d";
        assert_eq!(visible(text), format!("{shown}\n\te\u{fc}"));
        assert_eq!(visible_line(text), format!("{shown}\\n\\te\u{fc}"));
        assert_eq!(visible(&visible(text)), visible(text));
    }

    /// The page and the command line had a list each.
    #[test]
    fn marks_of_direction_and_tags_were_shown_as_they_are() {
        for mark in
            ['\u{61c}', '\u{200d}', '\u{2028}', '\u{202e}', '\u{2066}', '\u{206a}', '\u{e0041}', '\u{ad}', '\u{3164}']
        {
            assert_eq!(visible(&mark.to_string()), mark.escape_unicode().to_string());
        }
        assert_eq!(visible("\u{26a0}\u{fe0f} \u{e9} \u{5e9}"), "\u{26a0}\u{fe0f} \u{e9} \u{5e9}");
    }
}
