//! Who waits until what he has done is durable on a store's volume.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest interval, in milliseconds.
const INTERVAL_MAX: u64 = 3_600_000;

/// When what was done on a core in RAM becomes durable on the store's volume. Whatever the mode,
/// fsync(2) returns when all that was done before is durable, and what is durable is what had been
/// done first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SyncMode {
    /// After this long, whether or not somebody asks: what a power failure takes away is less
    /// than what was done in it.
    Interval(Duration),
    /// When somebody asks for it.
    Fsync,
    /// Before an operation returns.
    Always,
}

impl Default for SyncMode {
    fn default() -> SyncMode {
        SyncMode::Interval(Duration::from_secs(1))
    }
}

impl fmt::Display for SyncMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncMode::Interval(interval) if interval.subsec_millis() == 0 => {
                write!(f, "interval={}s", interval.as_secs())
            }
            SyncMode::Interval(interval) => write!(f, "interval={}ms", interval.as_millis()),
            SyncMode::Fsync => f.write_str("fsync"),
            SyncMode::Always => f.write_str("always"),
        }
    }
}

/// A text that is no mode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected interval=TIME with 1ms to 3600s, fsync or always, found {0:?}")]
pub struct UnknownMode(String);

impl FromStr for SyncMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<SyncMode, UnknownMode> {
        let unknown = || UnknownMode(text.to_owned());
        match text {
            "interval" => return Ok(SyncMode::default()),
            "fsync" => return Ok(SyncMode::Fsync),
            "always" => return Ok(SyncMode::Always),
            _ => {}
        }
        let time = text.strip_prefix("interval=").ok_or_else(unknown)?;
        let (number, unit) = match time.strip_suffix("ms") {
            Some(number) => (number, 1),
            None => (time.strip_suffix('s').ok_or_else(unknown)?, 1000),
        };
        let number: u64 = number.parse().map_err(|_| unknown())?;
        let milliseconds = number.saturating_mul(unit);
        match milliseconds {
            1..=INTERVAL_MAX => Ok(SyncMode::Interval(Duration::from_millis(milliseconds))),
            _ => Err(unknown()),
        }
    }
}

#[test]
fn modes_are_written_and_read() {
    for text in ["interval=1s", "interval=250ms", "interval=3600s", "fsync", "always"] {
        assert_eq!(text.parse::<SyncMode>().map(|mode| mode.to_string()), Ok(text.to_owned()));
    }
    assert_eq!("interval".parse(), Ok(SyncMode::default()));
    assert_eq!("interval=2000ms".parse(), Ok(SyncMode::Interval(Duration::from_secs(2))));
    for bad in ["", "interval=", "interval=0s", "interval=3601s", "interval=1", "interval=-1s"] {
        assert!(bad.parse::<SyncMode>().is_err(), "{bad}");
    }
}
