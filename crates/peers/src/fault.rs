//! Memory that is not there until a test says so: whoever touches it waits (userfaultfd(2)).
//!
//! Needs root.

use std::fs::File;
use std::io::Read;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;

use crate::sys::call;

/// Bytes of a page.
pub const PAGE: usize = 4096;

const UFFD_API: u64 = 0xAA;
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
const UFFDIO_REGISTER: libc::c_ulong = 0xC020_AA00;
const UFFDIO_COPY: libc::c_ulong = 0xC028_AA03;
/// To wait where pages are missing.
const MISSING: u64 = 1;

/// Memory that is not there yet.
pub struct Memory {
    start: *mut u8,
    len: usize,
}

// SAFETY: the value is the only one that leads to its pages, which any thread may use.
unsafe impl Send for Memory {}

/// Who waits for memory, and what ends that.
pub struct Faults {
    told: File,
    start: usize,
    len: usize,
}

/// So many pages of memory that are not there yet.
pub fn memory(pages: usize) -> (Memory, Faults) {
    let told = call!(SYS_userfaultfd, libc::O_CLOEXEC);
    let told = told.unwrap_or_else(|error| panic!("this test needs userfaultfd: error {error}"));
    // SAFETY: the descriptor is new, and ours.
    let told = unsafe { File::from_raw_fd(told as i32) };
    let mut api = [UFFD_API, 0, 0];
    call!(SYS_ioctl, told.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()).unwrap();
    let len = pages * PAGE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let none = core::ptr::null_mut();
    // SAFETY: at an address of the kernel's choice: no memory in use is touched.
    let start = unsafe { libc::mmap(none, len, protection, flags, -1, 0) };
    assert!(start != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
    let mut range = [start as u64, len as u64, MISSING, 0];
    call!(SYS_ioctl, told.as_raw_fd(), UFFDIO_REGISTER, range.as_mut_ptr()).unwrap();
    (Memory { start: start.cast(), len }, Faults { told, start: start as usize, len })
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are this value's, and are what they are once they are there.
        unsafe { core::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; this value leads there alone.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `memory`; nothing leads there any more.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

impl Faults {
    /// Waits until somebody waits for the memory, at most `limit`; whether somebody does.
    pub fn come(&mut self, limit: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.told.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure of our own.
        let ready = unsafe { libc::poll(&raw mut poll, 1, limit.as_millis() as i32) };
        let mut message = [0; 32];
        ready == 1 && self.told.read(&mut message).is_ok_and(|read| read == message.len())
    }

    /// Lets the memory be there, with `bytes` again and again. Who waits goes on.
    pub fn resolve(&self, bytes: &[u8]) {
        let source: Vec<u8> = bytes.iter().copied().cycle().take(self.len).collect();
        let mut copy = [self.start as u64, source.as_ptr() as u64, self.len as u64, 0, 0];
        call!(SYS_ioctl, self.told.as_raw_fd(), UFFDIO_COPY, copy.as_mut_ptr()).unwrap();
    }
}
