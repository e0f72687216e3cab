//! Who may read and set access lists, and what setting one changes.

use crate::{Acl, Credentials, Errno, File, acl, is_owner_or_capable};

/// Most bytes in the value of an attribute.
const VALUE_MAX: usize = 65536;

/// Which of a file's lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AclKind {
    /// What counts for its access: `system.posix_acl_access`.
    Access,
    /// What new files in a directory begin with: `system.posix_acl_default`.
    Default,
}

impl AclKind {
    /// The attribute that is the list.
    #[must_use]
    pub const fn attribute(self) -> &'static [u8] {
        match self {
            AclKind::Access => b"system.posix_acl_access",
            AclKind::Default => b"system.posix_acl_default",
        }
    }
}

/// What setting a list does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAcl {
    /// The list to keep; none removes the one there is. An access list that permission bits can say
    /// is not kept.
    pub acl: Option<Acl>,
    /// The file's mode afterwards.
    pub mode: u32,
}

/// Whether a list of `file` may be read. Everybody may who has found the file; without a list the
/// answer is then `ENODATA`.
///
/// # Errors
///
/// [`Errno::EOPNOTSUPP`] for symbolic links, which have none.
pub fn read_acl(file: &File) -> Result<(), Errno> {
    if file.is(libc::S_IFLNK) { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}

/// What setting the list `kind` of `file` to an attribute's value does. An empty value, and the
/// attribute's removal, remove the list; the mode stays, so that the mask becomes the group's
/// permissions.
///
/// # Errors
///
/// - [`Errno::E2BIG`]: the value is too long for any attribute.
/// - [`Errno::EINVAL`], [`Errno::EOPNOTSUPP`]: no list, or of another version; or a user or group
///   whom the caller's namespace does not know.
/// - [`Errno::EPERM`]: the file is immutable or append-only, or somebody else's.
/// - [`Errno::EOPNOTSUPP`]: a symbolic link.
/// - [`Errno::EACCES`]: a default list for what is no directory.
pub fn set_acl(
    who: &Credentials,
    file: &File,
    kind: AclKind,
    value: &[u8],
) -> Result<SetAcl, Errno> {
    if value.len() > VALUE_MAX {
        return Err(Errno::E2BIG);
    }
    let entries = acl::decode(value)?.map(|entries| acl::meant_by(who, &entries)).transpose()?;
    if file.is_fixed() {
        return Err(Errno::EPERM);
    }
    read_acl(file)?;
    let unchanged = SetAcl { acl: None, mode: file.mode };
    if kind == AclKind::Default && !file.is_directory() {
        return if entries.is_some() { Err(Errno::EACCES) } else { Ok(unchanged) };
    }
    if !is_owner_or_capable(who, file) {
        return Err(Errno::EPERM);
    }
    let Some(acl) = entries.map(Acl::of).transpose()? else {
        return Ok(unchanged);
    };
    if kind == AclKind::Default {
        return Ok(SetAcl { acl: Some(acl), mode: file.mode });
    }
    let mut mode = file.mode & !0o777 | acl.permissions();
    if !who.may_set_gid_bit(file, file.gid) {
        mode &= !libc::S_ISGID;
    }
    Ok(SetAcl { acl: (!acl.is_mode()).then_some(acl), mode })
}
