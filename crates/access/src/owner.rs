//! What is the owner's to change, and what changes with it.

use crate::{Access, Acl, Capability, Credentials, Errno, File, flag, permission};

/// What becomes of a file whose mode or owner is changed, or that is written to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// `st_mode` afterwards.
    pub mode: u32,
    /// Owning user afterwards.
    pub uid: u32,
    /// Owning group afterwards.
    pub gid: u32,
    /// What takes the place of the file's access list; none if the list, or that there is none,
    /// stays.
    pub acl: Option<Acl>,
    /// Whether `security.capability` has to be removed, if the file has it.
    pub drops_capabilities: bool,
}

impl Change {
    /// Nothing at all.
    pub(crate) const fn none(file: &File) -> Change {
        Change {
            mode: file.mode,
            uid: file.uid,
            gid: file.gid,
            acl: None,
            drops_capabilities: false,
        }
    }
}

/// How the times of a file are set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Times {
    /// Both to the present time: `utimensat` without times, or with `UTIME_NOW` twice.
    Now,
    /// In any other way, one of the two to the present time included. (Leaving both as they are
    /// asks for nothing; `utimensat` does not even look for the file.)
    Explicit,
}

/// Whether `who` owns `file` or counts as its owner.
#[must_use]
pub fn is_owner_or_capable(who: &Credentials, file: &File) -> bool {
    let is_known = who.user_number(file.uid).is_some();
    who.fsuid == file.uid || is_known && who.has(Capability::Fowner)
}

