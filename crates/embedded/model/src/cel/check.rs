//! Checking an expression before it is ever evaluated: names, fields and types.
//!
//! What cel-go refuses when a definition is created is refused here too. Where types are not known the check is
//! left to the evaluation.

use std::cell::Cell;

use ::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::eval::{Pairs, is_namespace, type_named};
use super::program::at;
use super::signatures;
use super::types::Ty;

/// The variables that an expression may name.
#[derive(Clone, Copy)]
pub(crate) enum Env<'e, 's> {
    Empty,
    /// Any name, of any type.
    Open,
    Var(&'e str, &'e Ty<'s>, &'e Env<'e, 's>),
}

impl<'s> Env<'_, 's> {
    fn get(&self, name: &str) -> Option<Ty<'s>> {
        match self {
            Env::Empty => None,
            Env::Open => (type_named(name).is_none() && !is_namespace(name)).then_some(Ty::Dyn),
            Env::Var(known, ty, _) if *known == name => Some((*ty).clone()),
            Env::Var(_, _, above) => above.get(name),
        }
    }
}

/// The type of an expression, or why it cannot have one.
pub(crate) fn check<'s>(expr: &IdedExpr, source: &str, env: &Env<'_, 's>) -> Result<Ty<'s>, String> {
    let mixed = Cell::new(false);
    Checker { source, mixed }.ty(expr, env)
}

struct Checker<'c> {
    source: &'c str,
    /// Literals may mix types, as the arguments of `format` do.
    mixed: Cell<bool>,
}

type Checked<'s> = Result<Ty<'s>, String>;

