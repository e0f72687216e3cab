//! A directory of the host, with the operations of [`conquest::Files`] under the same names; and
//! what both sides' files have in common for tests.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use conquest::{FileType, Files, SetTime, Setting};
use rustix::fs as sys;

/// What came of an operation, as text, or why it failed.
pub type Outcome = Result<String, Failure>;

/// Why an operation failed: what both sides have to agree in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub kind: ErrorKind,
    /// 0 if there is none.
    pub errno: i32,
}

impl From<conquest::Error> for Failure {
    fn from(error: conquest::Error) -> Failure {
        Failure { kind: error.kind(), errno: error.raw_os_error() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.downcast::<conquest::Error>() {
            Ok(ours) => ours.into(),
            Err(theirs) => {
                // What the standard library refuses by itself.
                let is_invalid = theirs.kind() == ErrorKind::InvalidInput;
                let own = if is_invalid { libc::EINVAL } else { 0 };
                Failure { kind: theirs.kind(), errno: theirs.raw_os_error().unwrap_or(own) }
            }
        }
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Failure {
        io::Error::from(errno).into()
    }
}

impl From<fs::TryLockError> for Failure {
    fn from(error: fs::TryLockError) -> Failure {
        match error {
            // Which error number that was it does not keep.
            fs::TryLockError::WouldBlock => rustix::io::Errno::WOULDBLOCK.into(),
            fs::TryLockError::Error(error) => error.into(),
        }
    }
}

/// What an operation returns, as text that is the same on both sides.
pub trait Show {
    fn show(&self) -> String;
}

macro_rules! show_as_debug {
    ($($kind:ty),*) => {
        $(impl Show for $kind {
            fn show(&self) -> String {
                format!("{self:?}")
            }
        })*
    };
}
show_as_debug!((), bool, u64, usize, String, &str, Vec<u8>, Vec<u64>, PathBuf, Vec<String>);

impl<A: Show, B: Show> Show for (A, B) {
    fn show(&self) -> String {
        format!("({}, {})", self.0.show(), self.1.show())
    }
}

impl Show for fs::File {
    fn show(&self) -> String {
        self.metadata().unwrap().show()
    }
}

impl Show for conquest::File {
    fn show(&self) -> String {
        self.metadata().unwrap().show()
    }
}

fn facts(mode: u32, links: u64, len: u64, uid: u32, gid: u32) -> String {
    // How much a directory takes, and what its links are, is each file system's own business.
    let is_directory = mode & libc::S_IFMT == libc::S_IFDIR;
    let len = if is_directory { 0 } else { len };
    format!("{mode:o} {links} {len} {uid}:{gid}")
}

impl Show for fs::Metadata {
    fn show(&self) -> String {
        facts(self.mode(), self.nlink(), self.len(), self.uid(), self.gid())
    }
}

impl Show for conquest::Metadata {
    fn show(&self) -> String {
        let stat = self.stat();
        facts(stat.mode, stat.links.into(), self.len(), stat.uid, stat.gid)
    }
}

/// A directory of the host.
pub struct Host(pub PathBuf);

impl Host {
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        match path.as_ref() {
            empty if empty.as_os_str().is_empty() => PathBuf::new(),
            path => {
                let mut whole = self.0.clone().into_os_string();
                whole.push("/");
                whole.push(path);
                whole.into()
            }
        }
    }

    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<fs::File> {
        fs::File::open(self.at(path))
    }

    pub fn open_with(&self, path: &str, options: &OpenOptions) -> io::Result<fs::File> {
        options.open(self.at(path))
    }

    pub fn create(&self, path: &str) -> io::Result<fs::File> {
        fs::File::create(self.at(path))
    }

    pub fn create_temporary(&self, path: &str) -> io::Result<fs::File> {
        let flags = libc::O_TMPFILE;
        fs::File::options().read(true).write(true).custom_flags(flags).open(self.at(path))
    }

    pub fn link_file(&self, file: &fs::File, path: &str) -> rustix::io::Result<()> {
        sys::linkat(file, "", sys::CWD, self.at(path), sys::AtFlags::EMPTY_PATH)
    }

    pub fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(self.at(path))
    }

    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        fs::write(self.at(path), bytes)
    }

    pub fn metadata(&self, path: &str) -> io::Result<fs::Metadata> {
        fs::metadata(self.at(path))
    }

    pub fn symlink_metadata(&self, path: &str) -> io::Result<fs::Metadata> {
        fs::symlink_metadata(self.at(path))
    }

    pub fn create_dir(&self, path: &str) -> io::Result<()> {
        fs::create_dir(self.at(path))
    }

    pub fn remove_dir(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.at(path))
    }

    pub fn remove_file(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }

    pub fn rename(&self, old: &str, new: &str) -> io::Result<()> {
        fs::rename(self.at(old), self.at(new))
    }

    pub fn hard_link(&self, old: &str, new: &str) -> io::Result<()> {
        fs::hard_link(self.at(old), self.at(new))
    }

    pub fn symlink(&self, target: &str, link: &str) -> io::Result<()> {
        std::os::unix::fs::symlink(target, self.at(link))
    }

    pub fn read_link(&self, path: &str) -> io::Result<PathBuf> {
        fs::read_link(self.at(path))
    }

    pub fn set_permissions(&self, path: &str, mode: u32) -> io::Result<()> {
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode))
    }

    pub fn set_owner(&self, path: &str, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        std::os::unix::fs::chown(self.at(path), uid, gid)
    }
}

