//! Masks sensitive values in logs and messages. The answer of a reading command is not a log: see [`crate::answer`].
//!
//! A value is masked as it is, and in the forms in which programs print it: escaped as in JSON, percent-encoded, and in
//! base64, also inside a longer text that was encoded as a whole. Each line of a multi-line value is masked too. A line of
//! JSON stays JSON.
//!
//! *Caveats.* A short value or an ordinary word is masked only as a separate word ([`is_token`]). A common value
//! ([`is_common`]) is not masked: terraform prints it everywhere, and the gaps would reveal it. A value that was encrypted,
//! hashed or reversed cannot be found.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use crate::sensitive::forms;

/// The replacement of a sensitive value.
const MASK: &[u8] = b"(sensitive)";
/// The replacement of a number in JSON.
const QUOTED_MASK: &[u8] = b"\"(sensitive)\"";
/// A shorter value is masked only as a separate word.
const WORD: usize = 8;
/// A longer text of letters alone is not a word of any language.
const LONGEST_WORD: usize = 16;
/// A shorter value is not masked.
const SHORTEST: usize = 3;
/// A number of fewer digits is not masked.
const SHORTEST_NUMBER: usize = 4;
/// Words that terraform and its modules print for other reasons than a value that happens to be one of them.
const COMMON: [&str; 72] = [
    "admin",
    "all",
    "any",
    "apply",
    "bool",
    "change",
    "changed",
    "changes",
    "client",
    "create",
    "data",
    "database",
    "default",
    "delete",
    "destroy",
    "dev",
    "development",
    "disabled",
    "dynamic",
    "enabled",
    "error",
    "example",
    "false",
    "file",
    "files",
    "for",
    "get",
    "host",
    "http",
    "https",
    "input",
    "key",
    "latest",
    "list",
    "local",
    "localhost",
    "main",
    "map",
    "master",
    "module",
    "name",
    "none",
    "null",
    "number",
    "object",
    "off",
    "output",
    "outputs",
    "password",
    "plan",
    "prod",
    "production",
    "provider",
    "public",
    "read",
    "region",
    "resource",
    "root",
    "secret",
    "set",
    "staging",
    "state",
    "string",
    "terraform",
    "test",
    "token",
    "true",
    "tuple",
    "type",
    "user",
    "value",
    "yes",
];

/// Whether a value is too short or too common to be masked.
fn is_common(value: &str) -> bool {
    let number = value.bytes().all(|byte| byte.is_ascii_digit()) && value.len() < SHORTEST_NUMBER;
    value.len() < SHORTEST || number || COMMON.contains(&value.to_ascii_lowercase().as_str())
}

/// Whether a text is masked wherever it stands, because it cannot be part of another word by chance: an ordinary word has
/// letters of one case alone, but for its first.
fn is_token(needle: &[u8]) -> bool {
    let is_word = needle.iter().all(u8::is_ascii_lowercase)
        || needle.iter().all(u8::is_ascii_uppercase)
        || matches!(needle, [first, rest @ ..] if first.is_ascii_uppercase() && rest.iter().all(u8::is_ascii_lowercase));
    needle.len() >= LONGEST_WORD || (needle.len() >= WORD && !is_word)
}

/// The sensitive values of a run. Cheap to clone; all clones share the values.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<RwLock<Arc<Needles>>>,
}

/// The byte sequences to search for.
#[derive(Default)]
struct Needles {
    all: HashSet<Vec<u8>>,
    /// Grouped by first byte, longest first, so that a value that contains another is masked as a whole.
    by_first: Vec<Vec<Vec<u8>>>,
}

impl Needles {
    fn with(&self, more: impl IntoIterator<Item = Vec<u8>>) -> Option<Self> {
        let mut all = self.all.clone();
        let before = all.len();
        all.extend(more);
        if all.len() == before {
            return None;
        }
        let mut by_first = vec![Vec::new(); 256];
        for needle in &all {
            by_first[usize::from(needle[0])].push(needle.clone());
        }
        by_first.iter_mut().for_each(|needles| needles.sort_by_key(|needle| std::cmp::Reverse(needle.len())));
        Some(Needles { all, by_first })
    }

    fn starting_with(&self, first: u8) -> &[Vec<u8>] {
        self.by_first.get(usize::from(first)).map_or(&[], Vec::as_slice)
    }
}

