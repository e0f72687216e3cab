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

/// Words in a value of [`Shared`] unless told otherwise.
const WORDS: usize = 512;

/// Words that this process and the children it will fork share, at first all 0.
#[derive(Debug)]
pub(crate) struct Shared(NonNull<[AtomicU64]>);

impl Shared {
    pub(crate) fn new() -> Result<Shared, String> {
        Shared::of(WORDS)
    }

    /// So many words, at least one.
    pub(crate) fn of(words: usize) -> Result<Shared, String> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let len = words.checked_mul(size_of::<AtomicU64>()).ok_or("too much memory to share")?;
        // SAFETY: at an address of the kernel's choice.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(system("share memory"));
        }
        let first = NonNull::new(page.cast()).ok_or("no memory at address 0")?;
        Ok(Shared(NonNull::slice_from_raw_parts(first, words)))
    }
}

// SAFETY: words that are used as atomics only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Deref for Shared {
    type Target = [AtomicU64];

    fn deref(&self) -> &Self::Target {
        // SAFETY: zeroed at first, page-aligned, of so many words, mapped as long as the value
        // lives, and used as atomics only.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference outlives the value.
        unsafe { libc::munmap(self.0.as_ptr().cast(), self.0.len() * size_of::<AtomicU64>()) };
    }
}
