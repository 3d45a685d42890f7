//! Finds the values of variables that the module declares as sensitive. It reads the module's files.
//!
//! Terraform hides these values in its own output. A hook that prints a variable file does not, and neither does an error
//! that quotes a line of one.
//!
//! *Guarantee.* A value is treated as public only if the module's files say so: the value of a variable that is not
//! declared, or of any variable if a file cannot be parsed, is sensitive.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use hcl_edit::structure::Body;
use knoll_api::sensitive::collect;
use knoll_api::wire::Job;
use serde_json::Value;

use crate::sensitive::literals;

/// The sensitive values of the job's variables and of the variable files in `module`, which is the root module.
pub fn values(job: &Job, module: &Path) -> Vec<String> {
    let declared = Declared::read(module);
    let mut found = declared.defaults.clone();
    let mut text = |name: &str, value: &str| {
        if declared.is_sensitive(name) {
            found.push(value.to_owned());
            // Terraform parses the value of a list or a map as an expression, and prints its elements.
            if value.trim_start().starts_with(['[', '{', '"', '<']) {
                found.extend(literals(value));
            }
        }
    };
    for (name, value) in job.input.iter().flat_map(|input| &input.variables) {
        text(name, value);
    }
    for (name, value) in job.input.iter().flat_map(|input| &input.env) {
        if let Some(name) = name.strip_prefix("TF_VAR_") {
            text(name, value);
        }
    }
    for variable in job.variables.iter().filter(|variable| !variable.env) {
        match &variable.value {
            Value::String(value) => text(&variable.key, value),
            value => of_json_value(&declared, &variable.key, value, &mut |found| text(&variable.key, &found)),
        }
    }
    for (name, content) in &job.variable_files {
        of_file(&declared, name, content, &mut found);
    }
    for (name, content) in job.input.iter().flat_map(|input| &input.files) {
        of_file(&declared, name, &String::from_utf8_lossy(&content.0), &mut found);
    }
    for (name, content) in texts(module, is_variable_file) {
        of_file(&declared, &name, &content, &mut found);
    }
    found
}

/// The job's variables that the root module does not declare; none if a file of it cannot be parsed.
pub fn undeclared(job: &Job, module: &Path) -> Vec<String> {
    let declared = Declared::read(module);
    let names = job.variables.iter().filter(|variable| !variable.env).map(|variable| variable.key.as_str());
    names.filter(|name| declared.lacks(name)).map(str::to_owned).collect()
}

fn of_json_value(declared: &Declared, name: &str, value: &Value, add: &mut dyn FnMut(String)) {
    if declared.is_sensitive(name) {
        let mut values = Vec::new();
        collect(value, &mut values);
        values.into_iter().for_each(add);
    }
}

/// Adds the sensitive values of a variable file, or all of its values if it is not one that can be parsed.
fn of_file(declared: &Declared, name: &str, text: &str, found: &mut Vec<String>) {
    if name.ends_with(".json") {
        match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(values)) => {
                for (name, value) in &values {
                    of_json_value(declared, name, value, &mut |value| found.push(value));
                }
            }
            _ => found.extend(literals(text)),
        }
        return;
    }
    match Body::from_str(text) {
        Ok(body) if body.blocks().next().is_none() => {
            for attribute in body.attributes().filter(|attribute| declared.is_sensitive(attribute.key.as_str())) {
                found.extend(literals(&attribute.value.to_string()));
            }
        }
        _ => found.extend(literals(text)),
    }
}

/// The variables that a module declares.
#[derive(Debug, Default)]
struct Declared {
    /// Whether each variable is sensitive.
    variables: BTreeMap<String, bool>,
    /// The defaults of sensitive variables.
    defaults: Vec<String>,
    /// Whether a file could not be parsed.
    is_partial: bool,
}

impl Declared {
    fn read(module: &Path) -> Self {
        let mut declared = Declared::default();
        for (name, text) in texts(module, is_configuration) {
            let read = if name.ends_with(".json") { declared.add_json(&text) } else { declared.add_hcl(&text) };
            declared.is_partial |= read.is_none();
        }
        declared
    }

    /// Whether no file declares the variable. Nobody knows what a file declares that cannot be parsed.
    fn lacks(&self, name: &str) -> bool {
        !self.is_partial && !self.variables.contains_key(name)
    }

    fn is_sensitive(&self, name: &str) -> bool {
        self.is_partial || self.variables.get(name).copied().unwrap_or(true)
    }

    /// A variable that any file declares as sensitive is sensitive: an override file adds to what it overrides.
    fn declare(&mut self, name: &str, is_sensitive: bool, default: Option<String>) {
        *self.variables.entry(name.to_owned()).or_default() |= is_sensitive;
        if is_sensitive {
            self.defaults.extend(default.iter().flat_map(|default| literals(default)));
        }
    }

