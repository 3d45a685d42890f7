//! The JSONPath of printer columns: `.a.b[0].c`, `['x']`, `[*]`, `[1:3]`, `..a`, `[?(@.type=="Ready")].status`.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

/// A path that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// A path that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A bracket, a quote or a filter does not end.
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    /// What is between brackets is no index.
    #[error("invalid array index {0}")]
    Index(String),
    /// A character that begins nothing.
    #[error("unrecognized character in action: {0:?}")]
    Unrecognized(char),
    /// `..` twice.
    #[error("invalid multiple recursive descent")]
    Recursive,
    /// A number that is none.
    #[error("cannot parse number {0}")]
    Number(String),
    /// An operator that is none.
    #[error("unrecognized filter operator {0}")]
    Operator(String),
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Recursive,
    Slice { start: i64, end: End, step: usize },
    Union(Vec<JsonPath>),
    Filter(Box<Filter>),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// One item: the end follows from the start.
    One,
    /// To the end of the list.
    Open,
    At(i64),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: JsonPath,
    /// Without a comparison the left side has to exist.
    comparison: Option<(Comparison, JsonPath)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut steps = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = match c {
                ' ' | '@' | '$' => &rest[1..],
                _ if rest.starts_with("[?(") => filter(&rest[3..], &mut steps)?,
                '[' => brackets(&rest[1..], &mut steps)?,
                '.' if rest.starts_with("..") => {
                    if steps.last() == Some(&Step::Recursive) {
                        return Err(PathError::Recursive);
                    }
                    steps.push(Step::Recursive);
                    let rest = &rest[2..];
                    match rest.chars().next() {
                        Some(c) if c == '_' || c.is_alphanumeric() => field(rest, &mut steps),
                        _ => rest,
                    }
                }
                '.' => field(&rest[1..], &mut steps),
                '"' | '\'' => quoted(rest, c, &mut steps)?,
                '+' | '-' | '0'..='9' => number(rest, &mut steps)?,
                _ if rest.starts_with("true") => {
                    steps.push(Step::Literal(Value::Bool(true)));
                    &rest[4..]
                }
                _ if rest.starts_with("false") => {
                    steps.push(Step::Literal(Value::Bool(false)));
                    &rest[5..]
                }
                c => return Err(PathError::Unrecognized(c)),
            };
        }
        Ok(Self { steps })
    }

    /// All values that the path leads to. Absent fields lead to none; an index out of bounds, or a step into something of
    /// another form, makes the whole path lead nowhere.
    pub fn find<'v>(&self, value: &'v Value) -> Option<Vec<Cow<'v, Value>>> {
        let mut found = vec![Cow::Borrowed(value)];
        for step in &self.steps {
            found = step.walk(found)?;
        }
        Some(found)
    }
}

impl Step {
    fn walk<'v>(&self, values: Vec<Cow<'v, Value>>) -> Option<Vec<Cow<'v, Value>>> {
        let mut found = Vec::new();
        match self {
            Self::Literal(literal) => found.extend(values.iter().map(|_| Cow::Owned(literal.clone()))),
            Self::Union(paths) => {
                for path in paths {
                    for value in &values {
                        found.extend(path.from(value)?);
                    }
                }
            }
            Self::Recursive => values.into_iter().for_each(|value| descend(value, &mut found)),
            Self::Field(name) => {
                found.extend(values.iter().filter_map(|value| child(value, |value| value.get(name.as_str()))))
            }
            Self::Wildcard => values.iter().for_each(|value| found.extend(children(value))),
            Self::Slice { start, end, step } => {
                for value in values.iter().filter(|value| !value.is_null()) {
                    let items = value.as_array()?.len();
                    let range = bounds(*start, *end, items)?;
                    found.extend(range.step_by(*step).filter_map(|at| child(value, |value| value.get(at))));
                }
            }
            Self::Filter(filter) => {
                for value in &values {
                    for at in 0..value.as_array()?.len() {
                        let Some(item) = child(value, |value| value.get(at)) else {
                            continue;
                        };
                        if filter.passes(&item)? {
                            found.push(item);
                        }
                    }
                }
            }
        }
        Some(found)
    }
}

impl JsonPath {
    fn from<'v>(&self, value: &Cow<'v, Value>) -> Option<Vec<Cow<'v, Value>>> {
        match value {
            Cow::Borrowed(value) => self.find(value),
            Cow::Owned(value) => {
                Some(self.find(value)?.into_iter().map(|found| Cow::Owned(found.into_owned())).collect())
            }
        }
    }
}

impl Filter {
    fn passes(&self, item: &Value) -> Option<bool> {
        let left = self.left.find(item)?;
        let Some((comparison, right)) = &self.comparison else {
            return Some(!left.is_empty());
        };
        let right = right.find(item)?;
        let (left, right) = match (left.as_slice(), right.as_slice()) {
            ([left], [right]) => (left, right),
            ([], _) | (_, []) => return Some(false),
            // Only one element can be compared at a time.
            _ => return None,
        };
        let order = match (left.as_ref(), right.as_ref()) {
            (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Bool(left), Value::Bool(right))
                if matches!(comparison, Comparison::Equal | Comparison::NotEqual) =>
            {
                Some(left.cmp(right))
            }
            _ => None,
        }?;
        Some(match comparison {
            Comparison::Equal => order == Ordering::Equal,
            Comparison::NotEqual => order != Ordering::Equal,
            Comparison::Less => order == Ordering::Less,
            Comparison::LessOrEqual => order != Ordering::Greater,
            Comparison::Greater => order == Ordering::Greater,
            Comparison::GreaterOrEqual => order != Ordering::Less,
        })
    }
}

