//! Why something could not be measured.

use std::io;

use crate::calls::CallError;

/// Why something could not be measured. Each names its object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call of an experiment failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The system refused something around it.
    #[error("{object}: {source}")]
    System {
        /// What it was about.
        object: String,
        /// Why.
        source: io::Error,
    },
    /// A target can't be made or used.
    #[error("{target}: {reason}")]
    Target {
        /// Which.
        target: String,
        /// Why, and what to do about it.
        reason: String,
    },
    /// It was asked to end.
    #[error("stopped")]
    Stopped,
    /// A part of an experiment takes too long.
    #[error(
        "not done after {} s (make the experiment smaller: --set, or give it longer: --limit)",
        .0.as_secs()
    )]
    Slow(std::time::Duration),
    /// A process was told what makes no sense.
    #[error("a request that can't be followed: {0}")]
    Request(String),
}

/// What a function of this crate returns.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// The system refused something about `object`.
    pub(crate) fn system(object: &str) -> impl FnOnce(io::Error) -> Error + use<> {
        let object = object.to_owned();
        move |source| Error::System { object, source }
    }
}