impl Checker<'_> {
    /// The parser does not keep positions, so an error points at the first place that reads like it.
    fn error<T>(&self, offset: Option<usize>, message: &str) -> Result<T, String> {
        Err(at(self.source, offset.unwrap_or(0), message))
    }

    /// Where an expression probably is: cel-go means the dot of a selection, the parenthesis of a call and the sign of
    /// an operator.
    fn find(&self, expr: &IdedExpr) -> Option<usize> {
        match &expr.expr {
            Expr::Ident(name) => self.find_word(name),
            Expr::Select(select) => self.source.find(&format!(".{}", select.field)),
            Expr::Call(call) => self.find_call(&call.func_name),
            Expr::Literal(LiteralValue::String(s)) => self.source.find(s.inner()).map(|i| i.saturating_sub(1)),
            Expr::Literal(LiteralValue::Int(i)) => self.find_word(&i.inner().to_string()),
            _ => None,
        }
    }

    fn find_call(&self, name: &str) -> Option<usize> {
        match name {
            operators::CONDITIONAL => self.source.find('?'),
            operators::INDEX | operators::OPT_INDEX => self.source.find('['),
            operators::IN => self.source.find(" in ").map(|i| i + 1),
            name if name.contains('_') && !name.starts_with(char::is_alphabetic) => {
                self.source.find(name.trim_matches('_'))
            }
            name => self.source.find(&format!("{name}(")).map(|i| i + name.len()),
        }
    }

    /// The first place of a name that is not part of a longer one.
    fn find_word(&self, name: &str) -> Option<usize> {
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let mut found = self.source.match_indices(name).map(|(i, _)| i);
        found.find(|i| {
            let before = self.source[..*i].chars().next_back();
            !part(before) && before != Some('.') && !part(self.source[i + name.len()..].chars().next())
        })
    }

    /// A literal's items must share a type.
    fn common<'s>(&self, items: &[&IdedExpr], types: Vec<Ty<'s>>) -> Checked<'s> {
        let mut shared = Ty::Dyn;
        for (item, ty) in items.iter().zip(types) {
            if !ty.fits(&shared) && self.mixed.get() {
                return Ok(Ty::Dyn);
            }
            if !ty.fits(&shared) {
                return self.error(self.find(item), &format!("expected type '{shared}' but found '{ty}'"));
            }
            if matches!(shared, Ty::Dyn) {
                shared = ty;
            }
        }
        Ok(shared)
    }

    fn ty<'s>(&self, expr: &IdedExpr, env: &Env<'_, 's>) -> Checked<'s> {
        match &expr.expr {
            Expr::Literal(literal) => Ok(match literal {
                LiteralValue::Boolean(_) => Ty::Bool,
                LiteralValue::Bytes(_) => Ty::Bytes,
                LiteralValue::Double(_) => Ty::Double,
                LiteralValue::Int(_) => Ty::Int,
                LiteralValue::Null => Ty::Null,
                LiteralValue::String(_) => Ty::Str,
                LiteralValue::UInt(_) => Ty::Uint,
            }),
            Expr::Ident(name) => match env.get(name) {
                Some(ty) => Ok(ty),
                None if type_named(name).is_some() => Ok(Ty::Type),
                None => {
                    self.error(self.find_word(name), &format!("undeclared reference to '{name}' (in container '')"))
                }
            },
            Expr::Select(select) => {
                let operand = self.ty(&select.operand, env)?;
                let field = self.field(&operand, &select.field)?;
                Ok(if select.test { Ty::Bool } else { field })
            }
            Expr::List(list) => {
                let items: Vec<&IdedExpr> = list.elements.iter().collect();
                let types = items.iter().map(|e| self.ty(e, env)).collect::<Result<Vec<_>, _>>()?;
                let optional = !list.optional_indices.is_empty();
                let item = if optional { Ty::Dyn } else { self.common(&items, types)? };
                Ok(Ty::List(Box::new(item)))
            }
            Expr::Map(map) => {
                let (mut keys, mut values, mut optional) = (Vec::new(), Vec::new(), false);
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        keys.push(&entry.key);
                        values.push(&entry.value);
                        optional |= entry.optional;
                    }
                }
                let types = |part: &[&IdedExpr]| part.iter().map(|e| self.ty(e, env)).collect::<Result<Vec<_>, _>>();
                let key = self.common(&keys, types(&keys)?)?;
                let value = types(&values)?;
                let value = if optional { Ty::Dyn } else { self.common(&values, value)? };
                Ok(Ty::Map(Box::new(key), Box::new(value)))
            }
            Expr::Call(call) => self.call(call, env),
            Expr::Comprehension(c) => self.comprehension(c, env),
            Expr::Struct(s) => self
                .error(self.source.find('{'), &format!("undeclared reference to '{}' (in container '')", s.type_name)),
            Expr::Unspecified => Ok(Ty::Dyn),
        }
    }

    fn field<'s>(&self, operand: &Ty<'s>, name: &str) -> Checked<'s> {
        if !operand.has_fields() {
            let message = format!("type '{operand}' does not support field selection");
            return self.error(self.source.find(&format!(".{name}")), &message);
        }
        match operand.field(name) {
            Some(ty) => Ok(ty),
            None => self.error(self.source.find(&format!(".{name}")), &format!("undefined field '{name}'")),
        }
    }

    fn call<'s>(&self, call: &CallExpr, env: &Env<'_, 's>) -> Checked<'s> {
        let name = call.func_name.as_str();
        if let ("optMap" | "optFlatMap", Some(target), [var, body]) = (name, &call.target, call.args.as_slice())
            && let Expr::Ident(var) = &var.expr
        {
            let inner = match self.ty(target, env)? {
                Ty::Optional(inner) => *inner,
                Ty::Dyn => Ty::Dyn,
                other => return self.no_overload(name, Some(&other), &[Ty::Dyn]),
            };
            let body = self.ty(body, &Env::Var(var, &inner, env))?;
            return Ok(if name == "optFlatMap" { body } else { Ty::Optional(Box::new(body)) });
        }
        if let (operators::OPT_SELECT, [operand, IdedExpr { expr: Expr::Literal(LiteralValue::String(field)), .. }]) =
            (name, call.args.as_slice())
        {
            let operand = self.ty(operand, env)?;
            return Ok(match self.field(&operand, field.inner())? {
                optional @ Ty::Optional(_) => optional,
                plain => Ty::Optional(Box::new(plain)),
            });
        }
        if let Some(pairs) = Pairs::of(call) {
            return self.pairs(&pairs, env);
        }
        let was_mixed = self.mixed.replace(self.mixed.get() || name == "format");
        let args = call.args.iter().map(|a| self.ty(a, env)).collect::<Result<Vec<_>, _>>();
        self.mixed.set(was_mixed);
        let args = args?;
        let mut target = None;
        let mut full = name.to_owned();
        match &call.target {
            Some(t) => match &t.expr {
                Expr::Ident(namespace) if is_namespace(namespace) && env.get(namespace).is_none() => {
                    full = format!("{namespace}.{name}");
                }
                _ => target = Some(self.ty(t, env)?),
            },
            None => {
                if let Some(result) = self.operator(name, &args) {
                    return result;
                }
            }
        }
        match signatures::result(&full, target.as_ref(), &args) {
            Some(Some(ty)) => Ok(ty),
            Some(None) => self.no_overload(&full, target.as_ref(), &args),
            None => self.error(self.find_call(name), &format!("undeclared reference to '{full}' (in container '')")),
        }
    }

    fn no_overload<'s>(&self, name: &str, target: Option<&Ty<'_>>, args: &[Ty<'_>]) -> Checked<'s> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let target = target.map(|t| format!("{t}.")).unwrap_or_default();
        let message = format!("found no matching overload for '{name}' applied to '{target}({})'", args.join(", "));
        self.error(self.find_call(name.rsplit('.').next().unwrap_or(name)), &message)
    }

    /// The type of an operator's result; absent where `name` is no operator.
    fn operator<'s>(&self, name: &str, args: &[Ty<'s>]) -> Option<Checked<'s>> {
        use Ty::{Bool, Bytes, Double, Duration, Dyn, Int, List, Map, Optional, Str, Timestamp, Uint};
        let number = |t: &Ty<'_>| matches!(t, Int | Uint | Double);
        let result = match (name, args) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [a, b]) => (Bool.fits(a) && Bool.fits(b)).then_some(Bool),
            (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [a]) => Bool.fits(a).then_some(Bool),
            (operators::CONDITIONAL, [condition, a, b]) => {
                (Bool.fits(condition) && a.fits(b)).then(|| if matches!(a, Dyn) { Dyn } else { a.clone() })
            }
            (operators::EQUALS | operators::NOT_EQUALS, [a, b]) => a.fits(b).then_some(Bool),
            (operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS, [a, b]) => {
                let comparable = |t: &Ty<'_>| number(t) || matches!(t, Dyn | Bool | Str | Bytes | Duration | Timestamp);
                let known = comparable(a) && comparable(b);
                (known && (a.fits(b) || (number(a) && number(b)))).then_some(Bool)
            }
            (operators::NEGATE, [a]) => matches!(a, Dyn | Int | Double).then(|| a.clone()),
            (operators::ADD, [a, b]) => match (a, b) {
                (Dyn, _) | (_, Dyn) => Some(Dyn),
                (Int | Uint | Double | Str | Bytes | Duration, b) if a.fits(b) => Some(a.clone()),
                (List(_), List(_)) if a.fits(b) => Some(a.clone()),
                (Timestamp, Duration) | (Duration, Timestamp) => Some(Timestamp),
                _ => None,
            },
            (operators::SUBSTRACT, [a, b]) => match (a, b) {
                (Dyn, _) | (_, Dyn) => Some(Dyn),
                (Int | Uint | Double | Duration, b) if a.fits(b) => Some(a.clone()),
                (Timestamp, Duration) => Some(Timestamp),
                (Timestamp, Timestamp) => Some(Duration),
                _ => None,
            },
            (operators::MULTIPLY | operators::DIVIDE, [a, b]) => match (a, b) {
                (Dyn, _) | (_, Dyn) => Some(Dyn),
                (Int | Uint | Double, b) if a.fits(b) => Some(a.clone()),
                _ => None,
            },
            (operators::MODULO, [a, b]) => match (a, b) {
                (Dyn, _) | (_, Dyn) => Some(Dyn),
                (Int | Uint, b) if a.fits(b) => Some(a.clone()),
                _ => None,
            },
            (operators::IN, [a, b]) => match b {
                Dyn => Some(Bool),
                List(item) => a.fits(item).then_some(Bool),
                Map(key, _) => a.fits(key).then_some(Bool),
                _ => None,
            },
            (operators::INDEX | operators::OPT_INDEX, [operand, key]) => {
                let (operand, was_optional) = match operand {
                    Optional(inner) => (inner.as_ref(), true),
                    plain => (plain, false),
                };
                let found = match operand {
                    Dyn => Some(Dyn),
                    List(item) => (number(key) || matches!(key, Dyn)).then(|| (**item).clone()),
                    Map(wanted, value) => key.fits(wanted).then(|| (**value).clone()),
                    _ => None,
                };
                let optional = was_optional || name == operators::OPT_INDEX;
                found.map(|ty| if optional { Optional(Box::new(ty)) } else { ty })
            }
            _ => return None,
        };
        Some(result.map_or_else(|| self.no_overload(name, None, args), Ok))
    }

    /// The types of what a range has: its keys or places, and its items.
    fn range<'s>(&self, range: &IdedExpr, ty: Ty<'s>) -> Result<(Ty<'s>, Ty<'s>), String> {
        match ty {
            Ty::List(item) => Ok((Ty::Int, *item)),
            Ty::Map(key, value) => Ok((*key, *value)),
            Ty::Dyn => Ok((Ty::Dyn, Ty::Dyn)),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(self.find(range), &message)
            }
        }
    }

    fn condition<'s>(&self, expr: &IdedExpr, env: &Env<'_, 's>) -> Checked<'s> {
        match self.ty(expr, env)? {
            Ty::Bool | Ty::Dyn => Ok(Ty::Bool),
            other => {
                // The last place of a name is in the condition; the first declares it.
                let offset = match &expr.expr {
                    Expr::Ident(name) => self.source.rfind(name.as_str()),
                    _ => self.find(expr),
                };
                self.error(offset, &format!("expected type 'bool' but found '{other}'"))
            }
        }
    }

    fn pairs<'s>(&self, pairs: &Pairs<'_>, env: &Env<'_, 's>) -> Checked<'s> {
        let (key, item) = self.range(pairs.range, self.ty(pairs.range, env)?)?;
        let outer = Env::Var(pairs.first, &key, env);
        let inner = Env::Var(pairs.second, &item, &outer);
        if let Some(filter) = pairs.filter {
            self.condition(filter, &inner)?;
        }
        match pairs.name {
            "transformList" => Ok(Ty::List(Box::new(self.ty(pairs.body, &inner)?))),
            "transformMap" => Ok(Ty::Map(Box::new(key.clone()), Box::new(self.ty(pairs.body, &inner)?))),
            _ => self.condition(pairs.body, &inner),
        }
    }

    fn comprehension<'s>(&self, c: &ComprehensionExpr, env: &Env<'_, 's>) -> Checked<'s> {
        // The range is checked once: ranges that nest would be checked twice at each level otherwise.
        let range = self.ty(&c.iter_range, env)?;
        let is_map = matches!(range, Ty::Map(..));
        let (key, item) = self.range(&c.iter_range, range)?;
        let item = if is_map { key } else { item };
        let inner = Env::Var(&c.iter_var, &item, env);
        let Expr::Call(step) = &c.loop_step.expr else {
            return Ok(Ty::Dyn);
        };
        // `map` and `filter` add a list of one to their result.
        let grown = |step: &IdedExpr| match &step.expr {
            Expr::Call(call) if call.func_name == operators::ADD => call.args.get(1).map(|list| self.ty(list, &inner)),
            _ => None,
        };
        match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [_, predicate]) => self.condition(predicate, &inner),
            (operators::CONDITIONAL, [predicate, grow, _]) => {
                self.condition(predicate, &inner)?;
                match grow.expr {
                    Expr::Call(ref call) if matches!(call.args.get(1), Some(IdedExpr { expr: Expr::List(_), .. })) => {
                        grown(grow).unwrap_or(Ok(Ty::Dyn))
                    }
                    _ => Ok(Ty::Bool),
                }
            }
            _ => grown(&c.loop_step).unwrap_or(Ok(Ty::Dyn)),
        }
    }
}
