//! Expressions outside of schemas, such as those of a `ValidatingAdmissionPolicy`.

use serde_json::Value;

use super::check::{Env, check};
use super::eval::{Evaluation, Scope};
use super::program::Program;
use super::types::Ty;
use super::value::Val;

/// The work that one expression may do, in steps.
pub(crate) const BUDGET: u64 = 1_000_000;

/// An expression over JSON variables, compiled once.
#[derive(Debug)]
pub struct Expression {
    program: Program,
}

impl Expression {
    /// Compiles an expression that may name any variable.
    pub fn compile(source: &str) -> Result<Self, String> {
        let program = Program::parse(source)?;
        check(&program.expr, source, &Env::Open)?;
        Ok(Self { program })
    }

    /// Compiles an expression that may name these variables only.
    pub fn compile_with(source: &str, variables: &[&str]) -> Result<Self, String> {
        let program = Program::parse(source)?;
        check_with(&program, source, variables, &Env::Empty)?;
        Ok(Self { program })
    }

    /// The value of the expression, or why it has none. Variables that are not given are not there.
    pub fn evaluate(&self, variables: &[(&str, &Value)]) -> Result<Value, String> {
        let values: Vec<(&str, Val<'_>)> = variables.iter().map(|(name, value)| (*name, Val::plain(value))).collect();
        let run = Evaluation::new(&self.program, BUDGET);
        with_scope(&run, &values, None).map(|value| value.json()).map_err(|fault| fault.to_string())
    }

    /// Whether the expression holds; an error if it is not a condition.
    pub fn holds(&self, variables: &[(&str, &Value)]) -> Result<bool, String> {
        match self.evaluate(variables)? {
            Value::Bool(b) => Ok(b),
            _ => Err("expression must evaluate to a bool".to_owned()),
        }
    }
}

fn check_with(program: &Program, source: &str, variables: &[&str], env: &Env<'_, '_>) -> Result<(), String> {
    match variables {
        [] => check(&program.expr, source, env).map(|_| ()),
        [name, rest @ ..] => check_with(program, source, rest, &Env::Var(name, &Ty::Dyn, env)),
    }
}

fn with_scope<'a>(
    run: &Evaluation<'a>,
    values: &[(&str, Val<'a>)],
    scope: Option<&Scope<'_, 'a>>,
) -> super::eval::Answer<'a> {
    match values {
        [] => run.run(scope),
        [(name, value), rest @ ..] => with_scope(run, rest, Some(&Scope::new(name, value, scope))),
    }
}
