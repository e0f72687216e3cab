//! Structures of requests.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Before every request.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct InHeader {
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    pub(crate) extensions_len: u16,
    pub(crate) _padding: u16,
}

/// Of FORGET.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ForgetIn {
    pub(crate) lookups: u64,
}

/// Of BATCH_FORGET.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct BatchForgetIn {
    pub(crate) count: u32,
    pub(crate) _padding: u32,
}

/// Of GETATTR.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct GetattrIn {
    pub(crate) flags: u32,
    pub(crate) _padding: u32,
    pub(crate) handle: u64,
}

/// Of STATX.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct StatxIn {
    pub(crate) getattr_flags: u32,
    pub(crate) _reserved: u32,
    pub(crate) handle: u64,
    pub(crate) flags: u32,
    pub(crate) mask: u32,
}

/// Of MKNOD.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MknodIn {
    pub(crate) mode: u32,
    pub(crate) rdev: u32,
    pub(crate) umask: u32,
    pub(crate) _padding: u32,
}

/// Of MKDIR.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MkdirIn {
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

/// Of RENAME.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RenameIn {
    pub(crate) new_parent: u64,
}

/// Of RENAME2.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Rename2In {
    pub(crate) new_parent: u64,
    pub(crate) flags: u32,
    pub(crate) _padding: u32,
}

/// Of LINK.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LinkIn {
    pub(crate) node: u64,
}

/// Of SETATTR.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SetattrIn {
    pub(crate) valid: u32,
    pub(crate) _padding: u32,
    pub(crate) handle: u64,
    pub(crate) size: u64,
    pub(crate) lock_owner: u64,
    pub(crate) atime: i64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    pub(crate) atime_nanoseconds: u32,
    pub(crate) mtime_nanoseconds: u32,
    pub(crate) ctime_nanoseconds: u32,
    pub(crate) mode: u32,
    pub(crate) _unused: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) _unused_too: u32,
}

/// Of OPEN and OPENDIR.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct OpenIn {
    pub(crate) flags: u32,
    pub(crate) open_flags: u32,
}

/// Of CREATE and TMPFILE.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CreateIn {
    pub(crate) flags: u32,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) open_flags: u32,
}

/// Of RELEASE and RELEASEDIR.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ReleaseIn {
    pub(crate) handle: u64,
    pub(crate) flags: u32,
    pub(crate) release_flags: u32,
    pub(crate) lock_owner: u64,
}

/// Of FLUSH.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FlushIn {
    pub(crate) handle: u64,
    pub(crate) _unused: u32,
    pub(crate) _padding: u32,
    pub(crate) lock_owner: u64,
}

/// Of READ, READDIR and READDIRPLUS.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ReadIn {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) read_flags: u32,
    pub(crate) lock_owner: u64,
    pub(crate) flags: u32,
    pub(crate) _padding: u32,
}

/// Of WRITE.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct WriteIn {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) write_flags: u32,
    pub(crate) lock_owner: u64,
    pub(crate) flags: u32,
    pub(crate) _padding: u32,
}

/// Of FSYNC and FSYNCDIR.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FsyncIn {
    pub(crate) handle: u64,
    pub(crate) flags: u32,
    pub(crate) _padding: u32,
}

/// Without `SETXATTR_EXT`.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SetxattrIn {
    pub(crate) size: u32,
    pub(crate) flags: u32,
}

/// What follows it with `SETXATTR_EXT`.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SetxattrExtIn {
    pub(crate) flags: u32,
    pub(crate) _padding: u32,
}

/// Of GETXATTR and LISTXATTR.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct GetxattrIn {
    pub(crate) size: u32,
    pub(crate) _padding: u32,
}

/// A lock, in requests and replies.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct WireLock {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) lock_type: u32,
    pub(crate) pid: u32,
}

/// Of GETLK, SETLK and SETLKW.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LockIn {
    pub(crate) handle: u64,
    pub(crate) owner: u64,
    pub(crate) lock: WireLock,
    pub(crate) flags: u32,
    pub(crate) _padding: u32,
}

/// Of ACCESS.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AccessIn {
    pub(crate) mask: u32,
    pub(crate) _padding: u32,
}

/// What every kernel sends.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct InitIn {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: u32,
}

/// Of INTERRUPT.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct InterruptIn {
    pub(crate) unique: u64,
}