/// Operations whose form differs between the two sides.
pub trait Place {
    fn fifo(&self, path: &str) -> Outcome;
    fn exchange(&self, old: &str, new: &str) -> Outcome;
    fn rename_new(&self, old: &str, new: &str) -> Outcome;
    fn truncate_path(&self, path: &str, size: u64) -> Outcome;
    fn may(&self, path: &str, bits: u32) -> Outcome;
    fn times(&self, path: &str, accessed: i64, modified: i64) -> Outcome;
    fn names(&self, path: &str) -> Outcome;
    fn attribute(&self, path: &str, name: &str) -> Outcome;
    fn set_attribute(&self, path: &str, name: &str, value: &[u8], how: Setting) -> Outcome;
    fn remove_attribute(&self, path: &str, name: &str) -> Outcome;
    /// Opens `path` in the directory `dir` under `RESOLVE_` flags.
    fn resolve(&self, dir: &str, path: &str, flags: i32, bits: u64) -> Outcome;
    /// `open` with all of std's options, by their bits.
    fn open_bits(&self, path: &str, bits: u32) -> Outcome;
}

const DONE: Result<String, Failure> = Ok(String::new());

/// An ordinary place's time in seconds, as nanoseconds.
pub const SECOND: i64 = 1_000_000_000;

impl Place for Host {
    fn fifo(&self, path: &str) -> Outcome {
        sys::mknodat(
            sys::CWD,
            self.at(path),
            sys::FileType::Fifo,
            sys::Mode::from_raw_mode(0o640),
            0,
        )?;
        DONE
    }

    fn exchange(&self, old: &str, new: &str) -> Outcome {
        let (old, new) = (self.at(old), self.at(new));
        sys::renameat_with(sys::CWD, old, sys::CWD, new, sys::RenameFlags::EXCHANGE)?;
        DONE
    }

    fn rename_new(&self, old: &str, new: &str) -> Outcome {
        let (old, new) = (self.at(old), self.at(new));
        sys::renameat_with(sys::CWD, old, sys::CWD, new, sys::RenameFlags::NOREPLACE)?;
        DONE
    }

    fn truncate_path(&self, path: &str, size: u64) -> Outcome {
        // The standard library has no `truncate`.
        let file = fs::File::options().write(true).open(self.at(path))?;
        file.set_len(size)?;
        DONE
    }

    fn may(&self, path: &str, bits: u32) -> Outcome {
        let wanted = sys::Access::from_bits_retain(bits);
        sys::accessat(sys::CWD, self.at(path), wanted, sys::AtFlags::EACCESS)?;
        DONE
    }

    fn times(&self, path: &str, accessed: i64, modified: i64) -> Outcome {
        let time = |nanoseconds: i64| sys::Timespec {
            tv_sec: nanoseconds.div_euclid(SECOND),
            tv_nsec: nanoseconds.rem_euclid(SECOND),
        };
        let times =
            sys::Timestamps { last_access: time(accessed), last_modification: time(modified) };
        sys::utimensat(sys::CWD, self.at(path), &times, sys::AtFlags::empty())?;
        let found = fs::metadata(self.at(path))?;
        Ok(format!("{:?} {:?}", found.accessed()?, found.modified()?))
    }

