//! `knoll stack graph`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use knoll_api::Stack;
use knoll_core::stack::needs;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

use crate::connect::{Connection, Explain};
use crate::output::{self, Format, OutputArgs, visible};
use crate::style;
use crate::workspace::Session;

/// The arguments of `knoll stack graph`.
#[derive(clap::Args)]
pub struct StackGraphArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the dependencies between Stacks.
pub async fn run(args: StackGraphArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let list = session.api::<Stack>().list(&ListParams::default()).await;
    let list = list.explain(&session.cluster, "cannot list stacks")?.items;
    match args.output.output {
        Format::Table | Format::Wide if list.is_empty() => {
            style::hint_aside(&format!("No stacks found in namespace `{}`.", session.namespace));
        }
        Format::Table | Format::Wide => output::print(&visible(&draw(&list)))?,
        Format::Name => list.iter().try_for_each(output::name)?,
        format => output::value(&edges(&list), format)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Each Stack with its dependencies.
fn edges(list: &[Stack]) -> serde_json::Value {
    let node = |stack: &Stack| {
        let phase = stack.status.as_ref().map(|status| status.phase).unwrap_or_default();
        json!({"name": stack.name_any(), "phase": phase.as_str(), "needs": needs(stack)})
    };
    json!({"stacks": list.iter().map(node).collect::<Vec<_>>()})
}

/// Draws each Stack below its dependencies, beginning with those that have none. The dependents of a Stack are drawn
/// only the first time it appears.
fn draw(list: &[Stack]) -> String {
    let names: BTreeMap<String, &Stack> = list.iter().map(|stack| (stack.name_any(), stack)).collect();
    let mut needed_by: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, stack) in &names {
        for needed in needs(stack) {
            needed_by.entry(needed).or_default().insert(name);
        }
    }
    let missing = needed_by.keys().copied().filter(|name| !names.contains_key(*name));
    let first = names.iter().filter(|(_, stack)| needs(stack).is_empty()).map(|(name, _)| name.as_str());
    let mut picture = Picture { names: &names, needed_by: &needed_by, drawn: BTreeSet::new(), out: String::new() };
    for name in first.chain(missing) {
        picture.below(name, 0);
    }
    // The remaining Stacks form cycles.
    for name in names.keys() {
        if !picture.drawn.contains(name.as_str()) {
            picture.below(name, 0);
        }
    }
    picture.out
}

struct Picture<'a> {
    names: &'a BTreeMap<String, &'a Stack>,
    needed_by: &'a BTreeMap<&'a str, BTreeSet<&'a str>>,
    drawn: BTreeSet<&'a str>,
    out: String,
}

impl<'a> Picture<'a> {
    fn below(&mut self, name: &'a str, depth: usize) {
        let phase = match self.names.get(name) {
            Some(stack) => stack.status.as_ref().map(|status| status.phase).unwrap_or_default().as_str(),
            None => "not found",
        };
        let again = !self.drawn.insert(name);
        let more = if again && self.needed_by.contains_key(name) { " ..." } else { "" };
        let _ = writeln!(self.out, "{:width$}{name} ({phase}){more}", "", width = depth * 2);
        if again {
            return;
        }
        for other in self.needed_by.get(name).into_iter().flatten() {
            self.below(other, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use knoll_api::source::LocalRef;
    use knoll_api::stack::StackSpec;

    use super::*;

    fn stack(name: &str, needs: &[&str]) -> Stack {
        let depends_on = needs.iter().map(|name| LocalRef { name: (*name).to_owned() }).collect();
        Stack::new(name, StackSpec { depends_on, ..StackSpec::default() })
    }

    #[test]
    fn stacks_are_drawn_below_those_that_they_need() {
        let list = [stack("web", &["net", "db"]), stack("net", &[]), stack("db", &["net"]), stack("lone", &["gone"])];
        let expect =
            "net (Pending)\n  db (Pending)\n    web (Pending)\n  web (Pending)\ngone (not found)\n  lone (Pending)\n";
        assert_eq!(draw(&list), expect);
    }

    #[test]
    fn a_circle_ends() {
        let list = [stack("a", &["b"]), stack("b", &["a"])];
        assert_eq!(draw(&list), "a (Pending)\n  b (Pending)\n    a (Pending) ...\n");
    }
}
