//! Sleeping on a word of the region, across processes.

use core::sync::atomic::AtomicU64;
use core::time::Duration;

use crate::memory::Wake;

// Never FUTEX_PRIVATE_FLAG: the sleepers are in other processes.
const WAIT: libc::c_int = libc::FUTEX_WAIT;
const WAKE: libc::c_int = libc::FUTEX_WAKE;

/// The 32 bits that the format calls the low half: the first four bytes on every machine.
fn low_half(word: &AtomicU64) -> *mut u32 {
    word.as_ptr().cast()
}

/// Sleeps while the low half of `word` is `expected`.
pub(super) fn wait(word: &AtomicU64, expected: u32, timeout: Duration) -> Wake {
    let limit = libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    // SAFETY: the word is mapped and aligned; the kernel only loads it, atomically, whatever other
    // processes store meanwhile, and answers EFAULT if it has no page. The limit is our own.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            low_half(word),
            WAIT,
            expected.to_le(),
            &raw const limit,
            core::ptr::null::<u32>(),
            0_u32,
        )
    };
    if result == 0 {
        return Wake::Woken;
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ETIMEDOUT) => Wake::TimedOut,
        Some(libc::EINTR) => Wake::Interrupted,
        _ => Wake::Woken,
    }
}

/// Wakes up to `count` sleepers on `word`.
pub(super) fn wake(word: &AtomicU64, count: u32) {
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    // SAFETY: the address only names the word; the kernel stores nothing.
    unsafe { libc::syscall(libc::SYS_futex, low_half(word), WAKE, count) };
}
