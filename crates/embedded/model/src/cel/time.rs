//! Durations and timestamps.

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::eval::{Answer, Fault};
use super::value::Val;
use crate::schema::duration;

const SECOND: i64 = 1_000_000_000;

/// `duration(...)` and `timestamp(...)`.
pub(crate) fn convert<'a>(to: &str, value: &Val<'a>) -> Answer<'a> {
    Ok(match (to, value) {
        ("duration", Val::Duration(nanos)) => Val::Duration(*nanos),
        ("duration", Val::Int(nanos)) => Val::Duration(*nanos),
        ("duration", Val::Str(s)) => match duration::parse(s) {
            Some(nanos) => Val::Duration(nanos),
            None => {
                let quoted = crate::schema::error::go_quote(s);
                return Err(Fault::Other(format!("time: invalid duration {quoted}")));
            }
        },
        ("timestamp", Val::Timestamp(t)) => Val::Timestamp(*t),
        ("timestamp", Val::Int(seconds)) => {
            Val::Timestamp(Timestamp::from_second(*seconds).map_err(|_| out_of_range())?)
        }
        ("timestamp", Val::Str(s)) => match s.parse() {
            Ok(t) => Val::Timestamp(t),
            Err(_) => {
                let quoted = crate::schema::error::go_quote(s);
                let layout = "2006-01-02T15:04:05Z07:00";
                let detail = format!("parsing time {quoted} as \"{layout}\": cannot parse {quoted} as \"2006\"");
                return Err(Fault::Other(detail));
            }
        },
        _ => return Err(Fault::NoSuchOverload),
    })
}

/// `+` where one side is a time.
pub(crate) fn add<'a>(a: &Val<'a>, b: &Val<'a>) -> Answer<'a> {
    Ok(match (a, b) {
        (Val::Duration(a), Val::Duration(b)) => Val::Duration(a.checked_add(*b).ok_or_else(overflow)?),
        (Val::Timestamp(t), Val::Duration(nanos)) | (Val::Duration(nanos), Val::Timestamp(t)) => {
            Val::Timestamp(t.checked_add(SignedDuration::from_nanos(*nanos)).map_err(|_| out_of_range())?)
        }
        _ => return Err(Fault::NoSuchOverload),
    })
}

/// `-` where the left side is a time.
pub(crate) fn subtract<'a>(a: &Val<'a>, b: &Val<'a>) -> Answer<'a> {
    Ok(match (a, b) {
        (Val::Duration(a), Val::Duration(b)) => Val::Duration(a.checked_sub(*b).ok_or_else(overflow)?),
        (Val::Timestamp(t), Val::Duration(nanos)) => {
            Val::Timestamp(t.checked_sub(SignedDuration::from_nanos(*nanos)).map_err(|_| out_of_range())?)
        }
        (Val::Timestamp(a), Val::Timestamp(b)) => {
            let nanos = a.as_nanosecond() - b.as_nanosecond();
            Val::Duration(i64::try_from(nanos).map_err(|_| overflow())?)
        }
        _ => return Err(Fault::NoSuchOverload),
    })
}

/// The accessors of durations and timestamps.
pub(crate) fn call<'a>(name: &str, values: &[Val<'a>]) -> Answer<'a> {
    let number = match values {
        [Val::Duration(nanos)] => match name {
            "getHours" => nanos / (3_600 * SECOND),
            "getMinutes" => nanos / (60 * SECOND),
            "getSeconds" => nanos / SECOND,
            "getMilliseconds" => (nanos / 1_000_000) % 1_000,
            _ => return Err(Fault::NoSuchOverload),
        },
        [Val::Timestamp(t), zone @ ..] => {
            let zone = match zone {
                [] => TimeZone::UTC,
                [Val::Str(name)] => zone_named(name)?,
                _ => return Err(Fault::NoSuchOverload),
            };
            let at = t.to_zoned(zone);
            match name {
                "getFullYear" => i64::from(at.year()),
                "getMonth" => i64::from(at.month()) - 1,
                "getDayOfYear" => i64::from(at.day_of_year()) - 1,
                "getDayOfMonth" => i64::from(at.day()) - 1,
                "getDate" => i64::from(at.day()),
                "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
                "getHours" => i64::from(at.hour()),
                "getMinutes" => i64::from(at.minute()),
                "getSeconds" => i64::from(at.second()),
                "getMilliseconds" => i64::from(at.millisecond()),
                _ => return Err(Fault::NoSuchOverload),
            }
        }
        _ => return Err(Fault::NoSuchOverload),
    };
    Ok(Val::Int(number))
}

/// A zone by its name or as an offset such as `+01:30`.
fn zone_named(name: &str) -> Result<TimeZone, Fault> {
    let unknown = || Fault::Other(format!("unknown time zone {name}"));
    let Some((hours, minutes)) = name.split_once(':') else {
        return TimeZone::get(name).map_err(|_| unknown());
    };
    let negative = hours.starts_with('-');
    let hours: i32 = hours.trim_start_matches(['+', '-']).parse().map_err(|_| unknown())?;
    let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
    if !(0..=24).contains(&hours) || !(0..60).contains(&minutes) {
        return Err(unknown());
    }
    let seconds = hours * 3_600 + minutes * 60;
    let offset = Offset::from_seconds(if negative { -seconds } else { seconds }).map_err(|_| unknown())?;
    Ok(TimeZone::fixed(offset))
}

fn overflow() -> Fault {
    Fault::other("integer overflow")
}

fn out_of_range() -> Fault {
    Fault::other("timestamp overflow")
}
