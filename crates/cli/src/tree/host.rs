//! Files of the host.
//!
//! A node is a descriptor that only names its file (`O_PATH`), so that looking at it opens nothing:
//! no device is touched, no pipe is waited for, no symbolic link followed. Its bytes, attributes
//! and times are reached through `/proc/self/fd`, whatever becomes of its names.

use core::ops::Range;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use conquest::flag;
use rustix::fs::{
    self, AtFlags, Dir, FileType as HostType, Gid, IFlags, Mode, OFlags, SeekFrom, StatxFlags,
    Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::{Attributes, Bits, FLAGS, FileType, Meta, New, Tree};
use crate::reason::Result;

/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;
/// Most bytes of an attribute, and of all names of attributes: limits of the kernel.
const ATTRIBUTE_MAX: usize = 1 << 16;

/// The files of the host.
pub(crate) struct Host;

/// A file of the host.
pub(crate) struct HostNode {
    name: OwnedFd,
    /// Opened for its bytes or entries, once that is needed.
    bytes: OnceLock<OwnedFd>,
}

impl HostNode {
    fn new(name: OwnedFd) -> HostNode {
        HostNode { name, bytes: OnceLock::new() }
    }

    /// The file at `path`; a symbolic link there is followed if `follow`.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn open(path: &Path, follow: bool) -> Result<HostNode> {
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        if !follow {
            flags |= OFlags::NOFOLLOW;
        }
        Ok(HostNode::new(fs::open(path, flags, Mode::empty())?))
    }

    /// A path that leads to the file.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.name.as_raw_fd())
    }

    /// A descriptor for its bytes or entries.
    fn bytes(&self) -> Result<BorrowedFd<'_>> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes.as_fd());
        }
        let opened = self.open_again()?;
        Ok(self.bytes.get_or_init(|| opened).as_fd())
    }

    /// Opens the file for reading.
    fn open_again(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let quiet = fs::open(self.path(), flags | OFlags::NOATIME, Mode::empty());
        match quiet {
            // Only an owner may look without being noticed.
            Err(Errno::PERM) => Ok(fs::open(self.path(), flags, Mode::empty())?),
            opened => Ok(opened?),
        }
    }
}

impl Tree for Host {
    type Node = HostNode;

    fn find(&self, path: &[u8], follow: bool) -> Result<HostNode> {
        HostNode::open(Path::new(OsStr::from_bytes(path)), follow)
    }

