//! Validation: is a value what its schema says?
//!
//! The order, the texts and the corner cases are those of the Kubernetes API server. An update does not fail over
//! parts that it does not touch: errors of a field that equals its old value are dropped.

use std::collections::HashSet;

use serde_json::{Number, Value};

use super::checks::Bound;
use super::error::{FieldError, FieldErrorKind, go_float, go_json, go_quote};
use super::path::Path;
use super::{ListType, Schema, Type, unique};

impl Schema {
    /// Everything that is wrong with the object `new`, which replaces `old` if there is one.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.validate_after(Vec::new(), new, old)
    }

    /// The same where something is known to be wrong already, which may keep rules from being looked at.
    pub fn validate_after(&self, known: Vec<FieldError>, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut outcome = Outcome::default();
        self.check(new, old, &Path::Root, &mut outcome);
        let mut errors = known;
        errors.extend(distinct(outcome.errors));

        // Lists that had duplicates before may keep them.
        if old.is_none_or(|old| unique::check(self, old).is_empty()) {
            errors.extend(unique::check(self, new));
        }
        if self.checks.has_rules {
            if errors.iter().any(blocks_rules) {
                let detail = "some validation rules were not checked because the object was invalid; \
                              correct the existing errors to complete validation";
                errors.push(FieldError::invalid("", Value::Null, detail));
            } else {
                errors.extend(crate::cel::validate(self, new, old));
            }
        }
        errors
    }

    /// The structural part alone, for a value inside an object, such as a default.
    pub(crate) fn validate_value(&self, value: &Value) -> Vec<FieldError> {
        let mut outcome = Outcome::default();
        self.check(value, None, &Path::Root, &mut outcome);
        distinct(outcome.errors)
    }

    fn check(&self, value: &Value, old: Option<&Value>, path: &Path<'_>, out: &mut Outcome) {
        let before = out.errors.len();
        self.check_type(value, path, out);
        if !value.is_null() {
            self.check_combinations(value, old, path, out);
        }
        match value {
            Value::String(text) => self.check_string(text, path, out),
            Value::Number(number) => self.check_number(number, path, out),
            Value::Array(items) => self.check_list(items, old, path, out),
            _ => {}
        }
        self.check_allowed(value, path, out);
        if let Value::Object(map) = value {
            self.check_object(map, old, path, out);
        }
        out.matched += 1;
        if out.errors.len() > before && old == Some(value) {
            out.errors.truncate(before);
        }
    }

    fn check_type(&self, value: &Value, path: &Path<'_>, out: &mut Outcome) {
        let (actual, fits) = match value {
            Value::Null => ("null", self.nullable),
            Value::Bool(_) => ("boolean", self.ty == Type::Boolean),
            Value::Number(n) if is_integral(n) => {
                let name = if n.is_f64() { "number" } else { "integer" };
                (name, matches!(self.ty, Type::Integer | Type::Number | Type::IntOrString))
            }
            Value::Number(_) => ("number", self.ty == Type::Number),
            Value::String(_) => ("string", matches!(self.ty, Type::String | Type::IntOrString)),
            Value::Array(_) => ("array", self.ty == Type::Array),
            Value::Object(_) => ("object", self.ty == Type::Object),
        };
        if fits || self.ty == Type::Any {
            out.matched += 1;
            return;
        }
        // A value of quite another kind is reported against the format, where there is one.
        let (expected, actual) = match (value, self.checks.format, &self.checks.format_name) {
            (Value::Number(n), Some(_), Some(format)) => {
                (format.as_str(), if n.is_f64() { "float64" } else { "int64" })
            }
            (Value::Bool(_) | Value::Object(_), Some(_), Some(format)) => (format.as_str(), ""),
            _ => (self.ty.expected(), actual),
        };
        let path = path.dotted();
        let detail = format!("{path} in body must be of type {expected}: {}", go_quote(actual));
        out.errors.push(FieldError::type_invalid(path, actual, detail));
    }

    fn check_combinations(&self, value: &Value, old: Option<&Value>, path: &Path<'_>, out: &mut Outcome) {
        let checks = &self.checks;
        out.matched += 1;
        if !checks.any_of.is_empty() {
            let (mut best, mut found): (Option<Outcome>, bool) = (None, false);
            for schema in &checks.any_of {
                let branch = schema.attempt(value, old, path);
                if branch.errors.is_empty() {
                    best = Some(branch);
                    found = true;
                    break;
                }
                keep_better(&mut best, branch);
            }
            if !found {
                out.whole(format!("{} must validate at least one schema (anyOf)", go_quote(&path.dotted())));
            }
            out.merge(best);
        }
        if !checks.one_of.is_empty() {
            let (mut best, mut first, mut valid): (Option<Outcome>, Option<Outcome>, usize) = (None, None, 0);
            for schema in &checks.one_of {
                let branch = schema.attempt(value, old, path);
                if branch.errors.is_empty() {
                    valid += 1;
                    first = first.or(Some(branch));
                } else if valid == 0 {
                    keep_better(&mut best, branch);
                }
            }
            if valid == 1 {
                out.merge(first);
            } else {
                let found = match valid {
                    0 => "Found none valid".to_owned(),
                    n => format!("Found {n} valid alternatives"),
                };
                let name = go_quote(&path.dotted());
                out.whole(format!("{name} must validate one and only one schema (oneOf). {found}"));
                out.merge(best.filter(|_| valid == 0));
            }
        }
        if !checks.all_of.is_empty() {
            let mut valid = 0;
            for schema in &checks.all_of {
                let branch = schema.attempt(value, old, path);
                valid += usize::from(branch.errors.is_empty());
                out.merge(Some(branch));
            }
            if valid != checks.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                out.whole(format!("{} must validate all the schemas (allOf){none}", go_quote(&path.dotted())));
            }
        }
        if let Some(schema) = &checks.not
            && schema.attempt(value, old, path).errors.is_empty()
        {
            out.whole(format!("{} must not validate the schema (not)", go_quote(&path.dotted())));
        }
    }

    fn attempt(&self, value: &Value, old: Option<&Value>, path: &Path<'_>) -> Outcome {
        let mut branch = Outcome::default();
        self.check(value, old, path, &mut branch);
        branch
    }

    fn check_string(&self, text: &str, path: &Path<'_>, out: &mut Outcome) {
        let checks = &self.checks;
        // Counting characters is only needed where bytes do not already decide.
        let length = |needed: bool| {
            if needed { text.chars().count() as u64 } else { 0 }
        };
        if let Some(max) = checks.max_length
            && text.len() as u64 > max
            && length(true) > max
        {
            out.errors.push(FieldError::too_long(path.dotted(), max));
        } else if let Some(min) = checks.min_length
            && length(true) < min
        {
            let path = path.dotted();
            let detail = format!("{path} in body should be at least {min} chars long");
            out.errors.push(FieldError::invalid(path, text, detail));
        } else if let Some(pattern) = checks.pattern.as_ref().filter(|p| !p.is_match(text)) {
            let path = path.dotted();
            let detail = format!("{path} in body should match '{}'", pattern.source);
            out.errors.push(FieldError::invalid(path, text, detail));
        }
        if let Some(format) = checks.format
            && !format.admits(text)
        {
            let path = path.dotted();
            let name = checks.format_name.as_deref().unwrap_or_default();
            let detail = format!("{path} in body must be of type {name}: {}", go_quote(text));
            out.errors.push(FieldError::type_invalid(path, text, detail));
        }
    }

    fn check_number(&self, number: &Number, path: &Path<'_>, out: &mut Outcome) {
        let checks = &self.checks;
        out.matched += 1;
        let mut wrong = Vec::new();
        let mut fail = |what: String| {
            let path = path.dotted();
            let detail = format!("{path} in body should be {what}");
            wrong.push(FieldError::invalid(path, Value::Number(number.clone()), detail));
        };
        if let Some(factor) = checks.multiple_of
            && number.is_i64()
            && factor < 1.0
        {
            // An integer is compared with the factor cut to one.
            let path = path.dotted();
            let detail = format!("factor MultipleOf declared for {path} must be positive: 0");
            out.errors.push(FieldError::invalid(path, Value::Number(number.clone()), detail));
        } else if let Some(factor) = checks.multiple_of
            && !is_multiple(number, factor)
        {
            fail(format!("a multiple of {}", show_limit(number, factor)));
        }
        if let Some(bound) = checks.minimum
            && below(number, bound)
        {
            let or_equal = if bound.exclusive { "" } else { " or equal to" };
            fail(format!("greater than{or_equal} {}", show_limit(number, bound.limit)));
        }
        if let Some(bound) = checks.maximum
            && above(number, bound)
        {
            let or_equal = if bound.exclusive { "" } else { " or equal to" };
            fail(format!("less than{or_equal} {}", show_limit(number, bound.limit)));
        }
        out.errors.extend(wrong);
    }

    fn check_list(&self, items: &[Value], old: Option<&Value>, path: &Path<'_>, out: &mut Outcome) {
        let checks = &self.checks;
        if let Some(schema) = &self.items {
            let correlated = Correlated::new(self, old);
            for (i, item) in items.iter().enumerate() {
                schema.check(item, correlated.get(item), &path.index(i), out);
            }
        }
        let count = items.len() as u64;
        if let Some(min) = checks.min_items.filter(|min| count < *min) {
            let path = path.dotted();
            let detail = format!("{path} in body should have at least {min} items");
            out.errors.push(FieldError::invalid(path, count, detail));
        }
        if let Some(max) = checks.max_items.filter(|max| count > *max) {
            out.errors.push(FieldError::too_many(path.dotted(), items.len(), max));
        }
        if checks.unique_items {
            let mut seen = HashSet::new();
            if !items.iter().all(|item| seen.insert(go_json(item))) {
                let path = path.dotted();
                let detail = format!("{path} in body shouldn't contain duplicates");
                out.errors.push(FieldError::invalid(path, "", detail));
            }
        }
        out.matched += 1;
    }

    fn check_allowed(&self, value: &Value, path: &Path<'_>, out: &mut Outcome) {
        let allowed = &self.checks.one_of_values;
        // A null is never one of the allowed values, not even where the list names it.
        if allowed.is_empty() || (!value.is_null() && allowed.iter().any(|a| same(a, value))) {
            return;
        }
        let names: Vec<String> = allowed
            .iter()
            .map(|a| match a {
                Value::String(s) => s.clone(),
                other => go_json(other),
            })
            .collect();
        out.errors.push(FieldError::not_supported(path.dotted(), value.clone(), &names));
    }

    fn check_object(
        &self,
        map: &serde_json::Map<String, Value>,
        old: Option<&Value>,
        path: &Path<'_>,
        out: &mut Outcome,
    ) {
        let checks = &self.checks;
        let count = map.len() as u64;
        if let Some(min) = checks.min_properties.filter(|min| count < *min) {
            let path = path.dotted();
            let detail = format!("{path} in body should have at least {min} properties");
            out.errors.push(FieldError::invalid(path, count, detail));
        }
        if let Some(max) = checks.max_properties.filter(|max| count > *max) {
            out.errors.push(FieldError::too_many(path.dotted(), map.len(), max));
        }
        for (key, field) in map {
            let old = old.and_then(|old| old.get(key));
            if let Some(schema) = self.properties.get(key) {
                // Both versions of an object were converted to the same `apiVersion` and `kind`.
                let unseen = matches!(path, Path::Root) && matches!(key.as_str(), "apiVersion" | "kind");
                schema.check(field, old.filter(|_| !unseen), &path.field(key), out);
            } else if let Some(schema) = &self.additional {
                schema.check(field, old, &path.key(key), out);
            } else if checks.no_additional {
                let path = path.dotted();
                let detail = format!("{path}.{key} in body is a forbidden property");
                out.errors.push(FieldError::invalid(path, key.as_str(), detail));
            }
        }
        if self.embedded_resource {
            for name in ["apiVersion", "kind"] {
                if map.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                    out.errors.push(FieldError::required(path.field(name).to_string(), ""));
                }
            }
        }
        for name in &checks.required {
            if !map.contains_key(name) {
                out.errors.push(FieldError::required(path.field(name).dotted(), ""));
            }
        }
    }
}

