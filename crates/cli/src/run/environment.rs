//! What a run takes of the user's environment, and a hint about the rest.

use std::collections::BTreeMap;
use std::path::PathBuf;

use knoll_storage::inputs;

use crate::style;

/// The variables to send with the run. Without `--with-env` there are none: many are set for other modules.
pub fn take(words: &str, with_env: bool) -> BTreeMap<String, String> {
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let (sent, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
        all.filter(|(name, _)| is_terraforms(name)).partition(|(name, _)| with_env && inputs::is_sent(name));
    let left: Vec<String> = left.into_keys().collect();
    let named = std::env::var_os(CONFIG_FILE).filter(|file| !file.is_empty()).map(PathBuf::from);
    if let Some(hint) = hint(&left, settings(words, named, std::env::home_dir()).as_deref()) {
        style::note(&hint);
    }
    sent
}

/// The settings file that terraform on this machine would use: they matter where providers are installed.
fn settings(words: &str, named: Option<PathBuf>, home: Option<PathBuf>) -> Option<String> {
    if !INSTALLING.contains(&words) {
        return None;
    }
    // A file that does not exist has no settings to miss.
    let (file, called) = match named {
        Some(file) => (file, format!("the file of `{CONFIG_FILE}`")),
        None => (home?.join(".terraformrc"), "`~/.terraformrc`".to_owned()),
    };
    file.is_file().then_some(called)
}

const CONFIG_FILE: &str = "TF_CLI_CONFIG_FILE";

/// The commands for whose sake providers are installed, from a mirror or a registry that the settings may name.
const INSTALLING: [&str; 6] = ["init", "plan", "apply", "destroy", "refresh", "import"];

/// Whether terraform on this machine would use the variable.
fn is_terraforms(name: &str) -> bool {
    inputs::is_sent(name) || name.starts_with("TF_CLI_ARGS") || name == "TF_WORKSPACE"
}

/// Names what is not sent, and what to use instead.
fn hint(left: &[String], settings: Option<&str>) -> Option<String> {
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
        names if names.iter().any(|name| name.starts_with("TF_CLI_ARGS")) => {
            "; write the flags into the command, or `variables` with `category: env` into the workspace (`knoll workspace edit`)"
        }
        _ => "; `-w NAME` or `knoll workspace select NAME` selects a workspace",
    };
    let settings = settings.map(|settings| format!("{settings} is not passed to the run"));
    match (first, settings) {
        (None, None) => None,
        (None, Some(settings)) => {
            Some(format!("{settings}; use `TF_TOKEN_*` with --with-env, or an image that has the settings"))
        }
        (Some(first), None) => Some(format!("{first}{ways}")),
        (Some(first), Some(settings)) => Some(format!("{first}{ways}\n  {settings}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_file_that_does_not_exist_was_missed_by_each_run() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| Some(home.path().join(name));
        let found = |words: &str, named: Option<PathBuf>| settings(words, named, at(""));
        assert_eq!((found("plan", at("none")), found("plan", None)), (None, None));
        std::fs::write(home.path().join(".terraformrc"), "").unwrap();
        assert_eq!(found("plan", None).as_deref(), Some("`~/.terraformrc`"));
        assert_eq!(found("plan", at("none")), None, "terraform reads the file of the variable only");
        assert_eq!(found("plan", at(".terraformrc")).as_deref(), Some("the file of `TF_CLI_CONFIG_FILE`"));
        assert_eq!(found("output", None), None);
    }

    #[test]
    fn what_is_left_behind_is_named_with_what_to_do() {
        let rows: [(&[&str], Option<&str>, Option<&str>); 6] = [
            (&[], None, None),
            (&["TF_VAR_a"], None, Some("`TF_VAR_a` of your environment is not passed to the run; use --with-env")),
            (
                &["TF_CLI_ARGS_plan", "TF_VAR_a"],
                None,
                Some("`TF_CLI_ARGS_plan` and 1 more of your environment are not"),
            ),
            (
                &["TF_CLI_ARGS_plan"],
                None,
                Some("`TF_CLI_ARGS_plan` of your environment is not passed to the run; write"),
            ),
            (&[], Some("`~/.terraformrc`"), Some("`~/.terraformrc` is not passed to the run; use")),
            (&["TF_WORKSPACE"], None, Some("`TF_WORKSPACE` of your environment is not passed to the run")),
        ];
        for (left, settings, expect) in rows {
            let left: Vec<String> = left.iter().map(|&name| name.to_owned()).collect();
            let said = hint(&left, settings);
            let is_so = match (&said, expect) {
                (Some(said), Some(expect)) => said.starts_with(expect),
                (said, expect) => said.is_none() && expect.is_none(),
            };
            assert!(is_so, "{left:?} {settings:?}: {said:?}");
        }
    }

    #[test]
    fn a_settings_file_was_named_by_commands_that_install_nothing() {
        for words in ["state list", "untaint", "validate", "output", "graph"] {
            assert_eq!(settings(words, None, None), None, "{words}");
        }
    }
}
