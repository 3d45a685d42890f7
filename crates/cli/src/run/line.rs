//! The live status line that shows what a run is waiting for.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::visible_line;
use crate::style;

/// Shorter waits are not worth a line in a log.
const WORTH_SAYING: Duration = Duration::from_secs(2);

/// What stands below the spinner and its blank.
const INDENT: &str = "  ";

/// The fewest columns that a line is wrapped to.
const NARROWEST: usize = 20;

/// A status line on standard error: live on a terminal, one line per change otherwise.
pub struct Line {
    bar: Option<ProgressBar>,
    live: bool,
    /// The last text, without its numbers.
    last: String,
    /// When the text last changed, if it was not printed since.
    since: Option<Instant>,
}

impl Line {
    pub fn new() -> Self {
        Line { bar: None, live: std::io::stderr().is_terminal(), last: String::new(), since: None }
    }

    /// Shows why the run is waiting.
    pub fn say(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let reason = without_numbers(text);
        if reason != self.last {
            self.last = reason;
            self.since = Some(Instant::now());
        }
        if self.live {
            let (columns, _) = super::screen_size();
            self.bar.get_or_insert_with(bar).set_message(wrapped(&visible_line(text), usize::from(columns)));
        } else if self.since.is_some_and(|since| since.elapsed() > WORTH_SAYING) {
            self.since = None;
            style::note(text);
        }
    }

    /// Prints a line that stays on the screen.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| style::note(text)),
            None => style::note(text),
        }
    }

    /// Removes the line from the screen.
    pub fn clear(&mut self) {
        self.last.clear();
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Ages and positions change all the time, and are not worth a line each.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// The text in lines that fit into a terminal, which would cut them off. A word that is too long keeps a line of its own.
fn wrapped(text: &str, columns: usize) -> String {
    let room = columns.saturating_sub(INDENT.len() + 1).max(NARROWEST);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join(&format!("\n{INDENT}"))
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let template = if style::stderr_is_coloured() { "{spinner:.cyan} {msg}" } else { "{spinner} {msg}" };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_line_was_cut_where_it_says_who_is_ahead() {
        let text = "net-apply-2: position 1 in the queue of `net`; `a` is running (started by ann, 20m ago)";
        let expect = "net-apply-2: position 1 in the queue of\n  `net`; `a` is running (started by ann,\n  20m ago)";
        assert_eq!(wrapped(text, 43), expect);
        assert_eq!(wrapped(text, 200), text);
        assert_eq!(
            wrapped("one `a-name-that-is-longer-than-the-line` two", 3),
            "one\n  `a-name-that-is-longer-than-the-line`\n  two"
        );
    }

    #[test]
    fn a_text_with_an_age_was_never_printed() {
        let at =
            |age: &str| without_numbers(&format!("net-apply-x: waiting in the queue behind `y` (started {age} ago)"));
        assert_eq!(at("3s"), at("4s"));
        assert_ne!(at("3s"), without_numbers("net-apply-x: starting"));
    }
}
