//! Why something could not be done.

use std::io;

use conquest::{Errno, FileError};

/// What a function that can fail returns.
pub(crate) type Result<T> = core::result::Result<T, Reason>;

/// Why something could not be done, in words that follow the name of the object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reason {
    /// The system says so.
    #[error("{}", words(.0))]
    System(#[from] io::Error),
    /// A store says so, of a file that the message names already.
    #[error("{}", .0.reason())]
    File(FileError),
    /// The store as a whole says so.
    #[error("{0}")]
    Store(conquest::Error),
    /// A rule of this program, with what to do about it.
    #[error("{0}")]
    Rule(String),
    /// A signal asked the program to end.
    #[error("interrupted; run the same command again to go on")]
    Stopped,
}

impl Reason {
    /// A rule of this program.
    pub(crate) fn rule(text: impl Into<String>) -> Reason {
        Reason::Rule(text.into())
    }

    /// The error number, if there is one.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Reason::System(error) => error.raw_os_error(),
            Reason::File(error) => Some(error.errno().number()),
            Reason::Store(_) | Reason::Rule(_) | Reason::Stopped => None,
        }
    }

    /// Whether it is error number `number`.
    pub(crate) fn is(&self, number: Errno) -> bool {
        self.errno() == Some(number.number())
    }
}

impl From<rustix::io::Errno> for Reason {
    fn from(errno: rustix::io::Errno) -> Reason {
        Reason::System(errno.into())
    }
}

impl From<conquest::Error> for Reason {
    fn from(error: conquest::Error) -> Reason {
        match error {
            conquest::Error::File(error) => Reason::File(error),
            error => Reason::Store(error),
        }
    }
}

impl From<conquest_fuse::Error> for Reason {
    /// That a mount is in use is a number, which callers look for; all else names its object.
    fn from(error: conquest_fuse::Error) -> Reason {
        use conquest_fuse::Error;
        let is_busy = match &error {
            Error::System { source, .. } => source.raw_os_error() == Some(Errno::EBUSY.number()),
            Error::Helper { said, .. } => said.contains("resource busy"),
            _ => false,
        };
        if is_busy { Errno::EBUSY.into() } else { Reason::Rule(error.to_string()) }
    }
}

impl From<Errno> for Reason {
    fn from(errno: Errno) -> Reason {
        Reason::System(io::Error::from_raw_os_error(errno.number()))
    }
}

/// The system's words for `error`, without its number.
pub(crate) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.trim_end_matches(&format!(" (os error {number})")).to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_other_tools() {
        let of = |errno: Errno| Reason::from(errno).to_string();
        assert_eq!(of(Errno::ENOENT), "No such file or directory");
        assert_eq!(of(Errno::ENOTEMPTY), "Directory not empty");
        let system = Reason::from(rustix::io::Errno::ACCESS);
        assert_eq!(system.to_string(), "Permission denied");
        assert!(system.is(Errno::EACCES));
    }
}
