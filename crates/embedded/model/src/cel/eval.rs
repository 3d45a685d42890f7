//! Evaluating an expression.
//!
//! Semantics are those of cel-go, which Kubernetes uses: errors are absorbed by `&&`, `||`, `all` and `exists` where
//! the other side decides, numbers compare across types, and the work that an expression may do is bounded.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering as AtomicOrdering};

use ::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::functions;
use super::program::Program;
use super::value::{List, Map, Val};

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Fault {
    /// A map or an object does not have the key.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A function or an operator does not know the types that it was given.
    #[error("no such overload")]
    NoSuchOverload,
    /// The expression did more work than it may.
    #[error("operation cancelled: actual cost limit exceeded")]
    Cost,
    #[error("{0}")]
    Other(String),
}

impl Fault {
    pub fn other(text: impl Into<String>) -> Self {
        Self::Other(text.into())
    }
}

pub(crate) type Answer<'a> = Result<Val<'a>, Fault>;

/// The variables that an expression sees.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'s, 'a> {
    name: &'s str,
    value: &'s Val<'a>,
    above: Option<&'s Scope<'s, 'a>>,
}

impl<'s, 'a> Scope<'s, 'a> {
    pub fn new(name: &'s str, value: &'s Val<'a>, above: Option<&'s Scope<'s, 'a>>) -> Self {
        Self { name, value, above }
    }

    fn get(&self, name: &str) -> Option<&Val<'a>> {
        let mut scope = self;
        loop {
            if scope.name == name {
                return Some(scope.value);
            }
            scope = scope.above?;
        }
    }
}

/// Functions that do not read all of a list or a map, or that count their work themselves.
const ON_PARTS: [&str; 7] =
    [operators::IN, operators::INDEX, operators::OPT_INDEX, operators::ADD, "size", "dyn", "type"];

/// One evaluation: the program and the work that is left to it.
pub(crate) struct Evaluation<'a> {
    pub program: &'a Program,
    budget: Cell<u64>,
    /// Ends the evaluation when it becomes true.
    stop: Option<&'a AtomicBool>,
}

impl<'a> Evaluation<'a> {
    pub fn new(program: &'a Program, budget: u64) -> Self {
        Self { program, budget: Cell::new(budget), stop: None }
    }

    /// An evaluation that ends as if its work were done when `stop` becomes true.
    pub fn stopped_by(self, stop: &'a AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// The value of the whole expression.
    pub fn run(&self, scope: Option<&Scope<'_, 'a>>) -> Answer<'a> {
        self.eval(&self.program.expr, scope)
    }

    /// The work that is left.
    pub fn remaining(&self) -> u64 {
        self.budget.get()
    }

    /// Takes from the work that is left.
    pub fn spend(&self, cost: usize) -> Result<(), Fault> {
        if self.stop.is_some_and(|stop| stop.load(AtomicOrdering::Relaxed)) {
            return Err(Fault::Cost);
        }
        let left = self.budget.get().checked_sub(cost as u64);
        self.budget.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(Fault::Cost)
    }

    /// Takes the work of reading all of a value. A value that an expression made may be much larger than what it was
    /// made of, because its parts are shared; so it is counted part by part.
    fn spend_on(&self, value: &Val<'a>) -> Result<(), Fault> {
        match value {
            Val::Str(text) => self.spend(text.len() / 10),
            Val::Bytes(bytes) => self.spend(bytes.len() / 10),
            Val::List(list) => {
                self.spend(list.len())?;
                list.iter().try_for_each(|item| self.spend_on(&item?))
            }
            Val::Map(map) => {
                self.spend(map.len())?;
                for key in map.keys() {
                    self.spend_on(&key)?;
                    map.get(&key)?.iter().try_for_each(|value| self.spend_on(value))?;
                }
                Ok(())
            }
            Val::Optional(Some(value)) => self.spend_on(value),
            _ => Ok(()),
        }
    }

