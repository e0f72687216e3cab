//! Walking paths, as path_resolution(7) and openat2(2) describe it.
//!
//! Each step reads one directory as one committed state, and so finds which file a name is. If no
//! directory was moved from the walk's beginning to its end, the whole walk holds for the moment of
//! its last step: a directory on the way could not be removed while the next one was in it, and
//! could not get to another place. Otherwise it is done again; after 32 times it counts as
//! it is, which is what the kernel promises for walks, unless `..` could have led out of where it
//! had to stay.

use conquest_access::{Credentials, Errno};
use conquest_format::inode::FileType;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::file_system::MOVES;
use crate::inode::FileId;
use crate::names::{LocalName, gone, searchable};
use crate::{Error, FileSystem, Result};

/// Symbolic links that a walk follows.
pub const LINKS_MAX: u32 = 40;
/// Bytes of the longest path.
pub const PATH_MAX: usize = 4095;
/// Times that a walk is done while directories are moved.
const TRIES: u32 = 32;

/// Where walks begin, and how far they may go: the `RESOLVE_` flags of openat2(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// Where absolute paths begin, and what `..` does not lead out of (`RESOLVE_IN_ROOT` if it is
    /// `start`).
    pub root: FileId,
    /// Where others do.
    pub start: FileId,
    /// Nothing but what is below `start` (`RESOLVE_BENEATH`): `EXDEV` otherwise.
    pub beneath: bool,
    /// No symbolic links (`RESOLVE_NO_SYMLINKS`): `ELOOP` otherwise.
    pub no_links: bool,
}

/// The end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last<'p> {
    /// A name in a directory; `slash` if slashes follow it.
    Name {
        /// The name.
        name: &'p [u8],
        /// Whether slashes follow.
        slash: bool,
    },
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// There is none: the path is `/`.
    Root,
}

/// Where the walk of a path has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent<'p> {
    /// The directory in which the last name is to be looked for.
    pub directory: FileId,
    /// The last name.
    pub last: Last<'p>,
}

/// What a path that is to be opened leads to.
pub(crate) struct End {
    /// The directory in which the last name is.
    pub(crate) directory: FileId,
    /// The last name; none if it is `.` or `..`, or there is none.
    pub(crate) name: Option<LocalName>,
    /// Whether slashes follow it.
    pub(crate) slash: bool,
    /// The file of that name, if there is one.
    pub(crate) found: Option<(FileId, FileType)>,
}

/// A walk under way.
struct Walk<'w> {
    base: Base,
    who: &'w Credentials<'w>,
    links: u32,
    /// Whether it has gone up.
    went_up: bool,
}

impl Base {
    /// Paths from the directory `start` on, absolute ones from `root`.
    #[must_use]
    pub const fn new(root: FileId, start: FileId) -> Base {
        Base { root, start, beneath: false, no_links: false }
    }
}

/// The first component of `path` without leading slashes, and what follows it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let from = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    let path = path.get(from..).unwrap_or_default();
    let to = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    path.split_at(to)
}