    fn add_hcl(&mut self, text: &str) -> Option<()> {
        let body = Body::from_str(text).ok()?;
        for block in body.get_blocks("variable") {
            let name = block.labels.first().map(|label| label.as_str().to_owned())?;
            let sensitive = block.body.get_attribute("sensitive").map(|attribute| attribute.value.as_bool());
            let default = block.body.get_attribute("default").map(|attribute| attribute.value.to_string());
            // What is not a plain `false` may be true.
            self.declare(&name, sensitive.is_some_and(|value| value != Some(false)), default);
        }
        Some(())
    }

    fn add_json(&mut self, text: &str) -> Option<()> {
        let value: Value = serde_json::from_str(text).ok()?;
        let groups = value.get("variable").cloned().unwrap_or_default();
        let groups = groups.as_array().cloned().unwrap_or_else(|| vec![groups]);
        for (name, bodies) in groups.iter().filter_map(Value::as_object).flatten() {
            let bodies = bodies.as_array().cloned().unwrap_or_else(|| vec![bodies.clone()]);
            for body in bodies {
                let sensitive = body.get("sensitive").is_some_and(|value| *value != Value::Bool(false));
                self.declare(name, sensitive, body.get("default").map(Value::to_string));
            }
        }
        Some(())
    }
}

/// Whether a file of this name is a part of the module.
pub(crate) fn is_configuration(name: &str) -> bool {
    [".tf", ".tf.json", ".tofu", ".tofu.json"].iter().any(|ending| name.ends_with(ending))
}

/// Whether terraform reads a file of this name by itself.
fn is_variable_file(name: &str) -> bool {
    matches!(name, "terraform.tfvars" | "terraform.tfvars.json")
        || name.ends_with(".auto.tfvars")
        || name.ends_with(".auto.tfvars.json")
}

/// The files in a directory with these names. One that is not text is left for terraform to reject.
pub(crate) fn texts(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| wanted(name));
    names
        .filter_map(|name| {
            let content = fs::read(folder.join(&name)).ok()?;
            Some((name, String::from_utf8_lossy(&content).into_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const MODULE: &str = r#"
variable "open" { default = "harmless-default" }
variable "closed" {
  type      = string
  sensitive = true
  default   = "default-secret"
}
variable "nested" {
  type      = map(list(string))
  sensitive = "true"
}
"#;

    /// The sensitive values of a module with these files, sorted.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let declared = Declared::read(folder.path());
        let mut found = Vec::new();
        for (name, text) in texts(folder.path(), is_variable_file) {
            of_file(&declared, &name, &text, &mut found);
        }
        found.sort();
        found
    }

    #[test]
    fn values_are_sensitive_as_their_variables_are_declared() {
        let vars =
            "open = \"harmless\"\nclosed = \"s-one\"\nnested = { a = [\"s-two\", \"s-three\"] }\nother = \"s-four\"\n";
        assert_eq!(found(&[("m.tf", MODULE), ("terraform.tfvars", vars)]), ["s-four", "s-one", "s-three", "s-two"]);
        let json = r#"{"open": "harmless", "closed": "s-one", "nested": {"a": ["s-two"]}}"#;
        assert_eq!(found(&[("m.tf", MODULE), ("x.auto.tfvars.json", json)]), ["s-one", "s-two"]);
        assert_eq!(
            found(&[("m.tf", MODULE), ("prod.tfvars", vars)]),
            Vec::<String>::new(),
            "terraform does not read it"
        );
    }

    #[test]
    fn a_variable_is_undeclared_only_if_every_file_can_be_parsed() {
        let lacks = |text: &str, name: &str| {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("m.tf"), text).unwrap();
            Declared::read(folder.path()).lacks(name)
        };
        assert!(!lacks(MODULE, "open") && !lacks(MODULE, "closed"));
        assert!(lacks(MODULE, "opne"));
        assert!(!lacks("variable \"open\" {", "opne"));
    }

    #[test]
    fn what_cannot_be_parsed_is_sensitive() {
        let vars = "open = \"s-one\"\n";
        assert_eq!(found(&[("m.tf", "variable \"open\" {"), ("terraform.tfvars", vars)]), ["s-one"]);
        assert_eq!(found(&[("m.tf.json", "{"), ("terraform.tfvars", vars)]), ["s-one"]);
        assert_eq!(
            found(&[("m.tf", MODULE), ("terraform.tfvars", "open = \"s-one\" closed = \"s-two\"")]),
            ["s-one", "s-two"]
        );
        assert_eq!(found(&[("m.tf", MODULE), ("terraform.tfvars.json", "{\"open\": \"s-one\",")]), ["open", "s-one"]);
    }

    #[test]
    fn json_modules_and_overrides_declare_variables_too() {
        let json = r#"{"variable": {"open": {}, "closed": [{"sensitive": true}]}}"#;
        let vars = "open = \"harmless\"\nclosed = \"s-one\"\n";
        assert_eq!(found(&[("m.tf.json", json), ("terraform.tfvars", vars)]), ["s-one"]);
        let over = "variable \"open\" { sensitive = true }\n";
        assert_eq!(
            found(&[("m.tf", MODULE), ("m_override.tf", over), ("terraform.tfvars", "open = \"s-one\"")]),
            ["s-one"]
        );
    }
}
