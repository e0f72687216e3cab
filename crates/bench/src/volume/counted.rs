//! A device that counts what is done to it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conquest_flash::device::{Device, Limits};

/// A device, and what was asked of it.
pub struct Counted {
    device: Arc<dyn Device>,
    reads: AtomicU64,
    writes: AtomicU64,
    written: AtomicU64,
    flushes: AtomicU64,
}

/// What was asked of a device since it was first counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests that read, those of queues included.
    pub reads: u64,
    /// Requests that write.
    pub writes: u64,
    /// Bytes that were to be written.
    pub written: u64,
    /// Flushes.
    pub flushes: u64,
}

impl Counted {
    /// Nothing was asked of `device` yet.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Arc<Counted> {
        let [reads, writes, written, flushes] = std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Counted { device, reads, writes, written, flushes })
    }

    /// What was asked until now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let [reads, writes, written, flushes] =
            [&self.reads, &self.writes, &self.written, &self.flushes]
                .map(|count| count.load(Ordering::Relaxed));
        Counts { reads, writes, written, flushes }
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl Device for Counted {
    fn name(&self) -> &Path {
        self.device.name()
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        add(&self.reads, 1);
        self.device.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        add(&self.writes, 1);
        add(&self.written, bytes.len() as u64);
        self.device.write(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        add(&self.flushes, 1);
        self.device.flush()
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.device.discard(at, len)
    }

    fn next(&self, at: u64) -> io::Result<u64> {
        self.device.next(at)
    }

    fn is_blank(&self, at: u64, len: u64) -> io::Result<bool> {
        self.device.is_blank(at, len)
    }

    fn files(&self) -> io::Result<Vec<File>> {
        self.device.files()
    }

    fn file_count(&self) -> usize {
        self.device.file_count()
    }

    /// Who asks for the way to bytes reads them.
    fn route(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        let found = self.device.route(at, len);
        if found.is_some() {
            add(&self.reads, 1);
        }
        found
    }

    /// Who asks for the way of bytes to be written writes them; who asks with none only wants to
    /// know.
    fn route_write(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        let found = self.device.route_write(at, len);
        if found.is_some() && len > 0 {
            add(&self.writes, 1);
            add(&self.written, len);
        }
        found
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
