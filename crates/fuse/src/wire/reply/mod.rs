//! Replies: a header, a body of fixed size, and data that are borrowed.

/// Says how a value is encoded: as which structure, and how that is made.
macro_rules! body {
    ($value:ty as $wire:ty: $to_wire:expr) => {
        impl $crate::wire::reply::Body for $value {
            type Bytes = [u8; size_of::<$wire>()];

            fn encode(&self) -> Self::Bytes {
                let to_wire: fn(&$value) -> $wire = $to_wire;
                zerocopy::transmute!(to_wire(self))
            }
        }
    };
}

mod attributes;
mod small;
mod statx;

pub(crate) use body;
use zerocopy::transmute;

pub use attributes::{Attributes, AttributesReply, Created, Entry, Opened};
pub use small::{Block, IoctlReply, Polled, Position, RangeCopied, StatFs, Written, XattrSize};
pub use statx::StatxReply;

use super::abi::{OutHeader, REPLY_HEADER_SIZE, WireLock};
use super::lock::FileLock;

/// A body of fixed size.
pub trait Body {
    /// Its bytes.
    type Bytes: AsRef<[u8]>;

    /// The bytes that follow the header.
    fn encode(&self) -> Self::Bytes;
}

/// The header of the reply to request `unique`: `error` is 0 or the number of an error, positive;
/// `len` bytes follow, none after an error. The kernel refuses numbers from 512 on, and lengths
/// that are not those of what is written.
#[must_use]
pub fn header(unique: u64, error: i32, len: usize) -> [u8; REPLY_HEADER_SIZE] {
    let len = u32::try_from(len.saturating_add(REPLY_HEADER_SIZE)).unwrap_or(u32::MAX);
    transmute!(OutHeader { len, error: error.saturating_neg(), unique })
}

body!(FileLock as WireLock: |lock| lock.to_wire());
