//! What the hub has to know of a terraform state, read from its file (version 4).

use std::collections::BTreeMap;

use knoll_api::variables::Variables;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::messages::json_fault;

/// Why a file is no state.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no JSON, or not of a state.
    #[error("this is not a terraform state: {}", json_fault(.0))]
    Parse(#[from] serde_json::Error),
    /// It is of another format.
    #[error("the state has format {0}, but only format 4 is known, which terraform writes since 0.12")]
    Format(u64),
}

/// A state without its values.
#[derive(Clone, Debug, PartialEq)]
pub struct StateFile {
    /// Terraform's count of its writes.
    pub serial: u64,
    /// Terraform's name for the state's history.
    pub lineage: String,
    /// How many instances of managed resources it holds.
    pub resources: u32,
    /// Its outputs by name.
    pub outputs: BTreeMap<String, Output>,
}

/// An output of a state.
#[derive(Clone, PartialEq, Deserialize)]
pub struct Output {
    pub value: Value,
    /// Whether it has to stay secret.
    #[serde(default)]
    pub sensitive: bool,
}

/// Leaves out the value, so that no log can show a secret by accident.
impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("sensitive", &self.sensitive).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Raw {
    version: u64,
    serial: u64,
    lineage: String,
    #[serde(default)]
    outputs: BTreeMap<String, Output>,
    #[serde(default)]
    resources: ManagedInstances,
}

/// The number of instances of managed resources. Nothing else of them is kept, so that a state of many small resources
/// takes no more memory than its file.
#[derive(Default)]
struct ManagedInstances(usize);

impl<'de> Deserialize<'de> for ManagedInstances {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl<'de> Visitor<'de> for Count {
            type Value = ManagedInstances;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of resources")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut resources: A) -> Result<ManagedInstances, A::Error> {
                let mut count = 0;
                while let Some(Resource { mode, instances }) = resources.next_element()? {
                    count += if mode == "managed" { instances.len() } else { 0 };
                }
                Ok(ManagedInstances(count))
            }
        }
        deserializer.deserialize_seq(Count)
    }
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    mode: String,
    #[serde(default)]
    instances: Vec<IgnoredAny>,
}

impl StateFile {
    /// Reads a state's file.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(content: &[u8]) -> Result<Self, Error> {
        let raw: Raw = serde_json::from_slice(content)?;
        if raw.version != 4 {
            return Err(Error::Format(raw.version));
        }
        Ok(StateFile {
            serial: raw.serial,
            lineage: raw.lineage,
            resources: u32::try_from(raw.resources.0).unwrap_or(u32::MAX),
            outputs: raw.outputs,
        })
    }

    /// The file of a state that holds nothing.
    #[must_use]
    pub fn empty(serial: u64, lineage: &str) -> Vec<u8> {
        let file = serde_json::json!({"version": 4, "terraform_version": "1.5.0", "serial": serial, "lineage": lineage,
            "outputs": {}, "resources": []});
        file.to_string().into_bytes()
    }

    /// The outputs that everybody may see.
    #[must_use]
    pub fn public_outputs(&self) -> Variables {
        let public = self.outputs.iter().filter(|(_, output)| !output.sensitive);
        public.map(|(name, output)| (name.clone(), output.value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn state() -> Value {
        json!({
            "version": 4, "terraform_version": "1.11.4", "serial": 7, "lineage": "l",
            "outputs": {
                "open": {"value": ["a", 1], "type": ["tuple", ["string", "number"]]},
                "closed": {"value": "hunter2", "type": "string", "sensitive": true},
            },
            "resources": [
                {"mode": "managed", "type": "t", "name": "a", "instances": [{"attributes": {}}, {"attributes": {}}]},
                {"mode": "data", "type": "t", "name": "b", "instances": [{}]},
            ],
        })
    }

    #[test]
    fn the_facts_of_a_state_are_read() {
        let file = StateFile::parse(state().to_string().as_bytes()).unwrap();
        assert_eq!((file.serial, file.lineage.as_str(), file.resources), (7, "l", 2));
        assert!(file.outputs["closed"].sensitive);
    }

    #[test]
    fn sensitive_outputs_are_never_public() {
        let file = StateFile::parse(state().to_string().as_bytes()).unwrap();
        assert_eq!(json!(file.public_outputs()), json!({"open": ["a", 1]}));
        assert!(!format!("{file:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_no_state_is_refused() {
        assert!(StateFile::parse(b"").is_err());
        assert!(StateFile::parse(br#"{"version": 4, "serial": 1"#).is_err());
        let old = StateFile::parse(br#"{"version": 3, "serial": 1, "lineage": "l"}"#).unwrap_err();
        assert!(old.to_string().contains("format 3"), "{old}");
    }
}
