//! Files in a store.

use core::ops::Range;

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use conquest::{
    Access, AclKind, Credentials, Errno, FileId, Files, Last, Metadata, Placed, Removal, Renaming,
    SetTime, Setting, Stat, Store, flag,
};

use super::{Attributes, Bits, FLAGS, FileType, Meta, New, Tree};
use crate::reason::Result;

/// Bytes of entries that a listing asks for at a time.
const LISTING: usize = 32 << 10;

/// The files of a store, as the process sees them.
#[derive(Clone)]
pub(crate) struct Inner {
    files: Files,
    /// The same for who makes files whose modes are not masked.
    unmasked: Files,
}

/// A path in a store.
fn path(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

impl Inner {
    /// The files of `store` as the process sees them.
    ///
    /// # Errors
    /// If it can't be found out who the process is.
    pub(crate) fn new(store: &Store) -> Result<Inner> {
        let who = crate::who::am_i()?;
        let files = store.files_as(who.clone());
        let unmasked = files.acting_as(Credentials { umask: 0, ..who.clone() });
        Ok(Inner { files, unmasked })
    }

    /// The root directory.
    pub(crate) fn root(&self) -> FileId {
        self.files.root()
    }

    /// The directory and the last name that `path` leads to.
    ///
    /// # Errors
    /// Those of walks.
    pub(crate) fn parent<'p>(&self, bytes: &'p [u8]) -> Result<(FileId, Last<'p>)> {
        Ok(self.files.find_parent(path(bytes))?)
    }

    /// What `stat` tells.
    pub(crate) fn stat(&self, file: FileId) -> Result<Stat> {
        Ok(*self.files.node(file).metadata()?.stat())
    }

    /// Where the content of a regular file is kept.
    pub(crate) fn placement(&self, file: FileId, threshold: u64) -> Result<Placed> {
        Ok(self.files.node(file).placement(threshold)?)
    }

    /// Whether a file has an access list, of either kind.
    pub(crate) fn has_access_list(&self, file: FileId) -> bool {
        let node = self.files.node(file);
        [AclKind::Access, AclKind::Default]
            .into_iter()
            .any(|kind| node.attribute_to(OsStr::from_bytes(kind.attribute()), &mut []).is_ok())
    }

    /// Renames what is at the path `old` to `new`.
    pub(crate) fn rename_path(&self, old: &[u8], new: &[u8], how: Renaming) -> Result<()> {
        Ok(self.files.rename_with(path(old), path(new), how)?)
    }

    fn may_read(&self, file: FileId) -> Result<()> {
        Ok(self.files.node(file).access(Access::READ)?)
    }
}

impl Tree for Inner {
    type Node = FileId;

    fn find(&self, bytes: &[u8], follow: bool) -> Result<FileId> {
        Ok(self.files.find(path(bytes), follow)?.id())
    }

    fn child(&self, directory: &FileId, name: &[u8]) -> Result<FileId> {
        Ok(self.files.node(*directory).lookup(name)?.ok_or(Errno::ENOENT)?.0)
    }

    fn meta(&self, node: &FileId) -> Result<Meta> {
        Ok(meta(&self.files.node(*node).metadata()?))
    }

    fn names(&self, directory: &FileId) -> Result<Vec<Vec<u8>>> {
        self.may_read(*directory)?;
        let mut names = Vec::new();
        let mut room = vec![0; LISTING];
        let mut cookie = 0;
        loop {
            let before = cookie;
            for entry in self.files.node(*directory).list(cookie, &mut room)? {
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
        Ok(self.files.node(*node).read_link()?.into_os_string().into_vec())
    }

    fn attributes(&self, node: &FileId) -> Result<Attributes> {
        let file = self.files.node(*node);
        let mut found = Attributes::new();
        for name in file.attributes()? {
            match file.attribute(&name) {
                Ok(value) => found.push((name.into_vec(), value)),
                // Removed meanwhile.
                Err(error) if error.raw_os_error() == Errno::ENODATA.number() => {}
                Err(error) => return Err(error.into()),
            }
        }
        found.sort();
        Ok(found)
    }

    fn flags(&self, node: &FileId) -> Result<u32> {
        Ok(self.stat(*node)?.flags & FLAGS)
    }

    fn open(&self, node: &FileId) -> Result<()> {
        self.may_read(*node)
    }

    fn data(&self, node: &FileId, from: u64) -> Result<Option<Range<u64>>> {
        let file = self.files.node(*node);
        let Some(start) = file.next_data(from)? else {
            return Ok(None);
        };
        // There is none if it was cut off meanwhile.
        Ok(file.next_hole(start)?.map(|end| start..end))
    }

    fn read(&self, node: &FileId, at: u64, out: &mut [u8]) -> Result<usize> {
        Ok(self.files.node(*node).read_at(out, at)?)
    }

    fn make(&self, directory: &FileId, name: &[u8], what: New<'_>, bits: Bits) -> Result<FileId> {
        let (files, mode) = match bits {
            Bits::Exact(mode) => (&self.unmasked, mode),
            Bits::Masked(mode) => (&self.files, mode),
        };
        Ok(files.node(*directory).make(name, what, mode)?)
    }

    fn link(&self, node: &FileId, directory: &FileId, name: &[u8]) -> Result<()> {
        Ok(self.files.node(*directory).link(name, *node)?)
    }

    fn rename(&self, directory: &FileId, old: &[u8], new: &[u8]) -> Result<()> {
        let at = *directory;
        Ok(self.files.node(at).rename(old, at, new, Renaming::Replace)?)
    }

    fn remove(&self, directory: &FileId, name: &[u8], is_directory: bool) -> Result<()> {
        let how = if is_directory { Removal::Directory } else { Removal::File };
        Ok(self.files.node(*directory).remove(name, how)?)
    }

    fn write(&self, node: &FileId, at: u64, bytes: &[u8]) -> Result<()> {
        let file = self.files.node(*node);
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match file.write_at(rest, at + done as u64)? {
                0 => return Err(Errno::ENOSPC.into()),
                written => done += written,
            }
        }
        Ok(())
    }

    fn set_size(&self, node: &FileId, size: u64) -> Result<()> {
        Ok(self.files.node(*node).set_len(size)?)
    }

    fn set_mode(&self, node: &FileId, mode: u32) -> Result<()> {
        Ok(self.files.node(*node).set_permissions(mode)?)
    }

    fn set_owner(&self, node: &FileId, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        Ok(self.files.node(*node).set_owner(uid, gid)?)
    }

    fn set_times(&self, node: &FileId, atime: i64, mtime: i64) -> Result<()> {
        let (atime, mtime) = (SetTime::At(atime), SetTime::At(mtime));
        Ok(self.files.node(*node).set_times(atime, mtime)?)
    }

    fn set_attribute(&self, node: &FileId, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let (file, name) = (self.files.node(*node), OsStr::from_bytes(name));
        match value {
            Some(value) => Ok(file.set_attribute(name, value, Setting::Any)?),
            None => Ok(file.remove_attribute(name)?),
        }
    }

    fn set_flags(&self, node: &FileId, flags: u32) -> Result<()> {
        let possible = match self.meta(node)?.file_type {
            FileType::Directory => flag::OF_DIRECTORY,
            FileType::Regular => flag::OF_REGULAR,
            _ => flag::OF_ANY,
        };
        Ok(self.files.node(*node).set_flags(flags & possible, None)?)
    }
}

/// What `stat` says, as both trees have it.
fn meta(found: &Metadata) -> Meta {
    let stat = found.stat();
    Meta {
        file_type: found.file_type(),
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
    }
}