impl Type {
    fn expected(self) -> &'static str {
        match self {
            Type::IntOrString => "integer,string",
            other => other.name(),
        }
    }
}

/// What a walk found: what is wrong, and how much was right.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    /// How many checks passed; tells which branch of `anyOf` and `oneOf` came closest.
    matched: usize,
}

impl Outcome {
    fn merge(&mut self, other: Option<Outcome>) {
        if let Some(other) = other {
            self.errors.extend(other.errors);
            self.matched += other.matched;
        }
    }

    /// An error about a combination of schemas: Kubernetes reports it without a field.
    fn whole(&mut self, detail: String) {
        self.errors.push(FieldError::invalid("", "", detail));
    }
}

fn keep_better(best: &mut Option<Outcome>, branch: Outcome) {
    if best.as_ref().is_none_or(|b| branch.matched > b.matched) {
        *best = Some(branch);
    }
}

/// The items of the old list that items of the new one replace. Only the items of a map-like list can be told.
pub(crate) struct Correlated<'a> {
    keys: &'a [String],
    old: &'a [Value],
}

impl<'a> Correlated<'a> {
    pub(crate) fn new(schema: &'a Schema, old: Option<&'a Value>) -> Self {
        match (&schema.list_type, old) {
            (ListType::Map(keys), Some(Value::Array(old))) => Self { keys, old },
            _ => Self { keys: &[], old: &[] },
        }
    }

