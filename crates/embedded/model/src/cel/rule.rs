//! One rule of `x-kubernetes-validations`, and walking an object with all of them.

use std::rc::Rc;

use serde_json::{Map, Value};

use super::check::{Env, check};
use super::eval::{Evaluation, Fault, Scope};
use super::expression::BUDGET;
use super::program::{Program, children};
use super::types::Ty;
use super::value::Val;
use crate::schema::Schema;
use crate::schema::error::{FieldError, FieldErrorKind, go_json, go_quote};
use crate::schema::parse::text;
use crate::schema::path::Path;
use crate::schema::validate::Correlated;

/// The work that all rules together may do on one object.
const TOTAL_BUDGET: u64 = 10_000_000;
/// The longest message that an expression may make.
const MAX_MESSAGE: usize = 5 << 10;

/// A rule that a value must satisfy.
#[derive(Debug)]
pub struct Rule {
    source: String,
    program: Program,
    message: Option<String>,
    message_expression: Option<Program>,
    reason: FieldErrorKind,
    /// The field, relative to the rule's node, that a failure is reported for.
    field_path: Option<String>,
    uses_old: bool,
    optional_old: bool,
}

impl Rule {
    /// Compiles a rule of `schema`. `at` is where the rule is; `uncorrelatable` is the list or map above it, if any,
    /// whose entries cannot be told apart over time.
    pub(crate) fn compile(
        json: &Value,
        at: &str,
        schema: &Schema,
        root: bool,
        uncorrelatable: Option<&str>,
    ) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let empty = Map::new();
        let map = json.as_object().unwrap_or(&empty);
        let source = text(map, "rule").unwrap_or_default();
        let field_path = shape(map, at, schema, &mut errors);
        let optional_old = map.get("optionalOldSelf").and_then(Value::as_bool);
        if !errors.is_empty() {
            return Err(errors);
        }
        // The value is part of the text already, because JSON would lose the order of its fields.
        let mut fail = |field: &str, value: String, detail: String| {
            let kind = FieldErrorKind::Invalid;
            let detail = format!("{value}: {detail}");
            errors.push(FieldError { field: format!("{at}.{field}"), kind, value: None, detail });
        };
        let Some(ty) = Ty::of(schema, root) else {
            fail("rule", shown(map), "failed to convert to declType for CEL validation rules".to_owned());
            return Err(errors);
        };
        let old_ty = if optional_old == Some(true) { Ty::Optional(Box::new(ty.clone())) } else { ty.clone() };
        let top = Env::Var("self", &ty, &Env::Empty);
        let env = Env::Var("oldSelf", &old_ty, &top);
        let program = match compiled(source, &env) {
            // What is not known yet is checked when the rule is evaluated.
            Ok((program, Ty::Bool | Ty::Dyn)) => Some(program),
            Ok(_) => {
                fail("rule", shown(map), "cel expression must evaluate to a bool".to_owned());
                None
            }
            Err(text) => {
                fail("rule", shown(map), format!("compilation failed: {text}"));
                None
            }
        };
        let message_expression = match text(map, "messageExpression").filter(|m| !m.is_empty()) {
            None => None,
            Some(source) => match compiled(source, &env) {
                Ok((program, Ty::Str | Ty::Dyn)) => Some(program),
                Ok(_) => {
                    fail("messageExpression", shown(map), "messageExpression must evaluate to a string".to_owned());
                    None
                }
                Err(text) => {
                    fail("messageExpression", shown(map), format!("messageExpression compilation failed: {text}"));
                    None
                }
            },
        };
        let uses_old = program.as_ref().is_some_and(|p| names(&p.expr, "oldSelf"));
        if let Some(above) = uncorrelatable.filter(|_| uses_old) {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {above}");
            fail("rule", go_quote(source), detail);
        }
        if let Some(optional) = optional_old.filter(|_| program.is_some() && !uses_old) {
            fail("optionalOldSelf", optional.to_string(), "may not be set if oldSelf is not used in rule".to_owned());
        }
        match program {
            Some(program) if errors.is_empty() => Ok(Self {
                source: source.to_owned(),
                program,
                message: text(map, "message").filter(|m| !m.is_empty()).map(str::to_owned),
                message_expression,
                reason: match text(map, "reason") {
                    Some("FieldValueForbidden") => FieldErrorKind::Forbidden,
                    Some("FieldValueRequired") => FieldErrorKind::Required,
                    Some("FieldValueDuplicate") => FieldErrorKind::Duplicate,
                    _ => FieldErrorKind::Invalid,
                },
                field_path,
                uses_old,
                optional_old: optional_old.unwrap_or(false),
            }),
            _ => Err(errors),
        }
    }

    /// How a rule is named when it cannot be evaluated.
    fn name(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.source).trim()
    }

    fn message(&self) -> String {
        match &self.message {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", self.source.trim()),
        }
    }
}

