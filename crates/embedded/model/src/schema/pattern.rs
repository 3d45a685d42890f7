//! Regular expressions in Go's dialect.
//!
//! Kubernetes patterns are written for RE2 as Go has it. The `regex` crate descends from the same family; this
//! module bridges what differs, so that a pattern means here what it means on a cluster.

use regex::{Regex, RegexBuilder};

/// Programs larger than this are refused, so that a schema cannot eat the server's memory.
const SIZE_LIMIT: usize = 4 << 20;

/// A compiled pattern together with its source.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The pattern as it was written.
    pub source: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern written in Go's dialect.
    pub fn compile(source: &str) -> Result<Self, String> {
        let regex = RegexBuilder::new(&translate(source)).size_limit(SIZE_LIMIT).build().map_err(|e| match e {
            regex::Error::CompiledTooBig(_) => "error parsing regexp: expression too large".to_owned(),
            other => format!("error parsing regexp: {}", go_reason(&other.to_string(), source)),
        })?;
        Ok(Self { source: source.to_owned(), regex })
    }

    /// Whether the pattern is found anywhere in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The first place where the pattern is found.
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.regex.find(text).map(|m| m.as_str())
    }

    /// Every place where the pattern is found, in order.
    pub fn find_all<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        self.regex.find_iter(text).map(|m| m.as_str())
    }
}

/// What Go says about a pattern that cannot be read, as far as the reasons correspond.
fn go_reason(text: &str, source: &str) -> String {
    let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
    let known = match reason {
        "unclosed group" => "missing closing )",
        "unopened group" => "unexpected )",
        r if r.starts_with("unclosed character class") => "missing closing ]",
        "repetition operator missing expression" => "missing argument to repetition operator",
        r if r.starts_with("unrecognized escape sequence") => "invalid escape sequence",
        r if r.starts_with("look-around") || r.contains("flag") => "invalid or unsupported Perl syntax",
        r if r.starts_with("invalid character class range") => "invalid character class range",
        r if r.starts_with("incomplete escape sequence") => "trailing backslash at end of expression",
        other => other,
    };
    format!("{known}: `{source}`")
}

/// Rewrites a Go pattern for the `regex` crate.
fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 8);
    let mut rest = source;
    let mut in_class = false;
    let mut class_start = false;
    while let Some(c) = rest.chars().next() {
        let tail = &rest[c.len_utf8()..];
        let mut used = c.len_utf8();
        match c {
            '\\' => used += escape(&mut out, tail, in_class),
            '[' if in_class => match tail.strip_prefix(':').and_then(|t| t.find(":]")) {
                // A named class such as `[:alpha:]` is the same in both dialects.
                Some(end) => {
                    used += end + 3;
                    out.push_str(&rest[..used]);
                }
                None => out.push_str("\\["),
            },
            '[' => {
                in_class = true;
                out.push('[');
                if tail.starts_with('^') {
                    out.push('^');
                    used += 1;
                }
                rest = &rest[used..];
                class_start = true;
                continue;
            }
            // A bracket that comes first in a class is a member of it.
            ']' if in_class && class_start => out.push_str("\\]"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            // Doubled, these are set operations for the `regex` crate and plain members for Go.
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && tail.starts_with('-') => out.push_str("\\-"),
            '{' if !in_class && !is_repetition(tail) => out.push_str("\\{"),
            c => out.push(c),
        }
        class_start = false;
        rest = &rest[used..];
    }
    out
}

/// Writes the escape that starts with a backslash and goes on with `tail`; returns how much of `tail` it took.
fn escape(out: &mut String, tail: &str, in_class: bool) -> usize {
    let Some(c) = tail.chars().next() else {
        out.push('\\');
        return 0;
    };
    // Go's Perl classes are about ASCII only.
    let ascii = match c {
        'd' => Some("[0-9]"),
        'D' => Some("[^0-9]"),
        'w' => Some("[0-9A-Za-z_]"),
        'W' => Some("[^0-9A-Za-z_]"),
        's' => Some("[\\t\\n\\f\\r ]"),
        'S' => Some("[^\\t\\n\\f\\r ]"),
        'b' if !in_class => Some("(?-u:\\b)"),
        '<' => Some("<"),
        '>' => Some(">"),
        _ => None,
    };
    if let Some(text) = ascii {
        out.push_str(text);
        return 1;
    }
    if c == 'Q' {
        let quoted = &tail[1..];
        let (text, taken) = match quoted.find("\\E") {
            Some(end) => (&quoted[..end], end + 3),
            None => (quoted, tail.len()),
        };
        out.push_str(&regex::escape(text));
        return taken;
    }
    out.push('\\');
    out.push(c);
    c.len_utf8()
}

/// Whether the text after a `{` makes it a repetition; otherwise Go takes the brace as itself.
fn is_repetition(tail: &str) -> bool {
    let Some(end) = tail.find('}') else {
        return false;
    };
    let (min, max) = tail[..end].split_once(',').unwrap_or((&tail[..end], "0"));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    !min.is_empty() && digits(min) && digits(max)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_pattern_means_what_it_means_in_go() {
        let rows = [
            (r"^\d+$", "12", true),
            (r"^\d+$", "٣", false),
            (r"^[\w.]+$", "a_1.b", true),
            (r"^[^[]+$", "a[", false),
            (r"^[]a]+$", "]a", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^a{$", "a{", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"^a{2}$", "aa", true),
            (r"^a{1,2}$", "aaa", false),
            (r"\<x\>", "<x>", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^[[:alpha:]_-]+$", "ab_-", true),
            (r"^[a-z]([-a-z0-9]*[a-z0-9])?$", "web-1", true),
            (r"^é$", "é", true),
            (r"^(\d+(\.\d+)?%)$", "1.5%", true),
            (r"^[+--]$", "-", true),
        ];
        for (pattern, text, matches) in rows {
            assert_eq!(Pattern::compile(pattern).unwrap().is_match(text), matches, "{pattern} on {text}");
        }
        assert!(Pattern::compile("(").is_err());
        assert!(Pattern::compile("\\").is_err());
    }
}