    pub(crate) fn get(&self, item: &Value) -> Option<&'a Value> {
        self.old.iter().find(|old| {
            old.is_object() && item.is_object() && self.keys.iter().all(|key| old.get(key) == item.get(key))
        })
    }
}

fn blocks_rules(error: &FieldError) -> bool {
    use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(error.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}

/// Combined schemas often say the same thing twice.
fn distinct(errors: Vec<FieldError>) -> Vec<FieldError> {
    if errors.len() < 2 {
        return errors;
    }
    let mut seen = HashSet::new();
    errors.into_iter().filter(|e| seen.insert(e.to_string())).collect()
}

fn is_integral(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|f| f.fract() == 0.0 && f.abs() < 9_007_199_254_740_992.0)
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

/// Integers are compared as integers, with the limit cut to one.
fn above(number: &Number, bound: Bound) -> bool {
    match number.as_i64() {
        Some(i) => i > bound.limit as i64 || (bound.exclusive && i == bound.limit as i64),
        None => number.as_f64().is_some_and(|f| f > bound.limit || (bound.exclusive && f == bound.limit)),
    }
}

fn below(number: &Number, bound: Bound) -> bool {
    match number.as_i64() {
        Some(i) => i < bound.limit as i64 || (bound.exclusive && i == bound.limit as i64),
        None => number.as_f64().is_some_and(|f| f < bound.limit || (bound.exclusive && f == bound.limit)),
    }
}

fn is_multiple(number: &Number, factor: f64) -> bool {
    match number.as_i64() {
        Some(i) => match factor as i64 {
            factor if factor > 0 => i % factor == 0,
            _ => false,
        },
        None if factor <= 0.0 => false,
        None => {
            let value = number.as_f64().unwrap_or(f64::NAN);
            let times = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
            (times - times.round()).abs() < 1e-9
        }
    }
}

fn show_limit(number: &Number, limit: f64) -> String {
    if number.is_f64() { go_float(limit) } else { (limit as i64).to_string() }
}
