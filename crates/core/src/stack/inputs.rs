//! The inputs of a Stack: its source and its variables.

use std::collections::BTreeSet;

use knoll_api::{
    names::{self, reason},
    source::{LocalRef, Source, SourceKind},
    stack::{Snapshot, Stack},
};
use kube::ResourceExt;
use serde::Serialize;

use super::{RemoteSource, is_deleted, revision, unready, variables_digest};
use crate::status::Cause;

/// The revision that the source and the variables of a Stack make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inputs {
    Resolved {
        snapshot: Snapshot,
        /// The commit, or the digest of the archive, that the files come from.
        source: Option<String>,
    },
    /// The source or a variable cannot be resolved.
    Unresolved(Cause),
    /// They are outputs of Stacks that are not Ready.
    Waiting,
    /// The files are being fetched.
    Fetching,
}

impl Inputs {
    /// The newest snapshot, if it is known.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Snapshot> {
        match self {
            Self::Resolved { snapshot, .. } => Some(snapshot),
            Self::Unresolved(_) | Self::Waiting | Self::Fetching => None,
        }
    }

    /// The inputs of a Stack, if they are known without reading anything. `related` has the Stacks that it needs.
    #[must_use]
    pub fn known(stack: &Stack, remote: Option<&RemoteSource>, related: &[&Stack]) -> Option<Self> {
        // A deleted Stack is destroyed with the snapshot in its status.
        if is_deleted(stack) {
            return Some(Self::Waiting);
        }
        match remote {
            Some(RemoteSource { fetched: None, error: Some(error), .. }) => {
                return Some(Self::Unresolved(Cause::new(reason::SOURCE_FAILED, error)));
            }
            Some(RemoteSource { fetched: None, error: None, .. }) => return Some(Self::Fetching),
            Some(_) | None => {}
        }
        let used = References::of(stack).stacks;
        let waits = unready(stack, related).iter().any(|wait| used.contains(&wait.name));
        waits.then_some(Self::Waiting)
    }

    /// The inputs of a Stack with the files of this bundle and these variables.
    #[must_use]
    pub fn resolved(stack: &Stack, bundle: String, variables: &impl Serialize, source: Option<String>) -> Self {
        let digest = variables_digest(stack, variables);
        let snapshot = Snapshot {
            revision: revision(stack, &bundle, &digest),
            variables: names::variables_secret(&stack.name_any(), &digest),
            bundle,
        };
        Self::Resolved { snapshot, source }
    }

    /// The inputs of a Stack that has an error in its source or its variables.
    #[must_use]
    pub fn unresolved(reason: &str, error: &impl ToString) -> Self {
        Self::Unresolved(Cause::new(reason, sentence(&error.to_string())))
    }
}

/// The objects that the inputs of a Stack refer to, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    pub secrets: BTreeSet<String>,
    pub config_maps: BTreeSet<String>,
    /// Stacks whose outputs are variables.
    pub stacks: BTreeSet<String>,
}

impl References {
    #[must_use]
    pub fn of(stack: &Stack) -> Self {
        let mut found = Self::default();
        if let Some(SourceKind::ConfigMap(source)) = stack.spec.source.kind() {
            found.config_maps.insert(source.name.clone());
        }
        found.secrets.extend(credentials(&stack.spec.source).map(|secret| secret.name.clone()));
        for from in &stack.spec.variables_from {
            found.secrets.extend(from.secret_ref.as_ref().map(|keys| keys.name.clone()));
            found.config_maps.extend(from.config_map_ref.as_ref().map(|keys| keys.name.clone()));
            found.stacks.extend(from.stack_ref.as_ref().map(|other| other.name.clone()));
        }
        for from in stack.spec.workspace.variables.iter().filter_map(|variable| variable.value_from.as_ref()) {
            found.secrets.extend(from.secret_key_ref.as_ref().map(|key| key.name.clone()));
            found.config_maps.extend(from.config_map_key_ref.as_ref().map(|key| key.name.clone()));
        }
        found
    }
}

/// The Secret with the credentials of a source outside of the cluster.
#[must_use]
pub fn credentials(source: &Source) -> Option<&LocalRef> {
    match source.kind()? {
        SourceKind::Git(source) => source.secret_ref.as_ref(),
        SourceKind::Archive(source) => source.secret_ref.as_ref(),
        _ => None,
    }
}

/// The message of an error as a sentence.
pub(super) fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}