/// The rule as errors show it: with the names and in the order of the server's own type.
fn shown(map: &Map<String, Value>) -> String {
    let fields = [
        ("Rule", "rule", "\"\""),
        ("Message", "message", "\"\""),
        ("MessageExpression", "messageExpression", "\"\""),
        ("Reason", "reason", "null"),
        ("FieldPath", "fieldPath", "\"\""),
        ("OptionalOldSelf", "optionalOldSelf", "null"),
    ];
    let parts: Vec<String> = fields
        .iter()
        .map(|(name, key, absent)| format!("\"{name}\":{}", map.get(*key).map_or((*absent).to_owned(), go_json)))
        .collect();
    format!("{{{}}}", parts.join(","))
}

fn compiled<'s>(source: &str, env: &Env<'_, 's>) -> Result<(Program, Ty<'s>), String> {
    let program = Program::parse(source)?;
    let ty = check(&program.expr, source, env)?;
    Ok((program, ty))
}

fn names(expr: &::cel::IdedExpr, variable: &str) -> bool {
    matches!(&expr.expr, ::cel::common::ast::Expr::Ident(name) if name == variable)
        || children(expr).into_iter().any(|child| names(child, variable))
}

/// Checks the fields of a rule that are not expressions; gives the normal form of its `fieldPath`.
fn shape(map: &Map<String, Value>, at: &str, schema: &Schema, errors: &mut Vec<FieldError>) -> Option<String> {
    let rule = text(map, "rule").unwrap_or_default().trim();
    let message = text(map, "message").unwrap_or_default();
    if rule.is_empty() {
        errors.push(FieldError::required(format!("{at}.rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(format!("{at}.message"), message, "must be non-empty if specified"));
    } else if message.trim().contains('\n') {
        errors.push(FieldError::invalid(format!("{at}.message"), message, "must not contain line breaks"));
    } else if rule.contains('\n') && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(format!("{at}.message"), detail));
    }
    let expression = text(map, "messageExpression").unwrap_or_default();
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(format!("{at}.messageExpression"), detail));
    }
    let reasons = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    if let Some(reason) = text(map, "reason").filter(|r| !reasons.contains(r)) {
        errors.push(FieldError::not_supported(format!("{at}.reason"), reason, &reasons));
    }
    let path = text(map, "fieldPath").filter(|p| !p.is_empty())?;
    let normal = normal_path(path, schema);
    if normal.is_none() {
        errors.push(FieldError::invalid(format!("{at}.fieldPath"), path, "must be a valid path"));
    }
    normal
}

/// A `fieldPath` such as `.spec['a.b']` in the form of error paths, if it leads through the schema.
fn normal_path(path: &str, schema: &Schema) -> Option<String> {
    let mut out = String::new();
    let mut schema = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(tail) = rest.strip_prefix("['") {
            let end = tail.find("']")?;
            name = tail[..end].replace("\\'", "'").replace("\\\\", "\\");
            rest = &tail[end + 2..];
        } else {
            let tail = rest.strip_prefix('.')?;
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            name = tail[..end].to_owned();
            rest = &tail[end..];
        }
        if let Some(field) = schema.properties.get(&name) {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
            schema = field;
        } else {
            out.push_str(&format!("[{name}]"));
            schema = schema.additional.as_deref().filter(|_| schema.properties.is_empty())?;
        }
    }
    Some(out)
}

/// The failures of every rule on the object `new`, which replaces `old` if there is one.
pub(crate) fn validate(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut walk = Walk { errors: Vec::new(), budget: TOTAL_BUDGET, stopped: false };
    let ratchet = old.is_some_and(|old| old == new);
    walk.node(schema, new, old, &Path::Root, true, ratchet);
    walk.errors
}

/// The same for a value inside an object, such as a default.
pub(crate) fn validate_value(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut walk = Walk { errors: Vec::new(), budget: TOTAL_BUDGET, stopped: false };
    walk.node(schema, new, old, &Path::Root, false, false);
    walk.errors
}

struct Walk {
    errors: Vec<FieldError>,
    budget: u64,
    stopped: bool,
}

