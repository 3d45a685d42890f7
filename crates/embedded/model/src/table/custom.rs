//! The columns of custom resources: `additionalPrinterColumns`.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

use super::age;
use super::column::Column;
use super::jsonpath::JsonPath;

/// One column after the name.
#[derive(Clone, Debug)]
pub struct PrinterColumn {
    path: JsonPath,
    ty: Cow<'static, str>,
}

/// Reads `additionalPrinterColumns`; without any there is the age. A column whose path cannot be read ends the columns, as it
/// does in Kubernetes.
pub fn columns(printer_columns: &[Value]) -> (Vec<Column>, Vec<PrinterColumn>) {
    let (mut definitions, mut columns) = (Vec::new(), Vec::new());
    let text = |column: &Value, name: &str| column.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    for column in printer_columns {
        let source = text(column, "jsonPath");
        let Ok(path) = JsonPath::parse(&source) else {
            break;
        };
        let description = match text(column, "description") {
            none if none.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {source}")
            }
            description => description,
        };
        definitions.push(Column {
            name: text(column, "name").into(),
            ty: text(column, "type").into(),
            format: text(column, "format").into(),
            description: description.into(),
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
        });
        columns.push(PrinterColumn { path, ty: text(column, "type").into() });
    }
    if printer_columns.is_empty()
        && let Ok(path) = JsonPath::parse(".metadata.creationTimestamp")
    {
        definitions.push(Column { ty: "date".into(), ..Column::age() });
        columns.push(PrinterColumn { path, ty: "date".into() });
    }
    (definitions, columns)
}

impl PrinterColumn {
    /// What an object has in this column.
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.find(object).unwrap_or_default();
        match found.first() {
            Some(value) => cell(&self.ty, value, now),
            None => Value::Null,
        }
    }
}

fn cell(ty: &str, value: &Value, now: Timestamp) -> Value {
    match (ty, value) {
        ("string", value) => Value::String(text(value)),
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Value::from(number),
            #[expect(clippy::cast_possible_truncation, reason = "a fraction is cut off")]
            (None, Some(number)) => Value::from(number as i64),
            _ => Value::Null,
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(time)) if time.is_empty() || time == "null" => Value::from("<unknown>"),
        ("date", Value::String(time)) => match time.parse::<Timestamp>() {
            Ok(_) => Value::String(age::since(Some(time), now)),
            Err(_) => Value::from("<invalid>"),
        },
        _ => Value::Null,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.is_f64(), number.as_f64()) {
            // A whole number is printed without its fraction, however it was written.
            (true, Some(number)) => number.to_string(),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}
