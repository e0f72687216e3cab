//! Several operations in one call (MB 10).
//!
//! Entering a library costs next to nothing, so what a bundle saves is what its operations would
//! each do again: a directory that several in a row name is looked for once. They do what they
//! would do one by one, for whoever could see the difference in this process: what is remembered
//! of a directory is forgotten where an operation of the bundle itself may lead its path elsewhere
//! ([`Near`]).

use std::ffi::OsStr;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use conquest_access::{Errno, Removal};
use conquest_fs::attributes::SetTime;
use conquest_fs::dir::FileType;
use conquest_fs::names::{New, Renaming};
use conquest_fs::walk::{Base, PATH_MAX};

use super::local::with_copy;
use super::{File, Files, Metadata, OpenOptions};
use crate::name::Name;
use crate::{Error, Result};

/// An operation of a bundle: each does what the method does that it names, and gives what that
/// returns.
#[derive(Debug)]
pub enum Operation<'o> {
    /// [`Files::metadata`], or [`Files::symlink_metadata`] if not `follow`: [`Done::Metadata`].
    Metadata {
        /// Of which file.
        path: &'o Path,
        /// Whether a symbolic link there is followed.
        follow: bool,
    },
    /// [`Files::open_with`]: [`Done::File`].
    Open {
        /// Which file.
        path: &'o Path,
        /// How.
        options: &'o OpenOptions,
    },
    /// [`Files::read_at`]: [`Done::Bytes`].
    Read {
        /// Of which file.
        path: &'o Path,
        /// From which byte on.
        offset: u64,
        /// Where its bytes go.
        out: &'o mut [u8],
    },
    /// Opens a file, writes as [`File::write_at`], and closes it: [`Done::Bytes`].
    Write {
        /// Which file.
        path: &'o Path,
        /// How it is opened.
        options: &'o OpenOptions,
        /// From which byte on.
        offset: u64,
        /// What.
        bytes: &'o [u8],
    },
    /// [`File::read_with`], of one buffer: [`Done::Bytes`].
    ReadOpen {
        /// Of which file.
        file: &'o File,
        /// From which byte on; none: from the position on.
        at: Option<u64>,
        /// Where its bytes go.
        out: &'o mut [u8],
    },
    /// [`File::write_with`], of one buffer: [`Done::Bytes`].
    WriteOpen {
        /// To which file.
        file: &'o File,
        /// From which byte on; none: from the position on.
        at: Option<u64>,
        /// What.
        bytes: &'o [u8],
    },
    /// [`Files::read_link`]: [`Done::Target`].
    ReadLink {
        /// Of which symbolic link.
        path: &'o Path,
    },
    /// [`Files::make_node`]: [`Done::Nothing`].
    Make {
        /// Where.
        path: &'o Path,
        /// What.
        what: New<'o>,
        /// Its permissions, before the mask.
        mode: u32,
    },
    /// [`Files::hard_link`]: [`Done::Nothing`].
    Link {
        /// Which file.
        old: &'o Path,
        /// Its further name.
        new: &'o Path,
    },
    /// [`Files::rename_with`]: [`Done::Nothing`].
    Rename {
        /// What.
        old: &'o Path,
        /// Its new name.
        new: &'o Path,
        /// How.
        how: Renaming,
    },
    /// [`Files::remove_file`] or [`Files::remove_dir`]: [`Done::Nothing`].
    Remove {
        /// What.
        path: &'o Path,
        /// Which of the two.
        how: Removal,
    },
    /// [`Files::truncate`]: [`Done::Nothing`].
    Truncate {
        /// Which file.
        path: &'o Path,
        /// How long it is then, in bytes.
        size: u64,
    },
    /// [`Files::set_permissions`]: [`Done::Nothing`].
    SetPermissions {
        /// Of which file.
        path: &'o Path,
        /// The twelve bits.
        mode: u32,
    },
    /// [`Files::set_owner`]: [`Done::Nothing`].
    SetOwner {
        /// Of which file.
        path: &'o Path,
        /// Its user then.
        uid: Option<u32>,
        /// Its group then.
        gid: Option<u32>,
    },
    /// [`Files::set_times`]: [`Done::Nothing`].
    SetTimes {
        /// Of which file.
        path: &'o Path,
        /// When it was last looked at.
        accessed: SetTime,
        /// When it was last changed.
        modified: SetTime,
    },
}

