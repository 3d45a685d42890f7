//! The values of an enum in the description of each field that takes them, for `kubectl explain`.
//!
//! A schema of Kubernetes has one description a field, and none a value. [`describe`] carries the documentation of the
//! variants in the title of the enum's schema, and [`crate::crds`] moves it into the descriptions.

use schemars::Schema;
use serde_json::Value;

/// Replaces the description of an enum's schema, which would hide that of the field, by a title with its values.
pub(crate) fn describe(schema: &mut Schema) {
    let variants = schema.get("oneOf").and_then(Value::as_array).cloned().unwrap_or_default();
    let described = variants.iter().filter_map(|variant| {
        let text = variant.get("description")?.as_str()?;
        Some(format!("`{}`: {}", variant.get("const")?.as_str()?, one_line(text)))
    });
    let title = described.collect::<Vec<_>>().join(" ");
    schema.remove("description");
    schema.insert("title".to_owned(), title.into());
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
