//! `knoll state diff`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use owo_colors::OwoColorize;
use serde_json::Value;

use super::pull;
use crate::connect::Connection;
use crate::output::{self, Format, OutputArgs, visible_line};
use crate::style;
use crate::workspace::{Session, WorkspaceArg};

/// The arguments of `knoll state diff`.
#[derive(clap::Args)]
pub struct StateDiffArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    workspace: WorkspaceArg,
    #[command(flatten)]
    output: OutputArgs,
    /// The serial of the older state
    a: u64,
    /// The serial of the newer state [default: the current state]
    b: Option<u64>,
}

/// Prints the differences between two states. The exit code is 1 when there are any, as with diff.
pub async fn run(args: StateDiffArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let workspace = session.workspace_name(&args.workspace)?;
    let read = async |serial| {
        let bytes = pull::read(&session, &workspace, serial).await?;
        let state: Value = serde_json::from_slice(&bytes).context("cannot parse the state")?;
        anyhow::Ok(state)
    };
    let (before, after) = (read(Some(args.a)).await?, read(args.b).await?);
    let changes = compare(&before, &after);
    match args.output.output {
        Format::Table | Format::Wide => output::print(&text(&changes, style::stdout_is_coloured()))?,
        Format::Name => changes.iter().try_for_each(|change| output::print(&format!("{}\n", change.name)))?,
        format => {
            let list = changes.iter().map(
                |Change { name, before, after }| serde_json::json!({"name": name, "before": before, "after": after}),
            );
            output::value(&serde_json::json!({"changes": list.collect::<Vec<_>>()}), format)?;
        }
    }
    Ok(if changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A resource or an output that differs.
struct Change {
    name: String,
    before: Option<Value>,
    after: Option<Value>,
}

fn compare(before: &Value, after: &Value) -> Vec<Change> {
    let (mut old, mut new) = (by_address(before), by_address(after));
    let names: BTreeSet<String> = old.keys().chain(new.keys()).cloned().collect();
    let changes = names.into_iter().map(|name| Change { before: old.remove(&name), after: new.remove(&name), name });
    changes.filter(|change| change.before != change.after).collect()
}

/// Formats each change with its differing lines.
fn text(changes: &[Change], colour: bool) -> String {
    let mut out = String::new();
    for Change { name, before: old, after: new } in changes {
        let lines = |part: Option<&Value>| {
            part.and_then(|part| serde_json::to_string_pretty(part).ok()).map(|text| text + "\n").unwrap_or_default()
        };
        let sign = match (old, new) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '~',
        };
        let _ = writeln!(out, "{sign} {}", visible_line(name));
        let (old, new) = (lines(old.as_ref()), lines(new.as_ref()));
        for change in similar::TextDiff::from_lines(&old, &new).iter_all_changes() {
            let line = visible_line(change.value().trim_end_matches('\n'));
            let _ = match (change.tag(), colour) {
                (similar::ChangeTag::Equal, _) => continue,
                (similar::ChangeTag::Delete, true) => writeln!(out, "    {}", format!("- {line}").red()),
                (similar::ChangeTag::Insert, true) => writeln!(out, "    {}", format!("+ {line}").green()),
                (similar::ChangeTag::Delete, false) => writeln!(out, "    - {line}"),
                (similar::ChangeTag::Insert, false) => writeln!(out, "    + {line}"),
            };
        }
    }
    out
}

/// All resource instances and outputs by address. Sensitive values are masked.
fn by_address(state: &Value) -> BTreeMap<String, Value> {
    let mut entries = BTreeMap::new();
    for resource in state["resources"].as_array().into_iter().flatten() {
        let text = |key: &str| resource[key].as_str().unwrap_or_default();
        let module = resource["module"].as_str().map(|module| format!("{module}.")).unwrap_or_default();
        let data = if text("mode") == "data" { "data." } else { "" };
        for instance in resource["instances"].as_array().into_iter().flatten() {
            let key = match &instance["index_key"] {
                Value::Null => String::new(),
                key => format!("[{key}]"),
            };
            let address = format!("{module}{data}{}.{}{key}", text("type"), text("name"));
            entries.insert(address, without_secrets(instance));
        }
    }
    for (name, value) in state["outputs"].as_object().into_iter().flatten() {
        let sensitive = value["sensitive"].as_bool().unwrap_or_default();
        let shown = if sensitive { Value::from("(sensitive value)") } else { value["value"].clone() };
        entries.insert(format!("output.{name}"), shown);
    }
    entries
}

/// The attributes of an instance. Those that terraform marks as sensitive are masked.
fn without_secrets(instance: &Value) -> Value {
    let mut attributes = instance["attributes"].clone();
    for path in instance["sensitive_attributes"].as_array().into_iter().flatten() {
        let first = path.as_array().and_then(|steps| steps.first()).unwrap_or(path);
        if let Some(field) = first["value"].as_str().and_then(|name| attributes.get_mut(name)) {
            *field = "(sensitive value)".into();
        }
    }
    attributes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(size: u32, secret: &str, more: bool) -> Value {
        let mut resources = vec![json!({"mode": "managed", "type": "a", "name": "b", "instances": [{
            "attributes": {"size": size, "password": secret},
            "sensitive_attributes": [[{"type": "get_attr", "value": "password"}]],
        }]})];
        if more {
            resources.push(json!({"module": "module.m", "mode": "data", "type": "c", "name": "d",
                "instances": [{"index_key": 0, "attributes": {"x": 1}}]}));
        }
        json!({"resources": resources, "outputs": {"o": {"value": secret, "sensitive": true}, "size": {"value": size}}})
    }

    #[test]
    fn what_differs_is_shown_and_secrets_are_not() {
        let changes = compare(&state(1, "old-secret", false), &state(2, "new-secret", true));
        let expect = "~ a.b\n    -   \"size\": 1\n    +   \"size\": 2\n\
                      + module.m.data.c.d[0]\n    + {\n    +   \"x\": 1\n    + }\n\
                      ~ output.size\n    - 1\n    + 2\n";
        assert_eq!(text(&changes, false), expect);
        assert!(compare(&state(1, "a", false), &state(1, "a", false)).is_empty());
    }
}
