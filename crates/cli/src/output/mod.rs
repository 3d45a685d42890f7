//! Prints results: a table for people; JSON, YAML or names for programs.

pub mod listing;
pub mod plain;
pub mod table;
pub mod time;

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use anyhow::Result;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use table::Table;

pub use knoll_core::visible::{visible, visible_line};

/// The value of `--output`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table
    #[default]
    Table,
    /// A table with more columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Resource names only
    Name,
}

/// The `--output` flag.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct OutputArgs {
    /// Output format
    #[arg(long, short, env = "KNOLL_OUTPUT", value_name = "FORMAT", default_value = "table", value_enum)]
    pub output: Format,
}

/// Prints a list of objects. `rows` builds the table; its argument is whether the table is wide.
pub fn list<K>(objects: &[K], format: Format, nothing: &str, rows: impl FnOnce(bool) -> Table) -> Result<ExitCode>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    match format {
        Format::Table | Format::Wide if objects.is_empty() => crate::style::hint_aside(nothing),
        Format::Table => print(&rows(false).to_string())?,
        Format::Wide => print(&rows(true).to_string())?,
        Format::Name => objects.iter().try_for_each(name)?,
        Format::Json | Format::Yaml => {
            let items: Vec<Value> = objects.iter().map(typed).collect::<Result<_>>()?;
            value(&json!({"apiVersion": "v1", "kind": "List", "items": items}), format)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints one object. `text` builds the form for people.
pub fn one<K>(object: &K, format: Format, text: impl FnOnce(bool) -> String) -> Result<ExitCode>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    match format {
        Format::Table => print(&text(false))?,
        Format::Wide => print(&text(true))?,
        Format::Name => name(object)?,
        Format::Json | Format::Yaml => value(&typed(object)?, format)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a value as JSON or YAML.
pub fn value(value: &Value, format: Format) -> Result<()> {
    match format {
        Format::Yaml => print(&yaml(value)?),
        _ => print(&format!("{}\n", serde_json::to_string_pretty(value)?)),
    }
}

/// Serializes a value as YAML.
pub fn yaml(value: &impl Serialize) -> Result<String> {
    let mut text = serde_saphyr::to_string(value)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// An object with `apiVersion` and `kind`, without `managedFields`.
pub fn typed<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Result<Value> {
    let mut value = serde_json::to_value(object)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), K::api_version(&()).into());
        fields.insert("kind".to_owned(), K::kind(&()).into());
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Ok(value)
}

/// Prints to standard output. A closed pipe ends the command without an error.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

/// Sends everything that is printed to standard output to standard error.
pub struct Aside {
    stdout: OwnedFd,
}

impl Aside {
    pub fn begin() -> io::Result<Self> {
        io::stdout().flush()?;
        let stdout = nix::unistd::dup(io::stdout())?;
        nix::unistd::dup2_stdout(io::stderr())?;
        Ok(Aside { stdout })
    }

    /// Standard output is the former one again.
    pub fn end(self) -> io::Result<()> {
        io::stdout().flush()?;
        Ok(nix::unistd::dup2_stdout(&self.stdout)?)
    }
}

/// Prints the name of an object in the form that kubectl accepts.
pub fn name<K: Resource<DynamicType = ()>>(object: &K) -> Result<()> {
    print(&format!("{}.{}/{}\n", K::kind(&()).to_lowercase(), K::group(&()), object.name_any()))
}
