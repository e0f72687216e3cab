//! Who makes a call.

use crate::{File, UserNamespace};

/// A capability that the rules know, with its number in Linux (capabilities(7)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Capability {
    /// Changes owners at will.
    Chown = 0,
    /// Overrides permission bits and access lists.
    DacOverride = 1,
    /// Reads files and searches directories in spite of them.
    DacReadSearch = 2,
    /// Counts as owner of every file.
    Fowner = 3,
    /// Keeps and sets set-id bits.
    Fsetid = 4,
    /// Changes the flags immutable and append-only.
    LinuxImmutable = 9,
    /// Administrates: attributes `trusted.` and `security.`.
    SysAdmin = 21,
    /// Uses space that is reserved.
    SysResource = 24,
    /// Makes devices.
    Mknod = 27,
    /// Sets capabilities of files.
    Setfcap = 31,
}

impl Capability {
    /// All that decide who may do what to a file.
    pub const ALL: [Capability; 9] = [
        Capability::Chown,
        Capability::DacOverride,
        Capability::DacReadSearch,
        Capability::Fowner,
        Capability::Fsetid,
        Capability::LinuxImmutable,
        Capability::SysAdmin,
        Capability::Mknod,
        Capability::Setfcap,
    ];
}

/// A set of capabilities, as the kernel writes it: bit `n` is capability number `n`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// None.
    pub const NONE: Capabilities = Capabilities(0);
    /// All.
    pub const ALL: Capabilities = Capabilities(u64::MAX);

    /// This set and `capability`.
    #[must_use]
    pub const fn with(self, capability: Capability) -> Capabilities {
        Capabilities(self.0 | 1 << capability as u8)
    }

    /// Whether `capability` is in it.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u8 != 0
    }
}

/// Who makes a call, as path_resolution(7) sees it: one value a call, never changed by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials<'a> {
    /// The user that counts for files: the effective one, unless `setfsuid` was used.
    pub fsuid: u32,
    /// The group that counts for files.
    pub fsgid: u32,
    /// Supplementary groups, in any order.
    pub groups: &'a [u32],
    /// Effective capabilities. Being user 0 means nothing here without them.
    pub capabilities: Capabilities,
    /// Permission bits that new files don't get, unless the directory has a default access list.
    pub umask: u32,
    /// The user namespace that the caller is in; none is the initial one. All ids here are of the
    /// initial one.
    pub namespace: Option<UserNamespace<'a>>,
}

impl Credentials<'_> {
    /// Whether `capability` is effective in the caller's namespace.
    #[must_use]
    pub const fn has(&self, capability: Capability) -> bool {
        self.capabilities.has(capability)
    }

    /// Whether the caller is a member of `gid`.
    #[must_use]
    pub fn is_in(&self, gid: u32) -> bool {
        self.fsgid == gid || self.groups.contains(&gid)
    }

    /// Whether the caller may give `file` the set-group-id bit, and keep it there, if its group is
    /// `gid`.
    pub(crate) fn may_set_gid_bit(&self, file: &File, gid: u32) -> bool {
        self.is_in(gid) || self.has_over(Capability::Fsetid, file)
    }
}
