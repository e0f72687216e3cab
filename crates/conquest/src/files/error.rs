//! Why an operation on a file failed.

use std::fmt;
use std::io;

use conquest_access::Errno;

use crate::name::Name;

/// An operation on a file that failed: which file, and why. Shown as `NAME: reason`, or
/// `OLD -> NEW: reason` for what is about two names.
#[derive(Debug)]
pub struct FileError {
    name: Name,
    other: Option<Box<Name>>,
    reason: Reason,
}

/// Why.
#[derive(Debug)]
pub(crate) enum Reason {
    /// The rules of file systems.
    Refused(Errno),
    /// The file system, or the region below, with more to say.
    Below(Box<conquest_fs::Error>),
    /// The file was opened by the process that this one was forked from.
    Inherited,
}

impl From<conquest_fs::Error> for Reason {
    fn from(error: conquest_fs::Error) -> Reason {
        match error {
            conquest_fs::Error::Refused(errno) => Reason::Refused(errno),
            other => Reason::Below(Box::new(other)),
        }
    }
}

impl From<Errno> for Reason {
    fn from(errno: Errno) -> Reason {
        Reason::Refused(errno)
    }
}

impl FileError {
    pub(crate) fn new(name: Name, reason: impl Into<Reason>) -> FileError {
        FileError { name, other: None, reason: reason.into() }
    }

    /// Of an operation on two names.
    pub(crate) fn of_two(old: Name, new: Name, reason: impl Into<Reason>) -> FileError {
        FileError { name: old, other: Some(Box::new(new)), reason: reason.into() }
    }

    /// The same of a file, or of two, that the caller called otherwise.
    pub(super) fn called(self, name: Name, other: Option<Name>) -> FileError {
        FileError { name, other: other.map(Box::new), ..self }
    }

    /// What the caller called the file; the old name where there are two.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The new name, of an operation that is about two.
    #[must_use]
    pub fn other_name(&self) -> Option<&Name> {
        self.other.as_deref()
    }

    /// The error number that a system call would give.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match &self.reason {
            Reason::Refused(errno) => *errno,
            Reason::Below(error) => error.errno(),
            Reason::Inherited => Errno::EBADF,
        }
    }

    /// The reason, without the names.
    #[must_use]
    pub fn reason(&self) -> String {
        match &self.reason {
            Reason::Refused(errno) => {
                let words = io::Error::from_raw_os_error(errno.number()).to_string();
                let number = format!(" (os error {})", errno.number());
                words.trim_end_matches(&number).to_owned()
            }
            Reason::Below(error) => match &**error {
                conquest_fs::Error::Stale => "it was removed meanwhile".to_owned(),
                other => other.to_string(),
            },
            Reason::Inherited => {
                "it was opened by the process that this one was forked from; open it again".into()
            }
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(other) = &self.other {
            write!(f, " -> {other}")?;
        }
        write!(f, ": {}", self.reason())?;
        match self.reason {
            Reason::Refused(errno) => remedy(errno).map_or(Ok(()), |text| write!(f, "; {text}")),
            _ => Ok(()),
        }
    }
}

impl core::error::Error for FileError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.reason {
            Reason::Below(error) => Some(&**error),
            _ => None,
        }
    }
}

/// What can be done, where it does not depend on more than the error number.
fn remedy(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::EXDEV => "the path leads out of the directory that it must not leave",
        Errno::EDEADLK => "give up locks that others wait for, and try again",
        Errno::ENOMEM => "ask for less at a time",
        _ => return None,
    })
}
