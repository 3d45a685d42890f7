//! The one live line that says what a run waits for.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::style;

/// What is over sooner needs no line of its own in a log.
const WORTH_SAYING: Duration = Duration::from_secs(2);

/// A line on standard error: live on a terminal, one line a change otherwise.
pub struct Line {
    bar: Option<ProgressBar>,
    last: String,
    /// Since when it is the same, and not printed yet.
    since: Option<Instant>,
}

impl Line {
    /// An empty line.
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let template =
                if style::stderr_is_coloured() { "{spinner:.cyan} {wide_msg}" } else { "{spinner} {wide_msg}" };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        Line { bar, last: String::new(), since: None }
    }

    /// Says why it waits.
    pub fn say(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if text != self.last {
            self.last = text.to_owned();
            self.since = Some(Instant::now());
        }
        match &self.bar {
            Some(bar) => {
                bar.enable_steady_tick(Duration::from_millis(120));
                bar.set_message(text.to_owned());
            }
            None if self.since.is_some_and(|since| since.elapsed() > WORTH_SAYING) => {
                self.since = None;
                style::note(text);
            }
            None => {}
        }
    }

    /// Says something that stays on the screen.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| style::note(text)),
            None => style::note(text),
        }
    }

    /// Takes the line off the screen.
    pub fn clear(&mut self) {
        self.last.clear();
        if let Some(bar) = &self.bar {
            bar.disable_steady_tick();
            bar.finish_and_clear();
            bar.reset();
        }
    }
}
