//! The flags of terraform's and OpenTofu's commands, from terraform 1.5 on: the one table that typos are told by and that
//! shells complete. Pure.
//!
//! A flag is listed if any of these versions accepts it. Newer versions may have more.

/// A flag of a terraform command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The name without its dash.
    pub name: &'static str,
    /// Whether the flag has a value other than a boolean, which may be the next argument.
    pub has_value: bool,
}

/// The flags of a run command, such as `state mv`. The arguments of `sh` are not terraform's.
pub fn of(words: &str) -> impl Iterator<Item = Flag> {
    let groups = COMMANDS.iter().filter(move |(command, _)| *command == words).flat_map(|(_, groups)| *groups);
    groups.flat_map(|group| *group).map(|entry| parse(entry))
}

/// Flags that `knoll` refuses, or has in another place.
const REFUSED: [&str; 5] = ["chdir", "generate-config-out", "out", "state", "state-out"];

/// Adds the flags of terraform to the help of each run command.
pub fn describe(command: clap::Command) -> clap::Command {
    COMMANDS.iter().fold(command, |command, (words, _)| {
        let accepted = of(words).filter(|flag| !REFUSED.contains(&flag.name));
        let listed: Vec<String> = accepted.map(|flag| format!("-{}", flag.name)).collect();
        let text = format!("Flags of terraform or tofu, which are passed on:\n{}", wrapped(&listed));
        let mut path = words.split(' ');
        // A command that is not in the table of commands has no help to add to.
        match (path.next(), path.next()) {
            (Some(name), None) if command.find_subcommand(name).is_some() => {
                command.mut_subcommand(name, |found| found.after_help(text))
            }
            (Some(name), Some(inner))
                if command.find_subcommand(name).is_some_and(|found| found.find_subcommand(inner).is_some()) =>
            {
                command.mut_subcommand(name, |found| found.mut_subcommand(inner, |found| found.after_help(text)))
            }
            _ => command,
        }
    })
}

/// Words in lines of at most 100 columns.
fn wrapped(words: &[String]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut().filter(|line| line.len() + word.len() < 99) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n")
}

/// Whether any command has a flag of this name.
pub fn exists(name: &str) -> bool {
    COMMANDS.iter().any(|(words, _)| of(words).any(|flag| flag.name == name))
}

/// Whether a flag of the command has a value that may be the next argument.
pub fn has_value(words: &str, name: &str) -> bool {
    of(words).any(|flag| flag.name == name && flag.has_value)
}

fn parse(entry: &'static str) -> Flag {
    Flag { name: entry.trim_end_matches('='), has_value: entry.ends_with('=') }
}

/// A group of flags, each with `=` if it has a value.
type Group = &'static [&'static str];

const GLOBAL: Group = &["chdir=", "compact-warnings", "consolidate-errors", "consolidate-warnings", "no-color"];
const VARIABLES: Group = &["var=", "var-file="];
const LOCK: Group = &["ignore-remote-version", "lock", "lock-timeout="];
const STATE: Group = &["backup=", "state=", "state-out="];
const JSON: Group = &["json", "json-into="];
const SENSITIVE: Group = &["show-sensitive"];
/// The flags that choose what is planned and how.
const PLANNING: Group = &[
    "allow-deferral",
    "concise",
    "deprecation=",
    "destroy",
    "exclude=",
    "exclude-file=",
    "input",
    "invoke=",
    "parallelism=",
    "refresh",
    "refresh-only",
    "replace=",
    "suppress-forget-errors",
    "target=",
    "target-file=",
];

