//! Removes the colours of a log where they are not wanted.

use std::io::{self, Write};

use crate::style;

/// The byte that begins a control sequence.
const ESCAPE: u8 = 0x1b;

/// A writer that passes text on without its colours, if standard output has none.
pub struct Plain<W> {
    inner: W,
    coloured: bool,
    at: Position,
}

/// Where in a control sequence (`ESC [ ... letter`) the next byte is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Outside. Next: `Begun`, after an escape.
    Text,
    /// After the escape. Next: `Inside` after a `[`, or `Text`.
    Begun,
    /// Next: `Text`, after the final letter.
    Inside,
}

impl Plain<io::Stdout> {
    pub fn stdout() -> Self {
        Plain { inner: io::stdout(), coloured: style::stdout_is_coloured(), at: Position::Text }
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.coloured {
            return self.inner.write(bytes);
        }
        let mut text = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.at = match (self.at, byte) {
                (Position::Text, ESCAPE) => Position::Begun,
                (Position::Text, _) => {
                    text.push(byte);
                    Position::Text
                }
                (Position::Begun, b'[') => Position::Inside,
                (Position::Inside, 0x40..=0x7e) | (Position::Begun, _) => Position::Text,
                (Position::Inside, _) => Position::Inside,
            };
        }
        self.inner.write_all(&text)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn colours_are_removed_wherever_a_piece_ends() {
        let text = b"\x1b[1m\x1b[32mApply\x1b[0m complete\x1b[38;5;1m!\n";
        for cut in 0..text.len() {
            let mut plain = Plain { inner: Vec::new(), coloured: false, at: Position::Text };
            plain.write_all(&text[..cut]).unwrap();
            plain.write_all(&text[cut..]).unwrap();
            assert_eq!(plain.inner, b"Apply complete!\n");
        }
        let mut coloured = Plain { inner: Vec::new(), coloured: true, at: Position::Text };
        coloured.write_all(text).unwrap();
        assert_eq!(coloured.inner, text);
    }
}
