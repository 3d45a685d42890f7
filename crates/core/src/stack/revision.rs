//! The digests of a Stack: of its revisions, its variables and its outputs.

use knoll_api::{
    names::annotation,
    stack::{OutputsSpec, Stack, StackSpec},
};
use kube::ResourceExt;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

/// The revision of a Stack with these files and these variables.
///
/// A revision also covers the parts of the spec that change the effect of a run: the program and the hooks. A person who
/// wants a run without any such change changes the value of [`annotation::RECONCILE`].
#[must_use]
pub fn revision(stack: &Stack, bundle: &str, variables: &str) -> String {
    let StackSpec { workspace, hooks, .. } = &stack.spec;
    let whole = digest(&json!({
        "bundle": bundle,
        "variables": variables,
        "tool": workspace.tool,
        "version": workspace.version,
        "image": workspace.image,
        "hooks": hooks,
        "asked": stack.annotations().get(annotation::RECONCILE),
    }));
    // A revision has to differ only from the others of its Stack, and people read it in a table.
    whole.trim_start_matches("sha256:").chars().take(16).collect()
}

/// The digest of resolved variables. The UID salts it, so equal values in two Stacks have different digests.
#[must_use]
pub fn variables_digest(stack: &Stack, variables: &impl Serialize) -> String {
    digest(&(stack.metadata.uid.as_deref(), variables))
}

/// The digest of what the outputs are made from: the state, and `spec.outputs`.
#[must_use]
pub fn outputs_digest(state: Option<&str>, spec: &StackSpec) -> String {
    digest(&(state, &spec.outputs))
}

/// Whether `spec.outputs` selects an output.
#[must_use]
pub fn selected(spec: Option<&OutputsSpec>, output: &str) -> bool {
    let Some(OutputsSpec { include, exclude, .. }) = spec else {
        return true;
    };
    let named = |list: &[String]| list.iter().any(|name| name == output);
    (include.is_empty() || named(include)) && !named(exclude)
}

/// `sha256:` and the hash of a value as JSON. Maps are sorted, so the same value gives the same text.
pub(crate) fn digest(value: &impl Serialize) -> String {
    let bytes = serde_json::to_value(value).map(|value| value.to_string()).unwrap_or_default();
    let hex: String = Sha256::digest(bytes.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
