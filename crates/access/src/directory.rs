//! Adding names to directories and taking them away.
//!
//! Every function here is asked after both directories were found to be searchable
//! ([`Access::EXECUTE`]), and after the names in them were looked up.

use crate::{Access, Capability, Credentials, Errno, File, permission};

/// How a name is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Removal {
    /// As a file that is no directory: `unlink`.
    File,
    /// As a directory: `rmdir`.
    Directory,
}

/// A change of a name.
#[derive(Clone, Copy, Debug)]
pub struct Rename<'a> {
    /// The directory that the name is in.
    pub from: &'a File<'a>,
    /// The file that it names.
    pub source: &'a File<'a>,
    /// The directory that the new name is in.
    pub to: &'a File<'a>,
    /// The file that the new name names so far.
    pub target: Option<&'a File<'a>>,
    /// Whether both directories are the same.
    pub stays: bool,
    /// Whether the two names are exchanged (`RENAME_EXCHANGE`); there is a target then.
    pub exchanges: bool,
}

/// Whether the name of `file` may be removed from `directory`.
///
/// # Errors
///
/// - [`Errno::EACCES`], [`Errno::EPERM`]: as [`permission()`] to change the directory's entries.
/// - [`Errno::EPERM`]: the directory is append-only; the file is immutable or append-only; or the
///   directory is sticky, and neither it nor the file is the caller's.
/// - [`Errno::ENOTDIR`], [`Errno::EISDIR`]: the file is no directory, or is one.
pub fn remove(who: &Credentials, directory: &File, file: &File, how: Removal) -> Result<(), Errno> {
    permission(who, directory, Access::CHANGE_ENTRIES)?;
    if directory.is_append_only() || is_sticky(who, directory, file) || file.is_fixed() {
        return Err(Errno::EPERM);
    }
    match (how, file.is_directory()) {
        (Removal::Directory, false) => Err(Errno::ENOTDIR),
        (Removal::File, true) => Err(Errno::EISDIR),
        _ => Ok(()),
    }
}

/// Whether the sticky bit keeps `who` from taking away names of `file`.
fn is_sticky(who: &Credentials, directory: &File, file: &File) -> bool {
    directory.mode & libc::S_ISVTX != 0
        && who.fsuid != file.uid
        && who.fsuid != directory.uid
        && !who.has_over(Capability::Fowner, file)
}

/// Whether a file may be renamed. Source and target are two files: that of one file nothing is
/// asked.
///
/// # Errors
///
/// As [`remove`] for the source, and for a target, which goes too; as
/// [`create`](crate::create()) if there is no target. [`Errno::EACCES`] or [`Errno::EPERM`] if a
/// directory that moves to another parent may not be written to.
pub fn rename(who: &Credentials, change: &Rename) -> Result<(), Errno> {
    let kind = |file: &File| match file.is_directory() {
        true => Removal::Directory,
        false => Removal::File,
    };
    let &Rename { from, source, to, target, stays, exchanges } = change;
    remove(who, from, source, kind(source))?;
    match target {
        None => permission(who, to, Access::CHANGE_ENTRIES)?,
        Some(target) => remove(who, to, target, kind(if exchanges { target } else { source }))?,
    }
    // The entry for the parent in it has to change.
    let moved = [Some(source), target.filter(|_| exchanges)].into_iter().flatten();
    for directory in moved.filter(|file| !stays && file.is_directory()) {
        permission(who, directory, Access::WRITE)?;
    }
    Ok(())
}

/// Whether `file` may get another name, in `directory`.
///
/// # Errors
///
/// As [`create`](crate::create()); [`Errno::EPERM`] if the file is immutable, append-only or a
/// directory.
pub fn link(who: &Credentials, directory: &File, file: &File) -> Result<(), Errno> {
    permission(who, directory, Access::CHANGE_ENTRIES)?;
    if file.is_fixed() || file.is_directory() { Err(Errno::EPERM) } else { Ok(()) }
}
