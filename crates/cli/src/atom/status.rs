//! `knoll atom status`.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use knoll_api::atom::{Atom, AtomPhase, ObjectKey};
use knoll_api::names::condition;
use knoll_core::conditions;
use kube::ResourceExt;

use super::{get, wait};
use crate::connect::Connection;
use crate::output::table::Tone;
use crate::output::{self, OutputArgs, visible};
use crate::workspace::Session;

/// The arguments of `knoll atom status`.
#[derive(clap::Args)]
pub struct AtomStatusArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    /// The name of the atom
    #[arg(add = crate::complete::atoms(), value_parser = crate::workspace::plain_name::<knoll_api::Atom>)]
    name: String,
    /// Wait until no update is in progress
    #[arg(long, env = "KNOLL_WAIT")]
    wait: bool,
}

pub async fn run(args: AtomStatusArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let atom = get(&session, &args.name).await?;
    if args.wait {
        // Nothing is requested here, whatever an earlier request left in the annotations.
        let mut asked = atom;
        asked.metadata.annotations = None;
        return wait::until_rest(&session, &asked, None).await;
    }
    output::one(&atom, args.output.output, |_| tree(&atom, usize::MAX))?;
    let phase = atom.status.as_ref().map(|status| status.phase).unwrap_or_default();
    Ok(wait::code(phase).unwrap_or(ExitCode::SUCCESS))
}

/// Formats the Atom and its objects. When there is not room for all objects, those that are not ready come first.
pub fn tree(atom: &Atom, room: usize) -> String {
    let status = atom.status.clone().unwrap_or_default();
    let mut out = String::new();
    let current = status.current_version.as_deref().unwrap_or("-");
    let good = status.last_good_version.as_deref().unwrap_or("-");
    let _ = writeln!(out, "{}  {}", atom.name_any(), status.phase.as_str());
    let _ = writeln!(out, "  target {}, current {current}, last healthy {good}", atom.spec.version);
    let message = message(atom);
    if !message.is_empty() {
        let _ = writeln!(out, "  {message}");
    }
    let mut objects: Vec<_> = status.objects.iter().collect();
    if objects.len() > room {
        objects.sort_by_key(|object| object.ready);
    }
    let left = objects.len().saturating_sub(room);
    for (index, object) in objects.iter().take(room).enumerate() {
        let branch = if index + 1 == objects.len() { "└─" } else { "├─" };
        let state = if object.ready { "ready" } else { object.message.as_deref().unwrap_or("written") };
        let _ = writeln!(out, "  {branch} {}  {state}", shown(&object.object, atom));
    }
    if left > 0 {
        let _ = writeln!(out, "  └─ and {left} more");
    }
    visible(&out)
}

/// The message of the Atom's Ready condition.
pub fn message(atom: &Atom) -> String {
    let all = atom.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::find(all, condition::READY).map(|ready| ready.message.clone()).unwrap_or_default()
}

/// The colour of a phase.
pub fn tone(phase: AtomPhase) -> Tone {
    match phase {
        AtomPhase::Pending => Tone::Waits,
        AtomPhase::Running => Tone::Good,
        AtomPhase::Updating | AtomPhase::Rollback => Tone::Busy,
        _ => Tone::Bad,
    }
}

/// The kind and the name of an object, and its namespace if it is not the Atom's.
fn shown(key: &ObjectKey, atom: &Atom) -> String {
    match &key.namespace {
        Some(namespace) if Some(namespace) != atom.metadata.namespace.as_ref() => {
            format!("{} {namespace}/{}", key.kind, key.name)
        }
        _ => format!("{} {}", key.kind, key.name),
    }
}

#[cfg(test)]
mod tests {
    use knoll_api::atom::{AtomObject, AtomSpec, AtomStatus};

    use super::*;

    #[test]
    fn a_tree_shows_what_is_not_ready_first_when_room_is_scarce() {
        let mut atom = Atom::new("web", AtomSpec { version: "v2".to_owned(), ..AtomSpec::default() });
        let object = |name: &str, ready: bool| AtomObject {
            object: ObjectKey { kind: "ConfigMap".to_owned(), name: name.to_owned(), ..ObjectKey::default() },
            ready,
            message: (!ready).then(|| "Not yet.".to_owned()),
            ..AtomObject::default()
        };
        let objects = vec![object("a", true), object("b", false)];
        atom.status = Some(AtomStatus { phase: AtomPhase::Updating, objects, ..AtomStatus::default() });
        let head = "web  Updating\n  target v2, current -, last healthy -\n";
        assert_eq!(tree(&atom, 9), format!("{head}  ├─ ConfigMap a  ready\n  └─ ConfigMap b  Not yet.\n"));
        assert_eq!(tree(&atom, 1), format!("{head}  ├─ ConfigMap b  Not yet.\n  └─ and 1 more\n"));
    }
}
