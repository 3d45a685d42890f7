//! Expressions outside of schemas, such as those of a `ValidatingAdmissionPolicy`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::check::{Env, check};
use super::eval::{Evaluation, Fault, Scope};
use super::program::Program;
use super::types::Ty;
use super::value::Val;

/// The work that one expression may do, in steps.
pub(crate) const BUDGET: u64 = 1_000_000;

/// The work that several expressions may do together.
#[derive(Debug)]
pub struct Budget {
    steps: u64,
    stop: Arc<AtomicBool>,
}

impl Budget {
    /// Evaluations end when `steps` are done, or when `stop` becomes true.
    pub fn new(steps: u64, stop: Arc<AtomicBool>) -> Self {
        Self { steps, stop }
    }
}

/// Why a condition is neither true nor false.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionError {
    /// The expression does more work than it may.
    TooExpensive,
    /// The value of the expression is of another type.
    NotABool,
    /// The expression has no value, such as for a field that is not there.
    NoValue(String),
}

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

    /// Whether the expression holds, within a budget that it shares with others.
    pub fn holds_within(&self, variables: &[(&str, &Value)], budget: &mut Budget) -> Result<bool, ConditionError> {
        let stop = budget.stop.clone();
        let steps = BUDGET.min(budget.steps);
        let values: Vec<(&str, Val<'_>)> = variables.iter().map(|(name, value)| (*name, Val::plain(value))).collect();
        let run = Evaluation::new(&self.program, steps).stopped_by(&stop);
        let answer = match with_scope(&run, &values, None) {
            Ok(Val::Bool(holds)) => Ok(holds),
            Ok(_) => Err(ConditionError::NotABool),
            Err(Fault::Cost) => Err(ConditionError::TooExpensive),
            Err(fault) => Err(ConditionError::NoValue(fault.to_string())),
        };
        budget.steps -= steps - run.remaining();
        answer
    }

    /// The value of the expression, within a budget that it shares with others and may use up alone.
    pub fn value_within(&self, variables: &[(&str, &Value)], budget: &mut Budget) -> Result<Value, ConditionError> {
        let stop = budget.stop.clone();
        let steps = budget.steps;
        let values: Vec<(&str, Val<'_>)> = variables.iter().map(|(name, value)| (*name, Val::plain(value))).collect();
        let run = Evaluation::new(&self.program, steps).stopped_by(&stop);
        let answer = match with_scope(&run, &values, None) {
            Ok(value) => Ok(value.json()),
            Err(Fault::Cost) => Err(ConditionError::TooExpensive),
            Err(fault) => Err(ConditionError::NoValue(fault.to_string())),
        };
        budget.steps = run.remaining();
        answer
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
