//! Summarizes a plan with terraform's symbols. Pure.

use std::fmt::Write;

use knoll_api::run::{ChangeAction, PlanSummary};
use owo_colors::{OwoColorize, Style};

use crate::output::visible_line;

/// One line per resource, then the counts.
pub fn changes(plan: &PlanSummary, colour: bool) -> String {
    let mut out = String::new();
    for change in &plan.resources {
        let (sign, style, what) = symbol(change.action);
        let line = format!("{sign:>3} {}", visible_line(&change.address));
        let line = if colour { line.style(style).to_string() } else { line };
        let _ = writeln!(out, "{line} ({what})");
    }
    if plan.omitted > 0 {
        let _ = writeln!(out, "    and {} more", plan.omitted);
    }
    let _ = if !plan.changes {
        writeln!(out, "No changes.")
    } else if plan.add + plan.change + plan.destroy == 0 && plan.resources.is_empty() {
        writeln!(out, "Only output values change.")
    } else {
        writeln!(out, "{}.", plan.counts())
    };
    out
}

fn symbol(action: ChangeAction) -> (&'static str, Style, &'static str) {
    match action {
        ChangeAction::Create => ("+", Style::new().green(), "create"),
        ChangeAction::Update => ("~", Style::new().yellow(), "change"),
        ChangeAction::Delete => ("-", Style::new().red(), "destroy"),
        ChangeAction::Replace => ("-/+", Style::new().red(), "replace"),
        ChangeAction::Read => ("<=", Style::new().cyan(), "read"),
        ChangeAction::Import => ("<+", Style::new().green(), "import"),
        ChangeAction::Move => ("->", Style::new(), "move"),
        ChangeAction::Forget => (".", Style::new(), "forget"),
        ChangeAction::Invoke => ("!", Style::new().yellow(), "invoke"),
        ChangeAction::Unknown => ("?", Style::new().red(), "unknown, counted as destroy"),
    }
}

#[cfg(test)]
mod tests {
    use knoll_api::run::ResourceChange;

    use super::*;

    #[test]
    fn changes_are_listed_and_counted() {
        let change =
            |address: &str, action| ResourceChange { address: address.into(), action, ..ResourceChange::default() };
        let plan = PlanSummary {
            add: 2,
            destroy: 1,
            changes: true,
            resources: vec![change("a.b", ChangeAction::Create), change("a.c", ChangeAction::Replace)],
            omitted: 3,
            ..PlanSummary::default()
        };
        let expect = "  + a.b (create)\n-/+ a.c (replace)\n    and 3 more\n2 to add, 0 to change, 1 to destroy.\n";
        assert_eq!(changes(&plan, false), expect);
        assert_eq!(changes(&PlanSummary::default(), false), "No changes.\n");
        let outputs = PlanSummary { changes: true, ..PlanSummary::default() };
        assert_eq!(changes(&outputs, false), "Only output values change.\n");
    }
}
