//! Refuses probable typos in the flags of a run command, before a Run is made. Pure.
//!
//! A flag that resembles no known one is passed on to terraform, whose newer versions may have it. A flag of another
//! terraform command is passed on too: terraform's own message is better.

use std::ffi::OsString;

use clap::Command;
use clap::error::{Error, ErrorKind};
use strsim::osa_distance;

use crate::arguments::{Named, find, is_run, takes_value};
use crate::flags;

/// The largest number of edits between a typo and the flag that was meant.
const MAX_EDITS: usize = 2;

/// A flag that is probably misspelt.
#[derive(Debug, PartialEq, Eq)]
struct Typo {
    /// The flag as it was written, without a value.
    written: String,
    /// The nearest known flag.
    meant: String,
}

/// The error for the first flag in the arguments that is misspelt, or is Knoll's and belongs to another command.
pub fn error(args: &[OsString], cli: &Command) -> Option<Error> {
    let named = find(args, cli);
    let wrong = find_typo(args, &named).map(|Typo { written, meant }| {
        let problem = format!("unexpected argument `{written}`; did you mean `{meant}`?");
        (written, problem)
    });
    let wrong = wrong.or_else(|| {
        let written = find_misplaced(args, &named, cli)?;
        let problem = format!("unexpected argument `{written}`: it is a flag of `knoll apply` and `knoll destroy`");
        Some((written, problem))
    });
    let lacking = find_lacking(args, &named);
    // Only a built command knows its usage.
    let mut built = cli.clone();
    built.build();
    let named = find(args, &built);
    let Some((written, problem)) = wrong else {
        let message = format!("a value is required for `{}` but none was supplied", lacking?);
        return Some(named.command.clone().error(ErrorKind::InvalidValue, message));
    };
    let program = named.command.get_bin_name().unwrap_or("knoll");
    let message = format!(
        "{problem}\n\n  \
         tip: to pass `{written}` to terraform nevertheless, use `{program} -- {written}`"
    );
    Some(named.command.clone().error(ErrorKind::UnknownArgument, message))
}

fn find_typo(args: &[OsString], named: &Named<'_>) -> Option<Typo> {
    passed_on(args, named).into_iter().find_map(|Passed { written, .. }| {
        let meant = meant(written.trim_start_matches('-'), named)?;
        Some(Typo { written, meant })
    })
}

/// The first flag with which Knoll's `apply` and `destroy` change infrastructure, where another command has it.
fn find_misplaced(args: &[OsString], named: &Named<'_>, cli: &Command) -> Option<String> {
    let apply = cli.find_subcommand("apply")?;
    let is_knolls = |name: &str| apply.get_arguments().any(|arg| arg.get_long() == Some(name)) && !flags::exists(name);
    let mut written = passed_on(args, named).into_iter().map(|flag| flag.written);
    written.find(|written| written.strip_prefix("--").is_some_and(is_knolls))
}

/// The flag at the end whose value is missing. The runner ends terraform's arguments with flags of its own, and terraform
/// would take one of them for the value.
fn find_lacking(args: &[OsString], named: &Named<'_>) -> Option<String> {
    passed_on(args, named).into_iter().find(|flag| flag.lacks_value).map(|flag| flag.written)
}

/// A flag that goes to terraform.
struct Passed {
    /// The flag as it was written, without a value.
    written: String,
    lacks_value: bool,
}

/// The flags that go to terraform, as far as the command takes flags of terraform.
fn passed_on(args: &[OsString], named: &Named<'_>) -> Vec<Passed> {
    let mut found = Vec::new();
    // The arguments of a shell are not terraform's.
    if !is_run(named.command) || flags::of(&named.words).next().is_none() {
        return found;
    }
    let mut args = args.iter().skip(named.length).map(|arg| arg.to_string_lossy());
    while let Some(arg) = args.next().filter(|arg| arg != "--") {
        if let Some(has_value) = takes_value(named.command, &arg) {
            if has_value {
                args.next();
            }
            continue;
        }
        let written = arg.split('=').next().unwrap_or_default();
        let Some(name) = written.strip_prefix("--").or_else(|| written.strip_prefix('-')) else { continue };
        let takes_next = flags::has_value(&named.words, name) && !arg.contains('=');
        let lacks_value = takes_next && args.next().is_none();
        found.push(Passed { written: written.to_owned(), lacks_value });
    }
    found
}

