//! What is wrong with a request.

use core::fmt;

use thiserror::Error;

use super::abi::Opcode;

/// A request that is none. It is to be answered with `EIO` if its number is known; it is a fault of
/// the kernel or of this crate, so the words are for whoever looks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// The request's number, if so much of it was there.
    pub unique: Option<u64>,
    /// The number of its operation, if so much of it was there.
    pub opcode: Option<u32>,
    /// What is wrong.
    pub fault: Fault,
}

impl Malformed {
    /// Whether the kernel waits for an answer.
    #[must_use]
    pub fn wants_answer(&self) -> bool {
        let opcode = self.opcode.and_then(Opcode::from_number);
        self.unique.is_some() && opcode.is_none_or(Opcode::has_reply)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("request")?;
        if let Some(unique) = self.unique {
            write!(f, " {unique:#x}")?;
        }
        match (self.opcode, self.opcode.and_then(Opcode::from_number)) {
            (_, Some(opcode)) => write!(f, " ({opcode})")?,
            (Some(number), None) => write!(f, " (operation {number})")?,
            (None, None) => {}
        }
        let remedy = "the kernel speaks another dialect of FUSE than it said: report it";
        write!(f, " can't be understood: {}; {remedy}, with the kernel's version", self.fault)
    }
}

impl core::error::Error for Malformed {}

/// What is wrong with a request, or with a part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// Less bytes than its fields take.
    #[error("{found} bytes where {wanted} are needed")]
    Short {
        /// Bytes needed.
        wanted: usize,
        /// Bytes there.
        found: usize,
    },
    /// The header tells another length than what was read.
    #[error("its header says {said} bytes, but {found} were read")]
    Length {
        /// Bytes as the header tells.
        said: u32,
        /// Bytes read.
        found: usize,
    },
    /// A text without its end.
    #[error("its {what} does not end")]
    Endless {
        /// Which text.
        what: &'static str,
    },
    /// A text of no bytes.
    #[error("its {what} is empty")]
    Empty {
        /// Which text.
        what: &'static str,
    },
    /// More bytes than its fields take.
    #[error("{bytes} bytes too much")]
    Trailing {
        /// Bytes after the last field.
        bytes: usize,
    },
    /// A count of what is not there.
    #[error("it counts {count} {what}, but {room} are there")]
    Count {
        /// What is counted.
        what: &'static str,
        /// How many are said to follow.
        count: u64,
        /// How many follow.
        room: u64,
    },
    /// A value that its field can't have.
    #[error("its {what} can't be {value}")]
    Value {
        /// Which field.
        what: &'static str,
        /// The value.
        value: u64,
    },
}
