//! Operations on a small tree of files, which meet as often as operations can, and what a tree is:
//! all that tells whether each of them has happened as a whole.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use conquest_access::{Capabilities, Credentials, Removal};
use conquest_format::geometry::Shape;
use conquest_format::inode::{Owner, SIZE_MAX};
use conquest_format::{GROUP_PAGES, PAGE, checksum, fs};
use conquest_fs::attributes::SetTime;
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::dir::FileType;
use conquest_fs::names::{New, Renaming};
use conquest_fs::open::{How, bury};
use conquest_fs::paths::Path as FilePath;
use conquest_fs::walk::Base;
use conquest_fs::xattr::{Setting, whole};
use conquest_fs::{Clock, Error, FileId, FileSystem, NewFileSystem, finish_intent};
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Options};

use crate::scenario::SimMemory;
use crate::{DyingMemory, Image, RecordingMemory, SimHost, World};

/// A file system in simulation.
pub type SimFiles = FileSystem<SimMemory, SimHost>;

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
}

use Op::{
    Append, Attribute, Link, LinkOpen, Make, MakeDirectory, MakeLong, Range, RemoveDirectory,
    Rename, SetMode, SetOwner, SetTime as Time, Symlink, Truncate, Unlink, UnlinkOpen, Write,
};

/// Names of 255 bytes that the directory `k` begins with: they fill its one bucket.
const LONG_NAMES: u32 = 14;

/// The operations: all kinds of them, in all positions, that succeed or not.
pub const OPERATIONS: [Op; 52] = [
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
];

/// Operations that need no space, as far as they are about what is there: for a store that is
/// [`full`](full_base).
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
const EARLIER: [Op; 16] = [
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

/// The one attribute that files have here.
const ATTRIBUTE: &[u8] = b"user.some";

/// Bytes that have room for all entries of a small directory.
pub const LISTING: usize = 1 << 16;

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

/// A tree as text: of every path type and permissions, links, owner, time of modification if it was
/// set, size, checksum of content and attribute, and the first path of the same file.
///
/// # Errors
/// What breaks a rule.
pub fn describe<M: Memory, H: Host>(files: &FileSystem<M, H>) -> Result<String, String> {
    let mut tree = String::new();
    let mut first = BTreeMap::new();
    describe_directory(files, files.root(), "", &mut first, &mut tree)?;
    let census = files.check().map_err(|error| error.to_string())?;
    match census.findings.first() {
        Some(finding) => Err(format!("{finding}, in\n{tree}")),
        None => Ok(tree),
    }
}

fn describe_directory<M: Memory, H: Host>(
    files: &FileSystem<M, H>,
    directory: FileId,
    path: &str,
    first: &mut BTreeMap<u64, String>,
    tree: &mut String,
) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let mut room = vec![0; LISTING];
    let mut listed: Vec<_> = files.list(directory, 2, &mut room).map_err(text)?.collect();
    listed.sort_by_key(|entry| entry.name);
    for entry in listed {
        let name = String::from_utf8_lossy(entry.name);
        let name = name.trim_start_matches('0');
        let path = format!("{path}/{name}");
        let found = files.lookup(&root_user(), directory, entry.name).map_err(text)?;
        let (file, _) = found.ok_or("a listed name that is not found")?;
        let stat = files.stat(file).map_err(text)?;
        let same = first.entry(file.number).or_insert_with(|| path.clone()).clone();
        let time = if stat.mtime == 9 { "set" } else { "" };
        let size = if entry.file_type == FileType::Directory { 0 } else { stat.size };
        let mut bytes = vec![0; size as usize];
        if entry.file_type == FileType::Regular {
            files.read_file(file, 0, &mut bytes).map_err(text)?;
        }
        let value = whole(|out| files.attribute(&root_user(), file, ATTRIBUTE, out));
        bytes.extend(value.unwrap_or_default());
        let (mode, links, uid, sum) = (stat.mode, stat.links, stat.uid, checksum(0, &bytes));
        let written = writeln!(tree, "{path} {mode:o} {links} {uid} {size} {sum:x} {time} {same}");
        written.map_err(|error| error.to_string())?;
        if entry.file_type == FileType::Directory {
            describe_directory(files, file, &path, first, tree)?;
        }
    }
    Ok(())
}

/// Makes the tree on which [`OPERATIONS`] work, in an empty file system.
///
/// # Errors
/// What went wrong, as text.
pub fn prepare<M: Memory, H: Host>(files: &FileSystem<M, H>) -> Result<(), String> {
    let long = (0..LONG_NAMES - 1).map(|number| MakeLong("k", number));
    for op in EARLIER.into_iter().chain(long) {
        if !op.perform(files).map_err(|error| error.to_string())? {
            return Err(format!("{op:?} did nothing"));
        }
    }
    Ok(())
}

