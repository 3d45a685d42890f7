//! Positions in a pod's output, counted without any `\r`.
//!
//! A terminal inserts a `\r` before each `
//! `, two terminals in a row insert two, and a container runtime may drop one on the way to the log. The other bytes
//! are the same in a stream and in the log.

const RETURN: u8 = b'\r';
const LINE_END: u8 = b'\n';

/// The bytes without `\r`.
pub fn plain(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|byte| *byte != RETURN).collect()
}

pub fn count(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte != RETURN).count()
}

/// The bytes after the first `count` ones.
pub fn behind(bytes: &[u8], count: usize) -> &[u8] {
    let counted = bytes.iter().enumerate().filter(|(_, byte)| **byte != RETURN).map(|(at, _)| at);
    match count.checked_sub(1) {
        None => bytes,
        Some(last) => counted.into_iter().nth(last).map_or(&[], |at| &bytes[at + 1..]),
    }
}

/// Converts a log for a terminal in raw mode, which does not return the cursor by itself.
pub fn for_terminal(log: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(log.len());
    for byte in log {
        if *byte == LINE_END && out.last() != Some(&RETURN) {
            out.push(RETURN);
        }
        out.push(*byte);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `seen` bytes of the stream were printed; `expect` is the rest of the log.
    #[track_caller]
    fn check(stream: &str, log: &str, seen: usize, expect: &str) {
        assert_eq!(plain(stream.as_bytes()), plain(log.as_bytes()));
        let count = count(&stream.as_bytes()[..seen]);
        assert_eq!(String::from_utf8_lossy(behind(log.as_bytes(), count)), expect);
    }

    #[test]
    fn a_place_in_a_stream_is_found_in_the_log() {
        for log in ["ab\ncd\n", "ab\r\ncd\r\n", "ab\r\r\ncd\r\r\n"] {
            let ends = |text: &str| text.replace('\n', &log[2..=log.find('\n').unwrap_or_default()]);
            check("ab\r\r\ncd\r\r\n", log, 0, log);
            check("ab\r\r\ncd\r\r\n", log, 1, &ends("b\ncd\n"));
            check("ab\r\r\ncd\r\r\n", log, 2, &ends("\ncd\n"));
            check("ab\r\r\ncd\r\r\n", log, 3, &ends("\ncd\n"));
            check("ab\r\r\ncd\r\r\n", log, 5, &ends("cd\n"));
            check("ab\r\r\ncd\r\r\n", log, 10, "");
        }
        assert_eq!(behind(b"ab", 3), b"");
    }

    #[test]
    fn lines_of_a_log_begin_on_the_left_of_a_terminal() {
        for log in ["a\nb\n", "a\r\nb\r\n"] {
            assert_eq!(for_terminal(log.as_bytes()), b"a\r\nb\r\n");
        }
        assert_eq!(for_terminal(b"1%\r2%\n"), b"1%\r2%\r\n");
    }
}
