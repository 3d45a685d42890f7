//! Durations as Go writes them: `90s`, `1h30m`, `1.5ms`.

use std::fmt::Write as _;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a Go duration as nanoseconds; absent where the text is none or does not fit.
pub fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, tail) = rest.split_at(digits);
        let (fraction, tail) = match tail.strip_prefix('.') {
            Some(tail) => tail.split_at(tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len())),
            None => ("", tail),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit = tail.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let nanos = i128::from(UNITS.iter().find(|(name, _)| *name == unit)?.1);
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(nanos)?)?;
        let mut scale = nanos;
        let mut part: i128 = 0;
        for digit in fraction.bytes() {
            part = part * 10 + i128::from(digit - b'0');
            scale *= 10;
            // Digits far below a nanosecond do not matter and must not overflow.
            if scale > i128::from(u64::MAX) * 1_000_000 {
                break;
            }
        }
        total += part * nanos * nanos / scale;
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Writes nanoseconds as Go's `Duration.String` does.
pub fn format(nanos: i64) -> String {
    if nanos == 0 {
        return "0s".to_owned();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    if total < 1_000_000_000 {
        let (unit, size) = match total {
            0..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            _ => ("ms", 1_000_000),
        };
        return format!("{sign}{}{unit}", with_fraction(total, size));
    }
    let mut out = String::from(sign);
    let minutes = total / 60_000_000_000;
    if minutes >= 60 {
        _ = write!(out, "{}h", minutes / 60);
    }
    if minutes > 0 {
        _ = write!(out, "{}m", minutes % 60);
    }
    _ = write!(out, "{}s", with_fraction(total % 60_000_000_000, 1_000_000_000));
    out
}

fn with_fraction(total: u64, size: u64) -> String {
    let (whole, fraction) = (total / size, total % size);
    if fraction == 0 {
        return whole.to_string();
    }
    let width = size.ilog10() as usize;
    let digits = format!("{fraction:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_in_go() {
        let rows = [
            ("90s", Some(90_000_000_000), "1m30s"),
            ("1h30m", Some(5_400_000_000_000), "1h30m0s"),
            ("1.5ms", Some(1_500_000), "1.5ms"),
            ("-2us", Some(-2_000), "-2µs"),
            ("0", Some(0), "0s"),
            (".5s", Some(500_000_000), "500ms"),
            ("1.000000001s", Some(1_000_000_001), "1.000000001s"),
            ("0.100000000000000000000001h", Some(360_000_000_000), "6m0s"),
        ];
        for (text, nanos, printed) in rows {
            assert_eq!(parse(text), nanos, "{text}");
            assert_eq!(nanos.map(format).as_deref(), Some(printed));
        }
        for bad in ["", "1", "s", "1x", "-", ".s", "1h ", "99999999999h", "1..5s"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
