//! Memory that processes share: files and words.

use std::ffi::CStr;
use std::ops::Deref;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::system;

/// A new memory file, which is gone when nobody has it open or mapped any more.
pub(crate) fn memory_file(name: &CStr) -> Result<OwnedFd, String> {
    // SAFETY: a valid name; the descriptor is new and ours.
    unsafe {
        let file = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if file < 0 {
            return Err(system("make a memory file"));
        }
        Ok(OwnedFd::from_raw_fd(file))
    }
}

/// Words in a value of [`Shared`].
const WORDS: usize = 512;

/// Words that this process and the children it will fork share, at first all 0.
#[derive(Debug)]
pub(crate) struct Shared(NonNull<[AtomicU64; WORDS]>);

impl Shared {
    pub(crate) fn new() -> Result<Shared, String> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let len = size_of::<[AtomicU64; WORDS]>();
        // SAFETY: at an address of the kernel's choice.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(system("share memory"));
        }
        NonNull::new(page.cast()).map(Shared).ok_or("no memory at address 0".into())
    }
}

impl Deref for Shared {
    type Target = [AtomicU64; WORDS];

    fn deref(&self) -> &Self::Target {
        // SAFETY: zeroed at first, page-aligned, large enough, mapped as long as the value lives,
        // and used as atomics only.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference outlives the value.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<[AtomicU64; WORDS]>()) };
    }
}
