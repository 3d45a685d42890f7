//! Compiling an expression, within bounds.

use std::collections::HashMap;

use ::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use ::cel::parser::Parser;

use crate::schema::pattern::Pattern;

/// The longest expression that is read.
pub const MAX_LENGTH: usize = 16 << 10;
/// The deepest nesting that is read. Evaluation recurses once a level, so this bounds its stack as well.
const MAX_DEPTH: usize = 120;
/// The grammar's own bound on nested expressions.
const MAX_PARSER_DEPTH: u16 = 64;
/// The parser recurses with its input, many frames a level; it gets a stack that [`MAX_LENGTH`] cannot exhaust.
const PARSER_STACK: usize = 256 << 20;

/// An expression that was read and is ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Program {
    pub expr: IdedExpr,
    /// The constant regular expressions, compiled once.
    pub patterns: HashMap<String, Pattern>,
}

impl Program {
    /// Reads an expression; the error is a text in the form of cel-go's.
    pub fn parse(source: &str) -> Result<Self, String> {
        if source.len() > MAX_LENGTH {
            return Err(at(
                source,
                0,
                &format!("expression code point size exceeds limit: size: {}, limit {MAX_LENGTH}", source.len()),
            ));
        }
        let expr = on_large_stack(source)?;
        let mut patterns = HashMap::new();
        collect_patterns(&expr, source, &mut patterns)?;
        Ok(Self { expr, patterns })
    }
}

/// A compile error that points at a place of the source, as cel-go prints it.
pub(crate) fn at(source: &str, offset: usize, message: &str) -> String {
    let offset = offset.min(source.len());
    let before = source.get(..offset).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count();
    let text = source.lines().nth(line - 1).unwrap_or_default();
    format!("ERROR: <input>:{line}:{}: {message}\n | {text}\n | {}^", column + 1, ".".repeat(column))
}

fn on_large_stack(source: &str) -> Result<IdedExpr, String> {
    let failed = || at(source, 0, "expression cannot be read");
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("cel-parser".to_owned())
            .stack_size(PARSER_STACK)
            .spawn_scoped(scope, || read(source))
            .map_err(|_| failed())?
            .join()
            .map_err(|_| failed())?
    })
}

fn read(source: &str) -> Result<IdedExpr, String> {
    let parser = Parser::new().enable_optional_syntax(true).max_recursion_depth(MAX_PARSER_DEPTH);
    let expr = parser.parse(source).map_err(|errors| {
        let texts: Vec<String> = errors
            .errors
            .iter()
            .map(|e| {
                let line_start: usize =
                    source.split_inclusive('\n').take(e.pos.0.max(1) as usize - 1).map(str::len).sum();
                at(
                    source,
                    line_start + e.pos.1.max(1) as usize - 1,
                    &format!("Syntax error: {}", e.msg.trim_start_matches("Syntax error: ")),
                )
            })
            .collect();
        texts.join("\n")
    })?;
    match refused(&expr) {
        Some(message) => Err(at(source, 0, &message)),
        None => Ok(expr),
    }
}

/// Why an expression that was read is still not accepted: it is too deep, or says what cannot be evaluated.
fn refused(expr: &IdedExpr) -> Option<String> {
    let mut todo = vec![(expr, 1)];
    while let Some((node, depth)) = todo.pop() {
        if depth > MAX_DEPTH {
            return Some(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
        }
        match &node.expr {
            Expr::Struct(s) => {
                return Some(format!("undeclared reference to '{}' (in container '')", s.type_name));
            }
            Expr::Unspecified => return Some("expression cannot be read".to_owned()),
            _ => {}
        }
        todo.extend(children(node).into_iter().map(|child| (child, depth + 1)));
    }
    None
}

/// The parts of an expression.
pub(crate) fn children(node: &IdedExpr) -> Vec<&IdedExpr> {
    match &node.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(c) => vec![&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => {
            let mut parts = Vec::new();
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    parts.push(&entry.key);
                    parts.push(&entry.value);
                }
            }
            parts
        }
        Expr::Select(select) => vec![&select.operand],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => Vec::new(),
    }
}

fn collect_patterns(expr: &IdedExpr, source: &str, patterns: &mut HashMap<String, Pattern>) -> Result<(), String> {
    if let Expr::Call(CallExpr { func_name, target, args }) = &expr.expr
        && matches!(func_name.as_str(), "matches" | "find" | "findAll")
        && let Some(IdedExpr { expr: Expr::Literal(LiteralValue::String(text)), .. }) =
            args.get(usize::from(target.is_none()))
        && !patterns.contains_key(text.inner())
    {
        let offset = source.find(text.inner()).unwrap_or(0).saturating_sub(1);
        let pattern =
            Pattern::compile(text.inner()).map_err(|_| at(source, offset, &format!("invalid {func_name} argument")))?;
        patterns.insert(text.inner().to_owned(), pattern);
    }
    children(expr).into_iter().try_for_each(|child| collect_patterns(child, source, patterns))
}
