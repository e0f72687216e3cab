//! Entries of a directory, one after the other.

use std::borrow::Borrow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use conquest_fs::dir::FileType;
use conquest_fs::names::Listed;

use super::Dir;
use crate::Result;

/// Entries that are asked for at a time.
const ENTRIES: usize = 256;

/// The entries of a directory that was opened for it.
pub type ReadDir = Entries<Dir>;

/// The entries of a directory, without `.` and `..`. One that is there from the beginning of the
/// iteration to its end comes once.
#[derive(Debug)]
pub struct Entries<D> {
    dir: D,
    /// The next ones, the last of them first.
    ahead: Vec<Listed>,
    cookie: u64,
    has_ended: bool,
}

/// An entry of a directory: what it was when it was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    name: OsString,
    listed: (u64, FileType, u64),
}

impl DirEntry {
    /// The name.
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The name, by itself.
    #[must_use]
    pub fn into_file_name(self) -> OsString {
        self.name
    }

    /// The number of the inode that it names.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.listed.0
    }

    /// The type of that.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.listed.1
    }

    /// Where a listing goes on after it: [`Dir::list`].
    #[must_use]
    pub fn cookie(&self) -> u64 {
        self.listed.2
    }
}

impl<D: Borrow<Dir>> Entries<D> {
    pub(super) fn new(dir: D) -> Entries<D> {
        Entries { dir, ahead: Vec::new(), cookie: 0, has_ended: false }
    }

    /// The directory.
    pub fn dir(&self) -> &Dir {
        self.dir.borrow()
    }

    fn look_ahead(&mut self) -> Result<()> {
        self.ahead = self.dir.borrow().list(self.cookie, ENTRIES)?;
        match self.ahead.last() {
            Some(last) => self.cookie = last.cookie,
            None => self.has_ended = true,
        }
        self.ahead.reverse();
        Ok(())
    }
}

impl<D: Borrow<Dir>> Iterator for Entries<D> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        while !self.has_ended {
            let Some(listed) = self.ahead.pop() else {
                if let Err(error) = self.look_ahead() {
                    self.has_ended = true;
                    return Some(Err(error));
                }
                continue;
            };
            if listed.name != b"." && listed.name != b".." {
                let listed_as = (listed.number, listed.file_type, listed.cookie);
                let name = OsString::from_vec(listed.name);
                return Some(Ok(DirEntry { name, listed: listed_as }));
            }
        }
        None
    }
}
