//! How much a message matters.

use std::str::FromStr;

/// How much a message matters; a log has those of its level and above.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Level {
    /// Something does not work.
    Error,
    /// Something may not work for long, or not as expected.
    Warn,
    /// What administrators want to know.
    #[default]
    Info,
    /// What those want to know who look for a fault: names of files, too.
    Debug,
}

impl Level {
    /// All of them.
    const ALL: [Level; 4] = [Level::Error, Level::Warn, Level::Info, Level::Debug];

    /// How it is written.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    /// Its number for syslog(3) and the journal.
    pub(crate) const fn severity(self) -> u8 {
        match self {
            Level::Error => 3,
            Level::Warn => 4,
            Level::Info => 6,
            Level::Debug => 7,
        }
    }
}

/// What is no level.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no level: error, warn, info, debug")]
pub(crate) struct Unknown(String);

impl FromStr for Level {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Level, Unknown> {
        let found = Level::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| Unknown(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_names_and_an_order() {
        for level in Level::ALL {
            assert_eq!(level.name().parse::<Level>().unwrap(), level);
        }
        assert!(Level::Error < Level::Warn && Level::Info < Level::Debug);
        let said = "loud".parse::<Level>().unwrap_err().to_string();
        assert_eq!(said, "\"loud\" is no level: error, warn, info, debug");
    }
}