    pub fn eval(&self, expr: &'a IdedExpr, scope: Option<&Scope<'_, 'a>>) -> Answer<'a> {
        self.spend(1)?;
        match &expr.expr {
            Expr::Literal(literal) => Ok(constant(literal)),
            Expr::Ident(name) => self.ident(name, scope),
            Expr::Select(select) => {
                let operand = self.eval(&select.operand, scope)?;
                if select.test { test(&operand, &select.field) } else { field(operand, &select.field) }
            }
            Expr::Call(call) => self.call(call, scope),
            Expr::Comprehension(c) => self.comprehension(c, scope),
            Expr::List(list) => {
                let mut items = Vec::with_capacity(list.elements.len());
                for (i, element) in list.elements.iter().enumerate() {
                    match self.eval(element, scope)? {
                        Val::Optional(inner) if list.optional_indices.contains(&i) => {
                            items.extend(inner.map(|v| (*v).clone()));
                        }
                        value => items.push(value),
                    }
                }
                Ok(Val::list(items))
            }
            Expr::Map(map) => {
                let mut entries: Vec<(Val<'a>, Val<'a>)> = Vec::with_capacity(map.entries.len());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else {
                        return Err(Fault::NoSuchOverload);
                    };
                    let key = self.eval(&entry.key, scope)?;
                    for (known, _) in &entries {
                        if known.equals(&key)? {
                            return Err(Fault::Other(format!("Failed with repeated key: {}", functions::show(&key))));
                        }
                    }
                    match self.eval(&entry.value, scope)? {
                        Val::Optional(inner) if entry.optional => {
                            entries.extend(inner.map(|v| (key, (*v).clone())));
                        }
                        value => entries.push((key, value)),
                    }
                }
                Ok(Val::Map(Map::Made(Rc::new(entries))))
            }
            Expr::Struct(_) | Expr::Unspecified => Err(Fault::NoSuchOverload),
        }
    }

