//! Terraform's rendering of a run's plan.
//!
//! *Guarantee.* The text of a plan that is or was reviewed is the one whose digest is in the status and is part of the
//! review digest. Nothing in it can move the cursor of a terminal or hide a line.

use std::fmt::Write;

use knoll_api::Run;
use knoll_api::step::StepName;
use knoll_storage::{LogRange, PlanTextError};
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
    let status = run.status.as_ref();
    let Some(plan) = status.and_then(|status| status.plan.as_ref()).filter(|plan| plan.changes) else {
        return Ok(None);
    };
    let is_reviewed = status.is_some_and(|status| status.review_digest.is_some() || status.decision.is_some());
    let text = if is_reviewed || plan.text_digest.is_some() {
        session.storage().plan_texts().get(run).await?
    } else {
        match printed(session, run).await {
            Some(text) => text,
            None => return Ok(None),
        }
    };
    let text = shown(without_preamble(&text), style::stdout_is_coloured());
    Ok((!text.is_empty()).then(|| format!("{text}\n")))
}

/// What an approver or a reader of a run reads in place of a text that cannot be shown.
pub fn refusal(run: &Run, error: &PlanTextError) -> String {
    format!("the plan of run `{}` cannot be shown: {error}", run.name_any())
}

/// The plan in the output of a plan step that nobody reviews, without refresh messages before it and the notice of the
/// saved plan after it. None when it is not stored or may not be read.
async fn printed(session: &Session, run: &Run) -> Option<String> {
    let range = LogRange::of_step(run, StepName::Plan)?;
    let log = session.storage().logs().read(run, range).await.ok()?;
    let text = plain(&String::from_utf8_lossy(&log));
    let begin = PREAMBLES.iter().find_map(|words| text.find(words)).unwrap_or_default();
    let end = text[begin..].find("\u{2500}\u{2500}\u{2500}").map_or(text.len(), |at| begin + at);
    Some(text[begin..end].to_owned())
}

/// The words with which terraform and tofu begin the legend of a plan.
const PREAMBLES: [&str; 2] = ["Terraform used the selected", "OpenTofu used the selected"];

/// A plan without the legend of its symbols. The legend is terraform's own, so it is left out only at the very beginning,
/// where nothing of the module can precede it.
fn without_preamble(text: &str) -> &str {
    let text = text.trim_matches('\n').trim_end();
    if !PREAMBLES.iter().any(|words| text.starts_with(words)) {
        return text;
    }
    let rest = text.split_once(" will perform the following actions:\n").map_or(text, |(_, rest)| rest);
    rest.trim_start_matches('\n')
}

/// The text with every control character written out, and coloured by the symbols at the beginning of its lines.
fn shown(text: &str, colour: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let visible = visible(&line.replace('\r', ""));
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

/// Removes terminal escape sequences.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // An escape sequence ends with its first letter.
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else if c != '\r' {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_legend_at_the_beginning_is_left_out() {
        let legend = "\nTerraform used the selected providers to generate the following execution\nplan.\n  + create\n\n\
                      Terraform will perform the following actions:\n";
        let plan = "  # a.b will be created\n\nPlan: 1 to add.";
        assert_eq!(without_preamble(&format!("{legend}\n{plan}\n")), plan);
        // A module's own words do not hide what precedes them.
        let forged = format!("  # a.a will be destroyed\n{legend}\n{plan}");
        assert_eq!(without_preamble(&forged), forged.trim_matches('\n'));
        assert_eq!(without_preamble("No changes.\n"), "No changes.");
    }

    #[test]
    fn no_value_of_a_module_controls_the_terminal() {
        let text = "  - a\u{1b}[1A\u{1b}[2K = \"x\"\r\n  \u{202e}b\u{7}\n";
        assert_eq!(shown(text, false), "  - a\\u{1b}[1A\\u{1b}[2K = \"x\"\n  \\u{202e}b\\u{7}");
        assert_eq!(shown("  + a", true), "\u{1b}[32m  + a\u{1b}[0m");
        assert_eq!(plain("\u{1b}[1mbold\u{1b}[0m"), "bold");
    }
}
