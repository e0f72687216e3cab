//! Calls on a bare device, or a bare volume: each file is a range of it, and there is nothing else.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use conquest_flash::device::{Access, Device, FileDevice};
use conquest_format::volume::BLOCK;
use rustix::fs::OFlags;

use super::slots::Slots;
use super::{CallError, Calls, Opened, Outcome};
use crate::volume::{Counted, Volume, device, failed, recover};

/// What has the ranges.
enum Space {
    Device(FileDevice),
    Volume(Box<Volume>),
}

/// Files by their names: each has as many bytes, in the order in which they were opened first.
pub struct Ranges {
    space: Space,
    each: u64,
    numbers: Mutex<BTreeMap<CString, u64>>,
}

/// The calls of one thread.
pub struct RangeFiles<'r> {
    ranges: &'r Ranges,
    /// Where a file begins, and its position.
    open: Slots<(u64, u64)>,
}

impl Ranges {
    /// Opens the device at `path`, of which each file has `each` bytes; or the volume that is on
    /// its first `volume` bytes.
    ///
    /// # Errors
    /// Those of the system, and of the volume.
    pub fn open(path: &Path, each: u64, volume: Option<u64>) -> Outcome<Ranges> {
        let space = match volume {
            Some(bytes) => Space::Volume(Box::new(recover(&Counted::new(device(path, bytes)?))?)),
            None => Space::Device(
                FileDevice::open(path, Access::Write)
                    .map_err(|source| CallError::of("open a device", source))?,
            ),
        };
        Ok(Ranges { space, each, numbers: Mutex::default() })
    }

    /// The calls of one thread.
    #[must_use]
    pub fn calls(&self) -> RangeFiles<'_> {
        RangeFiles { ranges: self, open: Slots::default() }
    }

    /// Makes durable what was written, and lets go of it.
    ///
    /// # Errors
    /// Those of the device and the volume.
    pub fn leave(self) -> Outcome<()> {
        self.flush()
    }

    fn begin_of(&self, path: &CStr) -> u64 {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.len() as u64;
        *numbers.entry(path.to_owned()).or_insert(next) * self.each
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Outcome<()> {
        match &self.space {
            Space::Device(device) => {
                device.read(at, into).map_err(|source| CallError::of("pread", source))
            }
            Space::Volume(volume) => volume.read(at / BLOCK, into).map_err(failed("pread")),
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Outcome<()> {
        match &self.space {
            Space::Device(device) => {
                device.write(at, bytes).map_err(|source| CallError::of("pwrite", source))
            }
            Space::Volume(volume) => volume.write(at / BLOCK, bytes).map_err(failed("pwrite")),
        }
    }

    fn flush(&self) -> Outcome<()> {
        match &self.space {
            Space::Device(device) => {
                device.flush().map_err(|source| CallError::of("fsync", source))
            }
            Space::Volume(volume) => volume.flush().map_err(failed("fsync")),
        }
    }
}

/// What there is none of.
fn no_names(call: &'static str) -> CallError {
    CallError::of(call, io::Error::from(io::ErrorKind::Unsupported))
}

impl RangeFiles<'_> {
    fn file(&mut self, file: Opened, call: &'static str) -> Outcome<&mut (u64, u64)> {
        self.open.get(file).map_err(|error| CallError::of(call, error))
    }
}

impl Calls for RangeFiles<'_> {
    fn open(&mut self, path: &CStr, _: OFlags) -> Outcome<Opened> {
        let begin = self.ranges.begin_of(path);
        Ok(self.open.keep((begin, 0)))
    }

    fn close(&mut self, file: Opened) -> Outcome<()> {
        self.open.take(file).map(drop).map_err(|error| CallError::of("close", error))
    }

    fn read(&mut self, file: Opened, into: &mut [u8]) -> Outcome<usize> {
        let (_, position) = *self.file(file, "read")?;
        let count = self.read_at(file, into, position)?;
        self.file(file, "read")?.1 += count as u64;
        Ok(count)
    }

    fn read_at(&mut self, file: Opened, into: &mut [u8], offset: u64) -> Outcome<usize> {
        let (begin, _) = *self.file(file, "pread")?;
        self.ranges.read(begin + offset, into).map(|()| into.len())
    }

    fn write(&mut self, file: Opened, bytes: &[u8]) -> Outcome<usize> {
        let (_, position) = *self.file(file, "write")?;
        let count = self.write_at(file, bytes, position)?;
        self.file(file, "write")?.1 += count as u64;
        Ok(count)
    }

    fn write_at(&mut self, file: Opened, bytes: &[u8], offset: u64) -> Outcome<usize> {
        let (begin, _) = *self.file(file, "pwrite")?;
        self.ranges.write(begin + offset, bytes).map(|()| bytes.len())
    }

    fn seek(&mut self, file: Opened, to: u64) -> Outcome<()> {
        self.file(file, "lseek")?.1 = to;
        Ok(())
    }

    fn sync(&mut self, _: Opened) -> Outcome<()> {
        self.ranges.flush()
    }

    fn sync_all(&mut self) -> Outcome<()> {
        self.ranges.flush()
    }

    fn stat(&mut self, _: &CStr) -> Outcome<u64> {
        Err(no_names("stat"))
    }

    fn unlink(&mut self, _: &CStr) -> Outcome<()> {
        Err(no_names("unlink"))
    }

    fn mkdir(&mut self, _: &CStr) -> Outcome<()> {
        Err(no_names("mkdir"))
    }

    fn rmdir(&mut self, _: &CStr) -> Outcome<()> {
        Err(no_names("rmdir"))
    }

    fn rename(&mut self, _: &CStr, _: &CStr) -> Outcome<()> {
        Err(no_names("rename"))
    }

    fn list(&mut self, _: &CStr) -> Outcome<u64> {
        Err(no_names("list"))
    }
}
