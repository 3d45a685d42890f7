//! The decision on an AtomVersion: whether its template can be read, and whether it is still the one that was first read.

use std::convert::Infallible;

use jiff::Timestamp;
use knoll_api::{
    AtomVersion, AtomVersionStatus,
    names::{condition, reason},
};

use super::template;
use crate::{conditions::ConditionWriter, machine::Decision, status::Cause};

/// Everything that an AtomVersion's next status depends on.
#[derive(Clone, Copy, Debug)]
pub struct AtomVersionFacts<'a> {
    pub version: &'a AtomVersion,
    /// The text of the template, or why it cannot be read.
    pub template: Result<&'a str, &'a Cause>,
}

/// Decides on an AtomVersion.
#[must_use]
pub fn decide(facts: &AtomVersionFacts<'_>, now: Timestamp) -> Decision<AtomVersionStatus, Infallible> {
    let version = facts.version;
    let mut status = version.status.clone().unwrap_or_default();
    if version.metadata.deletion_timestamp.is_some() {
        return Decision::status(status);
    }
    let result = check(facts, status.digest.as_deref());
    let (ready, cause) = match result {
        Ok((digest, objects)) => {
            status.digest = Some(digest);
            let objects = if objects == 1 { "1 object".to_owned() } else { format!("{objects} objects") };
            (true, Cause::new(reason::SUCCEEDED, format!("The template has {objects}.")))
        }
        Err(cause) => (false, cause),
    };
    let generation = version.metadata.generation;
    status.observed_generation = generation;
    ConditionWriter::new(&mut status.conditions, generation, now)
        .set(condition::READY, ready, &cause.reason, cause.message.clone())
        .set(condition::RECONCILING, false, &cause.reason, "")
        .set(condition::STALLED, !ready, &cause.reason, if ready { "" } else { cause.message.as_str() });
    Decision::status(status)
}

/// The digest of the template and the number of its objects; `first` is the digest of the template when it was first
/// read.
fn check(facts: &AtomVersionFacts<'_>, first: Option<&str>) -> Result<(String, usize), Cause> {
    let text = facts.template.map_err(Clone::clone)?;
    let objects = template::parse(text)
        .map_err(|error| Cause::new(reason::TEMPLATE_INVALID, template::sentence(&error.to_string())))?;
    let digest = template::digest(text);
    check_unchanged(first, &digest)?;
    Ok((digest, objects.len()))
}

/// Refuses a template that is not the one that was first read: a version never changes.
///
/// # Errors
/// When `digest` differs from `first`.
pub fn check_unchanged(first: Option<&str>, digest: &str) -> Result<(), Cause> {
    if first.is_none_or(|first| first == digest) {
        return Ok(());
    }
    let message = "The template of the AtomVersion has changed since it was first read. Create another AtomVersion, and name it in spec.version of the Atom.";
    Err(Cause::new(reason::TEMPLATE_INVALID, message))
}

#[cfg(test)]
mod tests {
    use knoll_api::AtomVersionSpec;

    use super::*;
    use crate::{
        conditions::{find, holds},
        machine::Next,
    };

    const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

    #[test]
    fn a_version_is_ready_with_the_template_that_was_first_read() {
        let missing = Cause::new(reason::TEMPLATE_INVALID, "There is no ConfigMap.");
        let first = template::digest(TEMPLATE);
        type Row<'a> = (Option<&'a str>, Result<&'a str, &'a Cause>, bool, Option<&'a str>, &'a str);
        let rows: Vec<Row<'_>> = vec![
            (None, Ok(TEMPLATE), true, Some(&first), "The template has 1 object."),
            (Some(&first), Ok(TEMPLATE), true, Some(&first), "The template has 1 object."),
            (None, Ok(""), false, None, "The template has no objects; write at least one."),
            (None, Err(&missing), false, None, "There is no ConfigMap."),
            (Some(&first), Err(&missing), false, Some(&first), "There is no ConfigMap."),
            (
                Some("sha256:other"),
                Ok(TEMPLATE),
                false,
                Some("sha256:other"),
                "The template of the AtomVersion has changed since it was first read. Create another AtomVersion, and name it in spec.version of the Atom.",
            ),
        ];
        for (known, template, ready, digest, message) in rows {
            let mut version = AtomVersion::new("v1", AtomVersionSpec::default());
            version.metadata.generation = Some(1);
            version.status =
                Some(AtomVersionStatus { digest: known.map(str::to_owned), ..AtomVersionStatus::default() });
            let decision = decide(&AtomVersionFacts { version: &version, template }, Timestamp::UNIX_EPOCH);
            let Next::Status(status) = decision.next;
            assert_eq!(holds(&status.conditions, condition::READY), ready, "{message}");
            assert_eq!(holds(&status.conditions, condition::STALLED), !ready, "{message}");
            assert_eq!(status.digest.as_deref(), digest, "{message}");
            let told = find(&status.conditions, condition::READY).map(|told| told.message.as_str());
            assert_eq!(told, Some(message));
            assert_eq!(status.observed_generation, Some(1));
        }
    }
}
