//! Which Runs have an answer: their output is a result that programs read, and not a log. Pure.

use knoll_api::run::{Operation, RunSpec};

use crate::queue;

/// Whether the output of a Run is the answer of a reading command. A console in a terminal is a conversation.
#[must_use]
pub fn answers(spec: &RunSpec) -> bool {
    if spec.operation != Operation::Command {
        return false;
    }
    match queue::words(spec.command.as_deref().unwrap_or_default(), &spec.args)[..] {
        ["console", ..] => !spec.attach,
        ["state", "list" | "show" | "pull", ..] | ["workspace", "list" | "show", ..] => true,
        ["output" | "show" | "graph" | "providers" | "version" | "metadata" | "modules", ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_commands_have_an_answer() {
        let rows = [
            ("output", "-json", true),
            ("show", "-json", true),
            ("state show", "a.b", true),
            ("state", "pull", true),
            ("state list", "", true),
            ("providers", "schema -json", true),
            ("console", "", true),
            ("state rm", "a.b", false),
            ("state", "", false),
            ("sh", "-c ls", false),
            ("validate", "-json", false),
            ("init", "", false),
        ];
        for (command, args, expect) in rows {
            let args = args.split_whitespace().map(str::to_owned).collect();
            let command = Some(command.to_owned());
            let spec = RunSpec { operation: Operation::Command, command, args, ..RunSpec::default() };
            assert_eq!(answers(&spec), expect, "{spec:?}");
        }
        let console = RunSpec {
            operation: Operation::Command,
            command: Some("console".to_owned()),
            attach: true,
            ..RunSpec::default()
        };
        assert!(!answers(&console), "in a terminal");
        assert!(!answers(&RunSpec { operation: Operation::Plan, ..RunSpec::default() }));
    }
}
