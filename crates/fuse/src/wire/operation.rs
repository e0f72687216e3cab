//! What a request asks for.

use super::abi::IoctlFlags;
use super::init::Offer;
use super::list::{Forgets, Mappings};
use super::lock::{FileLock, LockKind};
use super::set_attributes::SetAttributes;

/// What a request asks for. The node of the request's header is the directory where there is a
/// name, otherwise the inode itself. Flags of opening, modes, masks and the like are those of the
/// system calls. Names have neither NUL nor are they empty.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Operation<'a> {
    /// Which inode has a name in a directory. Answer: `Entry`; the kernel counts it as a lookup.
    Lookup {
        /// The name.
        name: &'a [u8],
    },
    /// The kernel gives up this many lookups of the node. No answer.
    Forget {
        /// How many lookups are given up.
        lookups: u64,
    },
    /// The same for several nodes. No answer.
    BatchForget(Forgets<'a>),
    /// Attributes; through an open file, if one is at hand. Answer: `AttributesReply`.
    Getattr {
        /// The open file, if one is at hand.
        handle: Option<u64>,
    },
    /// Attributes as `statx` has them. Answer: `StatxReply`.
    Statx(Statx),
    /// Sets attributes. Answer: `AttributesReply`.
    Setattr(SetAttributes),
    /// The target of a symbolic link. Answer: its bytes.
    Readlink,
    /// Makes a symbolic link. Answer: `Entry`.
    Symlink {
        /// The name.
        name: &'a [u8],
        /// Where it leads.
        target: &'a [u8],
    },
    /// Makes a file of any type but a directory or a symbolic link. `device` is a word of
    /// `DeviceNumber`. Answer: `Entry`.
    Mknod {
        /// The name.
        name: &'a [u8],
        /// `st_mode`, the type included.
        mode: u32,
        /// The caller's umask.
        umask: u32,
        /// The device, a word of `DeviceNumber`.
        device: u32,
    },
    /// Makes a directory. Answer: `Entry`.
    Mkdir {
        /// The name.
        name: &'a [u8],
        /// `st_mode`, the type included.
        mode: u32,
        /// The caller's umask.
        umask: u32,
    },
    /// Removes the name of something that is no directory. Answer: empty.
    Unlink {
        /// The name.
        name: &'a [u8],
    },
    /// Removes an empty directory. Answer: empty.
    Rmdir {
        /// The name.
        name: &'a [u8],
    },
    /// Renames; `flags` are those of `renameat2`. Answer: empty.
    Rename {
        /// The name.
        name: &'a [u8],
        /// The directory of the new name.
        new_parent: u64,
        /// The new name.
        new_name: &'a [u8],
        /// Flags of `renameat2`.
        flags: u32,
    },
    /// Gives `node` a further name. Answer: `Entry`.
    Link {
        /// What gets the name.
        node: u64,
        /// The name.
        name: &'a [u8],
    },
    /// Opens what is no directory. Answer: `Opened`.
    Open {
        /// Flags of opening.
        flags: u32,
        /// Whether set-id bits are to go, because the file is cut.
        kill_suidgid: bool,
    },
    /// Reads. Answer: bytes; fewer than asked for only at the end.
    Read(Read),
    /// Writes. Answer: `Written`.
    Write(Write<'a>),
    /// Sizes of the file system. Answer: `StatFs`.
    Statfs,
    /// The last descriptor of an open file is closed; locks of `flock_owner` go if it is given.
    /// Answer: empty.
    Release {
        /// The open file.
        handle: u64,
        /// Flags of opening.
        flags: u32,
        /// Whether it is to be flushed.
        flush: bool,
        /// Whose `flock` locks are to go.
        flock_owner: Option<u64>,
    },
    /// Makes an open file durable. Answer: empty.
    Fsync {
        /// The open file.
        handle: u64,
        /// Whether its bytes are enough, without its times.
        data_only: bool,
    },
    /// Sets an extended attribute. Answer: empty.
    Setxattr {
        /// The attribute's name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// Flags of `setxattr`.
        flags: u32,
        /// Whether the set-group-id bit is to go, because of an access list.
        acl_kill_sgid: bool,
    },
    /// An extended attribute. Answer: its bytes, or `XattrSize` if `size` is 0.
    Getxattr {
        /// The attribute's name.
        name: &'a [u8],
        /// Bytes that fit; 0 asks how many are needed.
        size: u32,
    },
    /// Names of extended attributes. Answer: each with a NUL, or `XattrSize` if `size` is 0.
    Listxattr {
        /// Bytes that fit; 0 asks how many are needed.
        size: u32,
    },
    /// Removes an extended attribute. Answer: empty.
    Removexattr {
        /// The attribute's name.
        name: &'a [u8],
    },
    /// A descriptor is closed; POSIX locks of the owner go. Answer: empty.
    Flush {
        /// The open file.
        handle: u64,
        /// Whose locks are to go.
        lock_owner: u64,
    },
    /// The first request. Answer: `InitReply`.
    Init(Offer),
    /// Opens a directory. Answer: `Opened`.
    Opendir {
        /// Flags of opening.
        flags: u32,
        /// Never said of directories.
        kill_suidgid: bool,
    },
    /// Entries of a directory after a position. Answer: a `Listing`.
    Readdir(Read),
    /// Entries with attributes, each but `.` and `..` counted as a lookup. Answer: a `Listing`.
    Readdirplus(Read),
    /// The last descriptor of an open directory is closed. Answer: empty.
    Releasedir {
        /// The open file.
        handle: u64,
        /// Flags of opening.
        flags: u32,
    },
    /// Makes an open directory durable. Answer: empty.
    Fsyncdir {
        /// The open file.
        handle: u64,
        /// Whether its bytes are enough, without its times.
        data_only: bool,
    },
    /// What is in the way of a lock. Answer: `FileLock`.
    Getlk(Lock),
    /// Takes or gives up a lock, at once. Answer: empty.
    Setlk(Lock),
    /// Takes a lock, as soon as it can be had. Answer: empty.
    Setlkw(Lock),
    /// Whether the caller may access something; bits as of `access`. Answer: empty.
    Access {
        /// The bits.
        mask: u32,
    },
    /// Makes a regular file if there is none, and opens it. Answer: `Created`.
    Create(Create<'a>),
    /// Makes a regular file without a name and opens it. Answer: `Created`.
    Tmpfile {
        /// `st_mode`, the type included.
        mode: u32,
        /// The caller's umask.
        umask: u32,
        /// Flags of opening.
        flags: u32,
        /// Whether set-id bits are to go, because the file is cut.
        kill_suidgid: bool,
    },
    /// The caller of request `unique` was signalled. Answer: none, or the error `EAGAIN` if the
    /// request is not known, after which the kernel tells again while it waits.
    Interrupt {
        /// The number of that request.
        unique: u64,
    },
    /// Where a block is on a device. Answer: `Block`.
    Bmap {
        /// The block of the file.
        block: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// The file system is unmounted. Answer: empty.
    Destroy,
    /// A control of an open file. Answer: `IoctlReply` and bytes.
    Ioctl(Ioctl<'a>),
    /// What an open file is ready for; with `wants_notice`, a notice about `kernel_handle` is to be
    /// sent when that has changed. Answer: `Polled`.
    Poll {
        /// The open file.
        handle: u64,
        /// What a notice has to name.
        kernel_handle: u64,
        /// What is waited for, bits as of `poll`.
        events: u32,
        /// Whether a notice is wanted.
        wants_notice: bool,
    },
    /// The bytes that a notice has asked for. No answer.
    NotifyReply {
        /// From where.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// Allocates or frees space of an open file; `mode` is that of `fallocate`. Answer: empty.
    Fallocate {
        /// The open file.
        handle: u64,
        /// From where.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// Flags of `fallocate`.
        mode: u32,
    },
    /// Seeks, where the file system has to be asked: data and holes. Answer: `Position`.
    Lseek {
        /// The open file.
        handle: u64,
        /// From where.
        offset: u64,
        /// `SEEK_DATA`, `SEEK_HOLE` or another way to seek.
        whence: u32,
    },
    /// Copies bytes between two open files. Answer: `Written`.
    CopyFileRange(CopyRange),
    /// The same. Answer: `RangeCopied`.
    CopyFileRange64(CopyRange),
    /// Maps a part of a file into the memory window of a guest. Answer: empty.
    Setupmapping {
        /// The open file.
        handle: u64,
        /// From where.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// Bit 0 to write, bit 1 to read.
        flags: u64,
        /// Where it begins in the window.
        memory_offset: u64,
    },
    /// Unmaps parts of the memory window. Answer: empty.
    Removemapping(Mappings<'a>),
    /// Makes the file system durable. Answer: empty. Linux 6.18 does not ask ordinary mounts.
    Syncfs,
    /// Something that this version does not have. Answer: the error `ENOSYS`.
    Unknown {
        /// Its number.
        opcode: u32,
        /// Its bytes after the header.
        body: &'a [u8],
    },
}

/// Attributes as `statx` asks for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statx {
    /// Through which open file, if one is at hand.
    pub handle: Option<u64>,
    /// `AT_STATX_FORCE_SYNC`, `AT_STATX_DONT_SYNC` or none of them.
    pub flags: u32,
    /// Bits `STATX_*` of what is wanted.
    pub mask: u32,
}

/// A part of an open file or directory that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// The open file.
    pub handle: u64,
    /// From where: a byte, or a position of an entry that was told before.
    pub offset: u64,
    /// Bytes that fit.
    pub size: u32,
    /// Whose locks are to be respected.
    pub lock_owner: Option<u64>,
    /// Flags of the open file.
    pub flags: u32,
}

/// Bytes to write to an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write<'a> {
    /// The open file.
    pub handle: u64,
    /// From where.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// Whether they come from the page cache, later than they were written. The caller is then
    /// not known, and the handle is any that is open for writing.
    pub cached: bool,
    /// Whether set-id bits are to go.
    pub kill_suidgid: bool,
    /// Whose locks are to be respected.
    pub lock_owner: Option<u64>,
    /// Flags of the open file.
    pub flags: u32,
}

/// A lock that is asked about or wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock {
    /// The open file.
    pub handle: u64,
    /// Whose lock it is.
    pub owner: u64,
    /// Which locks see it.
    pub kind: LockKind,
    /// The lock.
    pub lock: FileLock,
}

/// A regular file to make and to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Create<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// `st_mode`, the type included.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Flags of opening.
    pub flags: u32,
    /// Whether set-id bits are to go, if the file is there and is cut.
    pub kill_suidgid: bool,
}

/// A control of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ioctl<'a> {
    /// The open file.
    pub handle: u64,
    /// How it was called.
    pub flags: IoctlFlags,
    /// Which control.
    pub command: u32,
    /// Its argument: a number, or an address of the caller.
    pub argument: u64,
    /// Bytes of the caller.
    pub data: &'a [u8],
    /// Bytes that the caller has room for.
    pub out_size: u32,
}

/// Bytes to copy from one open file to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyRange {
    /// The open file to copy from, of the header's node.
    pub handle_in: u64,
    /// From where.
    pub offset_in: u64,
    /// The node to copy to.
    pub node_out: u64,
    /// The open file to copy to.
    pub handle_out: u64,
    /// To where.
    pub offset_out: u64,
    /// How many bytes.
    pub length: u64,
    /// Flags of `copy_file_range`.
    pub flags: u64,
}
