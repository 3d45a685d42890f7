//! Which state may take the place of the stored one. Pure.

use knoll_api::Digest;
use knoll_api::run::{Operation, RunSpec};

use super::file::StateFile;
use super::head::Version;

/// What becomes of a state that is handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is a new version.
    Stored,
    /// It is the current version already: an earlier write of it got no answer.
    Known,
}

/// Why a state may not take the place of the stored one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the state has the lineage `{new}`, but the Workspace's state has `{stored}`; they are not of the same infrastructure; `state push -force` replaces it"
    )]
    Lineage { new: String, stored: String },
    #[error("the state has the serial {new}, but the Workspace's state has {stored} already, with other content")]
    Serial { new: u64, stored: u64 },
}

/// Whether `next` may take the place of `current`: it has the same lineage and a higher serial. With `force` it may have
/// another lineage.
///
/// # Errors
/// When it may not.
pub fn follows(current: Option<&Version>, next: &StateFile, digest: &Digest, force: bool) -> Result<Taken, Refusal> {
    let Some(current) = current else {
        return Ok(Taken::Stored);
    };
    if current.digest == *digest {
        return Ok(Taken::Known);
    }
    if current.lineage != next.lineage {
        return match force {
            true => Ok(Taken::Stored),
            false => Err(Refusal::Lineage { new: next.lineage.clone(), stored: current.lineage.clone() }),
        };
    }
    if current.serial >= next.serial {
        return Err(Refusal::Serial { new: next.serial, stored: current.serial });
    }
    Ok(Taken::Stored)
}

/// Whether a Run may put a state of another lineage in the place of the stored one: `state push -force` only.
#[must_use]
pub fn may_force(spec: &RunSpec) -> bool {
    let words = spec.command.as_deref().unwrap_or_default().split_whitespace();
    spec.operation == Operation::Command && words.eq(["state", "push"]) && spec.args.iter().any(|arg| is_force(arg))
}

fn is_force(arg: &str) -> bool {
    matches!(arg.trim_start_matches('-'), "force" | "force=true" | "force=1") && arg.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::super::{push, rollback};
    use super::*;

    fn version(serial: u64, lineage: &str, content: &str) -> Version {
        Version {
            serial,
            lineage: lineage.to_owned(),
            digest: Digest::of(content),
            resources: 0,
            updated_at: String::new(),
            run: "r".to_owned(),
            parts: Vec::new(),
        }
    }

    #[test]
    fn a_state_follows_on_its_own_lineage_with_a_higher_serial() {
        let lineage = || Err(Refusal::Lineage { new: "other".to_owned(), stored: "l".to_owned() });
        let serial = |new| Err(Refusal::Serial { new, stored: 2 });
        // What is stored, what is handed in (serial, lineage, content), with force, the decision.
        let two = || Some(version(2, "l", "b"));
        let rows = [
            (None, (1, "l", "a"), false, Ok(Taken::Stored)),
            (None, (1, "l", "a"), true, Ok(Taken::Stored)),
            (two(), (3, "l", "c"), false, Ok(Taken::Stored)),
            (two(), (9, "l", "c"), false, Ok(Taken::Stored)),
            (two(), (2, "l", "b"), false, Ok(Taken::Known)),
            (two(), (2, "l", "b"), true, Ok(Taken::Known)),
            (two(), (2, "l", "c"), false, serial(2)),
            (two(), (1, "l", "c"), false, serial(1)),
            // Terraform gives a forced push the next serial; an older one of the same lineage is a late write.
            (two(), (1, "l", "c"), true, serial(1)),
            (two(), (9, "other", "c"), false, lineage()),
            (two(), (1, "other", "c"), true, Ok(Taken::Stored)),
        ];
        for (current, (serial, lineage, content), force, expect) in rows {
            let file = StateFile { serial, lineage: lineage.to_owned(), resources: 0, outputs: Default::default() };
            let decided = follows(current.as_ref(), &file, &Digest::of(content), force);
            assert_eq!(decided, expect, "{current:?} < {serial} {lineage} {content} {force}");
        }
    }

    #[test]
    fn only_a_forced_push_may_change_the_lineage() {
        let with = |command: &str, args: &[&str]| RunSpec {
            command: Some(command.to_owned()),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            ..push("w", b"", false)
        };
        let rows = [
            (rollback("w", 3), true),
            (push("w", b"", true), true),
            (push("w", b"", false), false),
            (with("state push", &["--force", "s"]), true),
            (with("state  push", &["-force=true", "s"]), true),
            (with("state push", &["-force=false", "s"]), false),
            (with("state push", &["force"]), false),
            (with("state mv", &["-force"]), false),
            (with("state", &["push", "-force"]), false),
            (RunSpec { operation: Operation::Apply, ..push("w", b"", true) }, false),
        ];
        for (spec, expect) in rows {
            assert_eq!(may_force(&spec), expect, "{:?} {:?}", spec.command, spec.args);
        }
    }
}
