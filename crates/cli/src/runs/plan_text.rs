//! Extracts terraform's rendering of the plan from the log of a run.

use knoll_api::Run;
use knoll_api::step::StepName;
use knoll_storage::LogRange;
use kube::ResourceExt;

use crate::style;
use crate::workspace::Session;

/// The output of the plan step, or none when it is not stored or may not be read.
pub async fn read(session: &Session, run: &Run) -> Option<String> {
    let range = LogRange::of_step(run, StepName::Plan)?;
    let log = session.storage().logs().read(&session.namespace, &run.name_any(), range).await.ok()?;
    let text = String::from_utf8_lossy(&log).replace('\r', "");
    let text = if style::stdout_is_coloured() { text } else { plain(&text) };
    let text = relevant(&text);
    (!text.is_empty()).then(|| format!("{text}\n"))
}

/// The plan itself, without refresh messages before it and the saved-plan notice after it.
fn relevant(text: &str) -> &str {
    let begin = ["Terraform will perform", "OpenTofu will perform"].iter().find_map(|words| text.find(words));
    let text = begin.map_or(text, |at| text[at..].split_once('\n').map_or("", |(_, rest)| rest));
    let end = text.find("\u{2500}\u{2500}\u{2500}").unwrap_or(text.len());
    text[..end].trim_matches('\n').trim_end()
}

/// Removes terminal escape sequences.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // An escape sequence ends with its first letter.
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_plan_is_shown() {
        let text = "a: Refreshing state...\n\nTerraform will perform the following actions:\n\n  # a.b will be created\n\n\
                    Plan: 1 to add.\n\n\u{2500}\u{2500}\u{2500}\u{2500}\n\nSaved the plan to: x\n";
        assert_eq!(relevant(text), "  # a.b will be created\n\nPlan: 1 to add.");
        assert_eq!(relevant("No changes.\n"), "No changes.");
        assert_eq!(plain("\u{1b}[1mbold\u{1b}[0m"), "bold");
    }
}