/// The result of a search at one position.
enum Match {
    /// A value of this length begins here.
    Value(usize),
    /// A value may begin here; more output is needed to decide.
    Perhaps,
    Nothing,
}

impl Redactor {
    /// Adds values to mask.
    pub fn learn<'a>(&self, values: impl IntoIterator<Item = &'a str>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = known.with(values.into_iter().filter(|value| !is_common(value.trim())).flat_map(forms)) {
            *known = Arc::new(next);
        }
    }

    /// Masks sensitive values in `text`.
    pub fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// Masks sensitive values in a whole output.
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.stream();
        let mut out = stream.push(bytes);
        out.extend(stream.finish());
        out
    }

    /// Masks output that arrives in chunks, including values that are split between two chunks.
    pub fn stream(&self) -> Stream {
        Stream { redactor: self.clone(), held: Vec::new(), before: None, before_space: None }
    }

    fn needles(&self) -> Arc<Needles> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// See [`Redactor::stream`].
pub struct Stream {
    redactor: Redactor,
    /// The end of the output so far, which may be the start of a sensitive value.
    held: Vec<u8>,
    /// The byte before `held`.
    before: Option<u8>,
    /// The last byte before `held` that is not whitespace.
    before_space: Option<u8>,
}

impl Stream {
    /// Takes the next chunk, and returns the output that is safe to print.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        self.release(false)
    }

    /// Returns the held output when nothing follows.
    pub fn finish(&mut self) -> Vec<u8> {
        self.release(true)
    }

    fn release(&mut self, is_end: bool) -> Vec<u8> {
        let needles = self.redactor.needles();
        let mut out = Vec::with_capacity(self.held.len());
        let mut at = 0;
        while at < self.held.len() {
            let rest = &self.held[at..];
            match find(&needles, rest, self.before, is_end) {
                Match::Value(length) => {
                    out.extend_from_slice(mask(&rest[..length], self.before_space, rest.get(length)));
                    at += length;
                }
                Match::Perhaps => break,
                Match::Nothing => {
                    out.push(rest[0]);
                    at += 1;
                }
            }
            // The letter of an escape such as `\n` is not part of a word.
            let escaped = self.before == Some(b'\\') && matches!(self.held[at - 1], b'n' | b'r' | b't');
            self.before = if escaped { Some(b' ') } else { Some(self.held[at - 1]) };
            if !self.held[at - 1].is_ascii_whitespace() {
                self.before_space = self.before;
            }
        }
        self.held.drain(..at);
        out
    }
}

fn find(needles: &Needles, rest: &[u8], before: Option<u8>, is_end: bool) -> Match {
    let mut perhaps = false;
    for needle in needles.starting_with(rest[0]) {
        let is_token = is_token(needle);
        if !is_token && before.is_some_and(is_word) {
            continue;
        }
        if rest.starts_with(needle) {
            match rest.get(needle.len()) {
                _ if is_token => return Match::Value(needle.len()),
                None if is_end => return Match::Value(needle.len()),
                None => return Match::Perhaps,
                Some(next) if is_word(*next) => {}
                Some(_) => return Match::Value(needle.len()),
            }
        } else if !is_end && needle.starts_with(rest) {
            // A longer value may begin here, so shorter ones have to wait.
            perhaps = true;
            break;
        }
    }
    if perhaps { Match::Perhaps } else { Match::Nothing }
}

/// The replacement of a value. A bare number in JSON becomes a string, so that the line can still be parsed.
fn mask(value: &[u8], before: Option<u8>, next: Option<&u8>) -> &'static [u8] {
    let is_number = value.iter().all(|byte| byte.is_ascii_digit() || b".-+eE".contains(byte));
    let in_json =
        matches!(before, Some(b':' | b'[' | b',')) && matches!(next, Some(b',' | b'}' | b']' | b'\n' | b'\r'));
    if is_number && in_json { QUOTED_MASK } else { MASK }
}

