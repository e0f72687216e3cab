//! Listing a directory.

use core::ops::ControlFlow;

use conquest_format::fs::dentry::NAME_MAX;
use conquest_format::inode::FileType;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::dir::Position;
use crate::inode::{FileId, directory, load, number_of};
use crate::{Errno, FileSystem, Reader, Result};

/// Cookie of `.`.
const SELF: u64 = 1;
/// Cookie of `..`.
const PARENT: u64 = 2;
/// Cookie of the entry at position 0.
const FIRST: u64 = 3;

/// Bytes of an entry in a [`Listing`] before its name: number, cookie, type, length of the name.
const HEAD: usize = 18;
/// Bytes that an entry takes at most of what [`FileSystem::list`] fills.
pub const LISTED_MAX: usize = HEAD + NAME_MAX as usize;

/// An entry of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed<'b> {
    /// The number of what it names.
    pub number: u64,
    /// The type of that.
    pub file_type: FileType,
    /// Where the listing goes on after this entry: below 2^53, and the same as long as the entry is
    /// there.
    pub cookie: u64,
    /// Its name.
    pub name: &'b [u8],
}

/// Entries of a directory, in the caller's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Listing<'b>(&'b [u8]);

impl<'b> Iterator for Listing<'b> {
    type Item = Listed<'b>;

    fn next(&mut self) -> Option<Listed<'b>> {
        let (number, rest) = self.0.split_first_chunk()?;
        let (cookie, rest) = rest.split_first_chunk()?;
        let (&[file_type, len], rest) = rest.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(len.into())?;
        self.0 = rest;
        Some(Listed {
            number: u64::from_le_bytes(*number),
            file_type: FileType::new(file_type)?,
            cookie: u64::from_le_bytes(*cookie),
            name,
        })
    }
}

/// Memory that a listing is put into.
struct Room<'b> {
    bytes: &'b mut [u8],
    used: usize,
}

impl Room<'_> {
    /// Puts `entry` behind the others; breaks off if there is no room.
    fn put(&mut self, entry: &Listed<'_>) -> ControlFlow<()> {
        let end = self.used + HEAD + entry.name.len();
        let Some(mut out) = self.bytes.get_mut(self.used..end) else {
            return ControlFlow::Break(());
        };
        let kind = [entry.file_type.number(), entry.name.len() as u8];
        let parts: [&[u8]; 4] =
            [&entry.number.to_le_bytes(), &entry.cookie.to_le_bytes(), &kind, entry.name];
        for part in parts {
            if let Some(to) = out.split_off_mut(..part.len()) {
                to.copy_from_slice(part);
            }
        }
        self.used = end;
        ControlFlow::Continue(())
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// The entries of `directory_id` after the one with `cookie`, 0 for the beginning, as many as
    /// `out` has room for; `.` and `..` come first, the others in the order of their cookies. None
    /// are left if there are none. An entry that is there from the first call to the last is listed
    /// once. Whether the caller may read the directory was asked when it was opened.
    ///
    /// A removed directory has no entries.
    ///
    /// # Errors
    /// `EINVAL` if there is no room for one entry ([`LISTED_MAX`] bytes are always enough);
    /// `ENOTDIR`; [`crate::Error::Stale`]; those of the region.
    pub fn list<'b>(
        &self,
        directory_id: FileId,
        cookie: u64,
        out: &'b mut [u8],
    ) -> Result<Listing<'b>> {
        let used = self.read_to(directory_id.number, out, |view, out| {
            let mut room = Room { bytes: out, used: 0 };
            match self.list_to(view, directory_id, cookie, &mut room)? {
                ControlFlow::Break(()) if room.used == 0 => Err(Errno::EINVAL.into()),
                _ => Ok(room.used),
            }
        })?;
        Ok(Listing(out.get(..used).unwrap_or_default()))
    }

    /// Puts the entries of `directory_id` after the one with `cookie` into `room`; breaks off if
    /// that was not enough.
    fn list_to(
        &self,
        view: &impl Reader,
        directory_id: FileId,
        cookie: u64,
        room: &mut Room<'_>,
    ) -> Result<ControlFlow<()>> {
        let (inode, _) = load(view, directory_id)?;
        if inode.file_type != FileType::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        if inode.links.count == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        let dots: [(u64, u64, &[u8]); 2] =
            [(SELF, directory_id.number, b"."), (PARENT, inode.parent, b"..")];
        for (own, number, name) in dots.into_iter().filter(|&(own, ..)| own > cookie) {
            let entry = Listed { number, file_type: FileType::Directory, cookie: own, name };
            if room.put(&entry).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let after = match cookie.checked_sub(FIRST) {
            None => None,
            Some(number) => match Position::from_number(number) {
                None => return Ok(ControlFlow::Continue(())),
                after => after,
            },
        };
        let mut left = ControlFlow::Continue(());
        let mut impossible = None;
        directory(directory_id, self.key())?.list(view, after, |entry, name| {
            let number = match number_of(entry.inode) {
                Ok(number) => number,
                Err(error) => {
                    impossible = Some(error);
                    return ControlFlow::Break(());
                }
            };
            let cookie = FIRST + entry.position.number();
            left = room.put(&Listed { number, file_type: entry.file_type, cookie, name });
            left
        })?;
        impossible.map_or(Ok(left), |error| Err(error.into()))
    }
}
