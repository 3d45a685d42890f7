//! Removes terraform's notice about the backend that the runner configures, which is not in the user's module. Pure.

use crate::console::plain;

const NOTICE: &str = "Successfully configured the backend \"local\"!";
const END: &str = "backend configuration changes.";

/// Filters the output of `init`, which arrives in chunks.
#[derive(Default)]
pub struct BackendNotice {
    /// The current line, as long as it may be the notice.
    line: Vec<u8>,
    /// The rest of the current line is not the notice.
    passes: bool,
    /// The notice has begun.
    inside: bool,
}

impl BackendNotice {
    /// Takes the next chunk, and returns what is to be printed of it.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len());
        for byte in piece {
            if self.passes {
                out.push(*byte);
            } else {
                self.line.push(*byte);
                let text = plain(&String::from_utf8_lossy(&self.line));
                let is_notice = self.inside || text.starts_with(NOTICE);
                if is_notice && *byte == b'\n' {
                    out.extend(escapes(&self.line));
                    self.line.clear();
                    self.inside = !text.trim().is_empty() && !text.contains(END);
                } else if !is_notice && (!NOTICE.starts_with(text.as_str()) || *byte == b'\n') {
                    out.append(&mut self.line);
                    self.passes = true;
                }
            }
            if *byte == b'\n' {
                self.passes = false;
            }
        }
        out
    }

    /// Returns the held output when nothing follows.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.line)
    }
}

/// The escape sequences of a line, because the notice ends the colour that began before it.
fn escapes(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut within = false;
    for byte in line {
        within = within || *byte == 0x1b;
        if within {
            out.push(*byte);
            within = !byte.is_ascii_alphabetic();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notice_is_removed_wherever_the_output_is_cut() {
        let text = "Initializing the backend...\n\u{1b}[0m\u{1b}[32m\nSuccessfully configured the backend \"local\"! Terraform \
                    will automatically\r\nuse this backend unless the backend configuration changes.\u{1b}[0m\r\nSuccessful so \
                    far\nEnter a value: ";
        let expect = "Initializing the backend...\n\u{1b}[0m\u{1b}[32m\n\u{1b}[0mSuccessful so far\nEnter a value: ";
        for size in [1, 2, 7, 1000] {
            let mut notice = BackendNotice::default();
            let mut out = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                out.extend(notice.push(piece));
            }
            assert_eq!(String::from_utf8_lossy(&out), expect, "{size}");
            assert!(notice.finish().is_empty());
        }
    }

    #[test]
    fn a_prompt_is_not_held_back() {
        assert_eq!(BackendNotice::default().push(b"Enter a value: "), b"Enter a value: ");
        assert_eq!(
            BackendNotice::default().push(b"Successfully configured the backend \"s3\"!\n"),
            b"Successfully configured the backend \"s3\"!\n"
        );
    }
}