/// Of BMAP.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct BmapIn {
    pub(crate) block: u64,
    pub(crate) block_size: u32,
    pub(crate) _padding: u32,
}

/// Of IOCTL.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct IoctlIn {
    pub(crate) handle: u64,
    pub(crate) flags: u32,
    pub(crate) command: u32,
    pub(crate) argument: u64,
    pub(crate) in_size: u32,
    pub(crate) out_size: u32,
}

/// Of POLL.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PollIn {
    pub(crate) handle: u64,
    pub(crate) kernel_handle: u64,
    pub(crate) flags: u32,
    pub(crate) events: u32,
}

/// Of FALLOCATE.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FallocateIn {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) mode: u32,
    pub(crate) _padding: u32,
}

/// Of NOTIFY_REPLY; made to be as large as that of WRITE.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NotifyReplyIn {
    pub(crate) _unused: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) _unused_2: u32,
    pub(crate) _unused_3: u64,
    pub(crate) _unused_4: u64,
}

/// Of LSEEK.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LseekIn {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) whence: u32,
    pub(crate) _padding: u32,
}

/// Of COPY_FILE_RANGE and COPY_FILE_RANGE_64.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CopyFileRangeIn {
    pub(crate) handle_in: u64,
    pub(crate) offset_in: u64,
    pub(crate) node_out: u64,
    pub(crate) handle_out: u64,
    pub(crate) offset_out: u64,
    pub(crate) length: u64,
    pub(crate) flags: u64,
}

/// Of SETUPMAPPING.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SetupmappingIn {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) flags: u64,
    pub(crate) memory_offset: u64,
}

/// Of REMOVEMAPPING.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RemovemappingIn {
    pub(crate) count: u32,
}

/// Of SYNCFS.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SyncfsIn {
    pub(crate) _padding: u64,
}

/// Before every extension; `extension_type` is the number of security contexts if it is low.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ExtensionHeader {
    pub(crate) size: u32,
    pub(crate) extension_type: u32,
}

/// Before the name and the value of a security context.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SecurityContextIn {
    pub(crate) size: u32,
    pub(crate) _padding: u32,
}

/// Sizes are the kernel's.
const _: () = {
    assert!(size_of::<InHeader>() == 40);
    assert!(size_of::<ForgetIn>() == 8);
    assert!(size_of::<BatchForgetIn>() == 8);
    assert!(size_of::<GetattrIn>() == 16);
    assert!(size_of::<StatxIn>() == 24);
    assert!(size_of::<MknodIn>() == 16);
    assert!(size_of::<MkdirIn>() == 8);
    assert!(size_of::<RenameIn>() == 8);
    assert!(size_of::<Rename2In>() == 16);
    assert!(size_of::<LinkIn>() == 8);
    assert!(size_of::<SetattrIn>() == 88);
    assert!(size_of::<OpenIn>() == 8);
    assert!(size_of::<CreateIn>() == 16);
    assert!(size_of::<ReleaseIn>() == 24);
    assert!(size_of::<FlushIn>() == 24);
    assert!(size_of::<ReadIn>() == 40);
    assert!(size_of::<WriteIn>() == 40);
    assert!(size_of::<FsyncIn>() == 16);
    assert!(size_of::<SetxattrIn>() == 8);
    assert!(size_of::<SetxattrExtIn>() == 8);
    assert!(size_of::<GetxattrIn>() == 8);
    assert!(size_of::<WireLock>() == 24);
    assert!(size_of::<LockIn>() == 48);
    assert!(size_of::<AccessIn>() == 8);
    assert!(size_of::<InitIn>() == 16);
    assert!(size_of::<InterruptIn>() == 8);
    assert!(size_of::<BmapIn>() == 16);
    assert!(size_of::<IoctlIn>() == 32);
    assert!(size_of::<PollIn>() == 24);
    assert!(size_of::<FallocateIn>() == 32);
    assert!(size_of::<NotifyReplyIn>() == 40);
    assert!(size_of::<LseekIn>() == 24);
    assert!(size_of::<CopyFileRangeIn>() == 56);
    assert!(size_of::<SetupmappingIn>() == 40);
    assert!(size_of::<RemovemappingIn>() == 4);
    assert!(size_of::<SyncfsIn>() == 8);
    assert!(size_of::<ExtensionHeader>() == 8);
    assert!(size_of::<SecurityContextIn>() == 8);
};