const COMMANDS: &[(&str, &[Group])] = &[
    (
        "init",
        &[
            GLOBAL,
            VARIABLES,
            LOCK,
            JSON,
            &[
                "backend",
                "backend-config=",
                "create-default-workspace",
                "force-copy",
                "from-module=",
                "get",
                "input",
                "lockfile=",
                "migrate-state",
                "plugin-dir=",
                "reconfigure",
                "safe-init",
                "test-directory=",
                "upgrade",
            ],
        ],
    ),
    (
        "plan",
        &[
            GLOBAL,
            VARIABLES,
            LOCK,
            STATE,
            JSON,
            SENSITIVE,
            PLANNING,
            &["detailed-exitcode", "generate-config-out=", "light", "out="],
        ],
    ),
    ("apply", &[GLOBAL, VARIABLES, LOCK, STATE, JSON, SENSITIVE, PLANNING, &["auto-approve", "out="]]),
    ("destroy", &[GLOBAL, VARIABLES, LOCK, STATE, JSON, SENSITIVE, PLANNING, &["auto-approve", "force", "out="]]),
    ("refresh", &[GLOBAL, VARIABLES, LOCK, STATE, JSON, SENSITIVE, PLANNING]),
    (
        "import",
        &[
            GLOBAL,
            VARIABLES,
            LOCK,
            STATE,
            &["allow-missing-config", "config=", "input", "parallelism=", "provider=", "deprecation="],
        ],
    ),
    ("taint", &[GLOBAL, VARIABLES, LOCK, STATE, &["allow-missing"]]),
    ("untaint", &[GLOBAL, VARIABLES, LOCK, STATE, &["allow-missing"]]),
    ("output", &[GLOBAL, VARIABLES, JSON, SENSITIVE, &["raw", "state="]]),
    ("show", &[GLOBAL, VARIABLES, JSON, SENSITIVE, &["config", "module=", "plan=", "state"]]),
    ("console", &[GLOBAL, VARIABLES, LOCK, &["plan", "state="]]),
    ("validate", &[GLOBAL, VARIABLES, JSON, &["deprecation=", "no-tests", "query", "test-directory="]]),
    (
        "providers",
        &[
            GLOBAL,
            VARIABLES,
            JSON,
            &["enable-plugin-cache", "fs-mirror=", "lock-file", "net-mirror=", "platform=", "test-directory="],
        ],
    ),
    ("graph", &[GLOBAL, VARIABLES, &["draw-cycles", "module-depth=", "plan=", "type=", "verbose"]]),
    ("force-unlock", &[GLOBAL, VARIABLES, &["force"]]),
    (
        "test",
        &[
            GLOBAL,
            VARIABLES,
            JSON,
            &[
                "cloud-run=",
                "deprecation=",
                "filter=",
                "junit-xml=",
                "operation-parallelism=",
                "parallelism=",
                "run-parallelism=",
                "test-directory=",
                "verbose",
            ],
        ],
    ),
    ("fmt", &[GLOBAL, &["check", "diff", "list", "recursive", "write"]]),
    ("state list", &[GLOBAL, VARIABLES, &["id=", "state="]]),
    ("state show", &[GLOBAL, VARIABLES, JSON, SENSITIVE, &["state="]]),
    ("state mv", &[GLOBAL, VARIABLES, LOCK, STATE, &["backup-out=", "dry-run"]]),
    ("state rm", &[GLOBAL, VARIABLES, LOCK, STATE, &["dry-run"]]),
    ("state replace-provider", &[GLOBAL, VARIABLES, LOCK, STATE, &["auto-approve"]]),
];

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::is_run;

    /// The names of all run commands below a command.
    fn run_commands(command: &clap::Command, path: &str) -> Vec<String> {
        let below = command.get_subcommands().flat_map(|sub| {
            let path = format!("{path} {}", sub.get_name()).trim_start().to_owned();
            run_commands(sub, &path)
        });
        is_run(command).then(|| path.to_owned()).into_iter().chain(below).collect()
    }

    #[test]
    fn every_run_command_has_its_flags() {
        let commands = run_commands(&crate::cli::Cli::command(), "");
        for words in commands.iter().filter(|words| *words != "sh") {
            assert!(of(words).count() > 0, "{words}");
        }
        for (words, _) in COMMANDS {
            assert!(commands.iter().any(|command| command == words), "{words}");
            let mut names: Vec<_> = of(words).map(|flag| flag.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{words} has a flag twice");
        }
    }

    #[test]
    fn values_may_be_the_next_argument() {
        assert!(has_value("plan", "var") && has_value("state mv", "backup-out"));
        assert!(!has_value("plan", "refresh") && !has_value("state mv", "target") && !has_value("sh", "var"));
        assert!(exists("raw") && !exists("rwa"));
    }
}
