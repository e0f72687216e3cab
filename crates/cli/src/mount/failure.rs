//! How mounting can fail: what kind decides the exit code.

use crate::reason::Reason;

/// Why nothing was mounted, or something went wrong while it was.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for is wrong.
    Usage(Reason),
    /// It could not be done.
    Failed(Reason),
}

impl Failure {
    /// Why.
    pub(crate) const fn reason(&self) -> &Reason {
        match self {
            Failure::Usage(reason) | Failure::Failed(reason) => reason,
        }
    }

    /// The letter by which it is passed on.
    pub(super) const fn letter(&self) -> u8 {
        match self {
            Failure::Usage(_) => b'U',
            Failure::Failed(_) => b'F',
        }
    }
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Failure {
        Failure::Failed(reason)
    }
}