fn child<'v>(value: &Cow<'v, Value>, get: impl Fn(&Value) -> Option<&Value>) -> Option<Cow<'v, Value>> {
    match value {
        Cow::Borrowed(value) => get(value).map(Cow::Borrowed),
        Cow::Owned(value) => get(value).cloned().map(Cow::Owned),
    }
}

fn children<'v>(value: &Cow<'v, Value>) -> Vec<Cow<'v, Value>> {
    match value {
        Cow::Borrowed(Value::Object(fields)) => fields.values().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Object(fields)) => fields.values().cloned().map(Cow::Owned).collect(),
        Cow::Owned(Value::Array(items)) => items.iter().cloned().map(Cow::Owned).collect(),
        _ => Vec::new(),
    }
}

fn descend<'v>(value: Cow<'v, Value>, found: &mut Vec<Cow<'v, Value>>) {
    let below = children(&value);
    if !below.is_empty() {
        found.push(value);
        below.into_iter().for_each(|value| descend(value, found));
    }
}

fn bounds(start: i64, end: End, items: usize) -> Option<std::ops::Range<usize>> {
    let items = i64::try_from(items).ok()?;
    let from = if start < 0 { start + items } else { start };
    let to = match end {
        End::Open => items,
        // The last item is the one before the end.
        End::One if start == -1 => items,
        End::One => from.saturating_add(1),
        End::At(end) if end < 0 => end + items,
        End::At(end) => end,
    };
    if from == to {
        return Some(0..0);
    }
    let valid = (0..items).contains(&from) && (0..=items).contains(&to) && from < to;
    valid.then_some((usize::try_from(from).ok()?)..(usize::try_from(to).ok()?))
}

fn field<'t>(text: &'t str, steps: &mut Vec<Step>) -> &'t str {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' => {
                end = at;
                break;
            }
            c => name.push(c),
        }
    }
    steps.push(if name == "*" { Step::Wildcard } else { Step::Field(name) });
    &text[end..]
}

fn quoted<'t>(text: &'t str, quote: char, steps: &mut Vec<Step>) -> Result<&'t str, PathError> {
    let mut literal = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => literal.extend(chars.next().map(|(_, c)| c)),
            c if c == quote => {
                steps.push(Step::Literal(Value::String(literal)));
                return Ok(&text[at + 1..]);
            }
            c => literal.push(c),
        }
    }
    Err(PathError::Unterminated("quoted string"))
}

fn number<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, PathError> {
    let end =
        text.char_indices().skip(1).find(|(_, c)| *c != '.' && !c.is_ascii_digit()).map_or(text.len(), |(at, _)| at);
    let (digits, rest) = text.split_at(end);
    let value = match (digits.parse::<i64>(), digits.parse::<f64>()) {
        (Ok(number), _) => Value::from(number),
        (_, Ok(number)) => Value::from(number),
        _ => return Err(PathError::Number(digits.to_owned())),
    };
    steps.push(Step::Literal(value));
    Ok(rest)
}

fn brackets<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, PathError> {
    let end = text.find(']').ok_or(PathError::Unterminated("array"))?;
    let (inside, rest) = (&text[..end], &text[end + 1..]);
    if inside.contains(',') {
        let paths =
            inside.split(',').map(|part| JsonPath::parse(&format!("[{}]", part.trim()))).collect::<Result<_, _>>()?;
        steps.push(Step::Union(paths));
        return Ok(rest);
    }
    if let Some(key) = inside.strip_prefix('\'').and_then(|key| key.strip_suffix('\'')) {
        // The key is a field again, so its dots need a backslash as they do outside of brackets.
        let path = JsonPath::parse(&format!(".{key}"))?;
        steps.extend(path.steps);
        return Ok(rest);
    }
    let invalid = || PathError::Index(inside.to_owned());
    let parts: Vec<_> = if inside == "*" { vec!["", "", ""] } else { inside.split(':').collect() };
    let parse = |text: &str| text.parse::<i64>().map_err(|_| invalid());
    let optional = |text: &str| {
        if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
    };
    steps.push(match parts.as_slice() {
        [one] => Step::Slice { start: parse(one)?, end: End::One, step: 1 },
        [start, end, step @ ..] if step.len() < 2 => Step::Slice {
            start: optional(start)?.unwrap_or(0),
            end: optional(end)?.map_or(End::Open, End::At),
            step: match step.first().map(|step| optional(step)).transpose()?.flatten() {
                None => 1,
                Some(step) => usize::try_from(step).ok().filter(|step| *step > 0).ok_or_else(invalid)?,
            },
        },
        _ => return Err(invalid()),
    });
    Ok(rest)
}

fn filter<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, PathError> {
    let mut quote = None;
    let mut end = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None, ')') => {
                end = Some(at);
                break;
            }
            _ => {}
        }
    }
    let end = end.ok_or(PathError::Unterminated("filter"))?;
    let rest = text[end + 1..].strip_prefix(']').ok_or(PathError::Unterminated("array"))?;
    let inside = &text[..end];
    let sign = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let filter = match inside.find(sign) {
        None => Filter { left: JsonPath::parse(inside)?, comparison: None },
        Some(at) => {
            let (left, right) = inside.split_at(at);
            let operator: String = right.chars().take_while(|c| sign(*c)).collect();
            let comparison = match operator.as_str() {
                "==" => Comparison::Equal,
                "!=" => Comparison::NotEqual,
                "<" => Comparison::Less,
                "<=" => Comparison::LessOrEqual,
                ">" => Comparison::Greater,
                ">=" => Comparison::GreaterOrEqual,
                _ => return Err(PathError::Operator(operator)),
            };
            Filter {
                left: JsonPath::parse(left)?,
                comparison: Some((comparison, JsonPath::parse(&right[operator.len()..])?)),
            }
        }
    };
    steps.push(Step::Filter(Box::new(filter)));
    Ok(rest)
}
