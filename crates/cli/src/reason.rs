//! Why something could not be done.

use std::io;

use conquest_access::Errno;

/// What a function that can fail returns.
pub(crate) type Result<T> = core::result::Result<T, Reason>;

/// Why something could not be done, in words that follow the name of the object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reason {
    /// The system says so.
    #[error("{}", words(.0))]
    System(#[from] io::Error),
    /// The file system in a store says so.
    #[error("{}", words_of_store(.0))]
    Files(#[from] conquest_fs::Error),
    /// The store as a whole says so.
    #[error("{0}")]
    Store(#[from] conquest::Error),
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
            Reason::Files(error) => Some(error.errno().number()),
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

impl From<Errno> for Reason {
    fn from(errno: Errno) -> Reason {
        Reason::Files(errno.into())
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

/// The system's words where the store says no more than an error number.
fn words_of_store(error: &conquest_fs::Error) -> String {
    match error {
        conquest_fs::Error::Refused(errno) => words(&io::Error::from_raw_os_error(errno.number())),
        conquest_fs::Error::Stale => "it was removed meanwhile".into(),
        other => other.to_string(),
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
