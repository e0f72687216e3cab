//! Making files: who may, and what a new file begins with.

use crate::{Access, Acl, Capability, Credentials, Errno, File, flag, permission};

/// What a new file begins with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct New {
    /// `st_mode`.
    pub mode: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Bits of [`flag`]. If its directory has [`flag::PROJINHERIT`], a file of any type begins with
    /// the directory's project.
    pub flags: u32,
    /// Its access list.
    pub acl: Option<Acl>,
    /// A directory's default list.
    pub default_acl: Option<Acl>,
}

/// Whether a name may be added to `directory`, for a new file of the type in `mode`. `is_whiteout`
/// is said of a character device 0:0, which is no device. Whether the name is taken comes before.
///
/// # Errors
///
/// [`Errno::EACCES`] or [`Errno::EPERM`] as [`permission()`] to change the directory's entries;
/// [`Errno::EPERM`] for a device without `CAP_MKNOD`.
pub fn create(
    who: &Credentials,
    directory: &File,
    mode: u32,
    is_whiteout: bool,
) -> Result<(), Errno> {
    permission(who, directory, Access::CHANGE_ENTRIES)?;
    let file_type = mode & libc::S_IFMT;
    let is_device = file_type == libc::S_IFBLK || file_type == libc::S_IFCHR;
    if is_device && !is_whiteout && !who.has_initially(Capability::Mknod) {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// What a file begins with that `who` makes in `directory`, whose default list is `default`, with
/// the type and permissions of `mode`.
///
/// The group is the directory's if that has the set-group-id bit, which directories inherit; a
/// program does not get the bit if the directory's group is not the caller's. Permissions are those
/// asked for that the default list has too; without one, those not in the umask. A symbolic link
/// has all, and no list. `mkdir` can't set set-id bits.
#[must_use]
pub fn new_file(who: &Credentials, directory: &File, default: Option<&Acl>, mode: u32) -> New {
    let file_type = mode & libc::S_IFMT;
    let is_directory = file_type == libc::S_IFDIR;
    let asked = match file_type {
        libc::S_IFLNK => 0o777,
        libc::S_IFDIR => mode & 0o1777,
        _ => mode & 0o7777,
    };
    let is_inherited = directory.mode & libc::S_ISGID != 0;
    let gid = if is_inherited { directory.gid } else { who.fsgid };
    let program = libc::S_ISGID | libc::S_IXGRP;
    let loses_gid_bit =
        is_inherited && asked & program == program && !who.may_set_gid_bit(directory, gid);
    let set_id = match is_directory {
        true if is_inherited => asked | libc::S_ISGID,
        false if loses_gid_bit => asked & !libc::S_ISGID,
        _ => asked,
    };
    let default = default.filter(|_| file_type != libc::S_IFLNK);
    let list = default.map(|acl| acl.masked(asked));
    let permissions = match &list {
        Some(acl) => acl.permissions(),
        None if file_type == libc::S_IFLNK => asked,
        None => asked & 0o777 & !who.umask,
    };
    let possible = match file_type {
        libc::S_IFDIR => flag::OF_DIRECTORY,
        libc::S_IFREG => flag::OF_REGULAR,
        _ => flag::OF_ANY,
    };
    New {
        mode: file_type | set_id & 0o7000 | permissions,
        uid: who.fsuid,
        gid,
        flags: directory.flags & flag::INHERITED & possible,
        acl: list.filter(|acl| !acl.is_mode()),
        default_acl: default.filter(|_| is_directory).cloned(),
    }
}
