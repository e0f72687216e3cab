//! Operations on open files: some descriptors that stay open from operation to operation.

use std::cell::RefCell;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;

use conquest_fs::open::{End, How, OpenFile, Whence};
use conquest_fs::paths::Path;
use conquest_fs::walk::Base;
use conquest_fs::{Credentials, Error, FileSystem};
use conquest_peers::sys::{self, Outcome};
use conquest_pm::media::{Mapped, OsHost};
use conquest_testkit::Rng;

use super::operation::{SIZE_MAX, Told};

/// Descriptors that each side has.
pub const HANDLES: u64 = 6;

/// What is done with a descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OnOpen {
    /// Makes it one of this file; what it was of before is closed.
    Open(String, i32, u32),
    Close,
    Read(u64),
    Write(u64),
    Seek(i64, i32),
    Stat,
    Truncate(u64),
    /// Gives its file a name.
    Link(String),
    /// Copies so many bytes to another descriptor: from where, to where, with which flags.
    Copy(u64, [Option<u64>; 2], u64, u32),
}

/// What a descriptor that is not open does.
const CLOSED: i32 = libc::EBADF;

fn flags(rng: &mut Rng) -> i32 {
    let mut flags = [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR][rng.below(3) as usize];
    for (flag, one_in) in [
        (libc::O_CREAT, 2),
        (libc::O_EXCL, 6),
        (libc::O_TRUNC, 6),
        (libc::O_APPEND, 4),
        (libc::O_NOFOLLOW, 6),
        (libc::O_DIRECTORY, 10),
        (libc::O_NOATIME, 8),
        (libc::O_PATH, 16),
        (libc::O_TMPFILE, 12),
    ] {
        if rng.chance(1, one_in) {
            flags |= flag;
        }
    }
    // Nobody waits for the other end of a pipe.
    flags | libc::O_NONBLOCK
}

impl OnOpen {
    pub fn random(rng: &mut Rng, paths: [String; 3], size: u64, mode: u32) -> OnOpen {
        let [path, regular, directory] = paths;
        match rng.below(18) {
            0..=2 => OnOpen::Open(path, flags(rng), mode),
            3 => OnOpen::Open(regular, flags(rng) & !libc::O_TMPFILE, mode),
            4 => OnOpen::Open(directory, libc::O_TMPFILE | libc::O_RDWR, mode),
            5 => OnOpen::Close,
            6..=7 => OnOpen::Read(size),
            8..=10 => OnOpen::Write(size),
            11..=12 => {
                let offset = size as i64 - if rng.chance(1, 6) { 5000 } else { 0 };
                // What counts as a hole is told by `fsx.rs`: ext4 counts what was allocated only.
                OnOpen::Seek(offset, rng.below(3) as i32)
            }
            13 => OnOpen::Stat,
            14 => OnOpen::Truncate(size),
            15 => OnOpen::Link(path),
            _ => {
                let mut end = |most| match rng.below(12) {
                    0 => Some(SIZE_MAX - rng.below(3)),
                    1 => Some(u64::MAX - rng.below(9000)),
                    2 => Some(1 << 63 | size),
                    3..=5 => None,
                    _ => Some(rng.below(most)),
                };
                let ends = [end(9000), end(40_000)];
                let len = [size, size, 4 * size, u64::MAX >> 1][rng.below(4) as usize];
                OnOpen::Copy(rng.below(HANDLES), ends, len, u32::from(rng.chance(1, 20)))
            }
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            OnOpen::Open(_, flags, _) if flags & libc::O_TMPFILE == libc::O_TMPFILE => {
                "open without a name"
            }
            OnOpen::Open(..) => "open",
            OnOpen::Close => "close",
            OnOpen::Read(_) => "read on",
            OnOpen::Write(_) => "write on",
            OnOpen::Seek(..) => "lseek",
            OnOpen::Stat => "fstat",
            OnOpen::Truncate(_) => "ftruncate",
            OnOpen::Link(_) => "link an open file",
            OnOpen::Copy(..) => "copy_file_range",
        }
    }
}

/// The descriptors of one side.
pub struct Handles<T>(RefCell<Vec<Option<T>>>);

impl<T> Handles<T> {
    pub fn new() -> Handles<T> {
        Handles(RefCell::new((0..HANDLES).map(|_| None).collect()))
    }

    fn take(&self, handle: u64) -> Option<T> {
        self.0.borrow_mut()[handle as usize].take()
    }

    fn put(&self, handle: u64, value: T) {
        self.0.borrow_mut()[handle as usize] = Some(value);
    }
}

type Files = FileSystem<Mapped, OsHost>;

impl Handles<OpenFile> {
    /// Closes all.
    pub fn clear(&self, files: &Files) {
        (0..HANDLES).filter_map(|handle| self.take(handle)).for_each(|file| {
            files.close(&file).unwrap();
        });
    }

