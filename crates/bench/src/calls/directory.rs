//! Calls that the kernel answers.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom};

use super::bundle::{Bundled, Bundler};
use super::slots::Slots;
use super::{CallError, Calls, ENTRIES, Opened, Outcome};

/// Calls about files in the directory in which the process stands.
#[derive(Default)]
pub struct Directory {
    files: Slots<OwnedFd>,
    bundler: Bundler,
}

impl Calls for Directory {
    fn open(&mut self, path: &CStr, flags: OFlags) -> Outcome<Opened> {
        let opened = rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(0o644));
        Ok(self.files.keep(opened.map_err(|error| CallError::at("open", path, error))?))
    }

    fn close(&mut self, file: Opened) -> Outcome<()> {
        // Errors of close(2) are not told by descriptors that close themselves; the kernel's file
        // systems tell of none that fsync(2) would not.
        self.files.take(file).map(drop).map_err(|error| CallError::of("close", error))
    }

    fn read(&mut self, file: Opened, into: &mut [u8]) -> Outcome<usize> {
        let file = self.files.get(file).map_err(|error| CallError::of("read", error))?;
        rustix::io::read(file, into).map_err(|error| CallError::of("read", error))
    }

    fn read_at(&mut self, file: Opened, into: &mut [u8], offset: u64) -> Outcome<usize> {
        let file = self.files.get(file).map_err(|error| CallError::of("pread", error))?;
        rustix::io::pread(file, into, offset).map_err(|error| CallError::of("pread", error))
    }

    fn write(&mut self, file: Opened, bytes: &[u8]) -> Outcome<usize> {
        let file = self.files.get(file).map_err(|error| CallError::of("write", error))?;
        rustix::io::write(file, bytes).map_err(|error| CallError::of("write", error))
    }

    fn write_at(&mut self, file: Opened, bytes: &[u8], offset: u64) -> Outcome<usize> {
        let file = self.files.get(file).map_err(|error| CallError::of("pwrite", error))?;
        rustix::io::pwrite(file, bytes, offset).map_err(|error| CallError::of("pwrite", error))
    }

    fn seek(&mut self, file: Opened, to: u64) -> Outcome<()> {
        let file = self.files.get(file).map_err(|error| CallError::of("lseek", error))?;
        let sought = rustix::fs::seek(file, SeekFrom::Start(to));
        sought.map(drop).map_err(|error| CallError::of("lseek", error))
    }

    fn sync(&mut self, file: Opened) -> Outcome<()> {
        let file = self.files.get(file).map_err(|error| CallError::of("fsync", error))?;
        rustix::fs::fsync(file).map_err(|error| CallError::of("fsync", error))
    }

    fn sync_all(&mut self) -> Outcome<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let here = rustix::fs::open(c".", flags, Mode::empty());
        let synced = here.and_then(rustix::fs::syncfs);
        synced.map_err(|error| CallError::of("syncfs", error))
    }

    fn stat(&mut self, path: &CStr) -> Outcome<u64> {
        let found = rustix::fs::stat(path).map_err(|error| CallError::at("stat", path, error))?;
        Ok(found.st_size.cast_unsigned())
    }

    fn unlink(&mut self, path: &CStr) -> Outcome<()> {
        rustix::fs::unlink(path).map_err(|error| CallError::at("unlink", path, error))
    }

    fn mkdir(&mut self, path: &CStr) -> Outcome<()> {
        let made = rustix::fs::mkdir(path, Mode::from_raw_mode(0o755));
        made.map_err(|error| CallError::at("mkdir", path, error))
    }

    fn rmdir(&mut self, path: &CStr) -> Outcome<()> {
        rustix::fs::rmdir(path).map_err(|error| CallError::at("rmdir", path, error))
    }

    fn rename(&mut self, from: &CStr, to: &CStr) -> Outcome<()> {
        rustix::fs::rename(from, to).map_err(|error| CallError::at("rename", from, error))
    }

    fn list(&mut self, path: &CStr) -> Outcome<u64> {
        let named = |error| CallError::at("list", path, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(named)?;
        let mut room = Box::new([const { MaybeUninit::uninit() }; ENTRIES]);
        let mut entries = RawDir::new(&opened, room.as_mut_slice());
        let mut count = 0;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(named)?;
            count += u64::from(!matches!(entry.file_name().to_bytes(), b"." | b".."));
        }
        Ok(count)
    }

    fn bundle(&mut self, files: &mut [Bundled<'_>]) -> Outcome<()> {
        self.bundler.run(files)
    }
}
