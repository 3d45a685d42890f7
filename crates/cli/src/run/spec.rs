//! Converts a terraform command line to a Run's spec.

use std::path::PathBuf;

use anyhow::{Result, bail};
use knoll_api::run::{Operation, RunApproval, RunSpec};
use knoll_core::run::answer;

use super::ApprovalFlag;
use crate::flags;

/// What the spec depends on beside the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// Whether the user is at a terminal and follows the run.
    pub attended: bool,
    /// Whether somebody answers terraform's question: the user at the terminal, or the standard input.
    pub answered: bool,
    /// Whether the output is printed without colours.
    pub no_color: bool,
    /// The value of `--approval`.
    pub approval: Option<ApprovalFlag>,
}

/// The spec of `terraform WORDS ARGS`, without its source.
pub fn spec(workspace: &str, words: &str, args: Vec<String>, now: Situation) -> Result<RunSpec> {
    let operation = match words {
        "plan" => Operation::Plan,
        "apply" => Operation::Apply,
        "destroy" => Operation::Destroy,
        "refresh" => Operation::Refresh,
        _ => Operation::Command,
    };
    if let Some(flag) = args.iter().find(|arg| is_flag(arg, "out") || is_flag(arg, "chdir")) {
        let name = flag.split('=').next().unwrap_or_default();
        bail!("{}", refusal(words, name));
    }
    if let Some(flag) = knoll_runner::file_in_pod(&args).filter(|_| words != "sh") {
        bail!(
            "`knoll {words}` does not accept `-{flag}`: the file would be lost with the pod of the run\n  \
             the state of the workspace is used and stored; `knoll state pull` and `knoll state push` copy it"
        );
    }
    if operation != Operation::Command
        && let Some(file) = plan_file(words, &args)
    {
        bail!(
            "`knoll {words}` does not accept a plan file such as `{file}`: plans are stored in the cluster\n  \
             `knoll apply --approval manual` plans, and `knoll approve` applies exactly that plan"
        );
    }
    if let Some(usage) = missing(words, &args) {
        bail!("`knoll {words}` needs more arguments: `knoll {words} {usage}`");
    }
    let changes = matches!(operation, Operation::Apply | Operation::Destroy);
    let approval = if changes { approval(words, &args, now)? } else { RunApproval::Auto };
    let mut args = args;
    if now.no_color && words != "sh" && !args.iter().any(|arg| is_flag(arg, "no-color")) {
        // `terraform providers` has subcommands, which come first.
        let index = if words == "providers" { args.len() } else { 0 };
        args.insert(index, "-no-color".to_owned());
    }
    let spec = RunSpec {
        workspace: workspace.to_owned(),
        operation,
        command: (operation == Operation::Command).then(|| words.to_owned()),
        args,
        approval,
        ..RunSpec::default()
    };
    // The answer of a reading command is printed as a whole. Only the console asks.
    let attach = now.attended && (words == "console" || !answer::answers(&spec));
    Ok(RunSpec { attach, ..spec })
}

/// Whether Ctrl-C belongs to the program in the pod.
#[must_use]
pub fn is_interactive(spec: &RunSpec) -> bool {
    matches!(spec.command.as_deref(), Some("console" | "sh"))
}

/// The files named by `-var-file` and `-backend-config`, whose values may be secret.
#[must_use]
pub fn variable_files(spec: &RunSpec) -> Vec<PathBuf> {
    named_files(spec).into_iter().map(|(_, file)| file).collect()
}

/// Replaces the named files that have an absolute path by their paths from the module, `found`, where the pod has them.
pub fn relocate(spec: &mut RunSpec, found: &[String]) {
    for ((index, file), found) in named_files(spec).into_iter().zip(found) {
        if let (true, Some(arg)) = (file.is_absolute(), spec.args.get_mut(index)) {
            let length = arg.len() - file.as_os_str().len();
            arg.truncate(length);
            arg.push_str(found);
        }
    }
}

/// The arguments that end with the path of a file, by their index.
fn named_files(spec: &RunSpec) -> Vec<(usize, PathBuf)> {
    let mut files = Vec::new();
    if spec.command.as_deref() == Some("sh") {
        return files;
    }
    let mut args = spec.args.iter().enumerate();
    while let Some((index, arg)) = args.next() {
        let (name, place) = match flag(arg) {
            Some((name @ ("var-file" | "backend-config"), Some(file))) => (name, Some((index, file))),
            Some((name @ ("var-file" | "backend-config"), None)) => {
                (name, args.next().map(|(index, file)| (index, file.as_str())))
            }
            // Its value could look like one of those flags.
            Some(("var", None)) => {
                args.next();
                continue;
            }
            _ => continue,
        };
        let is_file = |file: &str| name == "var-file" || !file.contains('=');
        files.extend(place.filter(|(_, file)| is_file(file)).map(|(index, file)| (index, PathBuf::from(file))));
    }
    files
}

