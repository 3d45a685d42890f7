//! The output of a run: one line per file, a readable diff for every difference, and the totals.

use std::fmt::Write as _;

use serde_json::Value;

use crate::run::Finding;

/// The maximum length of a value in the output.
const LONGEST: usize = 600;

pub fn finding(place: &str, finding: &Finding) -> String {
    let mut out = format!("{place}, step {}: {}\n", finding.step, finding.request);
    if !finding.sent.is_empty() {
        let _ = writeln!(out, "  sent    {}", cut(&finding.sent));
    }
    // Responses with different codes have nothing else in common; the messages are enough.
    let other_code = finding.differences.iter().any(|d| d.path == "code");
    let told = |path: &str| !other_code || matches!(path, "code" | "body" | "body.message");
    for difference in finding.differences.iter().filter(|d| told(&d.path)) {
        let _ = writeln!(out, "  {}", difference.path);
        let _ = writeln!(out, "    ours    {}", shown(difference.ours.as_ref()));
        let _ = writeln!(out, "    theirs  {}", shown(difference.theirs.as_ref()));
    }
    out
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None => "(nothing)".to_owned(),
        Some(value) => cut(&value.to_string()),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}... ({} bytes)", &text[..at], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::diff::Difference;

    #[test]
    fn a_finding_is_readable() {
        let found = Finding {
            step: 2,
            request: "GET /api".into(),
            sent: String::new(),
            differences: vec![Difference { path: "body.a".into(), ours: Some(json!(1)), theirs: None }],
        };
        let expect = "f/s, step 2: GET /api\n  body.a\n    ours    1\n    theirs  (nothing)\n";
        assert_eq!(finding("f/s", &found), expect);
        assert!(shown(Some(&"x".repeat(2000).into())).ends_with("... (2002 bytes)"));
    }
}
