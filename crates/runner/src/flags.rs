//! Splits the user's flags between `plan` and `apply`, because a run executes both. Pure.

use std::ffi::OsString;

/// Flags of `terraform apply` that `terraform plan` does not have.
const APPLY_ONLY: [&str; 3] = ["auto-approve", "backup", "state-out"];
/// Flags of both commands that `apply` accepts together with a plan file.
const BOTH: [&str; 8] =
    ["compact-warnings", "input", "json", "lock", "lock-timeout", "no-color", "parallelism", "show-sensitive"];
/// Flags of [`APPLY_ONLY`] and [`BOTH`] whose value may be the next argument.
const WITH_VALUE: [&str; 4] = ["backup", "lock-timeout", "parallelism", "state-out"];

/// The flags for `init`: only those that affect the output.
pub fn of_init(args: &[String]) -> Vec<OsString> {
    pick(args, |name| name == "no-color")
}

pub fn of_plan(args: &[String]) -> Vec<OsString> {
    pick(args, |name| !APPLY_ONLY.contains(&name) && name != "detailed-exitcode")
}

/// The flags for `apply` with a plan file.
pub fn of_apply(args: &[String]) -> Vec<OsString> {
    pick(args, |name| BOTH.contains(&name) || (APPLY_ONLY.contains(&name) && name != "auto-approve"))
}

/// Whether `-detailed-exitcode` is given.
pub fn wants_detailed_exit_code(args: &[String]) -> bool {
    args.iter().any(|arg| flag(arg) == Some("detailed-exitcode") && !arg.ends_with("=false"))
}

/// Whether `-upgrade` is given.
pub fn upgrades(args: &[String]) -> bool {
    args.iter().any(|arg| flag(arg) == Some("upgrade") && !arg.ends_with("=false"))
}

/// The first flag that names a file for a state or for generated configuration. Such a file would be lost with the pod, and
/// the stored state would not be the one that the command changes.
pub fn file_in_pod(args: &[String]) -> Option<&str> {
    args.iter().filter_map(|arg| flag(arg)).find(|name| ["state", "state-out", "generate-config-out"].contains(name))
}

fn pick(args: &[String], accept: impl Fn(&str) -> bool) -> Vec<OsString> {
    let mut picked = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(name) = flag(arg) else {
            // A value of a flag that only `plan` has, or an argument that terraform has to reject.
            if accept("") {
                picked.push(arg.into());
            }
            continue;
        };
        let value = if !arg.contains('=') && WITH_VALUE.contains(&name) { args.next() } else { None };
        if accept(name) {
            picked.push(arg.into());
            picked.extend(value.map(OsString::from));
        }
    }
    picked
}

/// The name of a flag. Terraform accepts one dash or two.
fn flag(arg: &str) -> Option<&str> {
    let name = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))?;
    Some(name.split('=').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(args: &str, plan: &str, apply: &str) {
        let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        let words = |args: Vec<OsString>| args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ");
        assert_eq!(words(of_plan(&args)), plan);
        assert_eq!(words(of_apply(&args)), apply);
    }

    #[test]
    fn each_command_gets_the_flags_that_it_knows() {
        check("-target=a.b -var x=1 -var-file v.tfvars", "-target=a.b -var x=1 -var-file v.tfvars", "");
        check("-auto-approve -parallelism=3", "-parallelism=3", "-parallelism=3");
        check(
            "--auto-approve=true -parallelism 3 -lock-timeout 5s",
            "-parallelism 3 -lock-timeout 5s",
            "-parallelism 3 -lock-timeout 5s",
        );
        check("-backup - -var a=b", "-var a=b", "-backup -");
        check("-detailed-exitcode -no-color word", "-no-color word", "-no-color");
    }

    #[test]
    fn a_state_was_written_to_a_file_that_was_lost_with_the_pod() {
        let found = |args: &str| {
            let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
            file_in_pod(&args).map(str::to_owned)
        };
        assert_eq!(found("-no-color -state-out=x").as_deref(), Some("state-out"));
        assert_eq!(found("--state x a.b").as_deref(), Some("state"));
        assert_eq!(found("-generate-config-out=gen.tf").as_deref(), Some("generate-config-out"));
        assert_eq!(found("-var state=x state -backup=-"), None);
    }

    #[test]
    fn a_detailed_exit_code_is_asked_for() {
        let wants = |arg: &str| wants_detailed_exit_code(&[arg.to_owned()]);
        assert!(wants("-detailed-exitcode") && wants("--detailed-exitcode=true"));
        assert!(!wants("-detailed-exitcode=false") && !wants("-json"));
    }
}
