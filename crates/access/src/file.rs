//! What the rules need to know of a file.

use crate::Acl;

/// Flags that the rules know: the bits of `FS_IOC_GETFLAGS`.
pub mod flag {
    /// Changes are made durable at once.
    pub const SYNC: u32 = 0x8;
    /// Nothing of the file may change.
    pub const IMMUTABLE: u32 = 0x10;
    /// The file may only grow, the directory only get entries.
    pub const APPEND: u32 = 0x20;
    /// Backup programs leave it out.
    pub const NODUMP: u32 = 0x40;
    /// The time of access is not kept.
    pub const NOATIME: u32 = 0x80;
    /// Changes of the directory are made durable at once.
    pub const DIRSYNC: u32 = 0x1_0000;
    /// What is made in the directory gets its project.
    pub const PROJINHERIT: u32 = 0x2000_0000;

    /// Flags that any file can have.
    pub const OF_ANY: u32 = NODUMP | NOATIME;
    /// Flags that a regular file can have.
    pub const OF_REGULAR: u32 = OF_ANY | SYNC | IMMUTABLE | APPEND;
    /// Flags that a directory can have: all.
    pub const OF_DIRECTORY: u32 = OF_REGULAR | DIRSYNC | PROJINHERIT;
    /// Flags that new files have from their directory, as far as their type can have them.
    pub const INHERITED: u32 = OF_ANY | SYNC | DIRSYNC | PROJINHERIT;
}

/// What the rules need to know of a file of any type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File<'a> {
    /// `st_mode`: type, set-id and sticky bits, permissions.
    pub mode: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// The access list, if the file has one. Symbolic links have none.
    pub acl: Option<&'a Acl>,
}

impl File<'_> {
    /// Whether its type is `file_type`, one of libc's `S_IF` constants.
    #[must_use]
    pub const fn is(&self, file_type: u32) -> bool {
        self.mode & libc::S_IFMT == file_type
    }

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        self.is(libc::S_IFDIR)
    }

    /// Whether it is a regular file.
    #[must_use]
    pub const fn is_regular(&self) -> bool {
        self.is(libc::S_IFREG)
    }

    /// Whether nothing of it may change.
    #[must_use]
    pub const fn is_immutable(&self) -> bool {
        self.flags & flag::IMMUTABLE != 0
    }

    /// Whether it may only grow.
    #[must_use]
    pub const fn is_append_only(&self) -> bool {
        self.flags & flag::APPEND != 0
    }

    /// Whether it is immutable or append-only: most of what an inode says is then fixed.
    #[must_use]
    pub const fn is_fixed(&self) -> bool {
        self.flags & (flag::IMMUTABLE | flag::APPEND) != 0
    }
}
