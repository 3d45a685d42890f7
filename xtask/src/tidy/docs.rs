//! Doc comments say more than the name that they stand on.

use std::collections::BTreeSet;

use super::Source;

/// A doc comment of so many words or fewer only repeats a name.
const FEWEST_WORDS: usize = 3;

/// Crates that still have such comments. This list only shrinks.
const TOLERATED: &[&str] = &[];

/// Fields of kinds are documented without exception: `kubectl explain` prints the comments.
const EXEMPT: &[&str] = &["crates/api"];

/// Faults of doc comments. An exception that is no longer needed is a fault too.
pub fn faults(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut tolerated = BTreeSet::new();
    for source in sources.iter().filter(|source| !EXEMPT.contains(&source.package.as_str())) {
        for line in empty_docs(&source.text) {
            if TOLERATED.contains(&source.package.as_str()) {
                tolerated.insert(source.package.as_str());
            } else {
                faults.push(format!("{}:{line}: the comment says no more than the name: remove it", source.path));
            }
        }
    }
    let unneeded = TOLERATED.iter().filter(|package| !tolerated.contains(**package));
    faults.extend(unneeded.map(|package| format!("xtask/src/tidy/docs.rs: remove `{package}` from the exceptions")));
    faults
}

/// The lines of doc comments with very few words. Comments that clap shows as help are not among them.
fn empty_docs(text: &str) -> Vec<usize> {
    let help = ["Args", "Parser", "Subcommand", "ValueEnum"];
    let is_help = |line: &str| line.contains("#[derive(") && help.iter().any(|word| line.contains(word));
    if text.lines().any(is_help) {
        return Vec::new();
    }
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_doc = |index: usize| lines.get(index).is_some_and(|line| line.starts_with("///"));
    let alone =
        (0..lines.len()).filter(|index| is_doc(*index) && !is_doc(index + 1) && (*index == 0 || !is_doc(index - 1)));
    // A name in backticks is a link to more, or a value that the type does not tell.
    let is_empty = |line: &str| !line.contains('`') && line[3..].split_whitespace().count() <= FEWEST_WORDS;
    alone.filter(|index| is_empty(lines[*index])).map(|index| index + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_with_few_words() {
        for (text, expected) in [
            ("/// What.\npub what: u8,", vec![1]),
            ("    /// The queue itself.\n", vec![1]),
            ("/// The queue of a Workspace.\n", vec![]),
            ("/// Panics\n/// when the lock is poisoned.\n", vec![]),
            ("#[derive(Subcommand)]\nenum Command {\n    /// Cancel a Run\n", vec![]),
            ("// What.\n", vec![]),
            ("/// `Secret` or `ConfigMap`.\n", vec![]),
        ] {
            assert_eq!(empty_docs(text), expected, "{text}");
        }
    }
}