impl Walk {
    /// `unchanged` says that the nearest part that has an old value equals it: then rules about single states pass.
    fn node(
        &mut self,
        schema: &Schema,
        new: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        root: bool,
        unchanged: bool,
    ) {
        if self.stopped || new.is_null() || !schema.checks.has_rules {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        if !schema.checks.rules.is_empty() {
            self.rules(schema, new, old, path, root, unchanged);
        }
        match new {
            Value::Object(map) => {
                for (key, field) in map {
                    let (below, path) = match (schema.properties.get(key), &schema.additional) {
                        (Some(below), _) => (below, path.field(key)),
                        (None, Some(below)) => (below, path.key(key)),
                        (None, None) => continue,
                    };
                    let old = old.and_then(|old| old.get(key));
                    let unchanged = unchanged || old.is_some_and(|old| below.checks.has_rules && old == field);
                    self.node(below, field, old, &path, false, unchanged);
                }
            }
            Value::Array(items) => {
                let Some(below) = schema.items.as_ref().filter(|s| s.checks.has_rules) else {
                    return;
                };
                let correlated = Correlated::new(schema, old);
                for (i, item) in items.iter().enumerate() {
                    let old = correlated.get(item);
                    let unchanged = unchanged || old == Some(item);
                    self.node(below, item, old, &path.index(i), false, unchanged);
                }
            }
            _ => {}
        }
    }

    fn rules(
        &mut self,
        schema: &Schema,
        new: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        root: bool,
        unchanged: bool,
    ) {
        let ty = schema.ty.name();
        let this = match Val::typed(new, schema, root) {
            Ok(value) => value,
            Err(fault) => {
                return self.errors.push(FieldError::invalid(path.to_string(), ty, fault.to_string()));
            }
        };
        for rule in &schema.checks.rules {
            if rule.uses_old && old.is_none() && !rule.optional_old {
                continue;
            }
            let before = match old.filter(|_| rule.uses_old).map(|old| Val::typed(old, schema, root)).transpose() {
                Ok(before) => before,
                Err(fault) => {
                    self.errors.push(FieldError::invalid(path.to_string(), ty, fault.to_string()));
                    continue;
                }
            };
            let before = match before {
                before if rule.optional_old => Some(Val::Optional(before.map(Rc::new))),
                before => before,
            };
            let scope = Scope::new("self", &this, None);
            let old_scope = before.as_ref().map(|before| Scope::new("oldSelf", before, Some(&scope)));
            self.apply(rule, old_scope.as_ref().unwrap_or(&scope), ty, path, unchanged);
            if self.stopped {
                return;
            }
        }
    }

    fn apply<'a>(&mut self, rule: &'a Rule, scope: &Scope<'_, 'a>, ty: &str, path: &Path<'_>, unchanged: bool) {
        let mut fail = |detail: String| self.errors.push(FieldError::invalid(path.to_string(), ty, detail));
        if self.budget == 0 {
            let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
            fail(detail.to_owned());
            self.stopped = true;
            return;
        }
        let limit = BUDGET.min(self.budget);
        let run = Evaluation::new(&rule.program, limit);
        let answer = run.run(Some(scope));
        self.budget -= limit - run.remaining();
        match answer {
            Ok(Val::Bool(true)) => {}
            Ok(_) if unchanged && !rule.uses_old => {}
            Ok(_) => {
                let message = rule.message_expression.as_ref().and_then(|program| message(program, scope));
                let error = failure(rule, message.unwrap_or_else(|| rule.message()), ty, path);
                self.errors.push(error);
            }
            Err(fault @ Fault::NoSuchOverload) => fail(format!(
                "'{fault}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                rule.name()
            )),
            Err(Fault::Cost) => {
                fail(format!(
                    "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                    Fault::Cost,
                    rule.name()
                ));
                self.stopped = true;
            }
            Err(fault) => fail(format!("{fault} evaluating rule: {}", rule.name())),
        }
    }
}

/// The message that an expression makes, if it makes a good one.
fn message<'a>(program: &'a Program, scope: &Scope<'_, 'a>) -> Option<String> {
    let Ok(Val::Str(text)) = Evaluation::new(program, BUDGET).run(Some(scope)) else {
        return None;
    };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}

fn failure(rule: &Rule, message: String, ty: &str, path: &Path<'_>) -> FieldError {
    let mut field = path.to_string();
    if let Some(below) = &rule.field_path {
        if !field.is_empty() {
            field.push('.');
        }
        field.push_str(below);
    }
    match rule.reason {
        FieldErrorKind::Forbidden => FieldError::forbidden(field, message),
        FieldErrorKind::Required => FieldError::required(field, message),
        FieldErrorKind::Duplicate => FieldError::duplicate(field, ty),
        _ => FieldError::invalid(field, ty, message),
    }
}
