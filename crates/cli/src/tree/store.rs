//! Files in a store.

use core::ops::Range;

use conquest_access::{Credentials, Errno, Removal, flag};
use conquest_fs::attributes::{SetTime, Stat};
use conquest_fs::content::{Seek, WriteAt};
use conquest_fs::names::{New, Renaming};
use conquest_fs::paths::Path;
use conquest_fs::walk::{Base, PATH_MAX, Parent};
use conquest_fs::xattr::{Setting, whole};
use conquest_fs::{Error, FileId};

use super::{Attributes, Bits, FLAGS, FileType, Meta, Tree};
use crate::reason::{Reason, Result};

/// Bytes of entries that a listing asks for at a time.
const LISTING: usize = 32 << 10;

/// The files of a store, as `who` sees them.
pub(crate) struct Inner<'s> {
    /// The file system.
    pub(crate) fs: &'s conquest::Fs,
    /// Who makes the calls.
    who: Credentials<'s>,
}

impl<'s> Inner<'s> {
    /// The files of `fs` as the process sees them.
    pub(crate) fn new(fs: &'s conquest::Fs) -> Inner<'s> {
        Inner { fs, who: crate::who::am_i() }
    }

    /// The beginning of paths.
    fn base(&self) -> Base {
        Base::new(self.fs.root(), self.fs.root())
    }

    /// The directory and the last name that `path` leads to.
    ///
    /// # Errors
    /// Those of walks.
    pub(crate) fn parent<'p>(&self, path: &'p [u8]) -> Result<Parent<'p>> {
        Ok(self.fs.walk_to_parent(&self.who, &self.base(), path)?)
    }

    /// Who makes the calls.
    pub(crate) fn who(&self) -> &Credentials<'s> {
        &self.who
    }

    /// What `stat` tells.
    pub(crate) fn stat(&self, file: FileId) -> Result<Stat> {
        Ok(self.fs.stat(file)?.seen_by(&self.who))
    }

    fn may_read(&self, file: FileId) -> Result<()> {
        Ok(self.fs.may(&self.who, file, conquest_access::Access::READ)?)
    }
}

