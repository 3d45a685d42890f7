//! Values as `terraform output` prints them for people. Pure.

use std::fmt::Write;

use super::Outputs;
use super::value::{Content, Type, TypedValue};

/// Every output; of a sensitive one only that it is there, unless `show_sensitive`.
pub fn all(outputs: &Outputs, show_sensitive: bool) -> String {
    let mut text = String::new();
    for (name, output) in outputs {
        let is_hidden = output.sensitive && !show_sensitive;
        let value = if is_hidden { "<sensitive>".to_owned() } else { format(&output.value, 0) };
        let _ = writeln!(text, "{name} = {value}");
    }
    text
}

/// One value in the syntax of the language, indented by `indent` from its second line on.
pub fn format(value: &TypedValue, indent: usize) -> String {
    match &value.content {
        Content::Null => null(&value.type_),
        Content::Bool(value) => value.to_string(),
        Content::Number(text) => text.clone(),
        Content::String(text) if text.contains('\n') => heredoc(text, indent),
        Content::String(text) => quote(text),
        Content::Sequence(items) => {
            let lines = items.iter().map(|item| format!("{},", format(item, indent + 2)));
            wrapped(&value.type_, &block(["[", "]"], lines, indent))
        }
        Content::Mapping(fields) => {
            let lines = fields.iter().map(|(name, field)| {
                let name = if name.contains('\n') { heredoc(name, indent + 2) } else { quote(name) };
                format!("{name} = {}", format(field, indent + 2))
            });
            wrapped(&value.type_, &block(["{", "}"], lines, indent))
        }
    }
}

fn null(type_: &Type) -> String {
    match type_ {
        Type::Dynamic => "null".to_owned(),
        Type::String => "tostring(null)".to_owned(),
        Type::Number => "tonumber(null)".to_owned(),
        Type::Bool => "tobool(null)".to_owned(),
        Type::List(of) => format!("tolist(null) /* of {} */", of.friendly()),
        Type::Set(of) => format!("toset(null) /* of {} */", of.friendly()),
        Type::Map(of) => format!("tomap(null) /* of {} */", of.friendly()),
        Type::Object(_) | Type::Tuple(_) => format!("null /* {} */", type_.friendly()),
    }
}

fn wrapped(type_: &Type, text: &str) -> String {
    match type_ {
        Type::List(_) => format!("tolist({text})"),
        Type::Set(_) => format!("toset({text})"),
        Type::Map(_) => format!("tomap({text})"),
        _ => text.to_owned(),
    }
}

fn block([open, close]: [&str; 2], lines: impl Iterator<Item = String>, indent: usize) -> String {
    let space = " ".repeat(indent);
    let lines: String = lines.map(|line| format!("\n{space}  {line}")).collect();
    if lines.is_empty() { format!("{open}{close}") } else { format!("{open}{lines}\n{space}{close}") }
}

fn heredoc(text: &str, indent: usize) -> String {
    let mut delimiter = "EOT".to_owned();
    while text.split('\n').any(|line| line.trim() == delimiter) {
        delimiter.push('_');
    }
    let operator = if indent > 0 { "<<-" } else { "<<" };
    let space = " ".repeat(indent);
    let lines: String = text.split('\n').map(|line| format!("\n{space}{line}")).collect();
    format!("{operator}{delimiter}{lines}\n{space}{delimiter}")
}

/// A string in quotes, as Go writes it.
pub fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            c if c < ' ' || c == '\u{7f}' => drop(write!(quoted, "\\x{:02x}", u32::from(c))),
            c if is_printable(c) => quoted.push(c),
            c if u32::from(c) < 0x1_0000 => drop(write!(quoted, "\\u{:04x}", u32::from(c))),
            c => drop(write!(quoted, "\\U{:08x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether Go prints a character as it is. Rust escapes the same ones; a letter before it lets marks pass.
fn is_printable(c: char) -> bool {
    c == '\'' || !format!("a{c}").escape_debug().skip(1).take(2).eq("\\u".chars())
}
