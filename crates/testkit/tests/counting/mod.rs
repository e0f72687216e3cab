//! What is taken from the heap, counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// How often this thread has asked for memory.
    pub(crate) static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// The system's, counted.
struct Counting;

// SAFETY: everything is done by the system's allocator; the count is a number of the thread, which
// needs no memory from the heap.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller keeps the contract of `System`, which is that of the trait.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + 1));
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: as above.
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
