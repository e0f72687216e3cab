//! What goes wrong while requests are served, and ends none but that.

use core::fmt;

use crate::wire::{Malformed, Opcode};

/// Something that somebody should know of; the session goes on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Incident {
    /// A request that is none, answered by `EIO`.
    Malformed(Malformed),
    /// The handler panicked; what it had not answered was answered by `EIO`.
    Panicked {
        /// The request.
        unique: u64,
        /// What it asked for.
        code: u32,
        /// What the panic said.
        reason: String,
    },
    /// The kernel refused a reply; the caller got `EIO`.
    Refused {
        /// The request.
        unique: u64,
        /// The reply's length in bytes.
        len: usize,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A worker has no descriptor of its own, and shares the first one.
    NotJoined {
        /// The system's reason.
        source: std::io::Error,
    },
    /// A worker could not be started; there are fewer.
    NoThread {
        /// The system's reason.
        source: std::io::Error,
    },
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incident::Malformed(malformed) => malformed.fmt(f),
            Incident::Panicked { unique, code, reason } => {
                let name = Opcode::from_number(*code).map_or("unknown", Opcode::name);
                write!(f, "request {unique} ({name}) made the server panic: {reason}; report it")
            }
            Incident::Refused { unique, len, source } => {
                write!(
                    f,
                    "the kernel refuses the reply of {len} bytes to request {unique}: {source}"
                )
            }
            Incident::NotJoined { source } => {
                write!(f, "a thread shares the first one's descriptor of /dev/fuse: {source}")
            }
            Incident::NoThread { source } => {
                write!(f, "a further thread can't be started: {source}; going on with fewer")
            }
        }
    }
}
