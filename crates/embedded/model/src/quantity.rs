//! Kubernetes quantities: `100m`, `1.5Gi`, `2e3`.

use std::fmt::{self, Display};

/// An exact amount of a resource, in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

const ONE: i128 = 1_000_000_000;

impl Quantity {
    /// Reads a quantity; absent where the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 60 {
            return None;
        }
        let (factor, divisor) = scale(suffix)?;
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let below = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?.checked_mul(divisor)?;
        let scaled = digits.checked_mul(factor)?.checked_mul(ONE)?;
        // What is finer than a billionth is rounded up, away from zero.
        let value = scaled / below + i128::from(scaled % below != 0);
        Some(Self(if negative { -value } else { value }))
    }

    pub fn whole(i: i64) -> Self {
        Self(i128::from(i) * ONE)
    }

    pub(crate) fn sign(self) -> i64 {
        self.0.signum() as i64
    }

    pub(crate) fn add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    pub(crate) fn sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// How many times `divisor` fits into the quantity, rounded up. A divisor of zero means one, as everywhere in Kubernetes.
    pub fn divide(self, divisor: Self) -> i128 {
        let divisor = if divisor.0 == 0 { ONE } else { divisor.0 };
        self.0 / divisor + i128::from(self.0 % divisor != 0 && (self.0 < 0) == (divisor < 0))
    }

    /// The quantity as an integer, if it is one.
    pub(crate) fn integer(self) -> Option<i64> {
        if self.0 % ONE == 0 { i64::try_from(self.0 / ONE).ok() } else { None }
    }

    pub(crate) fn float(self) -> f64 {
        self.0 as f64 / ONE as f64
    }
}

impl Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            v if v % ONE == 0 => write!(f, "{}", v / ONE),
            v if v % 1_000_000 == 0 => write!(f, "{}m", v / 1_000_000),
            v if v % 1_000 == 0 => write!(f, "{}u", v / 1_000),
            v => write!(f, "{v}n"),
        }
    }
}

/// What a suffix multiplies and divides by.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, ONE),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10i128.checked_pow(exponent.unsigned_abs())?;
            if exponent < 0 { (1, power) } else { (power, 1) }
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn quantities_are_exact() {
        for (a, b) in
            [("1", "1000m"), ("1.5Gi", "1536Mi"), ("2e3", "2k"), ("0.1", "100m"), ("+1", "1.0"), ("-1k", "-1000")]
        {
            assert_eq!(Quantity::parse(a).unwrap(), Quantity::parse(b).unwrap(), "{a} {b}");
        }
        for bad in ["", "a", "1.1.1", "1Kib", "--1", ".", "1e", "1 Gi", "1e999"] {
            assert_eq!(Quantity::parse(bad), None, "{bad}");
        }
        assert_eq!(Quantity::parse("1500m").unwrap().to_string(), "1500m");
        for (value, divisor, expect) in [("1500m", "1", 2), ("1Gi", "1Mi", 1024), ("-1500m", "1", -1), ("3", "0", 3)] {
            assert_eq!(
                Quantity::parse(value).unwrap().divide(Quantity::parse(divisor).unwrap()),
                expect,
                "{value} {divisor}"
            );
        }
    }
}