impl Tree for Inner<'_> {
    type Node = FileId;

    fn find(&self, path: &[u8], follow: bool) -> Result<FileId> {
        let base = self.base();
        Ok(self.fs.find(&self.who, Path { base: &base, bytes: path }, follow)?)
    }

    fn child(&self, directory: &FileId, name: &[u8]) -> Result<FileId> {
        let found = self.fs.lookup(&self.who, *directory, name)?;
        Ok(found.ok_or(Errno::ENOENT)?.0)
    }

    fn meta(&self, node: &FileId) -> Result<Meta> {
        meta(&self.stat(*node)?)
    }

    fn names(&self, directory: &FileId) -> Result<Vec<Vec<u8>>> {
        self.may_read(*directory)?;
        let mut names = Vec::new();
        let mut room = vec![0; LISTING];
        let mut cookie = 0;
        loop {
            let before = cookie;
            for entry in self.fs.list(*directory, cookie, &mut room)? {
                cookie = entry.cookie;
                if !matches!(entry.name, b"." | b"..") {
                    names.push(entry.name.to_vec());
                }
            }
            if cookie == before {
                return Ok(names);
            }
        }
    }

    fn target(&self, node: &FileId) -> Result<Vec<u8>> {
        let mut target = vec![0; PATH_MAX];
        let len = self.fs.read_link(*node, &mut target)?;
        target.truncate(len);
        Ok(target)
    }

    fn attributes(&self, node: &FileId) -> Result<Attributes> {
        let mut found = Attributes::new();
        let names = whole(|out| self.fs.attributes(&self.who, *node, out))?;
        for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            match whole(|out| self.fs.attribute(&self.who, *node, name, out)) {
                Ok(value) => found.push((name.to_vec(), value)),
                // Removed meanwhile.
                Err(error) if error.errno() == Errno::ENODATA => {}
                Err(error) => return Err(error.into()),
            }
        }
        found.sort();
        Ok(found)
    }

    fn flags(&self, node: &FileId) -> Result<u32> {
        Ok(self.fs.stat(*node)?.flags & FLAGS)
    }

    fn open(&self, node: &FileId) -> Result<()> {
        self.may_read(*node)
    }

    fn data(&self, node: &FileId, from: u64) -> Result<Option<Range<u64>>> {
        let start = match self.fs.seek(*node, Seek::Data, from) {
            Err(error) if error.errno() == Errno::ENXIO => return Ok(None),
            found => found?,
        };
        match self.fs.seek(*node, Seek::Hole, start) {
            // It was cut off meanwhile.
            Err(error) if error.errno() == Errno::ENXIO => Ok(None),
            end => Ok(Some(start..end?)),
        }
    }

    fn read(&self, node: &FileId, at: u64, out: &mut [u8]) -> Result<usize> {
        Ok(self.fs.read_file(*node, at, out)?)
    }

    fn make(&self, directory: &FileId, name: &[u8], what: New<'_>, bits: Bits) -> Result<FileId> {
        let (who, mode) = match bits {
            Bits::Exact(mode) => (Credentials { umask: 0, ..self.who }, mode),
            Bits::Masked(mode) => (self.who, mode),
        };
        Ok(self.fs.create(&who, *directory, name, what, (mode & 0o7777) as u16)?)
    }

    fn link(&self, node: &FileId, directory: &FileId, name: &[u8]) -> Result<()> {
        Ok(self.fs.link(&self.who, *node, *directory, name)?)
    }

    fn rename(&self, directory: &FileId, old: &[u8], new: &[u8]) -> Result<()> {
        let at = *directory;
        Ok(self.fs.rename(&self.who, at, old, at, new, Renaming::Replace)?)
    }

    fn remove(&self, directory: &FileId, name: &[u8], is_directory: bool) -> Result<()> {
        let how = if is_directory { Removal::Directory } else { Removal::File };
        Ok(self.fs.remove(&self.who, *directory, name, how)?)
    }

    fn write(&self, node: &FileId, at: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let place = WriteAt::Offset(at + done as u64);
            match self.fs.write(&self.who, *node, place, rest)?.1 {
                0 => return Err(Errno::ENOSPC.into()),
                written => done += written as usize,
            }
        }
        Ok(())
    }

    fn set_size(&self, node: &FileId, size: u64) -> Result<()> {
        Ok(self.fs.truncate_open(&self.who, *node, size)?)
    }

    fn set_mode(&self, node: &FileId, mode: u32) -> Result<()> {
        Ok(self.fs.set_mode(&self.who, *node, mode)?)
    }

    fn set_owner(&self, node: &FileId, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        Ok(self.fs.set_owner(&self.who, *node, uid, gid)?)
    }

    fn set_times(&self, node: &FileId, atime: i64, mtime: i64) -> Result<()> {
        let (atime, mtime) = (SetTime::At(atime), SetTime::At(mtime));
        Ok(self.fs.set_times(&self.who, *node, atime, mtime)?)
    }

    fn set_attribute(&self, node: &FileId, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        match value {
            Some(value) => {
                Ok(self.fs.set_attribute(&self.who, *node, name, value, Setting::Any)?)
            }
            None => Ok(self.fs.remove_attribute(&self.who, *node, name)?),
        }
    }

    fn set_flags(&self, node: &FileId, flags: u32) -> Result<()> {
        let possible = match meta(&self.fs.stat(*node)?)?.file_type {
            FileType::Directory => flag::OF_DIRECTORY,
            FileType::Regular => flag::OF_REGULAR,
            _ => flag::OF_ANY,
        };
        Ok(self.fs.set_flags(&self.who, *node, flags & possible, None)?)
    }
}

/// What `stat` says, as both trees have it.
///
/// # Errors
/// `EIO` for a type that no file has.
pub(crate) fn meta(stat: &Stat) -> Result<Meta> {
    let file_type = FileType::new((stat.mode >> 12) as u8);
    Ok(Meta {
        file_type: file_type.ok_or(Reason::Files(Error::Refused(Errno::EIO)))?,
        mode: stat.mode & 0o7777,
        uid: stat.uid,
        gid: stat.gid,
        links: stat.links.into(),
        size: stat.size,
        blocks: stat.blocks,
        device: stat.device,
        atime: stat.atime,
        mtime: stat.mtime,
        ctime: stat.ctime,
        id: (0, stat.file.number),
        mount: 0,
    })
}
