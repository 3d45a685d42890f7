//! Masks sensitive values in everything that leaves the runner: output, log and messages.
//!
//! A value is masked as it is, and in the forms in which programs print it: escaped as in JSON, percent-encoded, and in
//! base64, also inside a longer text that was encoded as a whole. Each line of a multi-line value is masked too.
//!
//! *Caveats.* A value of less than eight characters is masked only as a separate word: elsewhere it is probably part of
//! another word, and the gaps would reveal it. A single character, `true`, `false` and `null` are not masked. A value that
//! was encrypted, hashed or reversed cannot be found.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use crate::sensitive::forms;

/// The replacement of a sensitive value.
const MASK: &[u8] = b"(sensitive)";
/// A shorter value is masked only as a separate word.
const WORD: usize = 8;
/// A shorter value is not masked.
const SHORTEST: usize = 2;

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
        all.extend(more.into_iter().filter(|needle| needle.len() >= SHORTEST));
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
        if let Some(next) = known.with(values.into_iter().flat_map(forms)) {
            *known = Arc::new(next);
        }
    }

    /// Masks sensitive values in `text`.
    pub fn text(&self, text: &str) -> String {
        let mut stream = self.stream();
        let mut out = stream.push(text.as_bytes());
        out.extend(stream.finish());
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Masks output that arrives in chunks, including values that are split between two chunks.
    pub fn stream(&self) -> Stream {
        Stream { redactor: self.clone(), held: Vec::new(), before: None }
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
                    out.extend_from_slice(MASK);
                    at += length;
                }
                Match::Perhaps => break,
                Match::Nothing => {
                    out.push(rest[0]);
                    at += 1;
                }
            }
            self.before = Some(self.held[at - 1]);
        }
        self.held.drain(..at);
        out
    }
}

fn find(needles: &Needles, rest: &[u8], before: Option<u8>, is_end: bool) -> Match {
    let mut perhaps = false;
    for needle in needles.starting_with(rest[0]) {
        if needle.len() < WORD && before.is_some_and(is_word) {
            continue;
        }
        if rest.starts_with(needle) {
            match rest.get(needle.len()) {
                _ if needle.len() >= WORD => return Match::Value(needle.len()),
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
        check(&["abcdefgh", "abcdefghij"], &["abcdefghij abcdefgh abcdefghi"], "(sensitive) (sensitive) (sensitive)i");
        check(&["abcdefgh", "abcdefghij"], &["abcdefgh", "ik"], "(sensitive)ik");
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
        check(&["42"], &["port 42, 420, 142"], "port (sensitive), 420, 142");
        check(&["prod"], &["prod production \"prod\" pre_prod"], "(sensitive) production \"(sensitive)\" pre_prod");
        check(&["a", "", "1"], &["a 1 true"], "a 1 true");
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
