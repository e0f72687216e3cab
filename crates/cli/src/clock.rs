//! Times for people, in the machine's time zone.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

/// Seconds of half a mean year: `ls` shows the time of day of what is younger.
const HALF_YEAR: i64 = 31_556_952 / 2;

fn zoned(nanoseconds: i64, zone: &TimeZone) -> Zoned {
    let since = SignedDuration::from_nanos(nanoseconds);
    let time = Timestamp::from_duration(since).unwrap_or(Timestamp::UNIX_EPOCH);
    time.to_zoned(zone.clone())
}

/// Writes times.
pub(crate) struct Clock {
    zone: TimeZone,
    now: i64,
}

impl Clock {
    /// With the machine's time zone and the present time.
    pub(crate) fn new() -> Clock {
        let now = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
        Clock { zone: TimeZone::system(), now }
    }

    /// As `ls -l` has it: `Nov 22 13:29`, or `Nov 22  2019` of old or future times.
    pub(crate) fn short(&self, nanoseconds: i64) -> String {
        let age = self.now.saturating_sub(nanoseconds) / 1_000_000_000;
        let format = if (0..HALF_YEAR).contains(&age) { "%b %e %H:%M" } else { "%b %e  %Y" };
        zoned(nanoseconds, &self.zone).strftime(format).to_string()
    }

    /// As `stat` has it: `2026-11-22 13:29:47.123456789 +0000`.
    pub(crate) fn long(&self, nanoseconds: i64) -> String {
        zoned(nanoseconds, &self.zone).strftime("%Y-%m-%d %H:%M:%S.%9f %z").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_like_other_tools() {
        let now = 1_700_000_000_123_456_789;
        let clock = Clock { zone: TimeZone::UTC, now };
        assert_eq!(clock.long(now), "2023-11-14 22:13:20.123456789 +0000");
        assert_eq!(clock.short(now - 1), "Nov 14 22:13");
        assert_eq!(clock.short(now + 3_000_000_000), "Nov 14  2023");
        assert_eq!(clock.short(0), "Jan  1  1970");
        assert_eq!(clock.long(-1), "1969-12-31 23:59:59.999999999 +0000");
    }
}
