//! Which commands terraform answers from the state alone, without providers and without `init`. Pure.
//!
//! Such a command runs in the directory of the state file, where terraform finds it without a configuration.

use knoll_api::wire::stored;
use serde::Deserialize;

/// The only provider that is part of terraform.
const BUILTIN: &str = "terraform.io/builtin/terraform";

/// Whether `command` with `args` needs nothing but `state`.
pub fn suffices(command: &str, args: &[String], state: &[u8]) -> bool {
    // A path is meant from the module's directory.
    let has_path = args.iter().any(|arg| {
        let flag = arg.trim_start_matches('-');
        arg.starts_with('-') && (flag.starts_with("state") || flag.starts_with("backup"))
    });
    let is_value = |arg: &&String| !arg.starts_with('-');
    let words: Vec<&str> = command.split_whitespace().chain(args.iter().filter(is_value).map(String::as_str)).collect();
    match words[..] {
        _ if has_path => false,
        ["output" | "force-unlock", ..] | ["state", "list" | "mv" | "rm" | "replace-provider" | "pull", ..] => true,
        ["state", "push", address] => {
            [stored::UPLOAD, stored::HISTORY].iter().any(|prefix| address.starts_with(prefix))
        }
        // These print values by the schemas of their providers.
        ["show"] | ["state", "show", ..] => is_builtin(state),
        _ => false,
    }
}

/// Whether the state has no resource of another provider than terraform's own.
fn is_builtin(state: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct State {
        #[serde(default)]
        resources: Vec<Resource>,
    }
    #[derive(Deserialize)]
    struct Resource {
        #[serde(default)]
        provider: String,
    }
    let parsed = serde_json::from_slice::<State>(state);
    state.is_empty() || parsed.is_ok_and(|state| state.resources.iter().all(|of| of.provider.contains(BUILTIN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_commands_need_the_state_alone() {
        let builtin = r#"{"resources": [{"provider": "provider[\"terraform.io/builtin/terraform\"]"}]}"#;
        let other = r#"{"resources": [{"provider": "provider[\"registry.terraform.io/hashicorp/null\"]"}]}"#;
        let rows = [
            ("output", "-json", other, true),
            ("state list", "", other, true),
            ("state", "list -id=x", other, true),
            ("state mv", "a.b a.c", other, true),
            ("state rm", "-dry-run a.b", other, true),
            ("state pull", "", other, true),
            ("state push", "-force knoll://upload/sha256:ab", other, true),
            ("state push", "knoll://history/3", other, true),
            ("force-unlock", "-force x", other, true),
            ("show", "-json", builtin, true),
            ("show", "", "", true),
            ("state show", "a.b", builtin, true),
            ("show", "-json", other, false),
            ("state show", "a.b", other, false),
            ("show", "plan.bin", builtin, false),
            ("state push", "local.tfstate", builtin, false),
            ("state mv", "-state-out=x a.b a.c", builtin, false),
            ("output", "-state=x", builtin, false),
            ("plan", "", builtin, false),
            ("import", "a.b i-1", builtin, false),
            ("console", "", builtin, false),
            ("sh", "", builtin, false),
        ];
        for (command, args, state, expect) in rows {
            let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
            assert_eq!(suffices(command, &args, state.as_bytes()), expect, "{command} {args:?} {state}");
        }
    }
}
