//! What a run takes of the user's environment, and a hint about the rest.

use std::collections::BTreeMap;

use knoll_storage::inputs;

use crate::style;

/// The variables to send with the run. Without `--with-env` there are none: many are set for other modules.
pub fn take(with_env: bool) -> BTreeMap<String, String> {
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let (sent, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
        all.filter(|(name, _)| is_terraforms(name)).partition(|(name, _)| with_env && inputs::is_sent(name));
    let left: Vec<String> = left.into_keys().collect();
    let settings = std::env::home_dir().is_some_and(|home| home.join(".terraformrc").is_file());
    if let Some(hint) = hint(&left, settings) {
        style::note(&hint);
    }
    sent
}

/// Whether terraform on this machine would use the variable.
fn is_terraforms(name: &str) -> bool {
    inputs::is_sent(name) || name.starts_with("TF_CLI_ARGS") || name == "TF_CLI_CONFIG_FILE" || name == "TF_WORKSPACE"
}

/// Names what is not sent, and what to use instead.
fn hint(left: &[String], settings: bool) -> Option<String> {
    let first = left.first().map(|first| {
        let others = left.len() - 1;
        match others {
            0 => format!("`{first}` of your environment is not passed to the run"),
            _ => format!("`{first}` and {others} more of your environment are not passed to the run"),
        }
    });
    let ways = match left {
        [] => "",
        names if names.iter().any(|name| inputs::is_sent(name)) => {
            "; use --with-env, -var, a .tfvars file or `knoll workspace edit`"
        }
        _ => {
            "; write the flags into the command, or `variables` with `category: env` into the workspace (`knoll workspace edit`)"
        }
    };
    match (first, settings) {
        (None, false) => None,
        (None, true) => {
            Some(format!("{SETTINGS}; use `TF_TOKEN_*` with --with-env, or an image that has the settings"))
        }
        (Some(first), false) => Some(format!("{first}{ways}")),
        (Some(first), true) => Some(format!("{first}{ways}\n  {SETTINGS}")),
    }
}

const SETTINGS: &str = "`~/.terraformrc` is not passed to the run";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_behind_is_named_with_what_to_do() {
        let rows: [(&[&str], bool, Option<&str>); 5] = [
            (&[], false, None),
            (&["TF_VAR_a"], false, Some("`TF_VAR_a` of your environment is not passed to the run; use --with-env")),
            (
                &["TF_CLI_ARGS_plan", "TF_VAR_a"],
                false,
                Some("`TF_CLI_ARGS_plan` and 1 more of your environment are not"),
            ),
            (
                &["TF_CLI_ARGS_plan"],
                false,
                Some("`TF_CLI_ARGS_plan` of your environment is not passed to the run; write"),
            ),
            (&[], true, Some("`~/.terraformrc` is not passed to the run; use")),
        ];
        for (left, settings, expect) in rows {
            let left: Vec<String> = left.iter().map(|&name| name.to_owned()).collect();
            let said = hint(&left, settings);
            let is_so = match (&said, expect) {
                (Some(said), Some(expect)) => said.starts_with(expect),
                (said, expect) => said.is_none() && expect.is_none(),
            };
            assert!(is_so, "{left:?} {settings}: {said:?}");
        }
    }
}
