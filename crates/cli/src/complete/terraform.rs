//! Completes terraform's arguments: its flags, and the addresses of the Workspace's state.

use std::ffi::{OsStr, OsString};

use clap::CommandFactory;
use clap_complete::engine::CompletionCandidate;

use super::{CommandLine, IS_BASH, addresses, quietly};
use crate::arguments;
use crate::cli::Cli;
use crate::flags;

/// Flags whose value is the address of a resource.
const OF_ADDRESS: [&str; 3] = ["exclude", "replace", "target"];
/// Commands whose arguments are addresses.
const ON_ADDRESSES: [&str; 5] = ["state mv", "state rm", "state show", "taint", "untaint"];
/// Flags that Knoll refuses after the command.
const REFUSED: [&str; 2] = ["chdir", "out"];

/// What a word is completed to.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Flags,
    /// Addresses after this part of the word.
    Addresses(String),
    Nothing,
}

/// The candidates for a word.
pub fn candidates(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let before = CommandLine::read().before;
    let args: Vec<OsString> = before.iter().map(OsString::from).collect();
    let words = arguments::find(&args, &Cli::command()).words;
    let found = match wanted(&words, before.last().map(String::as_str).unwrap_or_default(), current) {
        Wanted::Nothing => Vec::new(),
        Wanted::Flags => flag_words(&words),
        Wanted::Addresses(prefix) => {
            let known = quietly(read_addresses()).unwrap_or_default();
            known.iter().map(|address| format!("{prefix}{}", shown(address))).collect()
        }
    };
    found.into_iter().filter(|word| word.starts_with(current)).map(CompletionCandidate::new).collect()
}

fn flag_words(words: &str) -> Vec<String> {
    let flags = flags::of(words).filter(|flag| !REFUSED.contains(&flag.name));
    flags.map(|flag| format!("-{}{}", flag.name, if flag.has_value { "=" } else { "" })).collect()
}

/// What the word `current` of a command is, after the word `before`.
fn wanted(words: &str, before: &str, current: &str) -> Wanted {
    let flag = |word: &str| word.strip_prefix("--").or_else(|| word.strip_prefix('-')).map(str::to_owned);
    let of_address = |name: &str| OF_ADDRESS.contains(&name) && flags::has_value(words, name);
    if let Some((name, _)) = current.split_once('=')
        && let Some(of) = flag(name)
    {
        return if of_address(&of) { Wanted::Addresses(format!("{name}=")) } else { Wanted::Nothing };
    }
    match flag(before) {
        Some(name) if of_address(&name) => Wanted::Addresses(String::new()),
        Some(name) if flags::has_value(words, &name) => Wanted::Nothing,
        _ if current.starts_with('-') => Wanted::Flags,
        _ if ON_ADDRESSES.contains(&words) => Wanted::Addresses(String::new()),
        _ => Wanted::Nothing,
    }
}

/// An address as the shell needs it. Bash inserts a candidate as it is; the other shells quote it.
fn shown(address: &str) -> String {
    if IS_BASH.get() == Some(&true) { escaped(address) } else { address.to_owned() }
}

fn escaped(address: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "._-/".contains(letter);
    address.chars().flat_map(|letter| (!is_plain(letter)).then_some('\\').into_iter().chain([letter])).collect()
}

/// The addresses in the state of the Workspace, if this user may read it.
async fn read_addresses() -> Option<Vec<String>> {
    let line = CommandLine::read();
    let session = line.session().await?;
    let workspace = session.known_workspace_name(&line.workspace())?;
    let state = session.storage().states().read(&session.namespace, &workspace).await.ok()??;
    Some(addresses::of(&state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_flag_a_value_or_an_address() {
        let addresses = |prefix: &str| Wanted::Addresses(prefix.to_owned());
        for (words, before, current, expect) in [
            ("plan", "plan", "-des", Wanted::Flags),
            ("plan", "plan", "", Wanted::Nothing),
            ("plan", "plan", "-target=a", addresses("-target=")),
            ("plan", "-replace", "a", addresses("")),
            ("plan", "-target", "", addresses("")),
            ("plan", "-target=a", "-", Wanted::Flags),
            ("plan", "-var", "-x", Wanted::Nothing),
            ("plan", "plan", "-var=a", Wanted::Nothing),
            ("state mv", "mv", "", addresses("")),
            ("state mv", "a.b", "a", addresses("")),
            ("state mv", "-lock-timeout", "", Wanted::Nothing),
            ("state rm", "rm", "-", Wanted::Flags),
            ("state rm", "rm", "-target=", Wanted::Nothing),
            ("taint", "-allow-missing", "a", addresses("")),
            ("state list", "list", "", Wanted::Nothing),
        ] {
            assert_eq!(wanted(words, before, current), expect, "{words} {before} {current}");
        }
    }

    #[test]
    fn refused_flags_are_not_offered_and_values_follow_a_sign() {
        let flags = flag_words("plan");
        assert!(flags.iter().any(|flag| flag == "-target=") && flags.iter().any(|flag| flag == "-destroy"));
        assert!(!flags.iter().any(|flag| flag.starts_with("-out") || flag.starts_with("-chdir")));
        assert!(flag_words("sh").is_empty());
    }

    #[test]
    fn bash_gets_an_address_that_stays_one_word() {
        assert_eq!(escaped("a.b[\"c d\"]"), "a.b\\[\\\"c\\ d\\\"\\]");
        assert_eq!(escaped("module.a.b-c"), "module.a.b-c");
    }
}