    fn child(&self, directory: &HostNode, name: &[u8]) -> Result<HostNode> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(HostNode::new(fs::openat(&directory.name, name, flags, Mode::empty())?))
    }

    fn meta(&self, node: &HostNode) -> Result<Meta> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = fs::statx(&node.name, "", AtFlags::EMPTY_PATH, wanted)?;
        let nanoseconds = |time: fs::StatxTimestamp| {
            time.tv_sec.saturating_mul(SECOND).saturating_add(time.tv_nsec.into())
        };
        Ok(Meta {
            file_type: file_type(u32::from(stat.stx_mode)),
            mode: u32::from(stat.stx_mode) & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            links: stat.stx_nlink.into(),
            size: stat.stx_size,
            blocks: stat.stx_blocks,
            device: (stat.stx_rdev_major, stat.stx_rdev_minor),
            atime: nanoseconds(stat.stx_atime),
            mtime: nanoseconds(stat.stx_mtime),
            ctime: nanoseconds(stat.stx_ctime),
            id: (u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor), stat.stx_ino),
            mount: stat.stx_mnt_id,
        })
    }

    fn names(&self, directory: &HostNode) -> Result<Vec<Vec<u8>>> {
        // A descriptor of its own, with a position of its own; by no name, which would need the
        // permission to search.
        let own = directory.open_again()?;
        let mut names = Vec::new();
        for entry in Dir::new(own)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn target(&self, node: &HostNode) -> Result<Vec<u8>> {
        Ok(fs::readlinkat(&node.name, "", Vec::new())?.into_bytes())
    }

    fn attributes(&self, node: &HostNode) -> Result<Attributes> {
        let path = node.path();
        let mut names = vec![0_u8; 1 << 10];
        let len = loop {
            match fs::listxattr(&path, names.as_mut_slice()) {
                Err(Errno::RANGE) if names.len() < ATTRIBUTE_MAX => names.resize(ATTRIBUTE_MAX, 0),
                // A file system without attributes.
                Err(Errno::OPNOTSUPP) => return Ok(Attributes::new()),
                len => break len?,
            }
        };
        let names = names.get(..len).unwrap_or_default();
        let mut found = Attributes::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0_u8; ATTRIBUTE_MAX];
            match fs::getxattr(&path, name, value.as_mut_slice()) {
                Ok(len) => value.truncate(len),
                // Removed meanwhile, or listed although the caller may not know.
                Err(Errno::NODATA) => continue,
                Err(error) => return Err(error.into()),
            }
            value.shrink_to_fit();
            found.push((name.to_vec(), value));
        }
        found.sort();
        Ok(found)
    }

    fn flags(&self, node: &HostNode) -> Result<u32> {
        let mode = fs::statx(&node.name, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?.stx_mode;
        if !matches!(file_type(mode.into()), FileType::Regular | FileType::Directory) {
            return Ok(0);
        }
        match fs::ioctl_getflags(node.bytes()?) {
            Ok(flags) => Ok(flags.bits() & FLAGS),
            Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn open(&self, node: &HostNode) -> Result<()> {
        node.bytes().map(drop)
    }

    fn data(&self, node: &HostNode, from: u64) -> Result<Option<Range<u64>>> {
        let bytes = node.bytes()?;
        let start = match fs::seek(bytes, SeekFrom::Data(from)) {
            Err(Errno::NXIO) => return Ok(None),
            // A file system that knows nothing of holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                let size = self.meta(node)?.size;
                return Ok((from < size).then_some(from..size));
            }
            start => start?,
        };
        match fs::seek(bytes, SeekFrom::Hole(start)) {
            Err(Errno::NXIO) => Ok(None),
            end => Ok(Some(start..end?)),
        }
    }

    fn read(&self, node: &HostNode, at: u64, out: &mut [u8]) -> Result<usize> {
        loop {
            match rustix::io::pread(node.bytes()?, &mut *out, at) {
                Err(Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }

    fn make(
        &self,
        directory: &HostNode,
        name: &[u8],
        what: New<'_>,
        bits: Bits,
    ) -> Result<HostNode> {
        let at = &directory.name;
        let (Bits::Exact(mode) | Bits::Masked(mode)) = bits;
        let wanted = Mode::from_raw_mode(mode);
        if what == New::Regular {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            // Its own descriptor: whoever writes needs no further permission.
            let own = fs::openat(at, name, flags | OFlags::NOFOLLOW, wanted)?;
            if matches!(bits, Bits::Exact(_)) {
                fs::fchmod(&own, wanted)?;
            }
            let node = HostNode::new(own.try_clone()?);
            let _ = node.bytes.set(own);
            return Ok(node);
        }
        let special = |kind, device| fs::mknodat(at, name, kind, wanted, device);
        match what {
            New::Regular => {}
            New::Directory => fs::mkdirat(at, name, wanted)?,
            New::Symlink(target) => fs::symlinkat(target, at, name)?,
            New::Fifo => special(HostType::Fifo, 0)?,
            New::Socket => special(HostType::Socket, 0)?,
            New::Character(major, minor) => {
                special(HostType::CharacterDevice, fs::makedev(major, minor))?;
            }
            New::Block(major, minor) => {
                special(HostType::BlockDevice, fs::makedev(major, minor))?;
            }
        }
        let node = self.child(directory, name)?;
        if matches!(bits, Bits::Exact(_)) && !matches!(what, New::Symlink(_)) {
            self.set_mode(&node, mode)?;
        }
        Ok(node)
    }

    fn link(&self, node: &HostNode, directory: &HostNode, name: &[u8]) -> Result<()> {
        let follow = AtFlags::SYMLINK_FOLLOW;
        Ok(fs::linkat(fs::CWD, node.path(), &directory.name, name, follow)?)
    }

    fn rename(&self, directory: &HostNode, old: &[u8], new: &[u8]) -> Result<()> {
        Ok(fs::renameat(&directory.name, old, &directory.name, new)?)
    }

    fn remove(&self, directory: &HostNode, name: &[u8], is_directory: bool) -> Result<()> {
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        Ok(fs::unlinkat(&directory.name, name, flags)?)
    }

    fn write(&self, node: &HostNode, at: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pwrite(node.bytes()?, rest, at + done as u64) {
                Ok(0) => return Err(Errno::NOSPC.into()),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn set_size(&self, node: &HostNode, size: u64) -> Result<()> {
        Ok(fs::ftruncate(node.bytes()?, size)?)
    }

    fn set_mode(&self, node: &HostNode, mode: u32) -> Result<()> {
        Ok(fs::chmodat(fs::CWD, node.path(), Mode::from_raw_mode(mode), AtFlags::empty())?)
    }

    fn set_owner(&self, node: &HostNode, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        Ok(fs::chownat(&node.name, "", uid, gid, AtFlags::EMPTY_PATH)?)
    }

    fn set_times(&self, node: &HostNode, atime: i64, mtime: i64) -> Result<()> {
        let time = |nanoseconds: i64| Timespec {
            tv_sec: nanoseconds.div_euclid(SECOND),
            tv_nsec: nanoseconds.rem_euclid(SECOND),
        };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        Ok(fs::utimensat(fs::CWD, node.path(), &times, AtFlags::empty())?)
    }

    fn set_attribute(&self, node: &HostNode, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        match value {
            Some(value) => Ok(fs::setxattr(node.path(), name, value, XattrFlags::empty())?),
            None => Ok(fs::removexattr(node.path(), name)?),
        }
    }

    fn set_flags(&self, node: &HostNode, flags: u32) -> Result<()> {
        let possible = match self.meta(node)?.file_type {
            FileType::Directory => flag::OF_DIRECTORY,
            FileType::Regular => flag::OF_REGULAR,
            _ => return Ok(()),
        };
        let bytes = node.bytes()?;
        // What else the file system keeps there stays.
        let old = fs::ioctl_getflags(bytes)?;
        let new = old.bits() & !FLAGS | flags & possible;
        if new != old.bits() {
            fs::ioctl_setflags(bytes, IFlags::from_bits_retain(new))?;
        }
        Ok(())
    }
}

fn file_type(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::Fifo,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::Character,
        libc::S_IFBLK => FileType::Block,
        _ => FileType::Regular,
    }
}
