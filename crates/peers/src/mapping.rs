//! Files in memory.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::sys::{Outcome, errno};

/// A file, or its beginning, mapped for reading and writing. Bytes of pages past the file's end
/// must not be touched: that is a signal.
pub struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    /// The first `len` bytes of a file, whose changes others see if it is `shared`.
    ///
    /// # Errors
    /// The error number.
    pub fn new(file: &File, len: usize, shared: bool) -> Outcome<Mapping> {
        let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let none = core::ptr::null_mut();
        // SAFETY: memory that nobody has is taken, wherever the kernel chooses.
        let at = unsafe { libc::mmap(none, len, access, kind, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED { Err(errno()) } else { Ok(Mapping { at: at.cast(), len }) }
    }

    /// The byte at `offset`.
    ///
    /// # Panics
    /// If it is not mapped.
    #[must_use]
    pub fn get(&self, offset: usize) -> u8 {
        assert!(offset < self.len, "{offset} is not mapped");
        // SAFETY: it is mapped; others may change it, so it is read as it is.
        unsafe { self.at.add(offset).read_volatile() }
    }

    /// Sets the byte at `offset`.
    ///
    /// # Panics
    /// If it is not mapped.
    pub fn set(&self, offset: usize, byte: u8) {
        assert!(offset < self.len, "{offset} is not mapped");
        // SAFETY: it is mapped, and no reference to it is ever given.
        unsafe { self.at.add(offset).write_volatile(byte) };
    }

    /// Writes changes to the file.
    ///
    /// # Errors
    /// The error number.
    pub fn sync(&self) -> Outcome {
        // SAFETY: the mapping is ours.
        let done = unsafe { libc::msync(self.at.cast(), self.len, libc::MS_SYNC) };
        if done == 0 { Ok(()) } else { Err(errno()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference to it.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}
