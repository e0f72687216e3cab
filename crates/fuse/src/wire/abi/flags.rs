//! Words of flags, each a type of its own.

use core::fmt;

/// Defines a set of flags in a word; bits without a name are kept.
macro_rules! flags {
    ($(#[$doc:meta])* $vis:vis $set:ident: $word:ty {
        $($(#[$flag_doc:meta])* $flag:ident = $bit:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        $vis struct $set($word);

        // Not all sets need all of this.
        #[allow(dead_code)]
        impl $set {
            $($(#[$flag_doc])* $vis const $flag: $set = $set(1 << $bit);)*

            /// No flag.
            $vis const NONE: $set = $set(0);
            /// All flags that have a name.
            $vis const KNOWN: $set = $set(0 $(| 1 << $bit)*);

            /// The set in a word.
            #[must_use]
            $vis const fn from_bits(bits: $word) -> $set {
                $set(bits)
            }

            /// The word.
            #[must_use]
            $vis const fn bits(self) -> $word {
                self.0
            }

            /// Whether all of `other` are in the set.
            #[must_use]
            $vis const fn contains(self, other: $set) -> bool {
                self.0 & other.0 == other.0
            }

            /// The set with `other`.
            #[must_use]
            $vis const fn with(self, other: $set) -> $set {
                $set(self.0 | other.0)
            }

            /// The set without `other`.
            #[must_use]
            $vis const fn without(self, other: $set) -> $set {
                $set(self.0 & !other.0)
            }

            /// What is in both.
            #[must_use]
            $vis const fn and(self, other: $set) -> $set {
                $set(self.0 & other.0)
            }

            /// `self` if `is_wanted`, otherwise none.
            #[must_use]
            $vis const fn when(self, is_wanted: bool) -> $set {
                if is_wanted { self } else { $set::NONE }
            }

            const NAMES: &'static [(u32, &'static str)] = &[$(($bit, stringify!($flag)),)*];
        }

        impl core::ops::BitOr for $set {
            type Output = $set;

            fn bitor(self, other: $set) -> $set {
                self.with(other)
            }
        }

        /// Names joined by `|`; bits without a name by their numbers.
        impl fmt::Display for $set {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                show(u64::from(self.0), $set::NAMES, f)
            }
        }

        impl fmt::Debug for $set {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($set))
            }
        }
    };
}

