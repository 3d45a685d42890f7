//! The user's own flags for `plan` and `apply`, which a run carries out as two commands. Pure.

use std::ffi::OsString;

/// Flags of `terraform apply` that `terraform plan` does not know.
const APPLY_ONLY: [&str; 3] = ["auto-approve", "backup", "state-out"];
/// Flags that both take, also when `apply` is given a plan.
const BOTH: [&str; 8] =
    ["compact-warnings", "input", "json", "lock", "lock-timeout", "no-color", "parallelism", "show-sensitive"];
/// Flags of [`APPLY_ONLY`] and [`BOTH`] whose value may be the next word.
const WITH_VALUE: [&str; 4] = ["backup", "lock-timeout", "parallelism", "state-out"];

/// The flags for `init`, which the user did not call: only those about how things look.
pub fn of_init(args: &[String]) -> Vec<OsString> {
    pick(args, |name| name == "no-color")
}

/// The flags for `plan`.
pub fn of_plan(args: &[String]) -> Vec<OsString> {
    pick(args, |name| !APPLY_ONLY.contains(&name) && name != "detailed-exitcode")
}

/// The flags for `apply`, when it is given a plan.
pub fn of_apply(args: &[String]) -> Vec<OsString> {
    pick(args, |name| BOTH.contains(&name) || (APPLY_ONLY.contains(&name) && name != "auto-approve"))
}

/// Whether the user wants to tell a plan with changes by its exit code.
pub fn wants_detailed_exit_code(args: &[String]) -> bool {
    args.iter().any(|arg| flag(arg) == Some("detailed-exitcode") && !arg.ends_with("=false"))
}

fn pick(args: &[String], wanted: impl Fn(&str) -> bool) -> Vec<OsString> {
    let mut picked = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(name) = flag(arg) else {
            // A value of a flag that only `plan` has, or a word that terraform has to refuse.
            if wanted("") {
                picked.push(arg.into());
            }
            continue;
        };
        let value = if !arg.contains('=') && WITH_VALUE.contains(&name) { args.next() } else { None };
        if wanted(name) {
            picked.push(arg.into());
            picked.extend(value.map(OsString::from));
        }
    }
    picked
}

/// The name of a flag, which terraform takes with one dash or two.
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
    fn a_detailed_exit_code_is_asked_for() {
        let wants = |arg: &str| wants_detailed_exit_code(&[arg.to_owned()]);
        assert!(wants("-detailed-exitcode") && wants("--detailed-exitcode=true"));
        assert!(!wants("-detailed-exitcode=false") && !wants("-json"));
    }
}