/// The usage of a command that has fewer arguments than terraform needs. Terraform would say so in a Run, which waits in
/// the queue first.
fn missing(words: &str, args: &[String]) -> Option<&'static str> {
    let (needed, usage) = match words {
        "import" => (2, "ADDRESS ID"),
        "state mv" => (2, "SOURCE DESTINATION"),
        "state replace-provider" => (2, "FROM TO"),
        "state rm" | "state show" | "taint" | "untaint" => (1, "ADDRESS"),
        "force-unlock" => (1, "LOCK_ID"),
        _ => return None,
    };
    // A value of a flag that this table does not know counts as an argument, so that nothing valid is refused.
    let mut found = 0;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match flag(arg) {
            Some((name, None)) if flags::has_value(words, name) => drop(rest.next()),
            Some(_) => {}
            None => found += 1,
        }
    }
    let asks_for_help = args.iter().any(|arg| is_flag(arg, "help") || is_flag(arg, "h"));
    (found < needed && !asks_for_help).then_some(usage)
}

/// The first argument that is neither a flag nor a flag's value.
fn plan_file<'a>(words: &str, args: &'a [String]) -> Option<&'a String> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match flag(arg) {
            Some((name, None)) if flags::has_value(words, name) => drop(args.next()),
            Some(_) => {}
            None => return Some(arg),
        }
    }
    None
}

/// Whether terraform asks for approval before it changes anything.
#[must_use]
pub fn asks(words: &str, args: &[String], approval: Option<ApprovalFlag>) -> bool {
    matches!(words, "apply" | "destroy")
        && matches!(approval, None | Some(ApprovalFlag::Prompt))
        && !is_approved_already(args)
}

fn is_approved_already(args: &[String]) -> bool {
    args.iter().any(|arg| matches!(flag(arg), Some(("auto-approve", None | Some("true")))))
}

fn approval(words: &str, args: &[String], now: Situation) -> Result<RunApproval> {
    match (now.approval, is_approved_already(args)) {
        (Some(ApprovalFlag::Manual | ApprovalFlag::Prompt), true) => {
            bail!("`-auto-approve` cannot be used with `--approval`")
        }
        (Some(ApprovalFlag::Prompt) | None, false) if !now.answered => bail!(
            "`knoll {words}` asks for approval, and there is no terminal\n  \
             add `-auto-approve`, or `--approval manual` to let somebody decide with `knoll approve`, or answer with \
             `echo yes | knoll {words}`"
        ),
        (Some(chosen), _) => Ok(chosen.into()),
        (None, true) => Ok(RunApproval::Auto),
        (None, false) => Ok(RunApproval::Prompt),
    }
}

fn refusal(words: &str, flag: &str) -> String {
    if flag.ends_with("chdir") {
        return format!("`{flag}` must come before the command: `knoll -chdir=DIR {words}`");
    }
    format!(
        "`knoll {words}` does not accept `{flag}`: the plan is stored in the cluster\n  \
         `knoll apply --approval manual` plans, and `knoll approve` applies exactly that plan"
    )
}

fn is_flag(arg: &str, name: &str) -> bool {
    flag(arg).is_some_and(|(found, _)| found == name)
}

