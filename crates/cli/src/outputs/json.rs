//! Values as `terraform output -json` prints them. Pure.

use std::fmt::Write;

use super::value::{Content, Type, TypedValue};
use super::{Outputs, StateOutput};

/// Every output with its type, indented.
pub fn all(outputs: &Outputs) -> String {
    let members = outputs.iter().map(|(name, StateOutput { value, sensitive })| {
        let members = [
            ("sensitive", Tree::Leaf(sensitive.to_string())),
            ("type", of_type(&value.type_)),
            ("value", of_value(value)),
        ];
        (name.clone(), Tree::Object(members.map(|(name, tree)| (name.to_owned(), tree)).into()))
    });
    let mut text = String::new();
    Tree::Object(members.collect()).indented(&mut text, 0);
    text + "\n"
}

/// One value in one line.
pub fn compact(value: &TypedValue) -> String {
    let mut text = String::new();
    of_value(value).compact(&mut text);
    text
}

/// JSON whose leaves are written already.
enum Tree {
    Leaf(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Tree {
    fn compact(&self, out: &mut String) {
        match self {
            Tree::Leaf(text) => out.push_str(text),
            Tree::Array(items) => {
                out.push('[');
                for (number, item) in items.iter().enumerate() {
                    out.push_str(if number > 0 { "," } else { "" });
                    item.compact(out);
                }
                out.push(']');
            }
            Tree::Object(members) => {
                out.push('{');
                for (number, (name, member)) in members.iter().enumerate() {
                    out.push_str(if number > 0 { "," } else { "" });
                    out.push_str(&string(name));
                    out.push(':');
                    member.compact(out);
                }
                out.push('}');
            }
        }
    }

    fn indented(&self, out: &mut String, indent: usize) {
        let (ends, count) = match self {
            Tree::Leaf(text) => return out.push_str(text),
            Tree::Array(items) => (['[', ']'], items.len()),
            Tree::Object(members) => (['{', '}'], members.len()),
        };
        out.push(ends[0]);
        for number in 0..count {
            out.push_str(if number > 0 { ",\n" } else { "\n" });
            out.push_str(&" ".repeat(indent + 2));
            match self {
                Tree::Array(items) => items[number].indented(out, indent + 2),
                Tree::Object(members) => {
                    let (name, member) = &members[number];
                    out.push_str(&string(name));
                    out.push_str(": ");
                    member.indented(out, indent + 2);
                }
                Tree::Leaf(_) => {}
            }
        }
        if count > 0 {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
        }
        out.push(ends[1]);
    }
}

fn of_value(value: &TypedValue) -> Tree {
    match &value.content {
        Content::Null => Tree::Leaf("null".to_owned()),
        Content::Bool(value) => Tree::Leaf(value.to_string()),
        Content::Number(text) => Tree::Leaf(text.clone()),
        Content::String(text) => Tree::Leaf(string(text)),
        Content::Sequence(items) => Tree::Array(items.iter().map(of_value).collect()),
        Content::Mapping(fields) => {
            Tree::Object(fields.iter().map(|(name, field)| (name.clone(), of_value(field))).collect())
        }
    }
}

fn of_type(type_: &Type) -> Tree {
    let leaf = |name: &str| Tree::Leaf(string(name));
    let pair = |name: &str, of: Tree| Tree::Array(vec![leaf(name), of]);
    match type_ {
        Type::String => leaf("string"),
        Type::Number => leaf("number"),
        Type::Bool => leaf("bool"),
        Type::Dynamic => leaf("dynamic"),
        Type::List(of) => pair("list", of_type(of)),
        Type::Set(of) => pair("set", of_type(of)),
        Type::Map(of) => pair("map", of_type(of)),
        Type::Tuple(of) => pair("tuple", Tree::Array(of.iter().map(of_type).collect())),
        Type::Object(of) => {
            pair("object", Tree::Object(of.iter().map(|(name, of)| (name.clone(), of_type(of))).collect()))
        }
    }
}

/// A string as Go's JSON encoder writes it: safe to be pasted into HTML.
fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => drop(write!(quoted, "\\u{:04x}", u32::from(c))),
            c if c < ' ' => drop(write!(quoted, "\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
