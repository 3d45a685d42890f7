//! What the plan of a Run is for: one function for those who judge a Run and for the runner that carries it out. Pure.

use crate::run::Operation;

/// The mode of terraform's plan. The runner enforces it, whatever else the arguments and the environment of terraform say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanMode {
    /// The plan destroys everything.
    pub destroy: bool,
    /// The plan only updates the state.
    pub refresh_only: bool,
}

impl PlanMode {
    /// The mode of a Run of this operation with these arguments. `destroy` and `refresh` are what they are called; the
    /// flags of `plan` and `apply` can make the same of them.
    #[must_use]
    pub fn of(operation: Operation, args: &[String]) -> Self {
        match operation {
            Operation::Destroy => Self { destroy: true, refresh_only: false },
            Operation::Refresh => Self { destroy: false, refresh_only: true },
            Operation::Plan | Operation::Apply => {
                Self { destroy: is_set(args, "destroy"), refresh_only: is_set(args, "refresh-only") }
            }
            Operation::Command => Self::default(),
        }
    }

    /// The last arguments of a plan. Terraform lets the last one of a flag count. A flag that lacks its value takes the
    /// next word for it, so the first of these words is one that may be lost.
    #[must_use]
    pub fn flags(self) -> [String; 3] {
        let destroy = format!("-destroy={}", self.destroy);
        let refresh_only = format!("-refresh-only={}", self.refresh_only);
        [refresh_only.clone(), destroy, refresh_only]
    }
}

/// The name of a flag and its value: `-destroy`, `--destroy` and `-destroy=true` are the flag `destroy`.
#[must_use]
pub fn flag(arg: &str) -> Option<(&str, Option<&str>)> {
    let name = arg.trim_start().strip_prefix('-')?;
    let name = name.strip_prefix('-').unwrap_or(name);
    Some(name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value))))
}

/// Whether the last of these flags sets it. What terraform would not read counts as set.
fn is_set(args: &[String], wanted: &str) -> bool {
    let last = args.iter().rev().filter_map(|arg| flag(arg)).find(|(name, _)| *name == wanted);
    last.is_some_and(|(_, value)| !value.is_some_and(|value| FALSE.contains(&value)))
}

/// The words that Go's flags take for no.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(operation: Operation, args: &str, expect: (bool, bool)) {
        let words: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        let PlanMode { destroy, refresh_only } = PlanMode::of(operation, &words);
        assert_eq!((destroy, refresh_only), expect, "{operation:?} {args}");
    }

    /// `refresh` with `-refresh-only=false` was an apply that nobody reviewed.
    #[test]
    fn an_operation_is_what_it_is_called() {
        for args in ["", "-destroy", "-destroy=false", "-refresh-only=false", "--refresh-only=0 -destroy=T"] {
            check(Operation::Destroy, args, (true, false));
            check(Operation::Refresh, args, (false, true));
        }
        for operation in [Operation::Apply, Operation::Plan] {
            check(operation, "-target=destroy -var destroy", (false, false));
            check(operation, "-destroy", (true, false));
            check(operation, "--destroy=1", (true, false));
            check(operation, "-destroy=perhaps", (true, false));
            check(operation, "-destroy -destroy=false", (false, false));
            check(operation, "-destroy=False -destroy", (true, false));
            check(operation, "-refresh-only", (false, true));
        }
        let flags = PlanMode { destroy: true, refresh_only: false }.flags();
        assert_eq!(flags.join(" "), "-refresh-only=false -destroy=true -refresh-only=false");
    }
}
