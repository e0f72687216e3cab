//! Calls that Conquest's library answers, in this process.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use conquest::{Attach, Error, File, Files, OpenOptions, Operation, Removal, Store};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::slots::Slots;
use super::{Bundled, CallError, Calls, ENTRIES, Opened, Outcome};

/// A store that this process has attached.
pub struct Attached {
    store: Store,
    files: Files,
}

/// A store's reason, as the system's: its number, or all of its words if that says too little.
fn reason(error: &Error) -> io::Error {
    let number = error.raw_os_error();
    match error {
        Error::File(_) if number != Errno::IO.raw_os_error() => {
            io::Error::from_raw_os_error(number)
        }
        _ => io::Error::other(error.to_string()),
    }
}

fn name(path: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(path.to_bytes()))
}

impl Attached {
    /// Attaches the store in `directory`.
    ///
    /// # Errors
    /// Why it can't be.
    pub fn attach(directory: &Path) -> Outcome<Attached> {
        let named = |error: Error| CallError {
            call: "attach",
            path: Some(directory.display().to_string()),
            source: reason(&error),
        };
        let store = Store::attach(directory, &Attach::default()).map_err(named)?;
        let files = store.files().map_err(named)?;
        Ok(Attached { store, files })
    }

    /// The calls of one thread.
    #[must_use]
    pub fn calls(&self) -> StoreFiles<'_> {
        let mut to_make = OpenOptions::new();
        to_make.write(true).create_new(true).mode(0o644);
        let (store, files) = (&self.store, self.files.clone());
        StoreFiles { store, files, open: Slots::default(), to_make }
    }

    /// Detaches it.
    ///
    /// # Errors
    /// Why it can't be.
    pub fn detach(self) -> Outcome<()> {
        drop(self.files);
        self.store.detach().map_err(|error| CallError::of("detach", reason(&error)))
    }
}

/// Calls about the files of a store.
pub struct StoreFiles<'s> {
    store: &'s Store,
    files: Files,
    open: Slots<File>,
    /// How files of a bundle are made.
    to_make: OpenOptions,
}

impl StoreFiles<'_> {
    /// What the library does with a file of a bundle, and the name of the call.
    fn operation<'b>(
        &'b self,
        file: &'b mut Bundled<'_>,
    ) -> (&'static str, &'b CStr, Operation<'b>) {
        match file {
            Bundled::Create(path, bytes) => {
                let options = &self.to_make;
                let write = Operation::Write { path: name(path), options, offset: 0, bytes };
                ("write", path, write)
            }
            Bundled::Read(path, out) => {
                ("read", path, Operation::Read { path: name(path), offset: 0, out })
            }
            Bundled::Stat(path) => {
                ("stat", path, Operation::Metadata { path: name(path), follow: true })
            }
            Bundled::Unlink(path) => {
                ("unlink", path, Operation::Remove { path: name(path), how: Removal::File })
            }
        }
    }

    #[inline]
    fn file(&mut self, file: Opened, call: &'static str) -> Outcome<&mut File> {
        self.open.get(file).map_err(|error| CallError::of(call, error))
    }
}

/// What the library says of `call`, about an open file.
#[inline]
fn of<T>(call: &'static str, done: conquest::Result<T>) -> Outcome<T> {
    done.map_err(|error| CallError::of(call, reason(&error)))
}

/// What it says of `call`, about `path`.
#[inline]
fn at<T>(call: &'static str, path: &CStr, done: conquest::Result<T>) -> Outcome<T> {
    done.map_err(|error| CallError::at(call, path, reason(&error)))
}

impl Calls for StoreFiles<'_> {
    fn open(&mut self, path: &CStr, flags: OFlags) -> Outcome<Opened> {
        let flags = flags.bits().cast_signed();
        let opened = at("open", path, self.files.open_flags(name(path), flags, 0o644))?;
        Ok(self.open.keep(opened))
    }

    fn close(&mut self, file: Opened) -> Outcome<()> {
        let file = self.open.take(file).map_err(|error| CallError::of("close", error))?;
        of("close", file.close())
    }

    fn read(&mut self, file: Opened, into: &mut [u8]) -> Outcome<usize> {
        of("read", self.file(file, "read")?.read(into))
    }

    fn read_at(&mut self, file: Opened, into: &mut [u8], offset: u64) -> Outcome<usize> {
        of("pread", self.file(file, "pread")?.read_at(into, offset))
    }

    fn write(&mut self, file: Opened, bytes: &[u8]) -> Outcome<usize> {
        of("write", self.file(file, "write")?.write(bytes))
    }

    fn write_at(&mut self, file: Opened, bytes: &[u8], offset: u64) -> Outcome<usize> {
        of("pwrite", self.file(file, "pwrite")?.write_at(bytes, offset))
    }

    fn seek(&mut self, file: Opened, to: u64) -> Outcome<()> {
        of("lseek", self.file(file, "lseek")?.seek(io::SeekFrom::Start(to))).map(drop)
    }

    fn sync(&mut self, file: Opened) -> Outcome<()> {
        of("fsync", self.file(file, "fsync")?.sync_all())
    }

    fn sync_all(&mut self) -> Outcome<()> {
        of("syncfs", self.store.sync())
    }

    fn stat(&mut self, path: &CStr) -> Outcome<u64> {
        Ok(at("stat", path, self.files.metadata(name(path)))?.len())
    }

    fn unlink(&mut self, path: &CStr) -> Outcome<()> {
        at("unlink", path, self.files.remove_file(name(path)))
    }

    fn mkdir(&mut self, path: &CStr) -> Outcome<()> {
        at("mkdir", path, self.files.create_dir(name(path)))
    }

    fn rmdir(&mut self, path: &CStr) -> Outcome<()> {
        at("rmdir", path, self.files.remove_dir(name(path)))
    }

    fn rename(&mut self, from: &CStr, to: &CStr) -> Outcome<()> {
        at("rename", from, self.files.rename(name(from), name(to)))
    }

    fn list(&mut self, path: &CStr) -> Outcome<u64> {
        let directory = at("list", path, self.files.open_dir(name(path)))?;
        let mut room = [0; ENTRIES];
        let (mut cookie, mut count) = (0, 0);
        loop {
            let before = cookie;
            for listed in at("list", path, directory.list(cookie, &mut room))? {
                cookie = listed.cookie;
                count += u64::from(!matches!(listed.name, b"." | b".."));
            }
            if cookie == before {
                break;
            }
        }
        at("list", path, directory.close())?;
        Ok(count)
    }

    fn bundle(&mut self, files: &mut [Bundled<'_>]) -> Outcome<()> {
        let mut named = Vec::with_capacity(files.len());
        let operations = files.iter_mut().map(|file| {
            let (call, path, operation) = self.operation(file);
            named.push((call, path));
            operation
        });
        let done = self.files.bundle(operations);
        done.into_iter().zip(named).try_for_each(|(done, (call, path))| {
            std::hint::black_box(at(call, path, done)?);
            Ok(())
        })
    }
}
