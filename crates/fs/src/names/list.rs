//! Listing a directory.

use core::ops::ControlFlow;

use conquest_format::inode::FileType;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::dir::Position;
use crate::inode::{FileId, directory, load, number_of};
use crate::{Errno, FileSystem, Result};

/// Cookie of `.`.
const SELF: u64 = 1;
/// Cookie of `..`.
const PARENT: u64 = 2;
/// Cookie of the entry at position 0.
const FIRST: u64 = 3;

/// An entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The number of what it names.
    pub number: u64,
    /// The type of that.
    pub file_type: FileType,
    /// Where the listing goes on after this entry: below 2^53, and the same as long as the entry is
    /// there.
    pub cookie: u64,
    /// Its name.
    pub name: Vec<u8>,
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Up to `most` entries of `directory_id` after the one with `cookie`, 0 for the beginning; `.`
    /// and `..` come first, the others in the order of their cookies. An entry that is there from
    /// the first call to the last is listed once. Whether the caller may read the directory was
    /// asked when it was opened.
    ///
    /// A removed directory has no entries.
    ///
    /// # Errors
    /// `ENOTDIR`; [`crate::Error::Stale`].
    pub fn list(&self, directory_id: FileId, cookie: u64, most: usize) -> Result<Vec<Listed>> {
        self.read(directory_id.number, |view| {
            let mut listed = Vec::new();
            let (inode, _) = load(view, directory_id)?;
            if inode.file_type != FileType::Directory {
                return Err(Errno::ENOTDIR.into());
            }
            if inode.links.count == 0 {
                return Ok(listed);
            }
            let dots = [(SELF, directory_id.number, "."), (PARENT, inode.parent, "..")];
            for (own, number, name) in dots.into_iter().filter(|&(own, ..)| own > cookie) {
                let name = name.as_bytes().to_vec();
                listed.push(Listed { number, file_type: FileType::Directory, cookie: own, name });
            }
            listed.truncate(most);
            let after = match cookie.checked_sub(FIRST) {
                None => None,
                Some(number) => match Position::from_number(number) {
                    None => return Ok(listed),
                    after => after,
                },
            };
            if listed.len() == most {
                return Ok(listed);
            }
            let mut impossible = None;
            directory(directory_id, self.key())?.list(view, after, |entry, name| {
                match number_of(entry.inode) {
                    Ok(number) => listed.push(Listed {
                        number,
                        file_type: entry.file_type,
                        cookie: FIRST + entry.position.number(),
                        name: name.to_vec(),
                    }),
                    Err(error) => impossible = Some(error),
                }
                match listed.len() < most && impossible.is_none() {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })?;
            impossible.map_or(Ok(listed), |error| Err(error.into()))
        })
    }
}
