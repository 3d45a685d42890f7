//! The flags of `terraform output`, parsed as terraform does. Pure.

use knoll_api::workspace::Tool;

use super::diagnostic::Diagnostic;

/// The form of the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Human,
    Json,
    Raw,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Flags {
    pub form: Form,
    pub no_color: bool,
    /// Prints sensitive values in the list of all outputs too; a flag of OpenTofu's.
    pub show_sensitive: bool,
    /// The one output to print.
    pub name: Option<String>,
}

impl Flags {
    /// Parses the arguments. Terraform looks for `-no-color` everywhere, and for other flags only before the name.
    pub fn parse(args: &[String], tool: Tool) -> Result<Self, Vec<Diagnostic>> {
        let plain = |arg: &&String| matches!(arg.as_str(), "-no-color" | "-compact-warnings");
        let no_color = args.iter().any(|arg| arg == "-no-color");
        let mut rest = args.iter().filter(|arg| !plain(arg)).peekable();
        let (mut json, mut raw, mut show_sensitive) = (false, false, false);
        let mut faults = Vec::new();
        while let Some(arg) = rest.next_if(|arg| arg.len() > 1 && arg.starts_with('-')) {
            if arg == "--" {
                break;
            }
            let flag = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')).unwrap_or_default();
            let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let target = match name {
                "json" => &mut json,
                "raw" => &mut raw,
                "show-sensitive" if tool == Tool::Tofu => &mut show_sensitive,
                _ => {
                    faults.push(Diagnostic::unparsed(&format!("flag provided but not defined: -{name}")));
                    break;
                }
            };
            match value.map_or(Some(true), boolean) {
                Some(value) => *target = value,
                None => {
                    let value = value.unwrap_or_default();
                    let why = format!("invalid boolean value {} for -{name}: parse error", super::human::quote(value));
                    faults.push(Diagnostic::unparsed(&why));
                    break;
                }
            }
        }
        // Terraform goes on with what it has parsed so far.
        let names: Vec<&String> = if faults.is_empty() { rest.collect() } else { Vec::new() };
        if names.len() > 1 {
            faults.push(Diagnostic::unexpected_argument());
        }
        if json && raw {
            faults.push(Diagnostic::two_forms());
            (json, raw) = (false, false);
        }
        let name = names.first().map(|name| (*name).clone());
        if raw && name.is_none() && faults.is_empty() {
            faults.push(Diagnostic::name_required());
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let form = match (json, raw) {
            (true, _) => Form::Json,
            (_, true) => Form::Raw,
            _ => Form::Human,
        };
        Ok(Flags { form, no_color, show_sensitive, name })
    }
}

/// A boolean as Go parses it.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
