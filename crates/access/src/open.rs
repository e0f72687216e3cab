//! Opening files, and changing the content of what is open.
//!
//! Whatever changes content has a [`Change`] to be made with it.

use crate::owner::after_write;
use crate::{Access, Change, Credentials, Errno, File, is_owner_or_capable, permission};

/// How a file is opened: what the rules need of the flags of `open(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Open {
    /// To read: `O_RDONLY` or `O_RDWR`.
    pub read: bool,
    /// To write: `O_WRONLY` or `O_RDWR`.
    pub write: bool,
    /// `O_APPEND`.
    pub append: bool,
    /// `O_TRUNC`.
    pub truncate: bool,
    /// `O_NOATIME`.
    pub no_access_time: bool,
}

/// Whether an existing `file` may be opened, and what changes if it is truncated. A file that the
/// same call has made may be opened whatever its mode: nothing is asked then.
///
/// # Errors
///
/// - [`Errno::ELOOP`]: a symbolic link (`O_NOFOLLOW`).
/// - [`Errno::EISDIR`]: a directory, to write or truncate.
/// - [`Errno::EPERM`], [`Errno::EACCES`]: as [`permission()`]. Truncating needs permission to
///   write, though it does not open the file for writing.
/// - [`Errno::EPERM`]: an append-only file, to truncate, or to write but not to append; or
///   `O_NOATIME` for somebody else's file.
pub fn open(who: &Credentials, file: &File, how: Open) -> Result<Change, Errno> {
    let wants_write = how.write || how.truncate;
    let truncates = match file.mode & libc::S_IFMT {
        libc::S_IFLNK => return Err(Errno::ELOOP),
        libc::S_IFDIR if wants_write => return Err(Errno::EISDIR),
        libc::S_IFREG | libc::S_IFDIR => how.truncate,
        // There is nothing to truncate, but the permission was asked for.
        _ => false,
    };
    let read = if how.read { Access::READ } else { Access::NONE };
    let write = if wants_write { Access::WRITE } else { Access::NONE };
    permission(who, file, read | write)?;
    let only_appends = !truncates && (how.append || !how.write);
    if file.is_append_only() && !only_appends {
        return Err(Errno::EPERM);
    }
    if how.no_access_time && !is_owner_or_capable(who, file) {
        return Err(Errno::EPERM);
    }
    if truncates { after_write(who, file) } else { Ok(Change::none(file)) }
}

/// What truncating `file` by its name changes.
///
/// # Errors
///
/// [`Errno::EISDIR`] for directories, [`Errno::EINVAL`] for what else is no regular file;
/// [`Errno::EACCES`] or [`Errno::EPERM`] as [`permission()`] to write, [`Errno::EPERM`] if it is
/// append-only.
pub fn truncate(who: &Credentials, file: &File) -> Result<Change, Errno> {
    if file.is_directory() {
        return Err(Errno::EISDIR);
    }
    if !file.is_regular() {
        return Err(Errno::EINVAL);
    }
    permission(who, file, Access::WRITE)?;
    truncate_open(who, file)
}

/// What truncating `file`, by a descriptor that is open for writing, changes. `who` is who does it,
/// not who opened it; so are the next two.
///
/// # Errors
///
/// [`Errno::EPERM`] if it has become immutable or append-only.
pub fn truncate_open(who: &Credentials, file: &File) -> Result<Change, Errno> {
    if file.is_fixed() { Err(Errno::EPERM) } else { after_write(who, file) }
}

/// What writing to `file`, by a descriptor that is open for writing, changes. A file that has
/// become append-only since may even be overwritten.
///
/// # Errors
///
/// [`Errno::EPERM`] if it has become immutable; or if it is append-only and would lose set-id bits:
/// its mode can't change (which no manual tells, and which is so on ext4 but not on tmpfs).
pub fn write_open(who: &Credentials, file: &File) -> Result<Change, Errno> {
    if file.is_immutable() { Err(Errno::EPERM) } else { after_write(who, file) }
}

/// What allocating space of `file`, by a descriptor that is open for writing, changes: `fallocate`
/// with at most `FALLOC_FL_KEEP_SIZE`, or, if `punches`, in other ways.
///
/// # Errors
///
/// As [`write_open`]; and [`Errno::EPERM`] if it is append-only and `punches`.
pub fn allocate(who: &Credentials, file: &File, punches: bool) -> Result<Change, Errno> {
    if punches { truncate_open(who, file) } else { write_open(who, file) }
}
