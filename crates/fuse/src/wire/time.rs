//! Times and spans of time.

use core::time::Duration;

use super::malformed::Fault;

/// Nanoseconds in a second.
const NANOSECONDS: u32 = 1_000_000_000;

/// A point in time. What is before 1970 has negative seconds; nanoseconds count forward.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time {
    /// Seconds since the beginning of 1970.
    pub seconds: i64,
    /// Nanoseconds since then, less than a second.
    pub nanoseconds: u32,
}

impl Time {
    /// A time of a request.
    pub(crate) const fn checked(
        what: &'static str,
        seconds: i64,
        nanoseconds: u32,
    ) -> Result<Time, Fault> {
        if nanoseconds < NANOSECONDS {
            Ok(Time { seconds, nanoseconds })
        } else {
            Err(Fault::Value { what, value: nanoseconds as u64 })
        }
    }
}

/// Seconds and nanoseconds of how long something may be believed.
pub(crate) const fn lifetime(span: Duration) -> (u64, u32) {
    (span.as_secs(), span.subsec_nanos())
}
