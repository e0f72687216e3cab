//! May a file be read, written, executed (or a directory listed, changed, searched)?

use core::ops::BitOr;

use crate::{Capability, Credentials, Errno, File};

/// Ways to use a file: a set, in the numbers of one digit of a mode and of `access(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Access(u32);

impl Access {
    /// No way: asks nothing.
    pub const NONE: Access = Access(0);
    /// Execute a file, search a directory.
    pub const EXECUTE: Access = Access(1);
    /// Write a file, change a directory's entries.
    pub const WRITE: Access = Access(2);
    /// Read a file, list a directory.
    pub const READ: Access = Access(4);
    /// Change a directory's entries by name.
    pub const CHANGE_ENTRIES: Access = Access(3);

    /// The ways in the three low bits of `bits`.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Access {
        Access(bits & 7)
    }

    /// The three bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn has(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Access;

    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// Whether `who` may use `file` in all the `wanted` ways.
///
/// # Errors
///
/// [`Errno::EPERM`] to write what is immutable, [`Errno::EACCES`] if permissions don't suffice.
pub fn permission(who: &Credentials, file: &File, wanted: Access) -> Result<(), Errno> {
    if wanted.has(Access::WRITE) && file.is_immutable() {
        return Err(Errno::EPERM);
    }
    let is_granted = is_granted(who, file, wanted.bits()) || is_overridden(who, file, wanted);
    if is_granted { Ok(()) } else { Err(Errno::EACCES) }
}

/// What permission bits and access list say.
fn is_granted(who: &Credentials, file: &File, wanted: u32) -> bool {
    let allows = |digit: u32| wanted & !digit == 0;
    if who.fsuid == file.uid {
        return allows(file.mode >> 6);
    }
    // If the group's bits, which are the list's mask, are all clear, the kernel does not look at
    // the list, and one whom the list names is among the others. By acl(5) he would have nothing.
    if let Some(acl) = file.acl
        && file.mode & libc::S_IRWXG != 0
    {
        return acl.grants(who, file.gid, wanted);
    }
    if who.is_in(file.gid) { allows(file.mode >> 3) } else { allows(file.mode) }
}

/// What capabilities give in spite of that.
fn is_overridden(who: &Credentials, file: &File, wanted: Access) -> bool {
    let only_looks =
        if file.is_directory() { !wanted.has(Access::WRITE) } else { wanted == Access::READ };
    if only_looks && who.has_over(Capability::DacReadSearch, file) {
        return true;
    }
    // What nobody may execute is no program, for anybody.
    let is_no_program =
        !file.is_directory() && wanted.has(Access::EXECUTE) && file.mode & 0o111 == 0;
    !is_no_program && who.has_over(Capability::DacOverride, file)
}