/// The last of what is left of a path: its only component, and what follows it.
fn last_of(name: &[u8], slash: bool) -> Last<'_> {
    match name {
        [] => Last::Root,
        b"." => Last::Dot,
        b".." => Last::DotDot,
        name => Last::Name { name, slash },
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Walks `path` but for its last component. Symbolic links on the way are followed, with their
    /// own last components.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EXDEV`, and `EAGAIN` if directories
    /// are moved all the time and `..` is not to lead out of a [`Base`].
    pub fn walk_to_parent<'p>(
        &self,
        who: &Credentials,
        base: &Base,
        path: &'p [u8],
    ) -> Result<Parent<'p>> {
        check_path(path)?;
        self.steadily(|| {
            let mut walk = Walk { base: *base, who, links: 0, went_up: false };
            let parent = self.parent(&mut walk, base.start, path)?;
            if parent.last != Last::Root {
                let number = parent.directory.number;
                self.read(number, |view| searchable(view, who, parent.directory).map(drop))?;
            }
            Ok((parent, walk.went_up && self.confines(base)))
        })
    }

    /// The file that `path` leads to, and its type. A symbolic link at its end is followed if
    /// `follow`, or if slashes follow it.
    ///
    /// # Errors
    /// Those of [`Self::walk_to_parent`].
    pub fn walk(
        &self,
        who: &Credentials,
        base: &Base,
        path: &[u8],
        follow: bool,
    ) -> Result<(FileId, FileType)> {
        check_path(path)?;
        self.steadily(|| {
            let mut walk = Walk { base: *base, who, links: 0, went_up: false };
            let found = self.end(&mut walk, base.start, path, follow)?;
            Ok((found, walk.went_up && self.confines(base)))
        })
    }

    /// Where `path` ends, whether there is such a file or not. A symbolic link at its end is
    /// followed if `follow`, or if slashes follow it and nothing is to be made (`makes`).
    ///
    /// # Errors
    /// Those of [`Self::walk_to_parent`].
    pub(crate) fn walk_to_end(
        &self,
        who: &Credentials,
        base: &Base,
        path: &[u8],
        follow: bool,
        makes: bool,
    ) -> Result<End> {
        self.steadily(|| {
            let mut walk = Walk { base: *base, who, links: 0, went_up: false };
            let mut start = base.start;
            let mut end = self.try_end(&mut walk, start, path, makes)?;
            while let Some((link, FileType::Symlink)) = end.found
                && (follow || end.slash && !makes)
            {
                let mut room = [0; PATH_MAX];
                let target = self.link_target(&mut walk, link, &mut room)?;
                start = end.directory;
                let slash = end.slash;
                end = self.try_end(&mut walk, start, target, makes)?;
                end.slash |= slash;
            }
            Ok((end, walk.went_up && self.confines(base)))
        })
    }

    /// The end of `path`, whether there is such a file or not.
    fn try_end(&self, walk: &mut Walk<'_>, start: FileId, path: &[u8], makes: bool) -> Result<End> {
        let Parent { directory, last } = self.parent(walk, start, path)?;
        let Last::Name { name, slash } = last else {
            let found = Some(self.step(walk, directory, last)?);
            return Ok(End { directory, name: None, slash: false, found });
        };
        if makes && slash {
            // There can be no such file, whatever there is.
            self.read(directory.number, |view| searchable(view, walk.who, directory).map(drop))?;
            return Ok(End { directory, name: None, slash, found: None });
        }
        let found = self.lookup(walk.who, directory, name)?;
        Ok(End { directory, name: LocalName::new(name), slash, found })
    }

    /// Whether walks from `base` must not lead out of a directory.
    fn confines(&self, base: &Base) -> bool {
        base.beneath || base.root != self.root()
    }

    /// What `walk` finds, once no directory is moved meanwhile; the walk says whether it matters in
    /// any case.
    fn steadily<T>(&self, mut walk: impl FnMut() -> Result<(T, bool)>) -> Result<T> {
        for _ in 0..TRIES {
            let stamp = self.core().stamp(MOVES);
            let found = walk();
            if self.core().is_current(stamp) {
                return found.map(|(found, _)| found);
            }
        }
        match walk()? {
            (_, true) => Err(Errno::EAGAIN.into()),
            (found, false) => Ok(found),
        }
    }

    /// Walks `path` from `start` but for its last component.
    fn parent<'p>(&self, walk: &mut Walk<'_>, start: FileId, path: &'p [u8]) -> Result<Parent<'p>> {
        let mut at = match path.first() {
            Some(b'/') if walk.base.beneath => return Err(Errno::EXDEV.into()),
            Some(b'/') => walk.base.root,
            _ => start,
        };
        let (mut name, mut rest) = split(path);
        loop {
            let (next, after) = split(rest);
            if next.is_empty() {
                let directory = at;
                return Ok(Parent { directory, last: last_of(name, !rest.is_empty()) });
            }
            let mut found = self.step(walk, at, last_of(name, true))?;
            if found.1 == FileType::Symlink {
                found = self.follow_link(walk, at, found.0)?;
            }
            at = match found {
                (file, FileType::Directory) => file,
                _ => return Err(Errno::ENOTDIR.into()),
            };
            (name, rest) = (next, after);
        }
    }

    /// The file at the end of `path`.
    fn end(
        &self,
        walk: &mut Walk<'_>,
        start: FileId,
        path: &[u8],
        follow: bool,
    ) -> Result<(FileId, FileType)> {
        let parent = self.parent(walk, start, path)?;
        let slash = matches!(parent.last, Last::Name { slash: true, .. });
        let (file, file_type) = self.step(walk, parent.directory, parent.last)?;
        let (file, file_type) = match file_type {
            FileType::Symlink if follow || slash => {
                self.follow_link(walk, parent.directory, file)?
            }
            file_type => (file, file_type),
        };
        if slash && file_type != FileType::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        Ok((file, file_type))
    }

    /// One component.
    fn step(&self, walk: &mut Walk<'_>, at: FileId, last: Last<'_>) -> Result<(FileId, FileType)> {
        let name: &[u8] = match last {
            Last::Root => return Ok((at, FileType::Directory)),
            Last::Dot => b".",
            Last::DotDot if at == walk.base.root => b".",
            Last::DotDot => {
                if walk.base.beneath && at == walk.base.start {
                    return Err(Errno::EXDEV.into());
                }
                walk.went_up = true;
                b".."
            }
            Last::Name { name, .. } => name,
        };
        self.lookup(walk.who, at, name)?.ok_or(Error::Refused(Errno::ENOENT))
    }

    /// Follows the symbolic link `link`, found in the directory `at`. Its target is on the stack: a
    /// link whose target leads on by links takes 4 KiB for each of these.
    fn follow_link(
        &self,
        walk: &mut Walk<'_>,
        at: FileId,
        link: FileId,
    ) -> Result<(FileId, FileType)> {
        let mut room = [0; PATH_MAX];
        let target = self.link_target(walk, link, &mut room)?;
        self.end(walk, at, target, true)
    }

    /// Where the symbolic link `link` leads, if it may be followed: in `room`.
    fn link_target<'r>(
        &self,
        walk: &mut Walk<'_>,
        link: FileId,
        room: &'r mut [u8; PATH_MAX],
    ) -> Result<&'r [u8]> {
        if walk.links == LINKS_MAX || walk.base.no_links {
            return Err(Errno::ELOOP.into());
        }
        walk.links += 1;
        let len = self.read_link(link, room).map_err(gone)?;
        Ok(room.get(..len).unwrap_or_default())
    }
}

/// What the kernel says of a path before it walks any.
pub(crate) fn check_path(path: &[u8]) -> Result<()> {
    match path.len() {
        0 => Err(Errno::ENOENT.into()),
        len if len > PATH_MAX => Err(Errno::ENAMETOOLONG.into()),
        _ => Ok(()),
    }
}
