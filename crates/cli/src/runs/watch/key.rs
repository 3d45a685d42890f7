//! The keys that a terminal sends. Pure.

/// A key of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C, which is a key in raw mode.
    Interrupt,
    Letter(char),
}

/// The keys in a piece of input. Unknown keys are left out. A terminal sends each key in one piece, so an escape
/// character at the end of a piece is the key Escape.
pub fn parse(input: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(input);
    let mut letters = text.chars().peekable();
    let mut keys = Vec::new();
    while let Some(letter) = letters.next() {
        keys.extend(match letter {
            '\x1b' => match letters.next_if(|next| matches!(next, '[' | 'O')) {
                None => Some(Key::Escape),
                // The parameters of the sequence come before its last letter.
                Some(_) => match letters.find(|next| matches!(next, '@'..='~')) {
                    Some('A') => Some(Key::Up),
                    Some('B') => Some(Key::Down),
                    _ => None,
                },
            },
            '\r' | '\n' => Some(Key::Enter),
            '\x7f' | '\x08' => Some(Key::Backspace),
            '\x03' => Some(Key::Interrupt),
            letter if letter.is_control() => None,
            letter => Some(Key::Letter(letter)),
        });
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::Key::{Backspace, Down, Enter, Escape, Interrupt, Letter, Up};
    use super::*;

    #[test]
    fn bytes_are_keys() {
        for (input, expect) in [
            ("jk", vec![Letter('j'), Letter('k')]),
            ("\x1b[A\x1b[B\x1bOA\x1bOB", vec![Up, Down, Up, Down]),
            ("\x1b", vec![Escape]),
            ("\x1b\x1b[A", vec![Escape, Up]),
            ("\x1b[3~\x1b[1;5Cq", vec![Letter('q')]),
            ("/ü\x7f\r\x03", vec![Letter('/'), Letter('ü'), Backspace, Enter, Interrupt]),
            ("\x1b[", vec![]),
            ("\x04\t", vec![]),
        ] {
            assert_eq!(parse(input.as_bytes()), expect, "{input:?}");
        }
    }
}