    fn ident(&self, name: &str, scope: Option<&Scope<'_, 'a>>) -> Answer<'a> {
        if let Some(value) = scope.and_then(|s| s.get(name)) {
            if let Val::Str(Cow::Owned(text)) = value {
                self.spend(text.len() / 10)?;
            }
            return Ok(value.clone());
        }
        match type_named(name) {
            Some(name) => Ok(Val::Type(name)),
            None => Err(Fault::Other(format!("no such attribute(s): {name}"))),
        }
    }

    fn truth(&self, expr: &'a IdedExpr, scope: Option<&Scope<'_, 'a>>) -> Result<bool, Fault> {
        match self.eval(expr, scope)? {
            Val::Bool(b) => Ok(b),
            _ => Err(Fault::NoSuchOverload),
        }
    }

    fn call(&self, call: &'a CallExpr, scope: Option<&Scope<'_, 'a>>) -> Answer<'a> {
        let args = &call.args;
        match (call.func_name.as_str(), args.as_slice()) {
            (operators::LOGICAL_AND, [a, b]) => return self.decide(a, b, false, scope),
            (operators::LOGICAL_OR, [a, b]) => return self.decide(a, b, true, scope),
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let chosen = if self.truth(condition, scope)? { yes } else { no };
                return self.eval(chosen, scope);
            }
            (operators::OPT_SELECT, [operand, name]) => {
                let operand = self.eval(operand, scope)?;
                let Val::Str(Cow::Borrowed(name)) = self.eval(name, scope)? else {
                    return Err(Fault::NoSuchOverload);
                };
                return optional_field(operand, name);
            }
            ("optMap" | "optFlatMap", [name, body]) => {
                if let (Some(target), Expr::Ident(name)) = (&call.target, &name.expr) {
                    let Val::Optional(inner) = self.eval(target, scope)? else {
                        return Err(Fault::NoSuchOverload);
                    };
                    let Some(inner) = inner else {
                        return Ok(Val::Optional(None));
                    };
                    let value = self.eval(body, Some(&Scope::new(name, &inner, scope)))?;
                    let flat = call.func_name == "optFlatMap";
                    return Ok(if flat { value } else { Val::Optional(Some(Rc::new(value))) });
                }
            }
            _ => {}
        }
        if let Some(pairs) = Pairs::of(call) {
            return self.pairs(&pairs, scope);
        }
        let mut values = Vec::with_capacity(args.len() + 1);
        let mut namespace = "";
        if let Some(target) = &call.target {
            match &target.expr {
                Expr::Ident(name) if is_namespace(name) && scope.and_then(|s| s.get(name)).is_none() => {
                    namespace = name;
                }
                _ => values.push(self.eval(target, scope)?),
            }
        }
        for arg in args {
            values.push(self.eval(arg, scope)?);
        }
        match namespace {
            "" => self.apply(&call.func_name, values),
            _ => functions::namespaced(self, namespace, &call.func_name, values),
        }
    }

    fn apply(&self, name: &str, values: Vec<Val<'a>>) -> Answer<'a> {
        if !ON_PARTS.contains(&name) {
            values.iter().try_for_each(|value| self.spend_on(value))?;
        }
        if let [a, b] = values.as_slice() {
            let ordered = |yes: &dyn Fn(Ordering) -> bool| a.compare(b).map(|order| Val::Bool(order.is_some_and(yes)));
            match name {
                operators::EQUALS => return a.equals(b).map(Val::Bool),
                operators::NOT_EQUALS => return a.equals(b).map(|equal| Val::Bool(!equal)),
                operators::LESS => return ordered(&Ordering::is_lt),
                operators::LESS_EQUALS => return ordered(&Ordering::is_le),
                operators::GREATER => return ordered(&Ordering::is_gt),
                operators::GREATER_EQUALS => return ordered(&Ordering::is_ge),
                operators::IN => {
                    return match b {
                        Val::List(list) => {
                            for item in list.iter() {
                                self.spend(1)?;
                                self.spend_on(a)?;
                                if item?.equals(a)? {
                                    return Ok(Val::Bool(true));
                                }
                            }
                            Ok(Val::Bool(false))
                        }
                        Val::Map(map) => map.get(a).map(|found| Val::Bool(found.is_some())),
                        _ => Err(Fault::NoSuchOverload),
                    };
                }
                operators::INDEX => return index(a, b),
                operators::OPT_INDEX => return optional_index(a, b),
                _ => {}
            }
        }
        functions::call(self, name, values)
    }

    /// `&&` and `||`: whichever side says `deciding` decides, even where the other one has no value.
    fn decide(&self, a: &'a IdedExpr, b: &'a IdedExpr, deciding: bool, scope: Option<&Scope<'_, 'a>>) -> Answer<'a> {
        let first = self.truth(a, scope);
        match first {
            Ok(value) if value == deciding => return Ok(Val::Bool(deciding)),
            Err(Fault::Cost) => return Err(Fault::Cost),
            _ => {}
        }
        match (first, self.truth(b, scope)) {
            (_, Ok(value)) if value == deciding => Ok(Val::Bool(deciding)),
            (Err(fault), _) | (Ok(_), Err(fault)) => Err(fault),
            (Ok(_), Ok(_)) => Ok(Val::Bool(!deciding)),
        }
    }

    /// The macros `all`, `exists`, `exists_one`, `map` and `filter`, as the parser expands them.
    fn comprehension(&self, c: &'a ComprehensionExpr, scope: Option<&Scope<'_, 'a>>) -> Answer<'a> {
        let range = match self.eval(&c.iter_range, scope)? {
            Val::List(list) => list,
            Val::Map(map) => List::Made(Rc::new(map.keys())),
            _ => return Err(Fault::NoSuchOverload),
        };
        let Expr::Call(step) = &c.loop_step.expr else {
            return Err(Fault::NoSuchOverload);
        };
        match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::LOGICAL_AND, [_, predicate]) => self.quantify(c, &range, predicate, false, scope),
            (operators::LOGICAL_OR, [_, predicate]) => self.quantify(c, &range, predicate, true, scope),
            (operators::CONDITIONAL, [predicate, grow, _]) => match added(grow) {
                Some(element) => self.gather(c, &range, Some(predicate), element, scope),
                None => {
                    let mut count = 0;
                    for item in range.iter() {
                        let item = item?;
                        count += u32::from(self.truth(predicate, Some(&Scope::new(&c.iter_var, &item, scope)))?);
                    }
                    Ok(Val::Bool(count == 1))
                }
            },
            (operators::ADD, _) => match added(&c.loop_step) {
                Some(element) => self.gather(c, &range, None, element, scope),
                None => Err(Fault::NoSuchOverload),
            },
            _ => Err(Fault::NoSuchOverload),
        }
    }

    /// The macros over pairs: index and item of a list, key and value of a map.
    fn pairs(&self, pairs: &Pairs<'a>, scope: Option<&Scope<'_, 'a>>) -> Answer<'a> {
        let range: Vec<(Val<'a>, Val<'a>)> = match self.eval(pairs.range, scope)? {
            Val::List(list) => {
                let numbered = list.iter().enumerate().map(|(i, item)| Ok((Val::Int(i as i64), item?)));
                numbered.collect::<Result<_, Fault>>()?
            }
            Val::Map(map) => {
                let value = |key: Val<'a>| Ok((key.clone(), map.get(&key)?.unwrap_or(Val::Null)));
                map.keys().into_iter().map(value).collect::<Result<_, Fault>>()?
            }
            _ => return Err(Fault::NoSuchOverload),
        };
        let (mut fault, mut count, mut made) = (None, 0, Vec::new());
        for (key, item) in range {
            let outer = Scope::new(pairs.first, &key, scope);
            let inner = Scope::new(pairs.second, &item, Some(&outer));
            let wanted = match pairs.filter {
                Some(filter) => self.truth(filter, Some(&inner))?,
                None => true,
            };
            match pairs.name {
                "all" | "exists" => match self.truth(pairs.body, Some(&inner)) {
                    Ok(value) if value == (pairs.name == "exists") => return Ok(Val::Bool(value)),
                    Ok(_) => {}
                    Err(Fault::Cost) => return Err(Fault::Cost),
                    Err(other) => fault = fault.or(Some(other)),
                },
                "existsOne" => count += u32::from(self.truth(pairs.body, Some(&inner))?),
                _ if wanted => made.push((key.clone(), self.eval(pairs.body, Some(&inner))?)),
                _ => {}
            }
        }
        match (pairs.name, fault) {
            (_, Some(fault)) => Err(fault),
            ("all", None) => Ok(Val::Bool(true)),
            ("exists", None) => Ok(Val::Bool(false)),
            ("existsOne", None) => Ok(Val::Bool(count == 1)),
            ("transformMap", None) => Ok(Val::Map(Map::Made(Rc::new(made)))),
            _ => Ok(Val::list(made.into_iter().map(|(_, value)| value).collect())),
        }
    }

    fn quantify(
        &self,
        c: &'a ComprehensionExpr,
        range: &List<'a>,
        predicate: &'a IdedExpr,
        deciding: bool,
        scope: Option<&Scope<'_, 'a>>,
    ) -> Answer<'a> {
        let mut fault = None;
        for item in range.iter() {
            let item = item?;
            match self.truth(predicate, Some(&Scope::new(&c.iter_var, &item, scope))) {
                Ok(value) if value == deciding => return Ok(Val::Bool(deciding)),
                Ok(_) => {}
                Err(Fault::Cost) => return Err(Fault::Cost),
                Err(other) => fault = fault.or(Some(other)),
            }
        }
        fault.map_or(Ok(Val::Bool(!deciding)), Err)
    }

    fn gather(
        &self,
        c: &'a ComprehensionExpr,
        range: &List<'a>,
        predicate: Option<&'a IdedExpr>,
        element: &'a IdedExpr,
        scope: Option<&Scope<'_, 'a>>,
    ) -> Answer<'a> {
        let mut items = Vec::new();
        for item in range.iter() {
            let item = item?;
            let scope = Scope::new(&c.iter_var, &item, scope);
            let wanted = match predicate {
                Some(predicate) => self.truth(predicate, Some(&scope))?,
                None => true,
            };
            if wanted {
                items.push(self.eval(element, Some(&scope))?);
            }
        }
        Ok(Val::list(items))
    }
}