    fn names(&self, path: &str) -> Outcome {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.at(path))? {
            let entry = entry?;
            let is_dir = entry.file_type()?.is_dir();
            names.push(format!("{:?} {is_dir}", entry.file_name()));
        }
        names.sort();
        Ok(names.show())
    }

    fn attribute(&self, path: &str, name: &str) -> Outcome {
        let mut value = [0; 256];
        let len = sys::getxattr(self.at(path), name, &mut value[..])?;
        Ok(value[..len].to_vec().show())
    }

    fn set_attribute(&self, path: &str, name: &str, value: &[u8], how: Setting) -> Outcome {
        let flags = match how {
            Setting::Any => sys::XattrFlags::empty(),
            Setting::Create => sys::XattrFlags::CREATE,
            Setting::Replace => sys::XattrFlags::REPLACE,
        };
        sys::setxattr(self.at(path), name, value, flags)?;
        DONE
    }

    fn remove_attribute(&self, path: &str, name: &str) -> Outcome {
        sys::removexattr(self.at(path), name)?;
        DONE
    }

    fn resolve(&self, dir: &str, path: &str, flags: i32, bits: u64) -> Outcome {
        let dir = fs::File::open(self.at(dir))?;
        let flags = sys::OFlags::from_bits_retain(flags.cast_unsigned());
        let resolve = sys::ResolveFlags::from_bits_retain(bits);
        // `ENOSYS` would be another system's.
        let file = sys::openat2(dir, path, flags, sys::Mode::empty(), resolve)?;
        Ok(fs::File::from(file).show())
    }

    fn open_bits(&self, path: &str, bits: u32) -> Outcome {
        let has = |bit: u32| bits & 1 << bit != 0;
        let mut options = OpenOptions::new();
        options.read(has(0)).write(has(1)).append(has(2)).truncate(has(3));
        options.create(has(4)).create_new(has(5)).mode(0o604);
        Ok(options.open(self.at(path))?.show())
    }
}

impl Place for Files {
    fn fifo(&self, path: &str) -> Outcome {
        Ok(self.make_node(path, conquest::New::Fifo, 0o640).map(|()| String::new())?)
    }

    fn exchange(&self, old: &str, new: &str) -> Outcome {
        self.rename_with(old, new, conquest::Renaming::Exchange)?;
        DONE
    }

    fn rename_new(&self, old: &str, new: &str) -> Outcome {
        self.rename_with(old, new, conquest::Renaming::NoReplace)?;
        DONE
    }

    fn truncate_path(&self, path: &str, size: u64) -> Outcome {
        self.truncate(path, size)?;
        DONE
    }

    fn may(&self, path: &str, bits: u32) -> Outcome {
        self.access(path, conquest::Access::from_bits(bits))?;
        DONE
    }

    fn times(&self, path: &str, accessed: i64, modified: i64) -> Outcome {
        self.set_times(path, SetTime::At(accessed), SetTime::At(modified))?;
        let found = self.metadata(path)?;
        Ok(format!("{:?} {:?}", found.accessed(), found.modified()))
    }

    fn names(&self, path: &str) -> Outcome {
        let mut names = Vec::new();
        for entry in self.read_dir(path)? {
            let entry = entry?;
            let is_dir = entry.file_type() == FileType::Directory;
            names.push(format!("{:?} {is_dir}", entry.file_name()));
        }
        names.sort();
        Ok(names.show())
    }

    fn attribute(&self, path: &str, name: &str) -> Outcome {
        Ok(self.find(path, true)?.attribute(name)?.show())
    }

    fn set_attribute(&self, path: &str, name: &str, value: &[u8], how: Setting) -> Outcome {
        self.find(path, true)?.set_attribute(name, value, how)?;
        DONE
    }

    fn remove_attribute(&self, path: &str, name: &str) -> Outcome {
        self.find(path, true)?.remove_attribute(name)?;
        DONE
    }

    fn resolve(&self, dir: &str, path: &str, flags: i32, bits: u64) -> Outcome {
        let dir = self.open_dir(dir)?;
        let flags = u64::from(flags.cast_unsigned());
        Ok(dir.files().open_how(path, flags, 0, bits)?.show())
    }

    fn open_bits(&self, path: &str, bits: u32) -> Outcome {
        let has = |bit: u32| bits & 1 << bit != 0;
        let mut options = conquest::OpenOptions::new();
        options.read(has(0)).write(has(1)).append(has(2)).truncate(has(3));
        options.create(has(4)).create_new(has(5)).mode(0o604);
        Ok(self.open_with(path, &options)?.show())
    }
}

