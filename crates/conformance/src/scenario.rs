//! Scenarios as they stand in files: lists of steps, each a request that both servers must answer alike.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A scenario: steps that follow one another, in a namespace of its own.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it shows.
    pub scenario: String,
    /// Fixtures (`fixtures/NAME.yaml`, custom resource definitions) that must be installed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
    /// Values that steps refer to as `${NAME}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, Value>,
    /// The steps.
    pub steps: Vec<Step>,
    /// The file that it comes from.
    #[serde(skip)]
    pub file: String,
}

/// One step. Exactly one of `do`, `events` and `settle` is given.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// `METHOD PATH`: a request.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Query parameters that need encoding.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// The body, sent as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// The body, sent as it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The media type of the body: `json`, `merge`, `strategic`, `apply`, `yaml` or in full.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub media: Option<String>,
    /// The form of the answer: `table`, `metadata`, `metadata-list` or an `Accept` header in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept: Option<String>,
    /// Further headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Who asks; an administrator unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The groups of `user`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Asks with this bearer token instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Variables and the place (a JSON pointer) in the answer that each is taken from.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub save: BTreeMap<String, String>,
    /// Asks again until this holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// The answer is a watch, which goes on under this name until a step with `events` ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
    /// The list in the answer of which the embedded server has only a part: only that part is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Ends the watch of this name after `count` events and compares them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<String>,
    /// How many events are waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Lists these paths until no controller has anything left to do, then compares.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settle: Vec<String>,
}

/// What an answer is waited for.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Until {
    /// The status code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// A place in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// What must be there; without it, anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is: Option<Value>,
}

/// A list whose items are told apart by a field.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The place of the list.
    pub list: String,
    /// The place of what tells its items apart.
    pub key: String,
}

/// Reads every scenario of a folder, ordered by file.
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

/// Reads YAML in which only `true` and `false` are booleans: `y` and `on` are good names.
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
