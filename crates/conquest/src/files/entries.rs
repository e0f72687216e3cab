//! Entries of a directory, one after the other.

use std::borrow::Borrow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use conquest_fs::dir::FileType;

use super::Dir;
use crate::Result;

/// Bytes of entries that are asked for at a time.
const ROOM: usize = 8 << 10;

/// The entries of a directory that was opened for it.
pub type ReadDir = Entries<Dir>;

/// The entries of a directory, without `.` and `..`. One that is there from the beginning of the
/// iteration to its end comes once.
#[derive(Debug)]
pub struct Entries<D> {
    dir: D,
    /// The next ones, the last of them first.
    ahead: Vec<DirEntry>,
    room: Vec<u8>,
    cookie: u64,
    has_ended: bool,
}

/// An entry of a directory: what it was when it was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    name: OsString,
    number: u64,
    file_type: FileType,
    cookie: u64,
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
        self.number
    }

    /// The type of that.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// Where a listing goes on after it: [`Dir::list`].
    #[must_use]
    pub fn cookie(&self) -> u64 {
        self.cookie
    }
}

impl<D: Borrow<Dir>> Entries<D> {
    pub(super) fn new(dir: D) -> Entries<D> {
        Entries { dir, ahead: Vec::new(), room: vec![0; ROOM], cookie: 0, has_ended: false }
    }

    /// The directory.
    pub fn dir(&self) -> &Dir {
        self.dir.borrow()
    }

    fn look_ahead(&mut self) -> Result<()> {
        let before = self.cookie;
        for listed in self.dir.borrow().list(before, &mut self.room)? {
            self.cookie = listed.cookie;
            if !matches!(listed.name, b"." | b"..") {
                self.ahead.push(DirEntry {
                    name: OsStr::from_bytes(listed.name).to_owned(),
                    number: listed.number,
                    file_type: listed.file_type,
                    cookie: listed.cookie,
                });
            }
        }
        self.ahead.reverse();
        self.has_ended = self.cookie == before;
        Ok(())
    }
}

impl<D: Borrow<Dir>> Iterator for Entries<D> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        while self.ahead.is_empty() && !self.has_ended {
            if let Err(error) = self.look_ahead() {
                self.has_ended = true;
                return Some(Err(error));
            }
        }
        self.ahead.pop().map(Ok)
    }
}