/// What an operation of a bundle returns.
#[derive(Debug)]
pub enum Done {
    /// It is done.
    Nothing,
    /// What is known of a file.
    Metadata(Metadata),
    /// An open file.
    File(File),
    /// How many bytes.
    Bytes(usize),
    /// The target of a symbolic link.
    Target(PathBuf),
}

impl Files {
    /// Does `operations`, one after the other, and gives what each returns: all of them, whether
    /// others fail or not.
    ///
    /// Each is atomic by itself, and they are not so together: others may see the first one done
    /// and the second one not. A directory that several operations in a row have before the last
    /// name of their paths is looked for once, and stays the one that was found even if others move
    /// it meanwhile, or take the permission to go there: as if it had been opened.
    ///
    /// ```no_run
    /// use std::path::Path;
    /// use conquest::{Done, Files, Operation, Result};
    ///
    /// /// Bytes of the files of these names; none of those that can't be looked at.
    /// fn sizes(files: &Files, names: &[&Path]) -> Vec<Option<u64>> {
    ///     let look = |path| Operation::Metadata { path, follow: true };
    ///     let done = files.bundle(names.iter().map(|path| look(path)));
    ///     let size = |one: Result<Done>| match one {
    ///         Ok(Done::Metadata(found)) => Some(found.len()),
    ///         _ => None,
    ///     };
    ///     done.into_iter().map(size).collect()
    /// }
    /// ```
    pub fn bundle<'o>(
        &self,
        operations: impl IntoIterator<Item = Operation<'o>>,
    ) -> Vec<Result<Done>> {
        let mut near = Near { far: self, files: self.clone(), known: None };
        operations.into_iter().map(|operation| near.does(operation)).collect()
    }
}

/// Files of somebody, with the directory that was named last.
struct Near<'f, 'o> {
    /// Where paths begin.
    far: &'f Files,
    /// The same, or, where `known` says so, with that directory as the beginning.
    files: Files,
    known: Option<Known<'o>>,
}

/// A directory that was looked for.
#[derive(Clone, Copy)]
struct Known<'o> {
    /// By this path.
    path: &'o [u8],
    /// Whether symbolic links led there, so that changes of names in the directory may lead the
    /// path elsewhere. (Otherwise none on the way is in it.)
    by_links: bool,
}

/// The directory and the last name of a path that has both, if that is a name whatever there is,
/// and the way to the directory leads down.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let cut = path.iter().rposition(|&byte| byte == b'/')?;
    let (directory, name) = (path.get(..cut)?, path.get(cut + 1..)?);
    let is_plain = path.len() <= PATH_MAX && !directory.is_empty();
    let leads_down = !directory.split(|&byte| byte == b'/').any(|part| part == b"..");
    (is_plain && leads_down && !matches!(name, b"" | b"." | b"..")).then_some((directory, name))
}