/// The name and the value of a flag. Terraform accepts one dash or two.
fn flag(arg: &str) -> Option<(&str, Option<&str>)> {
    let name = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')).filter(|name| !name.is_empty())?;
    Some(name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const HERE: Situation = Situation { attended: true, answered: true, no_color: false, approval: None };
    const AWAY: Situation = Situation { attended: false, answered: false, no_color: false, approval: None };
    const PIPED: Situation = Situation { attended: false, answered: true, no_color: false, approval: None };

    fn made(words: &str, args: &str, now: Situation) -> Result<RunSpec> {
        spec("net", words, args.split_whitespace().map(str::to_owned).collect(), now)
    }

    #[test]
    fn words_become_operations_and_commands() {
        let rows = [
            ("plan", "-target=a.b", Operation::Plan, None),
            ("refresh", "", Operation::Refresh, None),
            ("state mv", "a.b a.c", Operation::Command, Some("state mv")),
            ("output", "-json", Operation::Command, Some("output")),
            ("sh", "-c ls", Operation::Command, Some("sh")),
        ];
        for (words, args, operation, command) in rows {
            let spec = made(words, args, AWAY).unwrap();
            assert_eq!((spec.operation, spec.command.as_deref()), (operation, command));
            assert_eq!(spec.args.join(" "), args);
            assert!(!spec.attach);
        }
    }

    #[test]
    fn whoever_is_there_decides() {
        let manual = |now| Situation { approval: Some(ApprovalFlag::Manual), ..now };
        let rows = [
            ("", HERE, Ok(RunApproval::Prompt)),
            ("", PIPED, Ok(RunApproval::Prompt)),
            ("-auto-approve", HERE, Ok(RunApproval::Auto)),
            ("--auto-approve=true", AWAY, Ok(RunApproval::Auto)),
            ("", manual(AWAY), Ok(RunApproval::Manual)),
            ("", AWAY, Err("no terminal")),
            ("-auto-approve=false", AWAY, Err("no terminal")),
            ("-auto-approve", manual(HERE), Err("cannot be used with")),
        ];
        for (args, now, expect) in rows {
            match (made("apply", args, now), expect) {
                (Ok(spec), Ok(approval)) => assert_eq!(spec.approval, approval, "{args} {now:?}"),
                (Err(error), Err(says)) => assert!(error.to_string().contains(says), "{error}"),
                (made, _) => panic!("{args} {now:?}: {made:?}"),
            }
        }
    }

    #[test]
    fn standard_input_is_read_only_when_terraform_asks() {
        let rows = [
            ("apply", "", None, true),
            ("destroy", "-target=a.b", Some(ApprovalFlag::Prompt), true),
            ("apply", "-auto-approve", None, false),
            ("apply", "", Some(ApprovalFlag::Manual), false),
            ("plan", "", None, false),
        ];
        for (words, args, approval, expect) in rows {
            let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
            assert_eq!(asks(words, &args, approval), expect, "{words} {args:?}");
        }
        assert!(!made("apply", "", PIPED).unwrap().attach);
    }

    #[test]
    fn what_cannot_work_over_there_is_refused() {
        for args in [
            "-state=x",
            "-state-out x",
            "-generate-config-out=g.tf",
            "-out=plan",
            "-out plan",
            "--out=plan",
            "-chdir=..",
            "plan.bin",
            "-var x=1 -json plan.bin",
        ] {
            assert!(made("plan", args, HERE).is_err(), "{args}");
        }
        assert!(made("state mv", "-state-out=y a.b a.b", HERE).is_err() && made("sh", "-state x", HERE).is_ok());
        for args in ["-var x=1 -target a.b", "-refresh=false -var-file x.tfvars -compact-warnings"] {
            assert!(made("plan", args, HERE).is_ok(), "{args}");
        }
    }

    #[test]
    fn a_run_was_made_to_print_the_usage_of_terraform() {
        for (words, args) in [
            ("import", "a.b"),
            ("state mv", "a.b"),
            ("state rm", "-lock=false"),
            ("taint", ""),
            ("import", "-var x=1 a.b"),
        ] {
            assert!(
                made(words, args, HERE).unwrap_err().to_string().contains("needs more arguments"),
                "{words} {args}"
            );
        }
        for (words, args) in
            [("import", "a.b id"), ("state mv", "-lock-timeout 5s a.b a.c"), ("state rm", "-help"), ("state list", "")]
        {
            assert!(made(words, args, HERE).is_ok(), "{words} {args}");
        }
    }

    #[test]
    fn no_colours_here_are_no_colours_there() {
        let now = Situation { no_color: true, ..HERE };
        assert_eq!(made("plan", "-refresh=false", now).unwrap().args, ["-no-color", "-refresh=false"]);
        assert_eq!(made("plan", "-no-color", now).unwrap().args, ["-no-color"]);
        assert_eq!(made("state rm", "a.b", now).unwrap().args, ["-no-color", "a.b"]);
        assert_eq!(made("providers", "schema -json", now).unwrap().args, ["schema", "-json", "-no-color"]);
        assert_eq!(made("sh", "", now).unwrap().args, Vec::<String>::new());
    }

    #[test]
    fn variable_files_are_found_in_both_forms() {
        let args = "-var-file=a.tfvars -var x=1 --var-file ../b.tfvars -var -var-file=no -var-file=/x/c.tfvars";
        let mut spec = made("plan", args, AWAY).unwrap();
        let expect = ["a.tfvars", "../b.tfvars", "/x/c.tfvars"].map(PathBuf::from);
        assert_eq!(variable_files(&spec), expect);
        relocate(&mut spec, &["a.tfvars".into(), "../b.tfvars".into(), "../x/c.tfvars".into()]);
        assert_eq!(spec.args.join(" "), args.replace("/x/c", "../x/c"));
        let spec = made("init", "-backend-config=key=value -backend-config=b.hcl -backend-config c.hcl", AWAY).unwrap();
        assert_eq!(variable_files(&spec), ["b.hcl", "c.hcl"].map(PathBuf::from));
        assert!(variable_files(&made("sh", "-var-file=x", AWAY).unwrap()).is_empty());
    }
}
