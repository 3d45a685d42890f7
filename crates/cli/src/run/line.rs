//! The live status line that shows what a run is waiting for.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::visible_line;
use crate::style;

/// Shorter waits are not worth a line in a log.
const WORTH_SAYING: Duration = Duration::from_secs(2);

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
            self.bar.get_or_insert_with(bar).set_message(visible_line(text));
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

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let template = if style::stderr_is_coloured() { "{spinner:.cyan} {wide_msg}" } else { "{spinner} {wide_msg}" };
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
    fn a_text_with_an_age_was_never_printed() {
        let at =
            |age: &str| without_numbers(&format!("net-apply-x: waiting in the queue behind `y` (started {age} ago)"));
        assert_eq!(at("3s"), at("4s"));
        assert_ne!(at("3s"), without_numbers("net-apply-x: starting"));
    }
}
