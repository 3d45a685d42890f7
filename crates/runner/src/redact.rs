//! Takes sensitive values out of everything that leaves the runner: its output, its log and its messages.

use std::sync::Arc;

use serde_json::Value;

/// What stands where a sensitive value was.
const MASK: &[u8] = b"(sensitive)";

/// A value shorter than this would also match in the middle of harmless words, and would be told by where it is missing.
const SHORTEST: usize = 4;

/// The sensitive values of a run.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Longest first, so that a value that contains another one is taken as a whole.
    values: Arc<[Vec<u8>]>,
}

impl Redactor {
    /// Every string and number inside of `values` is sensitive, and every line of those that have several.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut found = Vec::new();
        for value in values {
            collect(value, &mut found);
        }
        found.retain(|value: &Vec<u8>| value.len() >= SHORTEST);
        found.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        found.dedup();
        Redactor { values: found.into() }
    }

    /// `text` without sensitive values.
    pub fn text(&self, text: &str) -> String {
        let mut stream = self.stream();
        let mut out = stream.push(text.as_bytes());
        out.extend(stream.finish());
        String::from_utf8_lossy(&out).into_owned()
    }

    /// For output that comes in pieces: a value that is cut by the end of one piece is found as well.
    pub fn stream(&self) -> Stream {
        Stream { values: Arc::clone(&self.values), held: Vec::new() }
    }
}

/// See [`Redactor::stream`].
pub struct Stream {
    values: Arc<[Vec<u8>]>,
    /// The end of what was pushed, which may be the start of a sensitive value.
    held: Vec<u8>,
}

impl Stream {
    /// Takes the next piece and gives back what is known to be harmless.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        if self.values.is_empty() {
            return piece.to_vec();
        }
        self.held.extend_from_slice(piece);
        let mut out = Vec::with_capacity(self.held.len());
        let mut at = 0;
        while at < self.held.len() {
            let rest = &self.held[at..];
            if let Some(value) = self.values.iter().find(|value| rest.starts_with(value)) {
                out.extend_from_slice(MASK);
                at += value.len();
            } else if self.values.iter().any(|value| value.starts_with(rest)) {
                break;
            } else {
                out.push(rest[0]);
                at += 1;
            }
        }
        self.held.drain(..at);
        out
    }

    /// What was held back, when nothing follows any more.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

fn collect(value: &Value, found: &mut Vec<Vec<u8>>) {
    match value {
        Value::String(text) => {
            found.push(text.trim_end_matches('\n').as_bytes().to_vec());
            if text.contains('\n') {
                found.extend(text.lines().map(|line| line.trim().as_bytes().to_vec()));
            }
        }
        Value::Number(number) => found.push(number.to_string().into_bytes()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, found)),
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(sensitive: &Value, pieces: &[&str], expect: &str) {
        let mut stream = Redactor::new([sensitive]).stream();
        let mut out = Vec::new();
        for piece in pieces {
            out.extend(stream.push(piece.as_bytes()));
        }
        out.extend(stream.finish());
        assert_eq!(String::from_utf8_lossy(&out), expect);
    }

    #[test]
    fn values_are_replaced_wherever_the_output_is_cut() {
        check(&json!("hunter2"), &["pw=hunter2\n"], "pw=(sensitive)\n");
        check(&json!("hunter2"), &["pw=hun", "ter2\n"], "pw=(sensitive)\n");
        check(&json!("hunter2"), &["h", "u", "n", "t", "e", "r", "2"], "(sensitive)");
        check(&json!("hunter2"), &["hunhunter2"], "hun(sensitive)");
        check(&json!("hunter2"), &["hunter"], "hunter");
        check(&json!({"a": ["secret-1"], "b": 123_456}), &["secret-1 123456"], "(sensitive) (sensitive)");
        check(&json!(["abcd", "abcdef"]), &["abcdef abcd"], "(sensitive) (sensitive)");
    }

    #[test]
    fn each_line_of_a_long_value_is_sensitive() {
        check(&json!("-----BEGIN\nMIIabc\n-----END\n"), &["  MIIabc\n"], "  (sensitive)\n");
    }

    #[test]
    fn short_values_and_harmless_output_stay_as_they_are() {
        check(&json!(["a", 3, true, ""]), &["a 3 true"], "a 3 true");
        check(&json!(null), &["anything"], "anything");
    }
}