/// A call of a macro over pairs, which the parser leaves as it is.
pub(crate) struct Pairs<'a> {
    pub name: &'a str,
    pub range: &'a IdedExpr,
    pub first: &'a str,
    pub second: &'a str,
    pub filter: Option<&'a IdedExpr>,
    pub body: &'a IdedExpr,
}

impl<'a> Pairs<'a> {
    pub fn of(call: &'a CallExpr) -> Option<Self> {
        let name = call.func_name.as_str();
        let (first, second, filter, body) = match (name, call.args.as_slice()) {
            ("all" | "exists" | "existsOne" | "transformList" | "transformMap", [a, b, body]) => (a, b, None, body),
            ("transformList" | "transformMap", [a, b, filter, body]) => (a, b, Some(filter), body),
            _ => return None,
        };
        match (&first.expr, &second.expr, &call.target) {
            (Expr::Ident(first), Expr::Ident(second), Some(range)) => {
                Some(Self { name, range, first, second, filter, body })
            }
            _ => None,
        }
    }
}

/// The `x` of an expanded `@result + [x]`.
fn added(expr: &IdedExpr) -> Option<&IdedExpr> {
    let Expr::Call(call) = &expr.expr else {
        return None;
    };
    match (call.func_name.as_str(), call.args.as_slice()) {
        (operators::ADD, [_, IdedExpr { expr: Expr::List(list), .. }]) if list.elements.len() == 1 => {
            list.elements.first()
        }
        _ => None,
    }
}

