//! Tells Knoll's own flags from terraform's, before the command line is parsed. Pure.
//!
//! Terraform's flags have one dash and a whole word (`-no-color`), which a usual parser takes for `-n o-color`. So the
//! words of a run command are put in order first: Knoll's own flags, by their exact names, then `--`, then the rest.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Command};

/// The argument that takes terraform's own words.
const REST: &str = "args";

/// Takes `-chdir=DIR` away, which terraform knows before its command; the folder.
#[must_use]
pub fn folder(words: &mut Vec<OsString>) -> Option<PathBuf> {
    let text = words.get(1)?.to_str()?;
    let folder = text.strip_prefix("-chdir=").or_else(|| text.strip_prefix("--chdir="))?.into();
    words.remove(1);
    Some(folder)
}

/// Puts the words of a run command in order; those of any other command stay as they are.
#[must_use]
pub fn arrange(words: Vec<OsString>, cli: &Command) -> Vec<OsString> {
    let (length, command) = find(&words, cli);
    if length >= words.len() && command.is_subcommand_required_set() {
        // Whoever names no command wants to know which there are.
        return words.into_iter().chain([OsString::from("--help")]).collect();
    }
    if !command.get_arguments().any(|arg| arg.get_id() == REST) {
        return words;
    }
    let (head, tail) = words.split_at(length);
    let (mut own, mut rest) = (Vec::new(), Vec::new());
    let mut tail = tail.iter();
    while let Some(word) = tail.next() {
        let text = word.to_string_lossy();
        match text.as_ref() {
            // Whatever follows is not ours, even if it looks so.
            "--" => {
                rest.extend(tail.by_ref().cloned());
            }
            "-h" | "-help" | "--help" => own.push("--help".into()),
            _ => match takes_value(command, &text) {
                Some(true) => {
                    own.push(word.clone());
                    own.extend(tail.next().cloned());
                }
                Some(false) => own.push(word.clone()),
                None => rest.push(word.clone()),
            },
        }
    }
    let separator = (!rest.is_empty()).then(|| OsString::from("--"));
    head.iter().cloned().chain(own).chain(separator).chain(rest).collect()
}

/// The command that the words name, and how many words that takes.
fn find<'a>(words: &[OsString], cli: &'a Command) -> (usize, &'a Command) {
    let mut command = cli;
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let text = word.to_string_lossy();
        match takes_value(command, &text) {
            Some(true) => at += 2,
            Some(false) => at += 1,
            None => {
                let Some(next) = command.find_subcommand(&*text) else { break };
                command = next;
                at += 1;
                if !command.has_subcommands() {
                    break;
                }
            }
        }
    }
    (at, command)
}

/// Whether a word is a flag of the command, and the next word its value.
fn takes_value(command: &Command, word: &str) -> Option<bool> {
    let name = word.split('=').next().unwrap_or(word);
    let flag = command.get_arguments().find(|arg| {
        let long = name.strip_prefix("--").is_some_and(|long| arg.get_long() == Some(long));
        let short = word
            .strip_prefix('-')
            .is_some_and(|short| arg.get_short().is_some_and(|known| short.chars().eq(std::iter::once(known))));
        long || short
    })?;
    let sets = matches!(flag.get_action(), ArgAction::Set | ArgAction::Append);
    Some(sets && !word.contains('='))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[track_caller]
    fn check(words: &str, expect: &str) {
        let words = words.split_whitespace().map(OsString::from).collect();
        let arranged = arrange(words, &crate::cli::Cli::command());
        assert_eq!(arranged.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "), expect);
    }

    #[test]
    fn flags_of_terraform_are_left_to_terraform() {
        check("knoll plan -no-color -w net -target=a.b", "knoll plan -w net -- -no-color -target=a.b");
        check("knoll -n a plan -n b -var x=1", "knoll -n a plan -n b -- -var x=1");
        check("knoll apply --approval=manual -auto-approve", "knoll apply --approval=manual -- -auto-approve");
        check("knoll apply --approval manual --detach x", "knoll apply --approval manual --detach -- x");
        check("knoll sh -- -c ls -w x", "knoll sh -- -c ls -w x");
        check("knoll sh", "knoll sh");
        check("knoll plan -help", "knoll plan --help");
        check("knoll fmt -recursive --tool tofu", "knoll fmt --tool tofu -- -recursive");
    }

    #[test]
    fn commands_of_the_state_are_terraforms_or_ours() {
        check("knoll state mv -dry-run a b -w net", "knoll state mv -w net -- -dry-run a b");
        check("knoll state history -w net", "knoll state history -w net");
    }

    #[test]
    fn a_folder_is_named_before_the_command() {
        let take = |words: &str| {
            let mut words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
            (folder(&mut words), words.len())
        };
        assert_eq!(take("knoll -chdir=live/net plan"), (Some("live/net".into()), 2));
        assert_eq!(take("knoll plan -chdir=x"), (None, 3));
        assert_eq!(take("knoll"), (None, 1));
    }

    #[test]
    fn other_commands_are_left_alone() {
        for words in ["knoll runs -o json", "knoll --help", "knoll nosuch -x", "knoll workspace list -A"] {
            check(words, words);
        }
    }

    #[test]
    fn no_command_is_a_question() {
        check("knoll", "knoll --help");
        check("knoll -n a", "knoll -n a --help");
        check("knoll workspace", "knoll workspace --help");
        check("knoll state -w", "knoll state -w");
    }

    #[test]
    fn the_command_line_is_sound() {
        crate::cli::Cli::command().debug_assert();
    }
}
