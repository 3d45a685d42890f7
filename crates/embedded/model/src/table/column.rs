//! One column of a table.

use std::borrow::Cow;

use serde_json::{Value, json};

/// What a column is called and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name, which is printed in capitals.
    pub name: Cow<'static, str>,
    /// The type of its cells.
    pub ty: Cow<'static, str>,
    /// `name` marks the name of the object.
    pub format: Cow<'static, str>,
    /// What the column is about.
    pub description: Cow<'static, str>,
    /// 0 is always printed, more only in wide output.
    pub priority: i64,
}

impl Column {
    /// The name of the object.
    pub fn name() -> Self {
        Self {
            format: Cow::Borrowed("name"),
            ..Self::text("Name", "The name of the object, unique within its namespace.")
        }
    }

    /// How long ago the object was created.
    pub(crate) fn age() -> Self {
        Self::text("Age", "The time since the object was created.")
    }

    /// A column of texts.
    pub fn text(name: &'static str, description: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            ty: Cow::Borrowed("string"),
            format: Cow::Borrowed(""),
            description: Cow::Borrowed(description),
            priority: 0,
        }
    }

    /// A column of numbers.
    pub fn integer(name: &'static str, description: &'static str) -> Self {
        Self { ty: Cow::Borrowed("integer"), ..Self::text(name, description) }
    }

    /// The column in wide output only.
    #[must_use]
    pub(crate) fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// The column as part of a table.
    pub fn to_value(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.ty,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}
