//! Notices: what the file system tells the kernel without being asked.

use zerocopy::{Immutable, IntoBytes};

use super::abi::{
    NoticeEntryFlags, NotifyDeleteOut, NotifyEntryOut, NotifyInodeOut, NotifyPollOut,
    NotifyPruneOut, NotifyRetrieveOut, NotifyStoreOut, OutHeader, REPLY_HEADER_SIZE,
};

/// Something that the kernel is told without having asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice<'a> {
    /// Something polled, of which POLL told the handle, is ready.
    Poll {
        /// What POLL told.
        kernel_handle: u64,
    },
    /// An inode's attributes have changed, and its bytes from `offset` on: `length` of them, all if
    /// it is 0; none if `offset` is negative.
    InvalidateInode {
        /// The node.
        node: u64,
        /// From where.
        offset: i64,
        /// How many bytes.
        length: i64,
    },
    /// What a name stands for has changed. If it is only `expired`, the kernel asks when it needs
    /// it (from 7.38 on), otherwise it forgets the entry and what is below it.
    InvalidateEntry {
        /// The directory.
        parent: u64,
        /// The name.
        name: &'a [u8],
        /// Whether it may be right nevertheless.
        expired: bool,
    },
    /// The name that stood for `child` is gone, which watchers are told of.
    Delete {
        /// The directory.
        parent: u64,
        /// What it stood for.
        child: u64,
        /// The name.
        name: &'a [u8],
    },
    /// Bytes of an inode, to be cached.
    Store {
        /// The node.
        node: u64,
        /// From where.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// Cached bytes of an inode are wanted; they come as NOTIFY_REPLY with `unique`.
    Retrieve {
        /// The number that the answer is to have.
        unique: u64,
        /// The node.
        node: u64,
        /// From where.
        offset: u64,
        /// How many bytes.
        size: u32,
    },
    /// All requests that were read and not answered are wanted again (from 7.40 on).
    Resend,
    /// All names are to be asked for again (from 7.44 on).
    IncrementEpoch,
    /// Nodes that the kernel is to forget if nobody uses them (from 7.45 on).
    Prune {
        /// The nodes.
        nodes: &'a [u64],
    },
}

/// Bytes of the longest fixed part.
const HEAD_MAX: usize = REPLY_HEADER_SIZE + size_of::<NotifyRetrieveOut>();

/// A notice in up to three pieces, to be written at once.
#[derive(Clone, Copy, Debug)]
pub struct EncodedNotice<'a> {
    head: [u8; HEAD_MAX],
    head_len: usize,
    tail: &'a [u8],
    /// What ends a name.
    nul: &'static [u8],
}

impl<'a> Notice<'a> {
    /// The notice's bytes. What is too long for its fields, the kernel refuses.
    #[must_use]
    pub fn encode(&self) -> EncodedNotice<'a> {
        match *self {
            Notice::Poll { kernel_handle } => plain(1, &NotifyPollOut { kernel_handle }),
            Notice::InvalidateInode { node, offset, length } => {
                plain(2, &NotifyInodeOut { node, offset, length })
            }
            Notice::InvalidateEntry { parent, name, expired } => {
                let flags = NoticeEntryFlags::EXPIRE_ONLY.when(expired).bits();
                named(3, &NotifyEntryOut { parent, name_len: short(name.len()), flags }, name)
            }
            Notice::Store { node, offset, data } => {
                let size = short(data.len());
                encode(4, &NotifyStoreOut { node, offset, size, _padding: 0 }, data, &[])
            }
            Notice::Retrieve { unique, node, offset, size } => {
                let notify_unique = unique;
                plain(5, &NotifyRetrieveOut { notify_unique, node, offset, size, _padding: 0 })
            }
            Notice::Delete { parent, child, name } => {
                let name_len = short(name.len());
                named(6, &NotifyDeleteOut { parent, child, name_len, _padding: 0 }, name)
            }
            Notice::Resend => plain(7, &()),
            Notice::IncrementEpoch => plain(8, &()),
            Notice::Prune { nodes } => {
                let count = short(nodes.len());
                let fields = NotifyPruneOut { count, _padding: 0, _spare: 0 };
                encode(9, &fields, nodes.as_bytes(), &[])
            }
        }
    }
}

impl EncodedNotice<'_> {
    /// What is to be written, one after the other; some may be empty.
    #[must_use]
    pub fn pieces(&self) -> [&[u8]; 3] {
        [self.head.get(..self.head_len).unwrap_or_default(), self.tail, self.nul]
    }
}

/// A length for a field; what does not fit makes a notice that contradicts itself.
fn short(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn plain<T: IntoBytes + Immutable>(code: i32, fields: &T) -> EncodedNotice<'static> {
    encode(code, fields, &[], &[])
}

fn named<'a, T: IntoBytes + Immutable>(code: i32, fields: &T, name: &'a [u8]) -> EncodedNotice<'a> {
    encode(code, fields, name, &[0])
}

/// A header with `code` in place of an error, the fields, and what follows.
fn encode<'a, T: IntoBytes + Immutable>(
    code: i32,
    fields: &T,
    tail: &'a [u8],
    nul: &'static [u8],
) -> EncodedNotice<'a> {
    const { assert!(REPLY_HEADER_SIZE + size_of::<T>() <= HEAD_MAX) };
    let fields = fields.as_bytes();
    let head_len = REPLY_HEADER_SIZE + fields.len();
    let len = short(head_len.saturating_add(tail.len()).saturating_add(nul.len()));
    let mut head = [0; HEAD_MAX];
    let header = OutHeader { len, error: code, unique: 0 };
    let parts = header.as_bytes().iter().chain(fields);
    head.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
    EncodedNotice { head, head_len, tail, nul }
}
