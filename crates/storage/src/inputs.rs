//! The inputs of Runs: variable files, values of flags and piped standard input, which a client sends in a Secret.
//!
//! The Run comes first and names the digest of its input; the Secret follows and belongs to the Run. A client that crashes
//! in between leaves a Run that fails, and no Secret that nobody deletes.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use knoll_api::Digest;
use knoll_api::names::{self, content};
use knoll_api::run::{InputRef, Run};
use knoll_core::identity::ObjectId;
use serde::{Deserialize, Serialize};

use crate::blob::BlobError;
use crate::error::Error;
use crate::owned::{self, Owned};
use crate::{ContentKind, Storage};

/// The largest input: variable files are small, and piped input is a script or some expressions. The hub has it in memory.
const LARGEST: u64 = 16 * 1024 * 1024;

/// What a client sends beside the Run and its bundle, which everybody in the namespace may read.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Random text, so that nobody can check a guess of a value against the digest in the Run.
    salt: String,
    /// The values that [`knoll_core::run::arguments::hide`] took out of the arguments.
    #[serde(default)]
    pub values: Vec<String>,
    /// Variable files by their path from the top of the bundle.
    #[serde(default)]
    pub files: BTreeMap<String, ByteString>,
    /// The standard input of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<ByteString>,
    /// Environment variables of the client, see [`is_sent`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Whether an input may have an environment variable of that name: values of variables, and tokens of registries. Others
/// could change which programs and files terraform uses.
#[must_use]
pub fn is_sent(name: &str) -> bool {
    ["TF_VAR_", "TF_TOKEN_"].iter().any(|prefix| name.len() > prefix.len() && name.starts_with(prefix))
}

/// Leaves out the content, so that no log can show a secret by accident.
impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("files", &self.files.keys()).finish_non_exhaustive()
    }
}

/// An input as it is stored.
pub struct PackedInput {
    /// The reference for the Run's spec.
    pub reference: InputRef,
    bytes: Vec<u8>,
}

impl Input {
    /// `salt` is random text of the caller's.
    #[must_use]
    pub fn new(salt: String) -> Self {
        Input { salt, ..Input::default() }
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.files.is_empty() && self.stdin.is_none() && self.env.is_empty()
    }

    /// # Errors
    /// When it is too large.
    pub fn pack(&self) -> Result<PackedInput, Error> {
        let bytes = serde_json::to_vec(self).map_err(BlobError::Format)?;
        if bytes.len() as u64 > LARGEST {
            return Err(BlobError::TooLarge(LARGEST).into());
        }
        Ok(PackedInput { reference: InputRef { digest: Digest::of(&bytes).to_string() }, bytes })
    }
}

/// The inputs of Runs.
pub struct Inputs {
    storage: Storage,
}

impl Inputs {
    pub(crate) fn new(storage: Storage) -> Self {
        Inputs { storage }
    }

    /// Gives a Run that names this input its Secret.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn put(&self, run: &Run, input: &PackedInput) -> Result<(), Error> {
        let id = ObjectId::of(run)?;
        let owned = Owned { immutable: true, ..Owned::of_run(run, &id, content::INPUT, names::input_secret(&id.name)) };
        let sealer = self.storage.sealer(ContentKind::Input, &id.namespace, &id.name);
        owned.put::<Secret>(&self.storage, &id.namespace, &sealer, &input.bytes).await.map(drop)
    }

    /// The input that a Run names; none when its client has not sent it yet.
    ///
    /// # Errors
    /// When it cannot be read, or is not what the Run names.
    pub async fn get(&self, namespace: &str, run: &str, reference: &InputRef) -> Result<Option<Input>, Error> {
        let sealer = self.storage.sealer(ContentKind::Input, namespace, run);
        let stored =
            owned::get_within::<Secret>(&self.storage, namespace, &sealer, &names::input_secret(run), LARGEST).await?;
        let Some(bytes) = stored else { return Ok(None) };
        let found = Digest::of(&bytes);
        match reference.digest.parse::<Digest>() {
            Ok(expected) if expected == found => Ok(Some(serde_json::from_slice(&bytes).map_err(BlobError::Format)?)),
            Ok(expected) => Err(BlobError::Digest { expected, found }.into()),
            Err(_) => Err(BlobError::NoDigest(names::input_secret(run)).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn input(salt: &str) -> Input {
        Input { values: vec!["pin=1234".to_owned()], ..Input::new(salt.to_owned()) }
    }

    #[test]
    fn a_digest_does_not_confirm_a_guess() {
        let digest = |salt: &str| input(salt).pack().unwrap().reference;
        assert_eq!(digest("a"), digest("a"));
        assert_ne!(digest("a"), digest("b"), "equal values, other salt");
    }

    #[test]
    fn no_value_is_in_the_debug_form() {
        let input = Input { stdin: Some(ByteString(b"hunter2".to_vec())), ..input("salt") };
        let shown = format!("{input:?}");
        assert!(!shown.contains("1234") && !shown.contains("104, 117"), "{shown}");
    }

    #[test]
    fn an_input_that_is_too_large_is_refused() {
        let size = usize::try_from(LARGEST).unwrap();
        let input = Input { stdin: Some(ByteString(vec![0; size])), ..input("salt") };
        assert!(matches!(input.pack(), Err(Error::Blob(BlobError::TooLarge(LARGEST)))));
    }
}
