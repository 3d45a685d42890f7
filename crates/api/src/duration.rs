//! [`Duration`]: a length of time as Kubernetes writes it (`90s`, `5m`, `1h30m`).
//!
//! The text is kept as the user wrote it, so reading and writing an object changes nothing in it.

use std::{borrow::Cow, fmt, str::FromStr, time};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::rules;

/// The form of a duration, as the schema and the CEL rules check it.
pub const DURATION_PATTERN: &str = "^(0|([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+)$";

/// The sentence a user gets for a duration in another form.
pub const DURATION_MESSAGE: &str =
    "write a duration as a number with a unit (ms, s, m or h), for example 90s, 5m or 1h30m";

/// A length of time, written as Go and Kubernetes write it, never negative.
///
/// A value that is too long to count saturates instead of failing, so every text the schema accepts can be read.
#[derive(Clone, Debug)]
pub struct Duration {
    text: String,
    value: time::Duration,
}

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationError {
    text: String,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a duration: {DURATION_MESSAGE}", self.text)
    }
}

impl std::error::Error for DurationError {}

impl Duration {
    /// That many seconds.
    #[must_use]
    pub fn from_secs(seconds: u64) -> Self {
        time::Duration::from_secs(seconds).into()
    }

    /// The text as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The length, to calculate with.
    #[must_use]
    pub fn get(&self) -> time::Duration {
        self.value
    }
}

/// Two durations of one length are equal, however they are written.
impl PartialEq for Duration {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for Duration {}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<time::Duration> for Duration {
    fn from(value: time::Duration) -> Self {
        Self { text: write(value), value }
    }
}

impl From<Duration> for time::Duration {
    fn from(duration: Duration) -> Self {
        duration.value
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let value = parse(text).ok_or_else(|| DurationError { text: text.to_owned() })?;
        Ok(Self { text: text.to_owned(), value })
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // A CEL rule and not `pattern`: a pattern answers with the regular expression, a rule with a sentence.
        json_schema!({
            "type": "string",
            "maxLength": 32,
            "x-kubernetes-validations": [{
                "rule": format!("self.matches({})", rules::literal(DURATION_PATTERN)),
                "message": DURATION_MESSAGE,
            }],
        })
    }
}

/// Units with their length in nanoseconds; a longer name stands before the shorter one that begins it.
const UNITS: [(&str, u128); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

fn parse(text: &str) -> Option<time::Duration> {
    if text == "0" {
        return Some(time::Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest)?;
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after)?,
            None => ("", after),
        };
        let (length, after) =
            UNITS.iter().find_map(|(name, length)| after.strip_prefix(name).map(|after| (*length, after)))?;
        nanos = nanos.saturating_add(whole.parse().unwrap_or(u128::MAX).saturating_mul(length));
        nanos = nanos.saturating_add(part_of(fraction, length));
        rest = after;
    }
    let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
    (!text.is_empty()).then(|| time::Duration::from_nanos(nanos))
}

/// The leading digits, of which there must be at least one, and what follows them.
fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// `0.fraction` of a unit, in nanoseconds, rounded down.
fn part_of(fraction: &str, length: u128) -> u128 {
    let mut scale = length;
    let mut sum = 0;
    for digit in fraction.bytes() {
        scale /= 10;
        sum += u128::from(digit - b'0') * scale;
    }
    sum
}

/// The shortest text of whole units: `1h30m`, not `1h30m0s`.
fn write(value: time::Duration) -> String {
    let mut nanos = value.as_nanos();
    let mut text = String::new();
    for (name, length) in UNITS.iter().rev() {
        let count = nanos / length;
        if count > 0 {
            text.push_str(&format!("{count}{name}"));
            nanos %= length;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn texts_and_their_length() {
        let rows: &[(&str, Option<u64>)] = &[
            ("0", Some(0)),
            ("0s", Some(0)),
            ("90s", Some(90_000)),
            ("5m", Some(300_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5h", Some(5_400_000)),
            ("0.25s", Some(250)),
            ("250ms", Some(250)),
            ("1m5s10ms", Some(65_010)),
            ("1000us", Some(1)),
            ("1000000ns", Some(1)),
            ("", None),
            ("5", None),
            ("m", None),
            ("-5m", None),
            ("5 m", None),
            (".5s", None),
            ("5.s", None),
            ("5d", None),
            ("5min", None),
            ("1h 30m", None),
        ];
        for (text, millis) in rows {
            let got = text.parse::<Duration>().ok().map(|d| d.get());
            assert_eq!(got, millis.map(time::Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn a_length_beyond_counting_saturates() {
        let text = "99999999999999999999999999999h";
        assert_eq!(text.parse::<Duration>().unwrap().get(), time::Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn the_text_survives_a_round_trip() {
        let read: Duration = serde_json::from_str("\"60m\"").unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), "\"60m\"");
        assert_eq!(read, "1h".parse().unwrap());
    }

    #[test]
    fn lengths_are_written_in_whole_units() {
        for (millis, text) in [(0, "0s"), (90_000, "1m30s"), (3_600_000, "1h"), (1_250, "1s250ms")] {
            assert_eq!(Duration::from(time::Duration::from_millis(millis)).as_str(), text);
        }
    }

    #[test]
    fn the_error_says_what_to_write() {
        let error = "soon".parse::<Duration>().unwrap_err();
        assert_eq!(error.to_string(), format!("`soon` is not a duration: {DURATION_MESSAGE}"));
    }
}
