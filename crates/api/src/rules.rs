//! CEL rules that several kinds share. A rule of one kind only stands at its field.
//!
//! A rule's message is what a user sees at `kubectl apply`, after the path of the field: it says what to
//! write. Every rule has a case that it rejects and one that it accepts in `crates/api/cases`.

use kube_core::Rule;

use crate::duration::DURATION_PATTERN;

/// The object never changes.
pub(crate) fn immutable(message: &str) -> Rule {
    Rule::new("self == oldSelf").message(message)
}

/// Exactly one of the fields is set.
pub(crate) fn exactly_one(fields: &[&str], message: &str) -> Rule {
    let set: Vec<_> = fields.iter().map(|field| format!("has(self.{field})")).collect();
    Rule::new(format!("[{}].filter(set, set).size() == 1", set.join(", "))).message(message)
}

/// The whole text has this form.
pub(crate) fn form(pattern: &str, message: &str) -> Rule {
    Rule::new(format!("self.matches({})", literal(pattern))).message(message)
}

/// The name of an object: it becomes a part of a path.
pub(crate) fn object_name() -> Rule {
    form(
        "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        "write the name of an object: lower-case letters, digits, - and ., with a letter or a digit first and last",
    )
}

/// The name of a service account: it becomes a part of a user's name.
pub(crate) fn account_name() -> Rule {
    form(
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "write the name of a service account: at most 63 lower-case letters, digits and -, with a letter or a digit first and last",
    )
}

/// The digest of a bundle or of a plan.
pub(crate) fn digest() -> Rule {
    form("^sha256:[0-9a-f]{64}$", "write sha256: and 64 hex digits in lower case")
}

/// A folder inside of something.
pub(crate) fn inner_path() -> Rule {
    Rule::new(r"!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')")
        .message("write a folder inside of the source, without a leading / and without ..")
}

/// An address that everybody may read.
pub(crate) fn no_password() -> Rule {
    Rule::new(r"!self.matches('^[a-z]+://[^/@]*:[^/]*@')")
        .message("leave the password out: write it into a Secret, and name that as secretRef")
}

/// A duration of at least `least`. A text that is no duration has a rule of its own, in its schema.
pub(crate) fn at_least(least: &str) -> Rule {
    Rule::new(format!("!self.matches({}) || duration(self) >= duration('{least}')", literal(DURATION_PATTERN)))
        .message(format!("write a duration of at least {least}").as_str())
}

/// A duration of at most `most`, and not none at all.
pub(crate) fn at_most(most: &str) -> Rule {
    let pattern = literal(DURATION_PATTERN);
    Rule::new(format!(
        "!self.matches({pattern}) || (duration(self) > duration('0s') && duration(self) <= duration('{most}'))"
    ))
    .message(format!("write a duration of more than 0s and at most {most}").as_str())
}

/// Each of the words is a command that terraform could have, or `sh`.
pub(crate) const COMMAND_PATTERN: &str = "^[a-z][a-z0-9-]*( [a-z][a-z0-9-]*)*$";

/// The name becomes the value of a label, which has no more room.
pub(crate) fn name_fits_label() -> Rule {
    Rule::new("self.metadata.name.size() <= 63")
        .message("metadata.name: write at most 63 characters, as it becomes the value of a label")
}

/// The Secret of a Workspace's state is named after the Workspace, and a part of a state after its Workspace, serial, digest
/// and number: with the name of such a part, a Workspace would take a piece of another one's state for its own.
pub(crate) fn name_is_of_no_state() -> Rule {
    Rule::new("!self.metadata.name.matches('-[0-9]+-[0-9a-f]{10}-[0-9]+$')")
        .message("metadata.name: choose another name, as parts of states have names that end like this one")
}

/// A list that says nothing is more likely a mistake than a wish for everything.
pub(crate) fn not_empty(message: &str) -> Rule {
    Rule::new("self.size() > 0").message(message)
}

/// A text as a CEL string.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}
