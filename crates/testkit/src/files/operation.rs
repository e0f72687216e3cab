//! Operations on a small tree of files.

use std::io::IoSlice;

use conquest_access::{Capabilities, Credentials, Removal};
use conquest_fs::attributes::SetTime;
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::names::{New, Renaming};
use conquest_fs::open::{End, How, OpenFile, Whence};
use conquest_fs::paths::Path as FilePath;
use conquest_fs::walk::Base;
use conquest_fs::xattr::Setting;
use conquest_fs::{Error, FileSystem};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Makes an empty regular file.
    Make(&'static str),
    /// Makes a directory.
    MakeDirectory(&'static str),
    /// Makes a symbolic link with a target of so many bytes.
    Symlink(usize, &'static str),
    /// Gives the first file the second name.
    Link(&'static str, &'static str),
    /// Removes a file.
    Unlink(&'static str),
    /// Removes a directory.
    RemoveDirectory(&'static str),
    /// Renames.
    Rename(&'static str, &'static str, Renaming),
    /// Sets the permissions to these.
    SetMode(&'static str, u32),
    /// Sets the owning user.
    SetOwner(&'static str, u32),
    /// Sets the time of modification.
    SetTime(&'static str, i64),
    /// Makes a file with a name of 255 bytes in the directory, the number being part of it.
    MakeLong(&'static str, u32),
    /// Writes so many bytes to this place of a file.
    Write(&'static str, u64, usize),
    /// Writes so many bytes to the end of a file.
    Append(&'static str, usize),
    /// Sets the size of a file.
    Truncate(&'static str, u64),
    /// Does this with so many bytes from this place of a file on.
    Range(&'static str, Allocate, u64, u64),
    /// Gives a file an attribute of so many bytes, or none.
    Attribute(&'static str, Option<usize>),
    /// Opens a file, removes it, writes to it if it has no name any more, and closes it.
    UnlinkOpen(&'static str),
    /// Makes a file without a name in the directory, writes so many bytes to it, gives it the name,
    /// and closes it.
    LinkOpen(&'static str, usize, &'static str),
    /// Copies so many bytes from this place of the first file to that one of the second.
    CopyRange(&'static str, u64, &'static str, u64, u64),
    /// Writes so many bytes to this place of a file, from two buffers.
    Gather(&'static str, u64, [usize; 2]),
    /// Opens a file and passes it on; who gets it writes so many bytes to this place of it.
    WritePassed(&'static str, u64, usize),
    /// Opens a file and passes it on; it is removed, and closed by all.
    UnlinkPassed(&'static str),
}

use Op::{
    Append, Attribute, CopyRange, Gather, Link, LinkOpen, Make, MakeDirectory, MakeLong, Range,
    RemoveDirectory, Rename, SetMode, SetOwner, SetTime as Time, Symlink, Truncate, Unlink,
    UnlinkOpen, UnlinkPassed, Write, WritePassed,
};

/// Names of 255 bytes that the directory `k` begins with: they fill its one bucket.
pub(super) const LONG_NAMES: u32 = 14;

/// The operations: all kinds of them, in all positions, that succeed or not.
pub const OPERATIONS: [Op; 58] = [
    Make("n"),
    Make("d/n"),
    MakeDirectory("m"),
    MakeDirectory("d/m"),
    Symlink(5, "s"),
    Symlink(3000, "e/t"),
    Link("a", "d/b"),
    Link("e/f", "g"),
    Unlink("a"),
    Unlink("e/f"),
    Unlink("e/s"),
    RemoveDirectory("d"),
    RemoveDirectory("e"),
    Rename("a", "n", Renaming::NoReplace),
    Rename("a", "d/a", Renaming::Replace),
    Rename("a", "e/f", Renaming::Replace),
    Rename("e/f", "a", Renaming::Replace),
    Rename("d", "e/d", Renaming::Replace),
    Rename("d", "c", Renaming::Replace),
    Rename("e", "d", Renaming::Replace),
    Rename("a", "e/f", Renaming::Exchange),
    Rename("d", "e/f", Renaming::Exchange),
    Rename("d", "e", Renaming::Exchange),
    Rename("a", "d/w", Renaming::Whiteout),
    SetMode("a", 0o640),
    SetOwner("e", 7),
    Time("e/f", 9),
    MakeLong("k", 99),
    Rename("a", "k/x", Renaming::Replace),
    Unlink("k/y"),
    Write("a", 50, 100),
    Write("a", 10, 3000),
    Write("a", 9000, 10),
    Append("a", 40),
    Write("e/f", 4000, 300),
    Write("e/f", 4000, 5000),
    Write("e/f", 16_394, 4080),
    Write("k/y", 1, 3500),
    Append("k/y", 5000),
    Truncate("e/f", 0),
    Truncate("k/y", 4096),
    Truncate("a", 5000),
    Range("e/f", Allocate::Hole, 100, 8092),
    Range("k/y", Allocate::Space { keeps_size: false }, 9000, 9000),
    Attribute("a", Some(20)),
    Attribute("e/f", Some(3000)),
    Attribute("e/f", None),
    Attribute("d", Some(100)),
    UnlinkOpen("a"),
    UnlinkOpen("k/y"),
    LinkOpen("d", 3000, "d/t"),
    LinkOpen("", 100, "g"),
    CopyRange("a", 20, "k/y", 100, 70),
    CopyRange("k/y", 0, "a", 50, 5000),
    Gather("e/f", 4090, [3, 20]),
    Gather("a", 90, [2000, 1500]),
    WritePassed("a", 50, 100),
    UnlinkPassed("k/y"),
];

/// Operations that need no space, as far as they are about what is there: for a store that is
/// [`full`](super::full_base).
pub const ON_FULL: [Op; 14] = [
    Write("a", 3, 90),
    Write("a", 10, 3000),
    Write("k/y", 100, 1500),
    Write("k/y", 4000, 1500),
    Write("k/y", 0, 4096),
    Write("e/f", 16_394, 4080),
    Write("e/f", 17_000, 4096),
    Append("k/y", 1500),
    Append("e/f", 100),
    Range("e/f", Allocate::Zeros { keeps_size: false }, 16_384, 4096),
    Range("k/y", Allocate::Zeros { keeps_size: true }, 2001, 3000),
    // What it gave back, growing could lack.
    Truncate("k/y", 5000),
    UnlinkOpen("k/y"),
    Unlink("e/f"),
];

/// The files that have all the space of a full store.
pub const FILLERS: [&str; 2] = ["o/full", "o/rest"];

/// What the tree is before: `a` has packed content, `k/y` an extent and `e/f` a tree. No operation
/// is about what is in `o`.
pub(super) const EARLIER: [Op; 16] = [
    Make("a"),
    MakeDirectory("d"),
    MakeDirectory("e"),
    MakeDirectory("k"),
    Make("e/f"),
    Link("a", "e/l"),
    Symlink(30, "e/s"),
    Make("k/y"),
    MakeDirectory("o"),
    Make("o/f"),
    Write("a", 0, 100),
    Write("k/y", 0, 6000),
    Write("e/f", 0, 100),
    Write("e/f", 4 << 12, 5000),
    Write("o/f", 0, 3000),
    Attribute("e/f", Some(10)),
];

impl Op {
    /// Its kind, in a word.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Make(_) => "make",
            MakeLong(..) => "make with a long name",
            MakeDirectory(_) => "mkdir",
            Symlink(..) => "symlink",
            Link(..) => "link",
            Unlink(_) => "unlink",
            RemoveDirectory(_) => "rmdir",
            Rename(_, _, Renaming::Exchange) => "exchange",
            Rename(_, _, Renaming::Whiteout | Renaming::WhiteoutNoReplace) => "rename, whiteout",
            Rename(..) => "rename",
            SetMode(..) => "chmod",
            SetOwner(..) => "chown",
            Time(..) => "utimens",
            Write(..) => "write",
            Append(..) => "append",
            Truncate(..) => "truncate",
            Attribute(_, Some(_)) => "setxattr",
            Attribute(_, None) => "removexattr",
            UnlinkOpen(_) => "unlink while open",
            LinkOpen(..) => "link an open file",
            CopyRange(..) => "copy",
            Gather(..) => "write of two buffers",
            WritePassed(..) => "write to a shared file",
            UnlinkPassed(..) => "unlink while shared",
            Range(_, Allocate::Hole, ..) => "punch",
            Range(_, Allocate::Zeros { .. }, ..) => "zero",
            Range(_, Allocate::Space { .. }, ..) => "allocate",
        }
    }

    /// Does it; whether anything has happened. That it can't be done, for what the tree is, is no
    /// error.
    ///
    /// # Errors
    /// Those of the region.
    pub fn perform<M: Memory, H: Host>(&self, files: &FileSystem<M, H>) -> Result<bool, Error> {
        let base = Base::new(files.root(), files.root());
        let at = |path: &'static str| FilePath { base: &base, bytes: path.as_bytes() };
        let who = &root_user();
        let find = |path| files.find(who, at(path), true);
        let done = match *self {
            UnlinkOpen(path) => unlink_open(files, at(path)),
            LinkOpen(directory, len, path) => {
                let directory = if directory.is_empty() { "." } else { directory };
                link_open(files, at(directory), len, at(path))
            }
            CopyRange(source, from, target, to, len) => {
                copy(files, (at(source), from), (at(target), to), len)
            }
            Gather(path, from, lens) => gather(files, at(path), from, lens),
            WritePassed(path, from, len) => with_passed(files, at(path), |open| {
                files.seek_to(open, from as i64, Whence::Start)?;
                files.write_next(who, open, &content(from, len)).map(drop)
            }),
            UnlinkPassed(path) => {
                with_passed(files, at(path), |_| files.remove_at(who, at(path), Removal::File))
            }
            Make(path) => files.create_at(who, at(path), New::Regular, 0o644).map(drop),
            MakeDirectory(path) => files.create_at(who, at(path), New::Directory, 0o755).map(drop),
            Symlink(len, path) => {
                let target = vec![b't'; len];
                files.create_at(who, at(path), New::Symlink(&target), 0o777).map(drop)
            }
            Link(old, new) => files.link_at(who, at(old), false, at(new)),
            Unlink(path) => files.remove_at(who, at(path), Removal::File),
            RemoveDirectory(path) => files.remove_at(who, at(path), Removal::Directory),
            Rename(old, new, how) => files.rename_at(who, at(old), at(new), how),
            SetMode(path, mode) => find(path).and_then(|file| files.set_mode(who, file, mode)),
            SetOwner(path, uid) => {
                find(path).and_then(|file| files.set_owner(who, file, Some(uid), None))
            }
            Time(path, time) => find(path)
                .and_then(|file| files.set_times(who, file, SetTime::Omit, SetTime::At(time))),
            MakeLong(directory, number) => {
                let name = format!("{number:0>255}");
                find(directory).and_then(|directory| {
                    files.create(who, directory, name.as_bytes(), New::Regular, 0o600).map(drop)
                })
            }
            Write(path, from, len) => find(path).and_then(|file| {
                let bytes = content(from, len);
                files.write(who, file, WriteAt::Offset(from), &bytes).map(drop)
            }),
            Append(path, len) => find(path)
                .and_then(|file| files.write(who, file, WriteAt::End, &content(1, len)).map(drop)),
            Truncate(path, size) => find(path).and_then(|file| files.truncate(who, file, size)),
            Attribute(path, Some(len)) => find(path).and_then(|file| {
                files.set_attribute(who, file, ATTRIBUTE, &content(3, len), Setting::Any)
            }),
            Attribute(path, None) => {
                find(path).and_then(|file| files.remove_attribute(who, file, ATTRIBUTE))
            }
            Range(path, how, from, len) => {
                find(path).and_then(|file| files.allocate(who, file, how, from, len))
            }
        };
        match done {
            Ok(()) => Ok(true),
            Err(Error::Refused(_) | Error::Stale) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Opens the file at `path`, removes it, writes to it, and closes it.
fn unlink_open<M: Memory, H: Host>(
    files: &FileSystem<M, H>,
    path: FilePath<'_>,
) -> Result<(), Error> {
    let who = &root_user();
    let how = How::from_open(libc::O_RDWR as u32, 0)?;
    let open = files.open_at(who, path, &how)?;
    let done = files.remove_at(who, path, Removal::File).and_then(|()| {
        // Unless it has another name, where it would be seen.
        match files.stat(open.file)?.links {
            0 => files.write_next(who, &open, &content(7, 3000)).map(drop),
            _ => Ok(()),
        }
    });
    files.close(&open)?;
    done
}

/// Makes a file without a name, writes to it, gives it one, and closes it.
fn link_open<M: Memory, H: Host>(
    files: &FileSystem<M, H>,
    directory: FilePath<'_>,
    len: usize,
    path: FilePath<'_>,
) -> Result<(), Error> {
    let who = &root_user();
    let how = How::from_open((libc::O_TMPFILE | libc::O_RDWR) as u32, 0o644)?;
    let open = files.open_at(who, directory, &how)?;
    let done = files
        .write_next(who, &open, &content(9, len))
        .and_then(|_| files.link_open(who, &open, path));
    files.close(&open)?;
    done
}

/// Opens two files, copies from one to the other, and closes them.
fn copy<M: Memory, H: Host>(
    files: &FileSystem<M, H>,
    (source, from): (FilePath<'_>, u64),
    (target, to): (FilePath<'_>, u64),
    len: u64,
) -> Result<(), Error> {
    let who = &root_user();
    let source = files.open_at(who, source, &How::from_open(libc::O_RDONLY as u32, 0)?)?;
    let target = match files.open_at(who, target, &How::from_open(libc::O_WRONLY as u32, 0)?) {
        Ok(target) => target,
        Err(error) => {
            files.close(&source)?;
            return Err(error);
        }
    };
    let ends = [(&source, from), (&target, to)].map(|(open, at)| End { open, at: Some(at) });
    let done = files.copy_range(who, ends[0], ends[1], len, 0).map(drop);
    files.close(&source)?;
    files.close(&target)?;
    done
}

/// Opens the file at `path`, writes to it from two buffers, and closes it.
fn gather<M: Memory, H: Host>(
    files: &FileSystem<M, H>,
    path: FilePath<'_>,
    from: u64,
    lens: [usize; 2],
) -> Result<(), Error> {
    let who = &root_user();
    let open = files.open_at(who, path, &How::from_open(libc::O_WRONLY as u32, 0)?)?;
    let bytes = lens.map(|len| content(from, len));
    let parts = bytes.each_ref().map(|bytes| IoSlice::new(bytes));
    let done = files.write_vector(who, &open, Some(from), &parts, 0).map(drop);
    files.close(&open)?;
    done
}

/// Opens the file at `path`, passes it on, closes it where it was opened, and does `what` where it
/// was received.
fn with_passed<M: Memory, H: Host>(
    files: &FileSystem<M, H>,
    path: FilePath<'_>,
    what: impl FnOnce(&OpenFile) -> Result<(), Error>,
) -> Result<(), Error> {
    let open = files.open_at(&root_user(), path, &How::from_open(libc::O_RDWR as u32, 0)?)?;
    let parcel = files.core().parcel()?;
    files.pack(&parcel, &open)?;
    files.close(&open)?;
    let mut done = Ok(());
    let mut what = Some(what);
    for (_, passed) in files.unpack(parcel)? {
        if let Some(what) = what.take() {
            done = what(&passed);
        }
        files.close(&passed)?;
    }
    done
}

/// The one attribute that files have here.
pub(super) const ATTRIBUTE: &[u8] = b"user.some";

/// Bytes to write: never 0, so that they are told from holes.
#[must_use]
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|index| (seed + 31 * index as u64) as u8 | 1).collect()
}

/// Root, with all capabilities.
#[must_use]
pub fn root_user() -> Credentials<'static> {
    Credentials {
        fsuid: 0,
        fsgid: 0,
        groups: &[],
        capabilities: Capabilities::ALL,
        umask: 0o022,
        namespace: None,
    }
}
