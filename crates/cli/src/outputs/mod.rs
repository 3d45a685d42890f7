//! `knoll output`: the outputs of a state, in terraform's own forms.
//!
//! The state is read with the user's right to read its Secrets, and no pod is started: what it prints is in no log. Only
//! terraform itself can read an external state, so that is a Run.

mod diagnostic;
mod flags;
mod human;
mod json;
mod value;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use knoll_api::names;
use knoll_api::workspace::StateKind;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::connect::Connection;
use crate::run::{self, RunArgs};
use crate::style;
use crate::workspace::Session;
use diagnostic::{Diagnostic, Style};
use flags::{Flags, Form};
use value::{Type, TypedValue};

/// Prints the outputs of the Workspace.
pub async fn run(args: RunArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.clone().or(outer)).await?;
    let workspace = session.workspace_name(&args.workspace)?;
    let found = session.workspace(&workspace).await?;
    if found.spec.state == StateKind::External {
        return run::run("output", args.into(), outer).await;
    }
    if args.output.is_some() {
        bail!("`knoll output` starts no run that `--output` could print; `-json` prints the outputs as JSON");
    }
    if args.args.iter().any(|arg| arg.trim_start_matches('-').starts_with("state")) {
        bail!(
            "`knoll output` does not accept `-state`: the state of workspace `{workspace}` is stored in the cluster\n  \
             `knoll state pull` prints it"
        );
    }
    let program = found.spec.tool.program();
    let flags = match Flags::parse(&args.args, found.spec.tool) {
        Ok(flags) => flags,
        Err(faults) => return tell(&Answer::misuse(faults, program), is_plain(&args.args)),
    };
    let outputs = read(&session, &workspace).await?;
    tell(&answer(&outputs, &flags, program), flags.no_color)
}

/// An output as the state has it.
#[derive(Deserialize)]
struct StoredOutput {
    value: Box<RawValue>,
    #[serde(rename = "type")]
    type_: Option<serde_json::Value>,
    #[serde(default)]
    sensitive: bool,
}

/// An output with its type.
struct StateOutput {
    value: TypedValue,
    sensitive: bool,
}

type Outputs = BTreeMap<String, StateOutput>;

async fn read(session: &Session, workspace: &str) -> Result<Outputs> {
    let state = session.storage().states().read(&session.namespace, workspace).await;
    if let Err(knoll_storage::Error::Api(kube::Error::Api(status))) = &state
        && status.code == 403
    {
        bail!(
            "cannot read the outputs of workspace `{workspace}`: they are in the Secret `{}`, which you may not read\n  \
             ask an administrator for the role `knoll-user` in namespace `{}`, or for the right to `get` `secrets` there\n  \
             `knoll workspace show {workspace}` shows the outputs that are not sensitive",
            names::state_secret(workspace),
            session.namespace
        );
    }
    let what = format!("cannot read the outputs of workspace `{workspace}`, which are stored in Secrets");
    match crate::state::explain(state, session, &what)? {
        Some(state) => parse(&state).with_context(|| format!("the state of workspace `{workspace}` cannot be read")),
        None => Ok(Outputs::new()),
    }
}

fn parse(state: &[u8]) -> Result<Outputs> {
    #[derive(Deserialize)]
    struct State {
        #[serde(default)]
        outputs: BTreeMap<String, StoredOutput>,
    }
    let state: State = serde_json::from_slice(state)?;
    let outputs = state.outputs.into_iter().map(|(name, output)| {
        let StoredOutput { value, type_, sensitive } = output;
        let type_ = type_.map_or(Ok(Type::Dynamic), |type_| Type::parse(&type_))?;
        Ok((name, StateOutput { value: TypedValue::parse(&value, type_)?, sensitive }))
    });
    outputs.collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    text: String,
    diagnostics: Vec<Diagnostic>,
    /// Printed after the diagnostics.
    usage: Option<String>,
}

impl Answer {
    fn text(text: String) -> Self {
        Answer { text, ..Answer::default() }
    }

    fn diagnostic(diagnostic: Diagnostic) -> Self {
        Answer { diagnostics: vec![diagnostic], ..Answer::default() }
    }

    fn misuse(diagnostics: Vec<Diagnostic>, program: &str) -> Self {
        let usage = format!("\nFor more help on using this command, run:\n  {program} output -help\n");
        Answer { diagnostics, usage: Some(usage), ..Answer::default() }
    }
}

fn answer(outputs: &Outputs, flags: &Flags, program: &str) -> Answer {
    let name = flags.name.as_deref();
    if outputs.is_empty() && (flags.form != Form::Json) {
        return Answer::diagnostic(Diagnostic::no_outputs(program));
    }
    let Some(name) = name else {
        return Answer::text(match flags.form {
            Form::Json => json::all(outputs),
            Form::Human | Form::Raw => human::all(outputs, flags.show_sensitive),
        });
    };
    let Some(output) = outputs.get(name) else {
        return Answer::diagnostic(Diagnostic::not_found(name, program));
    };
    match flags.form {
        Form::Human => Answer::text(format!("{}\n", human::format(&output.value, 0))),
        Form::Json => Answer::text(format!("{}\n", json::compact(&output.value))),
        Form::Raw => match output.value.raw() {
            Ok(text) => Answer::text(text),
            Err(why) => Answer::diagnostic(Diagnostic::not_raw(name, &why)),
        },
    }
}

/// Whether colours are off, as terraform finds out before it parses the other flags.
fn is_plain(args: &[String]) -> bool {
    args.iter().any(|arg| arg == "-no-color")
}

fn tell(answer: &Answer, no_color: bool) -> Result<ExitCode> {
    let mut failed = false;
    let mut out = answer.text.clone();
    let mut err = String::new();
    for diagnostic in &answer.diagnostics {
        if diagnostic.is_error {
            failed = true;
            err += &diagnostic.format(Style::of(&std::io::stderr(), !no_color && style::stderr_is_coloured()));
        } else {
            out += &diagnostic.format(Style::of(&std::io::stdout(), !no_color && style::stdout_is_coloured()));
        }
    }
    err += answer.usage.as_deref().unwrap_or_default();
    let _ = std::io::stderr().write_all(err.as_bytes());
    crate::output::print(&out)?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests;