    pub fn perform(
        &self,
        files: &Files,
        who: &Credentials,
        base: &Base,
        handle: u64,
        what: &OnOpen,
    ) -> Result<Told, Error> {
        if let OnOpen::Open(path, flags, mode) = what {
            if let Some(old) = self.take(handle) {
                files.close(&old)?;
            }
            let how = How::from_open(*flags as u32, *mode)?;
            let opened = files.open_at(who, Path { base, bytes: path.as_bytes() }, &how)?;
            self.put(handle, opened);
            return Ok(Told::Nothing);
        }
        let closed = || Error::Refused(conquest_fs::Errno::EBADF);
        let open = self.take(handle).ok_or_else(closed)?;
        if *what == OnOpen::Close {
            return files.close(&open).map(|()| Told::Nothing);
        }
        self.put(handle, open);
        match what {
            OnOpen::Copy(to, [source, target], len, flags) => {
                let to = self.0.borrow()[*to as usize].ok_or_else(closed)?;
                let source = End { open: &open, at: *source };
                let target = End { open: &to, at: *target };
                files.copy_range(who, source, target, *len, *flags).map(Told::Written)
            }
            OnOpen::Read(len) => {
                let mut bytes = vec![0; *len as usize];
                let len = files.read_next(&open, &mut bytes)?;
                bytes.truncate(len);
                Ok(Told::Read(bytes))
            }
            OnOpen::Write(len) => {
                let written = files.write_next(who, &open, &super::sides::content(*len))?;
                Ok(Told::Written(written as u64))
            }
            OnOpen::Seek(offset, whence) => {
                let whences =
                    [Whence::Start, Whence::Current, Whence::End, Whence::Data, Whence::Hole];
                files.seek_to(&open, *offset, whences[*whence as usize]).map(Told::Written)
            }
            OnOpen::Stat => files.stat(open.file).map(|stat| Told::Stat(super::sides::told(&stat))),
            OnOpen::Truncate(size) => {
                files.truncate_through(who, &open, *size).map(|()| Told::Nothing)
            }
            OnOpen::Link(path) => {
                let new = Path { base, bytes: path.as_bytes() };
                files.link_open(who, &open, new).map(|()| Told::Nothing)
            }
            OnOpen::Open(..) | OnOpen::Close => Err(closed()),
        }
    }
}

fn is_directory(file: &File) -> bool {
    let stat = sys::stat(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH);
    stat.is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

impl Handles<File> {
    /// Closes all.
    pub fn close_all(&self) {
        (0..HANDLES).for_each(|handle| drop(self.take(handle)));
    }

    pub fn call(&self, handle: u64, what: &OnOpen) -> Outcome<Told> {
        if let OnOpen::Open(path, flags, mode) = what {
            drop(self.take(handle));
            let path = CString::new(path.as_str()).unwrap();
            let file = sys::open(sys::HERE, &path, *flags, *mode).map_err(|errno| match errno {
                libc::ENODEV => libc::ENXIO,
                errno => errno,
            })?;
            let stat = sys::stat(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)?;
            let is_plain = matches!(
                stat.st_mode & libc::S_IFMT,
                libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK
            );
            // Only the kernel can open these.
            if !is_plain && flags & libc::O_PATH == 0 {
                return Err(libc::ENXIO);
            }
            self.put(handle, file);
            return Ok(Told::Nothing);
        }
        let file = self.take(handle).ok_or(CLOSED)?;
        if *what == OnOpen::Close {
            return Ok(Told::Nothing);
        }
        let done = match what {
            OnOpen::Copy(to, ends, len, flags) => {
                let others = self.0.borrow();
                let to = if *to == handle { Some(&file) } else { others[*to as usize].as_ref() };
                let copy = |to| sys::copy_range(&file, to, *ends, *len, *flags).map(Told::Written);
                to.map_or(Err(CLOSED), copy)
            }
            OnOpen::Read(len) => {
                let mut bytes = vec![0; *len as usize];
                sys::read(&file, &mut bytes).map(|len| {
                    bytes.truncate(len as usize);
                    Told::Read(bytes)
                })
            }
            OnOpen::Write(len) => {
                sys::write_all(&file, &super::sides::content(*len)).map(Told::Written)
            }
            // What these mean in directories is each file system's own business.
            OnOpen::Seek(_, 2..) if is_directory(&file) => match sys::seek(&file, 0, 1) {
                Ok(_) => Err(libc::EINVAL),
                Err(errno) => Err(errno),
            },
            OnOpen::Seek(offset, whence) => sys::seek(&file, *offset, *whence).map(Told::Written),
            OnOpen::Stat => sys::stat(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
                .map(|stat| Told::Stat(super::sides::told_by_kernel(&stat))),
            OnOpen::Truncate(size) => sys::truncate_open(&file, *size).map(|()| Told::Nothing),
            OnOpen::Link(path) => {
                let path = CString::new(path.as_str()).unwrap();
                sys::link_open(&file, sys::HERE, &path).map(|()| Told::Nothing)
            }
            OnOpen::Open(..) | OnOpen::Close => Err(CLOSED),
        };
        self.put(handle, file);
        done
    }
}