/// Whether a byte is part of a word. Bytes of non-ASCII letters are.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sensitive: &[&str], pieces: &[&str], expect: &str) {
        let redactor = Redactor::default();
        redactor.learn(sensitive.iter().copied());
        let mut stream = redactor.stream();
        let mut out = Vec::new();
        for piece in pieces {
            out.extend(stream.push(piece.as_bytes()));
        }
        out.extend(stream.finish());
        assert_eq!(String::from_utf8_lossy(&out), expect);
    }

    #[test]
    fn values_are_replaced_wherever_the_output_is_cut() {
        check(&["hunter2"], &["pw=hunter2\n"], "pw=(sensitive)\n");
        check(&["hunter2"], &["pw=hun", "ter2\n"], "pw=(sensitive)\n");
        check(&["hunter2"], &["h", "u", "n", "t", "e", "r", "2"], "(sensitive)");
        check(&["hunter22"], &["hunhunter22"], "hun(sensitive)");
        check(&["hunter2"], &["hunter"], "hunter");
        check(&["abcdefg1", "abcdefg1ij"], &["abcdefg1ij abcdefg1 abcdefg1i"], "(sensitive) (sensitive) (sensitive)i");
        check(&["abcdefg1", "abcdefg1ij"], &["abcdefg1", "ik"], "(sensitive)ik");
    }

    #[test]
    fn each_line_of_a_long_value_is_sensitive() {
        check(&["-----BEGIN\nMIIabc\n-----END\n"], &["  + MIIabc\n"], "  + (sensitive)\n");
        check(&["one line\nand two"], &["+ \"one line\\nand two\""], "+ \"(sensitive)\"");
    }

    #[test]
    fn a_value_is_found_as_programs_print_it() {
        check(&["p\"w\\d\t<x>"], &[r#"{"v":"p\"w\\d\t<x>"}"#], r#"{"v":"(sensitive)"}"#);
        check(&["p\"w\\d\t<x>"], &[r#"{"v":"p\"w\\d\t\u003cx\u003e"}"#], r#"{"v":"(sensitive)"}"#);
        check(&["hunter2"], &["aHVudGVyMg=="], "(sensitive)");
        // `user:hunter2!`, as an Authorization header has it.
        check(&["hunter2"], &["dXNlcjpodW50ZXIyIQ=="], "dXNlcjp(sensitive)IQ==");
        check(&["pass word/1"], &["https://x?p=pass%20word%2F1"], "https://x?p=(sensitive)");
    }

    #[test]
    fn short_values_are_masked_as_words_and_the_shortest_not_at_all() {
        check(&["abc"], &["abc abcd xabc (abc) a", "bc"], "(sensitive) abcd xabc ((sensitive)) (sensitive)");
        check(&["4711"], &["port 4711, 47110, 14711"], "port (sensitive), 47110, 14711");
        check(&["42", "443"], &["port 42, 443"], "port 42, 443");
        check(&["a", "", "1", "ab"], &["a 1 true ab"], "a 1 true ab");
    }

    #[test]
    fn ordinary_words_are_masked_as_words_and_common_ones_not_at_all() {
        check(&["string", "Prod", "password"], &["a string, prod, password = 1"], "a string, prod, password = 1");
        check(&["mountain"], &["mountain mountains \"mountain\""], "(sensitive) mountains \"(sensitive)\"");
        check(&["mountain7"], &["xmountain7x"], "x(sensitive)x");
        check(&["mounTain"], &["xmounTainx"], "x(sensitive)x");
        check(
            &["mountain", "x7q"],
            &[r"\\nmountain\\nx7q\\n \nmountain"],
            r"\\n(sensitive)\\n(sensitive)\\n \n(sensitive)",
        );
    }

    #[test]
    fn a_line_of_json_stays_json() {
        let line = r#"{"port":54321,"ports":[54321, 54321],"text":"54321","last": 54321}"#;
        let expect = r#"{"port":"(sensitive)","ports":["(sensitive)", "(sensitive)"],"text":"(sensitive)","last": "(sensitive)"}"#;
        check(&["54321"], &[line], expect);
        check(&["54321"], &["port 54321, and more"], "port (sensitive), and more");
    }

    #[test]
    fn what_is_learned_later_is_masked_from_then_on() {
        let redactor = Redactor::default();
        let mut stream = redactor.stream();
        assert_eq!(stream.push(b"hunter2 "), b"hunter2 ");
        redactor.learn(["hunter2"]);
        assert_eq!(stream.push(b"hunter2 "), b"(sensitive) ");
    }
}
