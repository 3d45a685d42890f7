//! Ages as `kubectl get` prints them.

use jiff::Timestamp;

/// How long ago a stored time is; what is absent or cannot be read is unknown.
pub fn since(time: Option<&str>, now: Timestamp) -> String {
    match time.and_then(|time| time.parse::<Timestamp>().ok()) {
        Some(time) => human(now.duration_since(time).as_secs()),
        None => "<unknown>".to_owned(),
    }
}

/// A duration with two or three significant figures: `45s`, `2m5s`, `3h`, `2d1h`, `400d`, `3y20d`.
pub fn human(seconds: i64) -> String {
    let two = |large: i64, large_unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit}{small}{small_unit}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        // Clocks of two machines may differ by a moment.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, 'd', hours % 24, 'h'),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}