/// Operations on open files whose form differs between the two sides.
pub trait Opened {
    fn mode(&self, mode: u32) -> Outcome;
    fn owner(&self, uid: Option<u32>, gid: Option<u32>) -> Outcome;
    fn space(&self, range: Range<u64>, how: Space) -> Outcome;
    fn next(&self, from: u64, data: bool) -> Outcome;
    fn value(&self, name: &OsStr) -> Outcome;
    /// Copies bytes to `target`.
    fn copy(&self, from: Option<u64>, target: &Self, to: Option<u64>, len: u64) -> Outcome;
    /// Writes `parts` and reads them back, with `RWF_` flags.
    fn vector(&self, at: Option<u64>, parts: &[&[u8]], flags: u32) -> Outcome;
}

/// What `fallocate` is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    Allocate,
    AllocateBehind,
    Zero,
    Punch,
}

impl Opened for fs::File {
    fn mode(&self, mode: u32) -> Outcome {
        self.set_permissions(fs::Permissions::from_mode(mode))?;
        DONE
    }

    fn owner(&self, uid: Option<u32>, gid: Option<u32>) -> Outcome {
        std::os::unix::fs::fchown(self, uid, gid)?;
        DONE
    }

    fn space(&self, range: Range<u64>, how: Space) -> Outcome {
        let flags = match how {
            Space::Allocate => sys::FallocateFlags::empty(),
            Space::AllocateBehind => sys::FallocateFlags::KEEP_SIZE,
            Space::Zero => sys::FallocateFlags::ZERO_RANGE,
            Space::Punch => sys::FallocateFlags::PUNCH_HOLE | sys::FallocateFlags::KEEP_SIZE,
        };
        sys::fallocate(self.as_fd(), flags, range.start, range.end.saturating_sub(range.start))?;
        DONE
    }

    fn next(&self, from: u64, data: bool) -> Outcome {
        let to = if data { sys::SeekFrom::Data(from) } else { sys::SeekFrom::Hole(from) };
        Ok(sys::seek(self, to)?.show())
    }

    fn value(&self, name: &OsStr) -> Outcome {
        let mut value = [0; 256];
        let len = sys::fgetxattr(self, name, &mut value[..])?;
        Ok(value[..len].to_vec().show())
    }

    fn copy(&self, from: Option<u64>, target: &Self, to: Option<u64>, len: u64) -> Outcome {
        let (mut from, mut to) = (from, to);
        let copied =
            sys::copy_file_range(self, from.as_mut(), target, to.as_mut(), len as usize)? as u64;
        Ok(copied.show())
    }

    fn vector(&self, at: Option<u64>, parts: &[&[u8]], flags: u32) -> Outcome {
        let parts: Vec<IoSlice> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let flags = rustix::io::ReadWriteFlags::from_bits_retain(flags);
        let at = at.unwrap_or(u64::MAX);
        let written = rustix::io::pwritev2(self, &parts, at, flags)?;
        let mut room = [[0; 3], [9; 3]];
        let mut out = room.each_mut().map(|part| IoSliceMut::new(part));
        let read = rustix::io::preadv(self, &mut out, 1)?;
        Ok(format!("{written} {read} {room:?}"))
    }
}

impl Opened for conquest::File {
    fn mode(&self, mode: u32) -> Outcome {
        self.set_permissions(mode)?;
        DONE
    }

    fn owner(&self, uid: Option<u32>, gid: Option<u32>) -> Outcome {
        self.set_owner(uid, gid)?;
        DONE
    }

    fn space(&self, range: Range<u64>, how: Space) -> Outcome {
        match how {
            Space::Allocate => self.allocate(range, false)?,
            Space::AllocateBehind => self.allocate(range, true)?,
            Space::Zero => self.zero(range, false)?,
            Space::Punch => self.punch_hole(range)?,
        }
        DONE
    }

    fn next(&self, from: u64, data: bool) -> Outcome {
        Ok(if data { self.seek_data(from)? } else { self.seek_hole(from)? }.show())
    }

    fn value(&self, name: &OsStr) -> Outcome {
        Ok(self.node()?.attribute(name)?.show())
    }

    fn copy(&self, from: Option<u64>, target: &Self, to: Option<u64>, len: u64) -> Outcome {
        Ok(self.copy_range(from, target, to, len)?.show())
    }

    fn vector(&self, at: Option<u64>, parts: &[&[u8]], flags: u32) -> Outcome {
        let parts: Vec<IoSlice> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let written = self.write_with(&parts, at, flags)?;
        let mut room = [[0; 3], [9; 3]];
        let mut out = room.each_mut().map(|part| IoSliceMut::new(part));
        let read = self.read_with(&mut out, Some(1), 0)?;
        Ok(format!("{written} {read} {room:?}"))
    }
}
