//! Ages and durations for people, as the command line and the page show them. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

/// The age of an object in kubectl's format: `5s`, `3m`, `2h`, `4d`.
#[must_use]
pub fn age(time: Option<&Time>, now: Timestamp) -> String {
    time.map_or_else(|| "<unknown>".to_owned(), |time| short(seconds(time.0, now)))
}

/// The duration between two times, with tenths of a second when it is short.
#[must_use]
pub fn took(from: Option<&MicroTime>, to: Option<&MicroTime>, now: Timestamp) -> String {
    let Some(from) = from else { return String::new() };
    let to = to.map_or(now, |to| to.0);
    let millis = to.as_millisecond().saturating_sub(from.0.as_millisecond()).max(0);
    if millis < 10_000 { format!("{}.{}s", millis / 1000, millis % 1000 / 100) } else { short(millis / 1000) }
}

fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.as_second().saturating_sub(from.as_second()).max(0)
}

fn short(seconds: i64) -> String {
    match seconds {
        ..=119 => format!("{seconds}s"),
        120..=599 if seconds % 60 != 0 => format!("{}m{}s", seconds / 60, seconds % 60),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_durations() {
        let rows = [(0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (3599, "59m"), (7200, "2h"), (400_000, "4d")];
        for (seconds, expect) in rows {
            assert_eq!(short(seconds), expect);
        }
        let at = |millis| MicroTime(Timestamp::from_millisecond(millis).unwrap_or_default());
        assert_eq!(took(Some(&at(0)), Some(&at(1250)), Timestamp::UNIX_EPOCH), "1.2s");
        assert_eq!(took(Some(&at(0)), Some(&at(65_000)), Timestamp::UNIX_EPOCH), "65s");
        assert_eq!(took(None, None, Timestamp::UNIX_EPOCH), "");
    }
}
