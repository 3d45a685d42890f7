//! Whether a licence expression (SPDX, or the older form with `/`) is satisfied by a list of licences. Pure.

use std::collections::BTreeSet;

/// Whether the allowed licences satisfy the expression. An expression that cannot be read is not satisfied.
pub fn allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    reader.any() == Some(true) && reader.words.is_empty()
}

struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl Reader<'_> {
    /// Terms that are joined with `OR`.
    fn any(&mut self) -> Option<bool> {
        let mut satisfied = self.all()?;
        while self.take("OR") {
            satisfied |= self.all()?;
        }
        Some(satisfied)
    }

    /// Terms that are joined with `AND`, which binds closer.
    fn all(&mut self) -> Option<bool> {
        let mut satisfied = self.term()?;
        while self.take("AND") {
            satisfied &= self.term()?;
        }
        Some(satisfied)
    }

    fn term(&mut self) -> Option<bool> {
        if self.take("(") {
            let satisfied = self.any()?;
            return self.take(")").then_some(satisfied);
        }
        let mut licence = self.next()?.to_owned();
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.next()?);
        }
        Some(self.allowed.contains(&licence))
    }

    fn next(&mut self) -> Option<&str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        (!["AND", "OR", "WITH", "(", ")"].contains(first)).then_some(*first)
    }

    fn take(&mut self, word: &str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let list = BTreeSet::from(["MIT", "Apache-2.0", "ISC"].map(str::to_owned));
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0 / MIT", true),
            ("(GPL-3.0 OR MIT) AND ISC", true),
            ("GPL-3.0 OR MIT AND LGPL-2.1", false),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
            ("", false),
            ("(MIT", false),
            ("MIT MIT", false),
            ("MIT OR", false),
            ("OR", false),
        ] {
            assert_eq!(allowed(expression, &list), expected, "{expression}");
        }
    }
}