fn show(bits: u64, names: &[(u32, &str)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if bits == 0 {
        return f.write_str("none");
    }
    let mut is_first = true;
    for bit in (0..u64::BITS).filter(|bit| bits >> bit & 1 != 0) {
        if !is_first {
            f.write_str("|")?;
        }
        is_first = false;
        match names.iter().find(|(known, _)| *known == bit) {
            Some((_, name)) => f.write_str(name)?,
            None => write!(f, "bit {bit}")?,
        }
    }
    Ok(())
}

flags! {
    /// What the kernel offers in INIT and a file system chooses from. The high half travels in a
    /// word of its own, and only with [`InitFlags::INIT_EXT`].
    pub InitFlags: u64 {
        /// Several reads of one handle may be under way at once.
        ASYNC_READ = 0,
        /// The file system is asked for POSIX locks.
        POSIX_LOCKS = 1,
        /// Unused by the kernel.
        FILE_OPS = 2,
        /// `O_TRUNC` is left to OPEN.
        ATOMIC_O_TRUNC = 3,
        /// `.` and `..` are looked up, so nodes can be found again by handles of NFS.
        EXPORT_SUPPORT = 4,
        /// Writes of more than a page; newer kernels take it for granted.
        BIG_WRITES = 5,
        /// The umask is left to the file system.
        DONT_MASK = 6,
        /// The device can be spliced to.
        SPLICE_WRITE = 7,
        /// Pages spliced to the device may be taken.
        SPLICE_MOVE = 8,
        /// The device can be spliced from.
        SPLICE_READ = 9,
        /// The file system is asked for `flock` locks.
        FLOCK_LOCKS = 10,
        /// IOCTL on directories.
        HAS_IOCTL_DIR = 11,
        /// Cached pages go when size or modification time have changed.
        AUTO_INVAL_DATA = 12,
        /// READDIRPLUS.
        DO_READDIRPLUS = 13,
        /// READDIRPLUS only where the attributes seem to be wanted.
        READDIRPLUS_AUTO = 14,
        /// Direct I/O in several requests at once.
        ASYNC_DIO = 15,
        /// Writes are kept in the page cache.
        WRITEBACK_CACHE = 16,
        /// OPEN may be answered with `ENOSYS`, and is not sent again.
        NO_OPEN_SUPPORT = 17,
        /// Lookups and listings of one directory at once.
        PARALLEL_DIROPS = 18,
        /// The file system drops set-id bits and capabilities itself.
        HANDLE_KILLPRIV = 19,
        /// Access lists are checked by the kernel.
        POSIX_ACL = 20,
        /// Reading the device after an abort gives `ECONNABORTED`.
        ABORT_ERROR = 21,
        /// The reply tells the most pages of a request.
        MAX_PAGES = 22,
        /// Targets of symbolic links are cached.
        CACHE_SYMLINKS = 23,
        /// OPENDIR may be answered with `ENOSYS`, and is not sent again.
        NO_OPENDIR_SUPPORT = 24,
        /// Cached pages go on notices only.
        EXPLICIT_INVAL_DATA = 25,
        /// The reply tells the alignment of mappings.
        MAP_ALIGNMENT = 26,
        /// Directories can be marked as roots of other file systems.
        SUBMOUNTS = 27,
        /// The file system drops set-id bits as local ones do, and is told when.
        HANDLE_KILLPRIV_V2 = 28,
        /// SETXATTR has flags of its own.
        SETXATTR_EXT = 29,
        /// INIT has a second word of flags.
        INIT_EXT = 30,
        /// Security contexts are sent with what creates.
        SECURITY_CTX = 32,
        /// DAX for each inode.
        HAS_INODE_DAX = 33,
        /// The group that matches the parent's is sent with what creates.
        CREATE_SUPP_GROUP = 34,
        /// Entries can be told to be expired only.
        HAS_EXPIRE_ONLY = 35,
        /// Shared mappings of files opened for direct I/O.
        DIRECT_IO_ALLOW_MMAP = 36,
        /// Reads and writes of a handle can go to another file.
        PASSTHROUGH = 37,
        /// Nodes are never found again by handles of NFS.
        NO_EXPORT_SUPPORT = 38,
        /// Requests can be asked for again, and then have a mark.
        HAS_RESEND = 39,
        /// Mounts with mapped ids. Unless the mount has `default_permissions`, the kernel refuses
        /// it, and the whole connection with it.
        ALLOW_IDMAP = 40,
        /// Requests through `io_uring`.
        OVER_IO_URING = 41,
        /// The reply tells after which time requests have failed.
        REQUEST_TIMEOUT = 42,
    }
}

flags! {
    /// How the kernel is to treat what was opened.
    pub OpenedFlags: u32 {
        /// Past the page cache.
        DIRECT_IO = 0,
        /// Cached pages stay.
        KEEP_CACHE = 1,
        /// There are no positions to seek to.
        NONSEEKABLE = 2,
        /// The listing may be cached.
        CACHE_DIR = 3,
        /// There is no position at all.
        STREAM = 4,
        /// No FLUSH on closing, unless writes are cached.
        NOFLUSH = 5,
        /// Direct writes of one inode at once.
        PARALLEL_DIRECT_WRITES = 6,
        /// Reads and writes go to the backing file.
        PASSTHROUGH = 7,
    }
}

flags! {
    /// What is special about an inode.
    pub AttributeFlags: u32 {
        /// The root of another file system.
        SUBMOUNT = 0,
        /// DAX is to be used.
        DAX = 1,
    }
}

flags! {
    /// How an ioctl was called, and how its reply is meant.
    pub IoctlFlags: u32 {
        /// By a 32-bit program of a 64-bit machine.
        COMPAT = 0,
        /// Any memory of the caller may be asked for.
        UNRESTRICTED = 1,
        /// In a reply: again, with this memory.
        RETRY = 2,
        /// The layout is that of 32 bits.
        BITS_32 = 3,
        /// On a directory.
        DIR = 4,
        /// By an x32 program.
        COMPAT_X32 = 5,
    }
}

flags! {
    /// Which fields of SETATTR are meant.
    pub(crate) SetattrValid: u32 {
        MODE = 0,
        UID = 1,
        GID = 2,
        SIZE = 3,
        ATIME = 4,
        MTIME = 5,
        HANDLE = 6,
        ATIME_NOW = 7,
        MTIME_NOW = 8,
        LOCK_OWNER = 9,
        CTIME = 10,
        KILL_SUIDGID = 11,
    }
}

flags! {
    /// Of OPEN and CREATE.
    pub(crate) OpenFlags: u32 { KILL_SUIDGID = 0, }
}

flags! {
    /// Of RELEASE.
    pub(crate) ReleaseFlags: u32 { FLUSH = 0, FLOCK_UNLOCK = 1, }
}

flags! {
    /// Of GETATTR and STATX.
    pub(crate) GetattrFlags: u32 { HANDLE = 0, }
}

flags! {
    /// Of GETLK, SETLK and SETLKW.
    pub(crate) LockFlags: u32 { FLOCK = 0, }
}

flags! {
    /// Of WRITE.
    pub(crate) WriteFlags: u32 { CACHED = 0, LOCK_OWNER = 1, KILL_SUIDGID = 2, }
}

flags! {
    /// Of READ, READDIR and READDIRPLUS.
    pub(crate) ReadFlags: u32 { LOCK_OWNER = 1, }
}

flags! {
    /// Of POLL.
    pub(crate) PollFlags: u32 { SCHEDULE_NOTIFY = 0, }
}

flags! {
    /// Of FSYNC and FSYNCDIR.
    pub(crate) FsyncFlags: u32 { DATA_ONLY = 0, }
}

flags! {
    /// Of SETXATTR.
    pub(crate) SetxattrFlags: u32 { ACL_KILL_SGID = 0, }
}

flags! {
    /// Of the notice about an entry.
    pub(crate) NoticeEntryFlags: u32 { EXPIRE_ONLY = 0, }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_shown_by_names() {
        let set = InitFlags::POSIX_LOCKS | InitFlags::REQUEST_TIMEOUT;
        assert_eq!(set.to_string(), "POSIX_LOCKS|REQUEST_TIMEOUT");
        assert_eq!(InitFlags::NONE.to_string(), "none");
        assert_eq!(OpenedFlags::from_bits(1 << 31 | 2).to_string(), "KEEP_CACHE|bit 31");
        assert_eq!(format!("{:?}", AttributeFlags::DAX), "AttributeFlags(DAX)");
    }

    #[test]
    fn sets_are_sets() {
        let both = OpenedFlags::DIRECT_IO | OpenedFlags::NOFLUSH;
        assert!(both.contains(OpenedFlags::NOFLUSH) && !OpenedFlags::NOFLUSH.contains(both));
        assert_eq!(both.without(OpenedFlags::DIRECT_IO), OpenedFlags::NOFLUSH);
        assert_eq!(both.and(OpenedFlags::NOFLUSH), OpenedFlags::NOFLUSH);
        assert_eq!(OpenedFlags::STREAM.when(false), OpenedFlags::NONE);
    }

    #[test]
    fn bits_are_those_of_the_kernel() {
        assert_eq!(InitFlags::KNOWN.bits(), (1 << 43) - 1 - (1 << 31));
        assert_eq!(OpenedFlags::KNOWN.bits(), 0xFF);
        assert_eq!(SetattrValid::KNOWN.bits(), 0xFFF);
        assert_eq!(ReadFlags::KNOWN.bits(), 2);
    }
}