fn constant(literal: &LiteralValue) -> Val<'_> {
    match literal {
        LiteralValue::Boolean(b) => Val::Bool(*b.inner()),
        LiteralValue::Bytes(b) => Val::Bytes(b.inner().into()),
        LiteralValue::Double(d) => Val::Double(*d.inner()),
        LiteralValue::Int(i) => Val::Int(*i.inner()),
        LiteralValue::Null => Val::Null,
        LiteralValue::String(s) => Val::Str(Cow::Borrowed(s.inner())),
        LiteralValue::UInt(u) => Val::Uint(*u.inner()),
    }
}

/// Names before a dot that are part of a function's name.
pub(crate) fn is_namespace(name: &str) -> bool {
    matches!(name, "optional" | "sets" | "ip" | "strings")
}

/// The type that an identifier names.
pub(crate) fn type_named(name: &str) -> Option<&'static str> {
    Some(match name {
        "bool" => "bool",
        "bytes" => "bytes",
        "double" => "double",
        "int" => "int",
        "list" => "list",
        "map" => "map",
        "null_type" => "null_type",
        "optional_type" => "optional_type",
        "string" => "string",
        "type" => "type",
        "uint" => "uint",
        _ => return None,
    })
}

fn field<'a>(operand: Val<'a>, name: &'a str) -> Answer<'a> {
    match operand {
        Val::Map(map) => map.select(name)?.ok_or_else(|| Fault::NoSuchKey(name.to_owned())),
        Val::Optional(_) => optional_field(operand, name),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn optional_field<'a>(operand: Val<'a>, name: &'a str) -> Answer<'a> {
    match operand {
        Val::Map(map) => Ok(Val::Optional(map.select(name)?.map(Rc::new))),
        Val::Optional(Some(inner)) => optional_field((*inner).clone(), name),
        Val::Optional(None) => Ok(Val::Optional(None)),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn test<'a>(operand: &Val<'a>, name: &'a str) -> Answer<'a> {
    match operand {
        Val::Map(map) => Ok(Val::Bool(map.select(name)?.is_some())),
        Val::Optional(Some(inner)) => test(inner, name),
        Val::Optional(None) => Ok(Val::Bool(false)),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn index<'a>(operand: &Val<'a>, key: &Val<'a>) -> Answer<'a> {
    match operand {
        Val::List(list) => match position(key)? {
            Some(i) if i < list.len() => list.get(i),
            _ => Err(Fault::Other(format!("index out of bounds: {}", functions::show(key)))),
        },
        Val::Map(map) => map.get(key)?.ok_or_else(|| Fault::NoSuchKey(functions::show(key))),
        Val::Optional(_) => optional_index(operand, key),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn optional_index<'a>(operand: &Val<'a>, key: &Val<'a>) -> Answer<'a> {
    match operand {
        Val::List(list) => Ok(Val::Optional(match position(key)? {
            Some(i) if i < list.len() => Some(Rc::new(list.get(i)?)),
            _ => None,
        })),
        Val::Map(map) => Ok(Val::Optional(map.get(key)?.map(Rc::new))),
        Val::Optional(Some(inner)) => optional_index(inner, key),
        Val::Optional(None) => Ok(Val::Optional(None)),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn position(key: &Val<'_>) -> Result<Option<usize>, Fault> {
    match key {
        Val::Int(i) => Ok(usize::try_from(*i).ok()),
        Val::Uint(u) => Ok(usize::try_from(*u).ok()),
        Val::Double(d) if d.fract() == 0.0 && *d >= 0.0 => Ok(Some(*d as usize)),
        _ => Err(Fault::NoSuchOverload),
    }
}