impl<'o> Near<'_, 'o> {
    fn does(&mut self, operation: Operation<'o>) -> Result<Done> {
        match operation {
            Operation::Metadata { path, follow: true } => {
                self.at(path, |files, path| files.metadata(path)).map(Done::Metadata)
            }
            Operation::Metadata { path, follow: false } => {
                self.at(path, |files, path| files.symlink_metadata(path)).map(Done::Metadata)
            }
            Operation::Open { path, options } => self.open(path, options).map(Done::File),
            Operation::Read { path, offset, out } => {
                self.at(path, |files, path| files.read_at(path, out, offset)).map(Done::Bytes)
            }
            Operation::Write { path, options, offset, bytes } => {
                let file = self.open(path, options)?;
                let written = file.write_at(bytes, offset);
                written.and_then(|len| file.close().map(|()| Done::Bytes(len)))
            }
            Operation::ReadOpen { file, at, out } => {
                file.read_with(&mut [IoSliceMut::new(out)], at, 0).map(Done::Bytes)
            }
            Operation::WriteOpen { file, at, bytes } => {
                file.write_with(&[IoSlice::new(bytes)], at, 0).map(Done::Bytes)
            }
            Operation::ReadLink { path } => {
                self.at(path, |files, path| files.read_link(path)).map(Done::Target)
            }
            Operation::Make { path, what, mode } => {
                self.changes(path, |files, path| files.make_node(path, what, mode))
            }
            Operation::Link { old, new } => self.far.hard_link(old, new).map(|()| Done::Nothing),
            Operation::Rename { old, new, how } => self.rename(old, new, how),
            Operation::Remove { path, how } => {
                let removed = self.changes(path, |files, path| match how {
                    Removal::File => files.remove_file(path),
                    Removal::Directory => files.remove_dir(path),
                });
                self.forget_links();
                removed
            }
            Operation::Truncate { path, size } => {
                self.changes(path, |files, path| files.truncate(path, size))
            }
            Operation::SetPermissions { path, mode } => {
                let set = self.changes(path, |files, path| files.set_permissions(path, mode));
                self.known = None;
                set
            }
            Operation::SetOwner { path, uid, gid } => {
                let set = self.changes(path, |files, path| files.set_owner(path, uid, gid));
                self.known = None;
                set
            }
            Operation::SetTimes { path, accessed, modified } => {
                self.changes(path, |files, path| files.set_times(path, accessed, modified))
            }
        }
    }

    fn open(&mut self, path: &'o Path, options: &OpenOptions) -> Result<File> {
        let opened = self.at(path, |files, path| files.open_with(path, options));
        opened.map(|file| file.called(Name::new(path.as_os_str().as_bytes())))
    }

    fn rename(&mut self, old: &'o Path, new: &'o Path, how: Renaming) -> Result<Done> {
        let [from, to] = [old, new].map(|path| split(path.as_os_str().as_bytes()));
        let renamed = match (from, to) {
            // In a directory, as what was written is renamed to what it replaces.
            (Some((from, old_name)), Some((to, new_name))) if from == to && self.finds(from) => {
                let [old_name, new_name] = [old_name, new_name].map(as_path);
                let renamed = self.files.rename_with(old_name, new_name, how);
                self.forget_links();
                renamed.map_err(about(old, Some(new)))
            }
            _ => {
                self.known = None;
                self.far.rename_with(old, new, how)
            }
        };
        renamed.map(|()| Done::Nothing)
    }

    /// Does `work` with the file at `path`, which gives nothing.
    fn changes(
        &mut self,
        path: &'o Path,
        work: impl FnOnce(&Files, &Path) -> Result<()>,
    ) -> Result<Done> {
        self.at(path, work).map(|()| Done::Nothing)
    }

    /// Does `work` with `path`, or with its last name in the directory before it.
    fn at<T>(
        &mut self,
        path: &'o Path,
        work: impl FnOnce(&Files, &Path) -> Result<T>,
    ) -> Result<T> {
        match split(path.as_os_str().as_bytes()) {
            Some((directory, name)) if self.finds(directory) => {
                work(&self.files, as_path(name)).map_err(about(path, None))
            }
            _ => {
                // What this does may lead the known one's path elsewhere.
                self.known = None;
                work(self.far, path)
            }
        }
    }

    /// Whether there is a directory at `path` where relative paths can begin: then they do.
    fn finds(&mut self, path: &'o [u8]) -> bool {
        if self.known.is_some_and(|known| known.path == path) {
            return true;
        }
        let Files { actor, base, .. } = self.far;
        // Beneath another beginning would be elsewhere.
        if base.beneath {
            return false;
        }
        let walk = |base: &Base| {
            with_copy(&[path], |path| actor.fs().walk(&actor.who(), base, path, true))
        };
        let straight = walk(&Base { no_links: true, ..*base });
        let by_links = straight.as_ref().is_err_and(|error| error.errno() == Errno::ELOOP);
        match if by_links { walk(base) } else { straight } {
            Ok((directory, FileType::Directory)) => {
                self.files.base.start = directory;
                self.known = Some(Known { path, by_links });
                true
            }
            // It is done with the whole path, which says what is wrong.
            _ => false,
        }
    }

    /// Names in the known directory have changed.
    fn forget_links(&mut self) {
        self.known = self.known.filter(|known| !known.by_links);
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Lets an error be about the paths that the caller gave.
fn about(one: &Path, other: Option<&Path>) -> impl FnOnce(Error) -> Error {
    let name = |path: &Path| Name::new(path.as_os_str().as_bytes());
    move |error| match error {
        Error::File(error) => error.called(name(one), other.map(name)).into(),
        error => error,
    }
}