/// Gives [`FILLERS`] all pages that there are, past their ends.
///
/// # Errors
/// What went wrong, as text.
pub fn fill<M: Memory, H: Host>(files: &FileSystem<M, H>) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let total = files.core().geometry().shape().max_groups * GROUP_PAGES;
    let space = Allocate::Space { keeps_size: true };
    for filler in FILLERS {
        Make(filler).perform(files).map_err(text)?;
        for len in [GROUP_PAGES * PAGE, PAGE] {
            for number in 0.. {
                // Large pieces first; what the small ones are for follows them.
                let at = if len == PAGE { total * PAGE } else { 0 } + number * len;
                match Range(filler, space, at, len).perform(files) {
                    Ok(_) => {}
                    Err(Error::Core(conquest_pm::Error::NoSpace { .. })) => break,
                    Err(error) => return Err(text(error)),
                }
            }
        }
    }
    match total - files.core().pages_used() {
        0 => Ok(()),
        left => Err(format!("{left} pages are left")),
    }
}

/// A new file system with an empty root directory that anybody may search.
#[must_use]
pub const fn new_file_system() -> NewFileSystem {
    NewFileSystem {
        key: [1, 2],
        owner: Owner { uid: 0, gid: 0 },
        permissions: 0o755,
        size_max: SIZE_MAX,
        reserve: 0,
    }
}

// --- simulated -----------------------------------------------------------------------------------

/// The layout of the small region.
#[must_use]
pub const fn shape() -> Shape {
    Shape { max_groups: 2, lanes: 3, slots: 3, locks: 8, chunks: 4 }
}

/// A clock that goes on by a second with each look.
#[must_use]
pub fn clock() -> Clock {
    let now = AtomicI64::new(1 << 60);
    Box::new(move || now.fetch_add(1_000_000_000, Ordering::Relaxed))
}

/// Attaches the file system in `memory` as simulated process `pid`.
///
/// # Errors
/// Those of attaching.
pub fn attach(memory: SimMemory, world: &World, pid: u32) -> Result<SimFiles, Error> {
    let core = attach_region(memory, world, pid)?;
    FileSystem::open(core, clock())
}

/// How a region with a file system is attached here.
#[must_use]
pub fn files_options<M: Memory, H: Host>() -> Options<M, H> {
    let intents = Some(Box::new(finish_intent) as _);
    let burials = Some(Box::new(bury) as _);
    Options { intents, burials, growth_groups: 1, ..Options::default() }
}

fn attach_region(
    memory: SimMemory,
    world: &World,
    pid: u32,
) -> Result<Arc<Core<SimMemory, SimHost>>, Error> {
    let options = files_options();
    let path = Path::new("simulated core");
    Ok(Core::attach(memory, world.process(pid), path, &fs::kinds(), options)?)
}

/// A region with the tree on which [`OPERATIONS`] work; its last process has detached, or died.
///
/// # Errors
/// What went wrong, as text.
pub fn base(detach: bool) -> Result<Arc<Image>, String> {
    base_with(detach, prepare)
}

/// [`base`] of which no page is free: for [`ON_FULL`].
///
/// # Errors
/// What went wrong, as text.
pub fn full_base(detach: bool) -> Result<Arc<Image>, String> {
    base_with(detach, |files| prepare(files).and_then(|()| fill(files)))
}

fn base_with(
    detach: bool,
    prepare: impl FnOnce(&SimFiles) -> Result<(), String>,
) -> Result<Arc<Image>, String> {
    let text = |error: Error| error.to_string();
    let geometry = conquest_format::Geometry::new(shape()).ok_or("impossible shape")?;
    let image = Arc::new(Image::new(geometry.len()));
    let memory = RecordingMemory::new(image, geometry.volatile(), false);
    let world = World::new(memory.clock());
    let new =
        NewRegion { shape: shape(), kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
    let path = Path::new("simulated core");
    make(&memory.actor(0), &world.process(9), path, &new).map_err(|error| error.to_string())?;
    let alive = DyingMemory::counting(memory.actor(0));
    let core = attach_region(alive, &world, 9).map_err(text)?;
    FileSystem::make(&core, &new_file_system(), &clock()).map_err(text)?;
    let files = FileSystem::open(core, clock()).map_err(text)?;
    prepare(&files)?;
    if detach {
        files.core().detach().map_err(|error| error.to_string())?;
    }
    Ok(memory.snapshot())
}
