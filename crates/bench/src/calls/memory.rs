//! Calls that only copy bytes: what the memory itself allows.
//!
//! Files are kept by path for all threads of the process, so names cost a look into a map, which is
//! no floor of anything: only reads and writes of files that are open are.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, RwLock};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::slots::Slots;
use super::{CallError, Calls, Opened, Outcome};

type Bytes = Arc<RwLock<Vec<u8>>>;

/// The files of the process.
#[derive(Default)]
pub struct Shared(RwLock<BTreeMap<CString, Bytes>>);

/// The calls of one thread.
pub struct Memory<'s> {
    shared: &'s Shared,
    files: Slots<(Bytes, u64)>,
}

impl<'s> Memory<'s> {
    /// On the files of `shared`.
    #[must_use]
    pub fn of(shared: &'s Shared) -> Memory<'s> {
        Memory { shared, files: Slots::default() }
    }

    fn bytes(&mut self, file: Opened, call: &'static str) -> Outcome<&mut (Bytes, u64)> {
        self.files.get(file).map_err(|error| CallError::of(call, error))
    }
}

/// A lock that somebody has panicked with is a defect of the experiment.
fn poisoned(call: &'static str) -> CallError {
    CallError::of(call, Errno::NOTRECOVERABLE)
}

/// Copies bytes from `offset` on: how many there were.
fn copied(bytes: &Bytes, into: &mut [u8], offset: u64) -> Outcome<usize> {
    let bytes = bytes.read().map_err(|_| poisoned("read"))?;
    let there = bytes.get(offset as usize..).unwrap_or_default();
    let count = there.len().min(into.len());
    if let (Some(from), Some(into)) = (there.get(..count), into.get_mut(..count)) {
        into.copy_from_slice(from);
    }
    Ok(count)
}

/// Copies `from` there, at `offset`.
fn stored(bytes: &Bytes, from: &[u8], offset: u64) -> Outcome<usize> {
    let mut bytes = bytes.write().map_err(|_| poisoned("write"))?;
    let (offset, end) = (offset as usize, offset as usize + from.len());
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    if let Some(into) = bytes.get_mut(offset..end) {
        into.copy_from_slice(from);
    }
    Ok(from.len())
}

impl Calls for Memory<'_> {
    fn open(&mut self, path: &CStr, flags: OFlags) -> Outcome<Opened> {
        let mut all = self.shared.0.write().map_err(|_| poisoned("open"))?;
        let found = all.get(path).cloned();
        let bytes = match found {
            Some(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => {
                return Err(CallError::at("open", path, Errno::EXIST));
            }
            Some(bytes) => bytes,
            None if flags.contains(OFlags::CREATE) => {
                let bytes = Bytes::default();
                all.insert(path.to_owned(), Arc::clone(&bytes));
                bytes
            }
            None => return Err(CallError::at("open", path, Errno::NOENT)),
        };
        if flags.contains(OFlags::TRUNC) {
            bytes.write().map_err(|_| poisoned("open"))?.clear();
        }
        let at = match flags.contains(OFlags::APPEND) {
            true => bytes.read().map_err(|_| poisoned("open"))?.len() as u64,
            false => 0,
        };
        Ok(self.files.keep((bytes, at)))
    }

    fn close(&mut self, file: Opened) -> Outcome<()> {
        self.files.take(file).map(drop).map_err(|error| CallError::of("close", error))
    }

    fn read(&mut self, file: Opened, into: &mut [u8]) -> Outcome<usize> {
        let (bytes, at) = self.bytes(file, "read")?;
        let count = copied(bytes, into, *at)?;
        *at += count as u64;
        Ok(count)
    }

    fn read_at(&mut self, file: Opened, into: &mut [u8], offset: u64) -> Outcome<usize> {
        copied(&self.bytes(file, "pread")?.0, into, offset)
    }

    fn write(&mut self, file: Opened, from: &[u8]) -> Outcome<usize> {
        let (bytes, at) = self.bytes(file, "write")?;
        let count = stored(bytes, from, *at)?;
        *at += count as u64;
        Ok(count)
    }

    fn write_at(&mut self, file: Opened, from: &[u8], offset: u64) -> Outcome<usize> {
        stored(&self.bytes(file, "pwrite")?.0, from, offset)
    }

    fn seek(&mut self, file: Opened, to: u64) -> Outcome<()> {
        self.bytes(file, "lseek")?.1 = to;
        Ok(())
    }

    fn sync(&mut self, file: Opened) -> Outcome<()> {
        self.bytes(file, "fsync").map(drop)
    }

    fn sync_all(&mut self) -> Outcome<()> {
        Ok(())
    }

    fn stat(&mut self, path: &CStr) -> Outcome<u64> {
        let all = self.shared.0.read().map_err(|_| poisoned("stat"))?;
        let bytes = all.get(path).ok_or_else(|| CallError::at("stat", path, Errno::NOENT))?;
        Ok(bytes.read().map_err(|_| poisoned("stat"))?.len() as u64)
    }

    fn unlink(&mut self, path: &CStr) -> Outcome<()> {
        let mut all = self.shared.0.write().map_err(|_| poisoned("unlink"))?;
        all.remove(path).map(drop).ok_or_else(|| CallError::at("unlink", path, Errno::NOENT))
    }

    fn mkdir(&mut self, _: &CStr) -> Outcome<()> {
        Ok(())
    }

    fn rmdir(&mut self, _: &CStr) -> Outcome<()> {
        Ok(())
    }

    fn rename(&mut self, from: &CStr, to: &CStr) -> Outcome<()> {
        let mut all = self.shared.0.write().map_err(|_| poisoned("rename"))?;
        let bytes = all.remove(from).ok_or_else(|| CallError::at("rename", from, Errno::NOENT))?;
        all.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn list(&mut self, path: &CStr) -> Outcome<u64> {
        let all = self.shared.0.read().map_err(|_| poisoned("list"))?;
        let prefix = [path.to_bytes(), b"/"].concat();
        Ok(all.keys().filter(|name| name.to_bytes().starts_with(&prefix)).count() as u64)
    }
}