/// The flag of the command, terraform's or Knoll's own, that a misspelt name is nearest to.
fn meant(name: &str, named: &Named<'_>) -> Option<String> {
    if matches!(name, "h" | "help" | "version") || flags::exists(name) {
        return None;
    }
    let own = named.command.get_arguments().filter_map(clap::Arg::get_long);
    let own = own.map(|long| (osa_distance(name, long), format!("--{long}")));
    let known = flags::of(&named.words).map(|flag| (osa_distance(name, flag.name), format!("-{}", flag.name)));
    let (edits, meant) = known.chain(own).min_by_key(|(edits, _)| *edits)?;
    // Every short word is near to another one.
    let most = match name.chars().count() {
        0..=2 => 0,
        3..=4 => 1,
        _ => MAX_EDITS,
    };
    (edits <= most).then_some(meant)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[track_caller]
    fn check(words: &str, expect: Option<(&str, &str)>) {
        let args: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        let cli = crate::cli::Cli::command();
        let found = find_typo(&args, &find(&args, &cli));
        let expect = expect.map(|(written, meant)| Typo { written: written.into(), meant: meant.into() });
        assert_eq!(found, expect, "{words}");
    }

    #[test]
    fn a_flag_without_its_value_was_told_of_as_a_variable_named_refresh_only() {
        let cli = crate::cli::Cli::command();
        let lacking = |words: &str| {
            let args: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
            find_lacking(&args, &find(&args, &cli))
        };
        assert_eq!(lacking("knoll plan -var").as_deref(), Some("-var"));
        assert_eq!(lacking("knoll apply -auto-approve -w net --target").as_deref(), Some("--target"));
        for fine in
            ["knoll plan -var x=1", "knoll plan -var=", "knoll plan -destroy", "knoll sh -var", "knoll plan -- -var"]
        {
            assert_eq!(lacking(fine), None, "{fine}");
        }
    }

    #[test]
    fn probable_typos_are_refused_with_what_was_meant() {
        for (words, written, meant) in [
            ("knoll plan --detatch", "--detatch", "--detach"),
            ("knoll plan -destory", "-destory", "-destroy"),
            ("knoll plan -detach", "-detach", "--detach"),
            ("knoll -n a apply -w net --auto-aprove", "--auto-aprove", "-auto-approve"),
            ("knoll apply --aproval=manual", "--aproval", "--approval"),
            ("knoll plan -no-colour", "-no-colour", "-no-color"),
            ("knoll plan -tagret=a.b", "-tagret", "-target"),
            ("knoll plan -vra x=1", "-vra", "-var"),
            ("knoll plan -var x=1 --worksapce net", "--worksapce", "--workspace"),
            ("knoll output -jsno", "-jsno", "-json"),
            ("knoll state mv -dryrun a b", "-dryrun", "-dry-run"),
            ("knoll state rm a.b -dry-rum", "-dry-rum", "-dry-run"),
            ("knoll fmt -recursiv", "-recursiv", "-recursive"),
            ("knoll providers lock -platfrom=linux_amd64", "-platfrom", "-platform"),
        ] {
            check(words, Some((written, meant)));
        }
    }

    #[test]
    fn a_flag_of_apply_was_passed_to_another_command_of_terraform() {
        let cli = crate::cli::Cli::command();
        for (words, expect) in [
            ("knoll state rm a.b -w net --override-stack", Some("--override-stack")),
            ("knoll plan --approval=manual", Some("--approval")),
            ("knoll apply --override-stack --approval manual", None),
            ("knoll plan -out=x --detach", None),
            ("knoll state rm a.b -- --override-stack", None),
            ("knoll sh --override-stack", None),
        ] {
            let args: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
            assert_eq!(find_misplaced(&args, &find(&args, &cli), &cli).as_deref(), expect, "{words}");
        }
    }

    #[test]
    fn everything_else_is_passed_on() {
        for words in [
            "knoll plan -destroy -refresh=false --target a.b -no-color",
            "knoll plan -w net --detach -var x=1 -help",
            // The flags of a newer terraform, and of another command.
            "knoll plan -brand-new-flag -x",
            "knoll plan -raw -auto-approve",
            // After `--`, in values, and in a shell.
            "knoll plan -- -destory",
            "knoll plan -var -destory -target=-destory",
            "knoll plan -w -destory",
            "knoll sh -destory --detatch",
            "knoll import a.b destory",
            "knoll apply -",
            "knoll runs --activ",
            "knoll",
        ] {
            check(words, None);
        }
    }
}
