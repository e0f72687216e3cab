//! Memory for transfers past the kernel's cache: aligned as every device wants it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::error;

/// Alignment of a buffer: that of a page, which is enough for `O_DIRECT` on every device.
const ALIGNMENT: usize = 4096;

/// Bytes of a line of the caches, of most processors.
const LINE: usize = 64;

/// Bytes in memory of their own, which begins with a page and does not move with the value.
#[derive(Debug)]
pub struct Buffer {
    memory: NonNull<u8>,
    layout: Layout,
    /// Bytes of it that are used: no more than there are.
    len: usize,
}

// SAFETY: the memory is the value's alone, and of no thread.
unsafe impl Send for Buffer {}
// SAFETY: what is shared can only be looked at.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// With `len` zeros, at least one.
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL` for none.
    pub fn new(len: usize) -> io::Result<Buffer> {
        let layout = match Layout::from_size_align(len, ALIGNMENT) {
            Ok(layout) if len > 0 => layout,
            Ok(_) => return Err(error(libc::EINVAL)),
            Err(_) => return Err(error(libc::ENOMEM)),
        };
        // SAFETY: the layout has a size.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) });
        Ok(Buffer { memory: memory.ok_or_else(|| error(libc::ENOMEM))?, layout, len })
    }

    /// Bytes that it can have.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.layout.size()
    }

    /// Lets it have `len` bytes, or as many as it can. What comes to it so is whatever was there
    /// last.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }

    /// Asks the processor to bring the first `bytes` of it into its caches: what a device has just
    /// read is in those of another one, or in none. Changes nothing else.
    pub fn prefetch(&self, bytes: usize) {
        for at in (0..bytes.min(self.len)).step_by(LINE) {
            prefetch_line(self.memory.as_ptr().wrapping_add(at));
        }
    }

    pub(crate) fn address(&mut self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

/// Asks for the line of the caches that `at` is in; where the processor can't be asked, nothing.
#[inline]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instruction, which does nothing that a program
    // could notice but for time, whatever the address is.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes or more were allocated, were zeros, and live as long as the value.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and nobody else has the value.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated so, once.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}

#[test]
fn a_buffer_has_as_many_bytes_as_are_wanted_of_those_that_there_are() {
    let mut buffer = Buffer::new(9000).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((buffer.len(), buffer.capacity()), (9000, 9000));
    buffer.fill(7);
    buffer.set_len(10);
    assert_eq!((&buffer[..], buffer.capacity()), (&[7; 10][..], 9000));
    buffer.set_len(10_000);
    assert_eq!((buffer.len(), buffer.iter().all(|byte| *byte == 7)), (9000, true));
}
