//! Terraform's rendering of a run's plan.
//!
//! *Guarantee.* The text of a plan that is or was reviewed is the one whose digest is in the status and is part of the
//! review digest. Nothing in it can move the cursor of a terminal or hide a line.

use std::fmt::Write;

use knoll_api::Run;
use knoll_storage::PlanTextError;
use kube::ResourceExt;
use owo_colors::{OwoColorize, Style};

use crate::output::visible;
use crate::style;
use crate::workspace::Session;

/// The text of the plan; none for a run without a plan, or with one that changes nothing.
///
/// # Errors
/// If the run is reviewed, and its text is missing or is not the one that the decision covers.
pub async fn read(session: &Session, run: &Run) -> Result<Option<String>, PlanTextError> {
    let text = session.storage().plan_texts().of(run).await?;
    let text = text.map(|text| shown(&text, style::stdout_is_coloured())).filter(|text| !text.is_empty());
    Ok(text.map(|text| format!("{text}\n")))
}

/// What an approver or a reader of a run reads in place of a text that cannot be shown.
pub fn refusal(run: &Run, error: &PlanTextError) -> String {
    format!("the plan of run `{}` cannot be shown: {error}", run.name_any())
}

/// The text with every control character written out, and coloured by the symbols at the beginning of its lines.
fn shown(text: &str, colour: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let visible = visible(line);
        let style = match visible.trim_start() {
            rest if rest.starts_with("-/+") || rest.starts_with("+/-") || rest.starts_with("- ") => Style::new().red(),
            rest if rest.starts_with("+ ") => Style::new().green(),
            rest if rest.starts_with("~ ") => Style::new().yellow(),
            rest if rest.starts_with("<= ") => Style::new().cyan(),
            rest if rest.starts_with("# ") => Style::new().bold(),
            _ => Style::new(),
        };
        let _ = if colour { writeln!(out, "{}", visible.style(style)) } else { writeln!(out, "{visible}") };
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_of_a_module_controls_the_terminal() {
        let text = "  - a\u{1b}[1A\u{1b}[2K = \"x\"\r\n  \u{202e}b\rc\u{7}\n";
        assert_eq!(shown(text, false), "  - a\\u{1b}[1A\\u{1b}[2K = \"x\"\n  \\u{202e}b\\rc\\u{7}");
        assert_eq!(shown("  + a", true), "\u{1b}[32m  + a\u{1b}[0m");
    }
}
