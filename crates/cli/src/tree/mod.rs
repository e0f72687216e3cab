//! Trees of files, on the host and in a store, behind one set of operations, so that everything
//! that copies, compares or removes is written once.
//!
//! Invariants:
//! - a node stands for one file, whatever becomes of its names: no operation follows a symbolic
//!   link, or walks a path, on its way from a directory to what is in it;
//! - what an operation leaves out it says, as an error number; callers decide what matters.

mod host;
mod remove;
mod store;
mod trail;

pub(crate) use conquest::{FileType, New};
pub(crate) use host::Host;
pub(crate) use remove::remove_all;
pub(crate) use store::Inner;
pub(crate) use trail::Trail;

use core::ops::Range;

use crate::reason::Result;

/// Extended attributes: names and values.
pub(crate) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Flags that both sides can have: those of `FS_IOC_GETFLAGS` that the rules of access know.
pub(crate) const FLAGS: u32 = conquest::flag::OF_DIRECTORY;
/// Of these, those under which a file can't be changed.
pub(crate) const FIXED: u32 = conquest::flag::IMMUTABLE | conquest::flag::APPEND;

/// What is known of a file, without its flags. Times are nanoseconds since 1970; those before 1677
/// or after 2262 count as these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) file_type: FileType,
    /// The low twelve bits of the mode.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Space, in units of 512 bytes.
    pub(crate) blocks: u64,
    /// Major and minor number of a device.
    pub(crate) device: (u32, u32),
    pub(crate) atime: i64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    /// Tells files apart: file system and number.
    pub(crate) id: (u64, u64),
    /// What of its file system is mounted there: changes at mount points.
    pub(crate) mount: u64,
}

impl Meta {
    /// Whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Whether it is a regular file.
    pub(crate) fn is_regular(&self) -> bool {
        self.file_type == FileType::Regular
    }
}

/// The mode of a new file: its low twelve bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bits {
    /// These.
    Exact(u32),
    /// Those of these that the process's mask, or the directory's default list, leaves.
    Masked(u32),
}

/// A tree of files.
pub(crate) trait Tree: Sync {
    /// A file of it.
    type Node: Send + Sync;

    /// The file at `path`, from where such paths begin; a symbolic link there is followed if
    /// `follow`.
    fn find(&self, path: &[u8], follow: bool) -> Result<Self::Node>;
    /// The file called `name` in `directory`. (`..` leads up.)
    fn child(&self, directory: &Self::Node, name: &[u8]) -> Result<Self::Node>;
    /// What is known of `node`.
    fn meta(&self, node: &Self::Node) -> Result<Meta>;
    /// The names in `directory`, in any order, without `.` and `..`.
    fn names(&self, directory: &Self::Node) -> Result<Vec<Vec<u8>>>;
    /// The target of a symbolic link.
    fn target(&self, node: &Self::Node) -> Result<Vec<u8>>;
    /// All attributes that the caller may know, in the order of their names.
    fn attributes(&self, node: &Self::Node) -> Result<Attributes>;
    /// Flags, of [`FLAGS`]; 0 of what can have none.
    fn flags(&self, node: &Self::Node) -> Result<u32>;
    /// Sees to it that the bytes of a regular file may be read, before any are.
    fn open(&self, node: &Self::Node) -> Result<()>;
    /// The next bytes of a regular file from `from` on that are in no hole.
    fn data(&self, node: &Self::Node, from: u64) -> Result<Option<Range<u64>>>;
    /// Reads from byte `at` on: how many, 0 only at the end.
    fn read(&self, node: &Self::Node, at: u64, out: &mut [u8]) -> Result<usize>;

    /// Makes a file.
    fn make(
        &self,
        directory: &Self::Node,
        name: &[u8],
        what: New<'_>,
        bits: Bits,
    ) -> Result<Self::Node>;
    /// Gives `node` the name `name` besides.
    fn link(&self, node: &Self::Node, directory: &Self::Node, name: &[u8]) -> Result<()>;
    /// Renames within a directory; what has the new name loses it.
    fn rename(&self, directory: &Self::Node, old: &[u8], new: &[u8]) -> Result<()>;
    /// Removes a name.
    fn remove(&self, directory: &Self::Node, name: &[u8], is_directory: bool) -> Result<()>;
    /// Writes all of `bytes` from byte `at` on.
    fn write(&self, node: &Self::Node, at: u64, bytes: &[u8]) -> Result<()>;
    /// Sets the size of a regular file.
    fn set_size(&self, node: &Self::Node, size: u64) -> Result<()>;
    /// Sets the low twelve bits of the mode.
    fn set_mode(&self, node: &Self::Node, mode: u32) -> Result<()>;
    /// Sets user and group, those given.
    fn set_owner(&self, node: &Self::Node, uid: Option<u32>, gid: Option<u32>) -> Result<()>;
    /// Sets the times of last access and modification.
    fn set_times(&self, node: &Self::Node, atime: i64, mtime: i64) -> Result<()>;
    /// Sets an attribute, or removes it.
    fn set_attribute(&self, node: &Self::Node, name: &[u8], value: Option<&[u8]>) -> Result<()>;
    /// Sets the flags to those of `flags` that such a file can have.
    fn set_flags(&self, node: &Self::Node, flags: u32) -> Result<()>;
}
