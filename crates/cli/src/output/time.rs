//! Formats times for people.

use jiff::Timestamp;

pub use knoll_core::times::{age, took};

/// A time in the user's time zone.
#[must_use]
pub fn moment(time: Timestamp) -> String {
    time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}
