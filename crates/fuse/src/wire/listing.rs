//! Entries of a directory, for READDIR and READDIRPLUS.

use zerocopy::IntoBytes;

use super::abi::{Dirent, Direntplus, padded};
use super::reply::Entry;

/// Entries of a directory in a buffer of the size that was asked for.
///
/// A listing has either entries or entries with attributes. The kernel takes names of 1 to 1024
/// bytes without slashes; others make the whole listing an error for its caller.
#[derive(Debug)]
pub struct Listing<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Listing<'a> {
    /// An empty one that may grow as long as `buffer`.
    #[must_use]
    pub const fn new(buffer: &'a mut [u8]) -> Listing<'a> {
        Listing { buffer, len: 0 }
    }

    /// Adds an entry: the number and the type (as `d_type`) of its inode, and the position after
    /// it, from which the kernel may ask to go on. If it does not fit, nothing is added and the
    /// result is false.
    #[must_use]
    pub fn push(&mut self, number: u64, next: u64, file_type: u8, name: &[u8]) -> bool {
        self.put(&dirent(number, next, file_type, name), name)
    }

    /// Adds an entry with what its name stands for, likewise. The type is that of the attributes'
    /// mode. The kernel counts it as a lookup, except if its node is 0, the name `.` or `..`.
    #[must_use]
    pub fn push_plus(
        &mut self,
        entry: &Entry,
        number: u64,
        next: u64,
        file_type: u8,
        name: &[u8],
    ) -> bool {
        let dirent = dirent(number, next, file_type, name);
        self.put(&Direntplus { entry: entry.to_wire(), dirent }, name)
    }

    /// The reply's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }

    /// Whether it has no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn put<T: IntoBytes + zerocopy::Immutable>(&mut self, head: &T, name: &[u8]) -> bool {
        let head = head.as_bytes();
        let named = head.len().saturating_add(name.len());
        let room = self.buffer.get_mut(self.len..).unwrap_or_default();
        let Some(place) = room.get_mut(..padded(named)) else {
            return false;
        };
        let (to_head, rest) = place.split_at_mut(head.len());
        let (to_name, to_padding) = rest.split_at_mut(name.len());
        to_head.copy_from_slice(head);
        to_name.copy_from_slice(name);
        to_padding.fill(0);
        self.len += padded(named);
        true
    }
}

fn dirent(number: u64, next: u64, file_type: u8, name: &[u8]) -> Dirent {
    let name_len = u32::try_from(name.len()).unwrap_or(u32::MAX);
    Dirent { number, offset: next, name_len, file_type: file_type.into() }
}
