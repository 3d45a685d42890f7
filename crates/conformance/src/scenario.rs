//! The format of scenario files: lists of steps, each a request that both servers must answer alike.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A sequence of steps in its own namespace.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The name of the scenario.
    pub scenario: String,
    /// The CRDs (`fixtures/NAME.yaml`) that must be installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
    /// The initial values of `${NAME}` variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, Value>,
    pub steps: Vec<Step>,
    #[serde(skip)]
    pub file: String,
}

/// One step. Exactly one of `do`, `events` and `settle` is set.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// A request as `METHOD PATH`.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Query parameters, which are percent-encoded.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// The body, sent as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// The body, sent as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The content type of the body: `json`, `merge`, `strategic`, `apply`, `yaml` or a full media type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub media: Option<String>,
    /// The format of the response: `table`, `metadata`, `metadata-list` or a full `Accept` header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The user; an administrator by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The groups of `user`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// A bearer token to use instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Variables to set, with the JSON pointer into the response for each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub save: BTreeMap<String, String>,
    /// Repeat the request until this holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// The response is a watch with this name. A later step with `events` ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
    /// A list of which the embedded server has only some items. Only those are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Ends the watch of this name after `count` events, and compares them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<String>,
    /// The number of events to wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Lists these paths until no controller has work left, then compares them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settle: Vec<String>,
}

/// The condition that a response is waited for.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Until {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// A JSON pointer into the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The expected value. Without it, any value is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is: Option<Value>,
}

/// A list whose items are identified by a field.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The JSON pointer of the list.
    pub list: String,
    /// The JSON pointer of the identifying field in an item.
    pub key: String,
}

/// Reads all scenarios of a directory, ordered by file.
pub fn load(folder: &Path) -> anyhow::Result<Vec<Scenario>> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .with_context(|| format!("cannot list the scenarios in `{}`", folder.display()))?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let scenarios: Vec<Scenario> =
            read_yaml(&text).with_context(|| format!("`{}` is not a list of scenarios", path.display()))?;
        for mut scenario in scenarios {
            scenario.file = file.clone();
            check(&scenario).with_context(|| format!("{file}: {}", scenario.scenario))?;
            all.push(scenario);
        }
    }
    Ok(all)
}

/// Parses YAML in which only `true` and `false` are booleans, because `y` and `on` are valid names.
pub fn read_yaml<T: serde::de::DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    Ok(serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true })?)
}

fn check(scenario: &Scenario) -> anyhow::Result<()> {
    for (at, step) in scenario.steps.iter().enumerate() {
        let kinds =
            [step.request.is_some(), step.events.is_some(), !step.settle.is_empty()].iter().filter(|k| **k).count();
        if kinds != 1 {
            bail!("step {} needs exactly one of `do`, `events` and `settle`", at + 1);
        }
        if step.body.is_some() && step.text.is_some() {
            bail!("step {} has both `body` and `text`", at + 1);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_well_formed() {
        let all =
            load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios"))).unwrap_or_else(|e| panic!("{e:#}"));
        assert!(!all.is_empty());
        let mut names: Vec<_> = all.iter().map(|s| (&s.file, &s.scenario)).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "two scenarios of a file have the same name");
    }
}
