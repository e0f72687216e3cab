//! Many words at once, between the region and a caller's buffer.
//!
//! Each function moves aligned 8-byte words of the region one at a time, in any order: what a loop
//! of relaxed atomic loads or stores does. Long runs are done by one string instruction, which the
//! compiler knows nothing about but that its operands are read and written; the processor moves
//! each aligned quadword of it at once. So these functions may race with atomics, with each other
//! and with other processes, and no word is torn.

use core::sync::atomic::{AtomicU64, Ordering};

/// From so many words up, the string instruction is faster than a loop.
#[cfg(target_arch = "x86_64")]
const STRING: usize = 80;

/// Copies `words` words at `from` into `to`.
///
/// # Safety
/// `from` is aligned to 8 and mapped for `words` words in which no reference lives; `to` is valid
/// for storing as many bytes, which are the caller's alone.
#[inline]
pub(super) unsafe fn words_out(from: *mut u64, to: *mut u8, words: usize) {
    #[cfg(target_arch = "x86_64")]
    if words >= STRING {
        // SAFETY: the caller's; the direction flag is clear on entry to every asm block.
        unsafe { move_words(to, from.cast(), words) };
        return;
    }
    for index in 0..words {
        // SAFETY: in bounds and aligned by the caller's word. Only atomics and this module's
        // functions touch the region's word, here and in other processes.
        let word = unsafe { AtomicU64::from_ptr(from.add(index)) }.load(Ordering::Relaxed);
        // SAFETY: in bounds of the caller's buffer, at any alignment.
        unsafe { to.add(index * 8).cast::<u64>().write_unaligned(word) };
    }
}

/// Copies `words` words at `from` into `to`.
///
/// # Safety
/// As of [`words_out`], with the region's words at `to`, mapped for storing, and `from` valid for
/// loading.
#[inline]
pub(super) unsafe fn words_in(to: *mut u64, from: *const u8, words: usize) {
    #[cfg(target_arch = "x86_64")]
    if words >= STRING {
        // SAFETY: the caller's; the direction flag is clear on entry to every asm block.
        unsafe { move_words(to.cast(), from, words) };
        return;
    }
    for index in 0..words {
        // SAFETY: in bounds of the caller's buffer, at any alignment.
        let word = unsafe { from.add(index * 8).cast::<u64>().read_unaligned() };
        // SAFETY: in bounds and aligned by the caller's word. Only atomics and this module's
        // functions touch the region's word, here and in other processes.
        unsafe { AtomicU64::from_ptr(to.add(index)) }.store(word, Ordering::Relaxed);
    }
}

/// Stores `words` zero words at `to`.
///
/// # Safety
/// `to` as of [`words_in`].
#[inline]
pub(super) unsafe fn zeros_in(to: *mut u64, words: usize) {
    #[cfg(target_arch = "x86_64")]
    if words >= STRING {
        // SAFETY: the caller's; the direction flag is clear on entry to every asm block.
        unsafe {
            core::arch::asm!(
                "rep stosq",
                inout("rcx") words => _,
                inout("rdi") to => _,
                in("rax") 0_u64,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    for index in 0..words {
        // SAFETY: as of words_in.
        unsafe { AtomicU64::from_ptr(to.add(index)) }.store(0, Ordering::Relaxed);
    }
}

/// As [`words_in`], past the caches. Other processors may see later stores before these, until the
/// next `persist_fence`.
///
/// # Safety
/// As of [`words_in`].
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn words_in_streaming(to: *mut u64, from: *const u8, words: usize) {
    for index in 0..words {
        // SAFETY: in bounds of the caller's buffer, at any alignment.
        let word = unsafe { from.add(index * 8).cast::<u64>().read_unaligned() };
        // SAFETY: in bounds and aligned by the caller's word; stores the word at once.
        unsafe {
            core::arch::asm!(
                "movnti [{to}], {word}",
                to = in(reg) to.add(index),
                word = in(reg) word,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn move_words(to: *mut u8, from: *const u8, words: usize) {
    // SAFETY: the caller's.
    unsafe {
        core::arch::asm!(
            "rep movsq",
            inout("rcx") words => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}
