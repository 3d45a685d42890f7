//! Separates Knoll's flags from terraform's before clap parses the command line. Pure.
//!
//! Terraform's flags have one dash and a whole arg (`-no-color`), which clap would parse as `-n o-color`. The
//! arguments of a run command are therefore reordered: Knoll's own flags by their exact names, then `--`, then the
//! rest.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Command};

/// The id of the argument that collects terraform's arguments.
const REST: &str = "args";

/// Removes a leading `-chdir=DIR`, as terraform accepts it before the command, and returns the directory.
#[must_use]
pub fn take_chdir(args: &mut Vec<OsString>) -> Option<PathBuf> {
    let text = args.get(1)?.to_str()?;
    let folder = text.strip_prefix("-chdir=").or_else(|| text.strip_prefix("--chdir="))?.into();
    args.remove(1);
    Some(folder)
}

/// Rewrites `help COMMAND` to `COMMAND --help`.
#[must_use]
pub fn expand_help(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_some_and(|arg| arg == "help") {
        args.remove(1);
        args.push("--help".into());
    }
    args
}

/// Reorders the arguments of a run command. The arguments of any other command are unchanged.
#[must_use]
pub fn reorder(args: Vec<OsString>, cli: &Command) -> Vec<OsString> {
    let Named { length, command, .. } = find(&args, cli);
    if length >= args.len() && command.is_subcommand_required_set() {
        // Without a command, print the help.
        return args.into_iter().chain([OsString::from("--help")]).collect();
    }
    if !is_run(command) {
        return args;
    }
    let (head, tail) = args.split_at(length);
    let (mut own, mut rest) = (Vec::new(), Vec::new());
    let mut tail = tail.iter();
    while let Some(arg) = tail.next() {
        let text = arg.to_string_lossy();
        match text.as_ref() {
            // Everything after `--` belongs to terraform, even if it looks like a flag of Knoll's.
            "--" => {
                rest.extend(tail.by_ref().cloned());
            }
            "-h" | "-help" | "--help" => own.push("--help".into()),
            _ => match takes_value(command, &text) {
                Some(true) => {
                    own.push(arg.clone());
                    own.extend(tail.next().cloned());
                }
                Some(false) => own.push(arg.clone()),
                None => rest.push(arg.clone()),
            },
        }
    }
    let separator = (!rest.is_empty()).then(|| OsString::from("--"));
    head.iter().cloned().chain(own).chain(separator).chain(rest).collect()
}

/// The command that a command line names.
pub struct Named<'a> {
    /// The number of arguments up to and including it.
    pub length: usize,
    pub command: &'a Command,
    /// Its name below `knoll`, such as `state mv`.
    pub words: String,
}

/// Whether a command passes arguments on to terraform.
pub fn is_run(command: &Command) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == REST)
}

/// The command that the arguments name.
pub fn find<'a>(args: &[OsString], cli: &'a Command) -> Named<'a> {
    let mut named = Named { length: 1, command: cli, words: String::new() };
    while let Some(arg) = args.get(named.length) {
        let text = arg.to_string_lossy();
        match takes_value(named.command, &text) {
            Some(true) => named.length += 2,
            Some(false) => named.length += 1,
            None => {
                let Some(next) = named.command.find_subcommand(&*text) else { break };
                named.command = next;
                named.length += 1;
                named.words = format!("{} {}", named.words, next.get_name()).trim_start().to_owned();
                if !next.has_subcommands() {
                    break;
                }
            }
        }
    }
    named
}

/// Whether an argument is a flag of the command, and if so whether the next argument is its value.
pub fn takes_value(command: &Command, text: &str) -> Option<bool> {
    let name = text.split('=').next().unwrap_or(text);
    let flag = command.get_arguments().find(|arg| {
        let long = name.strip_prefix("--").is_some_and(|long| arg.get_long() == Some(long));
        let short = text
            .strip_prefix('-')
            .is_some_and(|short| arg.get_short().is_some_and(|known| short.chars().eq(std::iter::once(known))));
        long || short
    })?;
    let sets = matches!(flag.get_action(), ArgAction::Set | ArgAction::Append);
    Some(sets && !text.contains('='))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[track_caller]
    fn check(words: &str, expect: &str) {
        let words = words.split_whitespace().map(OsString::from).collect();
        let arranged = reorder(words, &crate::cli::Cli::command());
        assert_eq!(arranged.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "), expect);
    }

    #[test]
    fn help_is_a_command_too() {
        let rows = [
            ("knoll help", "knoll --help"),
            ("knoll help state mv", "knoll state mv --help"),
            ("knoll plan help", "knoll plan help"),
        ];
        for (words, expect) in rows {
            let words = words.split_whitespace().map(OsString::from).collect();
            let expect: Vec<OsString> = expect.split_whitespace().map(OsString::from).collect();
            assert_eq!(expand_help(words), expect);
        }
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
            (take_chdir(&mut words), words.len())
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
