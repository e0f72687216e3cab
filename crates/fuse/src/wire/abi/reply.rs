//! Structures of replies and notices.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Before every reply and notice.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct OutHeader {
    pub(crate) len: u32,
    pub(crate) error: i32,
    pub(crate) unique: u64,
}

/// An inode's attributes.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Attr {
    pub(crate) number: u64,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) atime: i64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    pub(crate) atime_nanoseconds: u32,
    pub(crate) mtime_nanoseconds: u32,
    pub(crate) ctime_nanoseconds: u32,
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) block_size: u32,
    pub(crate) flags: u32,
}

/// The reply to LOOKUP and to what creates.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct EntryOut {
    pub(crate) node: u64,
    pub(crate) generation: u64,
    pub(crate) entry_seconds: u64,
    pub(crate) attr_seconds: u64,
    pub(crate) entry_nanoseconds: u32,
    pub(crate) attr_nanoseconds: u32,
    pub(crate) attr: Attr,
}

/// The reply to GETATTR and SETATTR.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AttrOut {
    pub(crate) attr_seconds: u64,
    pub(crate) attr_nanoseconds: u32,
    pub(crate) _padding: u32,
    pub(crate) attr: Attr,
}

/// A time of STATX.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct StatxTime {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
    pub(crate) _reserved: i32,
}

/// The reply to STATX.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct StatxOut {
    pub(crate) attr_seconds: u64,
    pub(crate) attr_nanoseconds: u32,
    pub(crate) _flags: u32,
    pub(crate) _spare: [u64; 2],
    pub(crate) mask: u32,
    pub(crate) block_size: u32,
    pub(crate) attributes: u64,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u16,
    pub(crate) _spare_0: u16,
    pub(crate) number: u64,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) attributes_mask: u64,
    pub(crate) atime: StatxTime,
    pub(crate) btime: StatxTime,
    pub(crate) ctime: StatxTime,
    pub(crate) mtime: StatxTime,
    pub(crate) rdev_major: u32,
    pub(crate) rdev_minor: u32,
    pub(crate) dev_major: u32,
    pub(crate) dev_minor: u32,
    pub(crate) _spare_2: [u64; 14],
}

/// The reply to OPEN and OPENDIR.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct OpenOut {
    pub(crate) handle: u64,
    pub(crate) open_flags: u32,
    pub(crate) backing: i32,
}

/// The reply to CREATE and TMPFILE.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CreateOut {
    pub(crate) entry: EntryOut,
    pub(crate) open: OpenOut,
}

/// The reply to WRITE and COPY_FILE_RANGE.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct WriteOut {
    pub(crate) size: u32,
    pub(crate) _padding: u32,
}

/// The reply to STATFS.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct StatfsOut {
    pub(crate) blocks: u64,
    pub(crate) blocks_free: u64,
    pub(crate) blocks_available: u64,
    pub(crate) files: u64,
    pub(crate) files_free: u64,
    pub(crate) block_size: u32,
    pub(crate) name_max: u32,
    pub(crate) fragment_size: u32,
    pub(crate) _padding: u32,
    pub(crate) _spare: [u32; 6],
}

/// The reply to GETXATTR and LISTXATTR that ask for the size.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct GetxattrOut {
    pub(crate) size: u32,
    pub(crate) _padding: u32,
}

/// The reply to INIT.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct InitOut {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: u32,
    pub(crate) max_background: u16,
    pub(crate) congestion_threshold: u16,
    pub(crate) max_write: u32,
    pub(crate) time_granularity: u32,
    pub(crate) max_pages: u16,
    pub(crate) map_alignment: u16,
    pub(crate) flags2: u32,
    pub(crate) max_stack_depth: u32,
    pub(crate) request_timeout: u16,
    pub(crate) _unused: [u16; 11],
}

/// The reply to BMAP.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct BmapOut {
    pub(crate) block: u64,
}

/// The reply to IOCTL.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct IoctlOut {
    pub(crate) result: i32,
    pub(crate) flags: u32,
    pub(crate) in_count: u32,
    pub(crate) out_count: u32,
}

/// The reply to POLL.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PollOut {
    pub(crate) events: u32,
    pub(crate) _padding: u32,
}

/// The reply to LSEEK.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LseekOut {
    pub(crate) offset: u64,
}

/// Of COPY_FILE_RANGE_64.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CopyFileRangeOut {
    pub(crate) bytes: u64,
}

/// Before a name of a listing.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Dirent {
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) name_len: u32,
    pub(crate) file_type: u32,
}

/// Before a name of a listing with attributes.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Direntplus {
    pub(crate) entry: EntryOut,
    pub(crate) dirent: Dirent,
}

/// The notice that something polled is ready.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NotifyPollOut {
    pub(crate) kernel_handle: u64,
}

/// The notice about an inode.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NotifyInodeOut {
    pub(crate) node: u64,
    pub(crate) offset: i64,
    pub(crate) length: i64,
}

/// The notice about an entry.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NotifyEntryOut {
    pub(crate) parent: u64,
    pub(crate) name_len: u32,
    pub(crate) flags: u32,
}

/// The notice that an entry is gone.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NotifyDeleteOut {
    pub(crate) parent: u64,
    pub(crate) child: u64,
    pub(crate) name_len: u32,
    pub(crate) _padding: u32,
}

/// The notice with bytes to cache.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NotifyStoreOut {
    pub(crate) node: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) _padding: u32,
}

/// The notice that asks for cached bytes.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NotifyRetrieveOut {
    pub(crate) notify_unique: u64,
    pub(crate) node: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) _padding: u32,
}

/// The notice about inodes to forget.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NotifyPruneOut {
    pub(crate) count: u32,
    pub(crate) _padding: u32,
    pub(crate) _spare: u64,
}

/// Sizes are the kernel's.
const _: () = {
    assert!(size_of::<OutHeader>() == 16);
    assert!(size_of::<Attr>() == 88);
    assert!(size_of::<EntryOut>() == 128);
    assert!(size_of::<AttrOut>() == 104);
    assert!(size_of::<StatxTime>() == 16);
    assert!(size_of::<StatxOut>() == 288);
    assert!(size_of::<OpenOut>() == 16);
    assert!(size_of::<CreateOut>() == 144);
    assert!(size_of::<WriteOut>() == 8);
    assert!(size_of::<StatfsOut>() == 80);
    assert!(size_of::<GetxattrOut>() == 8);
    assert!(size_of::<InitOut>() == 64);
    assert!(size_of::<BmapOut>() == 8);
    assert!(size_of::<IoctlOut>() == 16);
    assert!(size_of::<PollOut>() == 8);
    assert!(size_of::<LseekOut>() == 8);
    assert!(size_of::<CopyFileRangeOut>() == 8);
    assert!(size_of::<Dirent>() == 24);
    assert!(size_of::<Direntplus>() == 152);
    assert!(size_of::<NotifyPollOut>() == 8);
    assert!(size_of::<NotifyInodeOut>() == 24);
    assert!(size_of::<NotifyEntryOut>() == 16);
    assert!(size_of::<NotifyDeleteOut>() == 24);
    assert!(size_of::<NotifyStoreOut>() == 24);
    assert!(size_of::<NotifyRetrieveOut>() == 32);
    assert!(size_of::<NotifyPruneOut>() == 16);
};
