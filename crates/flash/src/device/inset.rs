//! A part of a device, as a device.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Device, Limits};

/// `len` bytes of a device from `start` on.
pub struct Inset {
    device: Arc<dyn Device>,
    start: u64,
    len: u64,
}

impl Inset {
    /// Bytes `start` to `start + len` of `device`, which has them.
    #[must_use]
    pub fn new(device: Arc<dyn Device>, start: u64, len: u64) -> Inset {
        Inset { device, start, len }
    }

    fn place(&self, at: u64, len: u64) -> io::Result<u64> {
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.start + at),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl Device for Inset {
    fn name(&self) -> &Path {
        self.device.name()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read(self.place(at, into.len() as u64)?, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.write(self.place(at, bytes.len() as u64)?, bytes)
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.write_durable(self.place(at, bytes.len() as u64)?, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.device.discard(self.place(at, len)?, len)
    }

    fn next(&self, at: u64) -> io::Result<u64> {
        Ok(self.device.next(self.place(at, 0)?)? - self.start)
    }

    fn is_blank(&self, at: u64, len: u64) -> io::Result<bool> {
        self.device.is_blank(self.place(at, len)?, len)
    }

    fn is_written(&self, at: u64, len: u64) -> io::Result<bool> {
        self.device.is_written(self.place(at, len)?, len)
    }

    fn copies(&self) -> u32 {
        self.device.copies()
    }

    fn read_copy(&self, copy: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read_copy(copy, self.place(at, into.len() as u64)?, into)
    }

    fn missing(&self) -> u64 {
        self.device.missing()
    }

    fn files(&self) -> io::Result<Vec<File>> {
        self.device.files()
    }

    fn file_count(&self) -> usize {
        self.device.file_count()
    }

    fn route(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        self.device.route(self.place(at, len).ok()?, len)
    }

    fn route_write(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        self.device.route_write(self.place(at, len).ok()?, len)
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        self.device.enter(writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.device.leave(writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        self.device.is_entered(writer)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        self.device.is_anyone_entered()
    }
}
