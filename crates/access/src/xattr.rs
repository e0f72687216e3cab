//! Extended attributes (xattr(7)): who may read and write which names. Access lists have rules of
//! their own: [`read_acl`](crate::read_acl), [`set_acl`](crate::set_acl).

use crate::{
    Access, AclKind, Capability, Credentials, Errno, File, FileCapability, is_owner_or_capable,
    permission,
};

/// Prefixes, which are no names by themselves.
const BARE_PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// What is done with an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrAccess<'a> {
    /// Its value is read.
    Read,
    /// It gets this value.
    Write(&'a [u8]),
    /// It is removed.
    Remove,
}

/// Where a name belongs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NameSpace {
    /// `user.`: of regular files and directories, like their content.
    User,
    /// `trusted.`: of administrators.
    Trusted,
    /// `security.capability`: the capabilities that a program gets.
    FileCapability,
    /// `security.`: the rest.
    Security,
    /// `system.posix_acl_access` and `system.posix_acl_default`.
    Acl(AclKind),
    /// `system.`: the rest. There are none, on ext4 either.
    System,
    /// Something else. There are none.
    Unknown,
}

impl NameSpace {
    /// Where `name` belongs.
    #[must_use]
    pub fn of(name: &[u8]) -> NameSpace {
        match name {
            b"system.posix_acl_access" => NameSpace::Acl(AclKind::Access),
            b"system.posix_acl_default" => NameSpace::Acl(AclKind::Default),
            b"security.capability" => NameSpace::FileCapability,
            name if name.starts_with(b"user.") => NameSpace::User,
            name if name.starts_with(b"trusted.") => NameSpace::Trusted,
            name if name.starts_with(b"security.") => NameSpace::Security,
            name if name.starts_with(b"system.") => NameSpace::System,
            _ => NameSpace::Unknown,
        }
    }
}

/// Whether `who` may do `what` with the attribute `name`, of 1 to 255 bytes, of `file`. Whether
/// there is such an attribute comes after.
///
/// # Errors
///
/// - [`Errno::EPERM`]: to write or remove, if the file is immutable or append-only; a `user.` name
///   of anything but a regular file or directory, or of somebody else's sticky directory;
///   `trusted.` or `security.` without `CAP_SYS_ADMIN`; `security.capability` without
///   `CAP_SETFCAP`, unless the value is empty, which the kernel lets anybody set.
/// - [`Errno::ENODATA`]: to read, where writing would be refused for the type of the file, or for
///   lack of `CAP_SYS_ADMIN` for `trusted.`.
/// - [`Errno::EACCES`]: a `user.` name, as for the file's content.
/// - [`Errno::EINVAL`]: a prefix without a name; or a value that is none of `security.capability`,
///   or of whose root the caller's namespace knows nothing.
/// - [`Errno::EOPNOTSUPP`]: no such name space; access lists, which have rules of their own.
pub fn xattr(who: &Credentials, file: &File, name: &[u8], what: XattrAccess) -> Result<(), Errno> {
    let space = NameSpace::of(name);
    if let (NameSpace::FileCapability, XattrAccess::Write(value)) = (space, what)
        && !value.is_empty()
    {
        may_set_capabilities(who, file, value)?;
    }
    let writes = what != XattrAccess::Read;
    if writes && file.is_fixed() {
        return Err(Errno::EPERM);
    }
    let refused = Err(if writes { Errno::EPERM } else { Errno::ENODATA });
    let wanted = if writes { Access::WRITE } else { Access::READ };
    match space {
        NameSpace::User if !file.is_regular() && !file.is_directory() => return refused,
        NameSpace::User if writes && is_sticky_of_another(who, file) => return refused,
        NameSpace::User | NameSpace::Unknown => permission(who, file, wanted)?,
        NameSpace::Trusted if !who.has_initially(Capability::SysAdmin) => return refused,
        NameSpace::Security if writes && !who.has_initially(Capability::SysAdmin) => {
            return refused;
        }
        NameSpace::FileCapability
            if what == XattrAccess::Remove && !who.has_over(Capability::Setfcap, file) =>
        {
            return refused;
        }
        _ => {}
    }
    match space {
        NameSpace::Acl(_) | NameSpace::System | NameSpace::Unknown => Err(Errno::EOPNOTSUPP),
        _ if BARE_PREFIXES.contains(&name) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

fn is_sticky_of_another(who: &Credentials, file: &File) -> bool {
    file.is_directory() && file.mode & libc::S_ISVTX != 0 && !is_owner_or_capable(who, file)
}

/// Whether `value` is one of `security.capability`, and may be set.
fn may_set_capabilities(who: &Credentials, file: &File, value: &[u8]) -> Result<(), Errno> {
    let capability = FileCapability::new(value).ok_or(Errno::EINVAL)?;
    if !who.has_over(Capability::Setfcap, file) {
        return Err(Errno::EPERM);
    }
    capability.meant_by(who).map(drop)
}

/// Whether `listxattr` tells `who` of the attribute `name`: of all but `trusted.`, for which it
/// needs `CAP_SYS_ADMIN`. Listing itself needs no permission on the file.
#[must_use]
pub fn is_listed(who: &Credentials, name: &[u8]) -> bool {
    NameSpace::of(name) != NameSpace::Trusted || who.has_initially(Capability::SysAdmin)
}
