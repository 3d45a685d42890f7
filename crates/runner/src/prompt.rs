//! Recognises terraform's prompts and the counts of its plan in the output for a terminal. Pure.

use knoll_api::run::PlanSummary;

use crate::console::plain;

/// The end of every prompt of terraform.
const PROMPT: &str = "Enter a value:";
/// A longer line is neither a prompt nor a count.
const LONGEST: usize = 4096;

/// What the output shows so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Counts the chunks that have arrived while terraform waits for an answer; 0 while it does not wait.
    pub waiting: u64,
    /// The counts of the plan.
    pub plan: Option<PlanSummary>,
}

/// Reads output that arrives in chunks.
#[derive(Default)]
pub struct PromptReader {
    line: Vec<u8>,
    pub shown: Shown,
}

impl PromptReader {
    pub fn push(&mut self, piece: &[u8]) {
        for byte in piece {
            if *byte == b'\n' {
                let line = plain(&String::from_utf8_lossy(&self.line));
                if let Some(plan) = counts(line.trim()) {
                    self.shown.plan = Some(plan);
                }
                self.line.clear();
            } else if self.line.len() < LONGEST {
                self.line.push(*byte);
            }
        }
        let is_prompt = plain(&String::from_utf8_lossy(&self.line)).trim_start().starts_with(PROMPT);
        self.shown.waiting = if is_prompt { self.shown.waiting + 1 } else { 0 };
    }
}

/// The counts of `Plan: 1 to add, 2 to change, 3 to destroy.`, which may begin with imports.
fn counts(line: &str) -> Option<PlanSummary> {
    let mut plan = PlanSummary { changes: true, ..PlanSummary::default() };
    for part in line.strip_prefix("Plan: ")?.strip_suffix('.')?.split(", ") {
        let (count, what) = part.split_once(" to ")?;
        let count = count.parse().ok()?;
        match what {
            "add" => plan.add = count,
            "change" => plan.change = count,
            "destroy" => plan.destroy = count,
            _ => {}
        }
    }
    Some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_and_counts_are_found_in_any_colour() {
        let mut reader = PromptReader::default();
        reader.push(b"\x1b[1mPlan:\x1b[0m 2 to import, 1 to add, 0 to change, 3 to dest");
        assert_eq!(reader.shown, Shown::default());
        reader.push(b"roy.\r\n\n  \x1b[1mEnter a value:\x1b[0m ");
        let plan = reader.shown.plan.clone().unwrap_or_default();
        assert_eq!((plan.changes, plan.add, plan.change, plan.destroy), (true, 1, 0, 3));
        assert_eq!(reader.shown.waiting, 1);
        // A user who types is there.
        reader.push(b"ye");
        assert_eq!(reader.shown.waiting, 2);
        reader.push(b"s\r\n");
        assert_eq!(reader.shown.waiting, 0);
    }

    #[test]
    fn other_lines_are_no_counts() {
        for line in ["Plan: nothing.", "Plan: x to add.", "plan: 1 to add.", "Planning", "Enter a value: yes"] {
            let mut reader = PromptReader::default();
            reader.push(format!("{line}\n").as_bytes());
            assert_eq!(reader.shown, Shown::default(), "{line}");
        }
    }
}