fn owns(who: &Credentials, file: &File) -> Result<(), Errno> {
    if is_owner_or_capable(who, file) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Refuses to change what an immutable or append-only inode says.
fn may_change_inode(file: &File) -> Result<(), Errno> {
    if file.is_fixed() { Err(Errno::EPERM) } else { Ok(()) }
}

/// What setting the mode of `file` to `mode` does; only the low twelve bits of `mode` count. The
/// set-group-id bit is lost without an error if the file's group is not the caller's, of
/// directories too.
///
/// # Errors
///
/// [`Errno::EOPNOTSUPP`] for symbolic links. [`Errno::EPERM`] if the file is immutable or
/// append-only, or somebody else's.
pub fn chmod(who: &Credentials, file: &File, mode: u32) -> Result<Change, Errno> {
    may_change_inode(file)?;
    if file.is(libc::S_IFLNK) {
        return Err(Errno::EOPNOTSUPP);
    }
    owns(who, file)?;
    let mut mode = file.mode & libc::S_IFMT | mode & 0o7777;
    if !who.may_set_gid_bit(file, file.gid) {
        mode &= !libc::S_ISGID;
    }
    let acl = file.acl.map(|acl| acl.with_mode(mode));
    Ok(Change { mode, acl, ..Change::none(file) })
}

/// What giving `file` another user or group does; none leaves it as it is. (`u32::MAX` is what the
/// system call has for none.) Of anything but a directory, set-id bits and capabilities go, whoever
/// asks, even if neither user nor group is given.
///
/// # Errors
///
/// [`Errno::EPERM`] if the file is immutable or append-only, or the caller may not: an owner may
/// give the file to groups of his own; everything else needs `CAP_CHOWN`. And, which no manual
/// tells, if the file loses the set-user-id bit, or a set-group-id bit, and the caller does not
/// count as its owner.
pub fn chown(
    who: &Credentials,
    file: &File,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<Change, Errno> {
    let mut mode = file.mode;
    if !file.is_directory() {
        mode &= !(libc::S_ISUID | lost_gid_bit(who, file));
    }
    let changes_mode = mode != file.mode;
    let changes_inode = changes_mode || uid.is_some() || gid.is_some();
    if file.is_immutable() || changes_inode && file.is_append_only() {
        return Err(Errno::EPERM);
    }
    let is_owner = who.fsuid == file.uid;
    let may_give = uid.is_none_or(|uid| is_owner && uid == file.uid);
    let may_regroup = gid.is_none_or(|gid| is_owner && (gid == file.gid || who.is_in(gid)));
    let is_entitled = may_give && may_regroup || who.has_over(Capability::Chown, file);
    if !is_entitled {
        return Err(Errno::EPERM);
    }
    let gid = gid.unwrap_or(file.gid);
    if changes_mode {
        // The kernel makes this a change of the mode, with all the rules for one.
        owns(who, file)?;
        if !who.may_set_gid_bit(file, gid) {
            mode &= !libc::S_ISGID;
        }
    }
    let drops_capabilities = !file.is_directory();
    Ok(Change { mode, uid: uid.unwrap_or(file.uid), gid, acl: None, drops_capabilities })
}

/// The set-group-id bit, if it is to be cleared: always where it makes a program of the group;
/// where the group may not execute the file, only for strangers to the group.
fn lost_gid_bit(who: &Credentials, file: &File) -> u32 {
    let is_kept = file.mode & libc::S_IXGRP == 0 && who.may_set_gid_bit(file, file.gid);
    if is_kept { 0 } else { libc::S_ISGID }
}

/// What a write to `file`, or a change of its size, does besides: without `CAP_FSETID` it loses its
/// set-id bits, and in any case its capabilities.
///
/// # Errors
///
/// [`Errno::EPERM`] if it is append-only and would lose set-id bits: its mode can't change.
pub(crate) fn after_write(who: &Credentials, file: &File) -> Result<Change, Errno> {
    if !file.is_regular() {
        return Ok(Change::none(file));
    }
    let mut mode = file.mode;
    if !who.has_initially(Capability::Fsetid) {
        mode &= !(libc::S_ISUID | lost_gid_bit(who, file));
    }
    if mode != file.mode {
        may_change_inode(file)?;
    }
    Ok(Change { mode, drops_capabilities: true, ..Change::none(file) })
}

/// Whether the times of `file` may be set.
///
/// # Errors
///
/// [`Errno::EPERM`] if the file is immutable (utimensat(2) says `EACCES` for [`Times::Now`]), or
/// somebody else's, or for [`Times::Explicit`] append-only. [`Errno::EACCES`] for [`Times::Now`] if
/// the file is somebody else's and may not be written to.
pub fn set_times(who: &Credentials, file: &File, times: Times) -> Result<(), Errno> {
    match times {
        Times::Now if file.is_immutable() => Err(Errno::EPERM),
        Times::Now if is_owner_or_capable(who, file) => Ok(()),
        Times::Now => permission(who, file, Access::WRITE),
        Times::Explicit => may_change_inode(file).and_then(|()| owns(who, file)),
    }
}

/// Whether the flags of `file` may be set to `flags`, bits of [`flag`], and its project with them
/// if `changes_project`.
///
/// # Errors
///
/// [`Errno::EPERM`]: somebody else's file; immutable or append-only would change and the caller
/// lacks `CAP_LINUX_IMMUTABLE`; or anything else would change of a file that is and stays
/// immutable. [`Errno::EINVAL`]: a change of projects from a user namespace.
/// [`Errno::EOPNOTSUPP`]: such a file can't have such a flag.
pub fn set_flags(
    who: &Credentials,
    file: &File,
    flags: u32,
    changes_project: bool,
) -> Result<(), Errno> {
    owns(who, file)?;
    let changed = file.flags ^ flags;
    let is_protected = changed & (flag::IMMUTABLE | flag::APPEND) != 0;
    if is_protected && !who.has_initially(Capability::LinuxImmutable) {
        return Err(Errno::EPERM);
    }
    let is_project = changes_project || changed & flag::PROJINHERIT != 0;
    if is_project && who.namespace.is_some() {
        return Err(Errno::EINVAL);
    }
    let possible = match file.mode & libc::S_IFMT {
        libc::S_IFDIR => flag::OF_DIRECTORY,
        libc::S_IFREG => flag::OF_REGULAR,
        _ => flag::OF_ANY,
    };
    if flags & !possible != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let stays_immutable = file.is_immutable() && flags & flag::IMMUTABLE != 0;
    if stays_immutable && (changed != 0 || changes_project) {
        return Err(Errno::EPERM);
    }
    Ok(())
}
