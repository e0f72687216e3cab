//! The mapping as [`Memory`].

use core::sync::atomic::{AtomicU64, Ordering, fence};
use core::time::Duration;

use conquest_format::{Offset, WORD};

use super::mapped::Mapped;
use super::shield::Shield;
use super::sigbus::Reason;
use super::window::Window;
use super::{copy, futex};
use crate::memory::{Memory, Wake};
#[cfg(target_arch = "x86_64")]
use crate::persist::persist_fence;

/// From so many bytes up, stores that will be written back anyway go past the caches.
#[cfg(target_arch = "x86_64")]
const STREAM: usize = 1024;

/// An order that loads accept: the standard library panics on others.
#[inline]
const fn for_load(order: Ordering) -> Ordering {
    match order {
        Ordering::Relaxed => Ordering::Relaxed,
        Ordering::SeqCst => Ordering::SeqCst,
        _ => Ordering::Acquire,
    }
}

/// An order that stores accept.
#[inline]
const fn for_store(order: Ordering) -> Ordering {
    match order {
        Ordering::Relaxed => Ordering::Relaxed,
        Ordering::SeqCst => Ordering::SeqCst,
        _ => Ordering::Release,
    }
}

impl Mapped {
    /// Stores the bytes `from`..`from + bytes.len()` of the word at `at`, which is in the
    /// persistent part.
    #[inline]
    fn put_within_word(&self, at: u64, from: usize, bytes: &[u8]) {
        self.on_word(Offset::new(at), self.puts(), (), |word| {
            let mut value = word.load(Ordering::Relaxed).to_ne_bytes();
            for (old, new) in value.iter_mut().skip(from).zip(bytes) {
                *old = *new;
            }
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        });
    }

    /// Splits `len` bytes at `at` into the end of a word, whole words, and the start of a word;
    /// lengths in bytes.
    #[inline]
    const fn split(at: u64, len: usize) -> (usize, usize, usize) {
        let before = (at.wrapping_neg() % WORD) as usize;
        let head = if before < len { before } else { len };
        let tail = (len - head) % WORD as usize;
        (head, len - head - tail, tail)
    }
}

impl Memory for Mapped {
    #[inline]
    fn len(&self) -> u64 {
        self.bytes()
    }

    #[inline]
    fn open_window(&self) -> bool {
        self.shield().is_none_or(Shield::open)
    }

    #[inline]
    fn close_window(&self) {
        if let Some(shield) = self.shield() {
            shield.close();
        }
    }

    #[inline]
    fn failure(&self) -> Option<&'static str> {
        self.failed()
    }

    fn rejoin(&self) -> crate::Result<bool> {
        self.map_again()
    }

    fn is_loading(&self) -> bool {
        self.progress().is_some()
    }

    fn found_table(&self, is_there: bool, life: u32) -> crate::Result<()> {
        Mapped::found_table(self, is_there, life)
    }

    fn drop_table(&self, len: u64) -> crate::Result<()> {
        Mapped::drop_table(self, len)
    }

    fn make_ready(&self, at: Offset, len: u64) {
        // A kernel that does not know how lets each page wait for its first store.
        let (Ok(()) | Err(_)) = self.populate(at.bytes()..at.bytes().saturating_add(len));
    }

    #[inline]
    fn load(&self, at: Offset, order: Ordering) -> u64 {
        self.on_word(at, self.loads(), 0, move |word| u64::from_le(word.load(for_load(order))))
    }

    #[inline]
    fn read(&self, at: Offset, out: &mut [u8]) {
        if self.span(at, out.len() as u64, self.loads()).is_none() {
            out.fill(0);
            return;
        }
        let (head, middle, tail) = Self::split(at.bytes(), out.len());
        let (first, rest) = out.split_at_mut(head);
        let (words, last) = rest.split_at_mut(middle);
        if head > 0 {
            let inside = at.bytes() % WORD;
            let word = self.load(Offset::new(at.bytes() - inside), Ordering::Relaxed);
            let bytes = word.to_le_bytes();
            for (to, from) in first.iter_mut().zip(bytes.iter().skip(inside as usize)) {
                *to = *from;
            }
        }
        let start = at.plus(head as u64);
        if let Some(from) = self.span(start, middle as u64, self.loads()) {
            // SAFETY: `start` is aligned and the words are inside the mapping, which lives as long
            // as self; no reference to the region's bytes exists. Other processes, and threads
            // that hold the caller's locks or will make it look again, may store meanwhile: the
            // copy is made of whole words. The buffer is the caller's alone.
            unsafe { copy::words_out(from.cast(), words.as_mut_ptr(), middle / WORD as usize) };
        }
        if tail > 0 {
            let word = self.load(start.plus(middle as u64), Ordering::Relaxed);
            for (to, from) in last.iter_mut().zip(word.to_le_bytes()) {
                *to = from;
            }
        }
    }

    #[inline]
    fn store(&self, at: Offset, value: u64, order: Ordering) {
        self.on_word(at, self.stores(), (), move |word| {
            word.store(value.to_le(), for_store(order))
        });
    }

    #[inline]
    fn compare_exchange(
        &self,
        at: Offset,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        // What a load finds out of bounds. That the exchange "succeeds" if 0 was expected keeps
        // nobody trying for ever; the region has failed.
        let otherwise = if current == 0 { Ok(0) } else { Err(0) };
        self.on_word(at, self.stores(), otherwise, move |word| {
            word.compare_exchange(current.to_le(), new.to_le(), success, for_load(failure))
                .map(u64::from_le)
                .map_err(u64::from_le)
        })
    }

    #[inline]
    fn full_fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn load_fence(&self) {
        fence(Ordering::Acquire);
    }

    fn wait(&self, at: Offset, expected: u32, timeout: Duration) -> Wake {
        self.on_word(at, self.stores(), Wake::Woken, |word| futex::wait(word, expected, timeout))
    }

    fn wake(&self, at: Offset, count: u32) {
        self.on_word(at, self.stores(), (), move |word| futex::wake(word, count));
    }

    #[inline]
    fn put(&self, at: Offset, value: u64, order: Ordering) {
        self.on_word(at, self.puts(), (), move |word| word.store(value.to_le(), for_store(order)));
    }

    #[inline]
    fn put_or(&self, at: Offset, bits: u64) {
        self.on_word(at, self.puts(), (), move |word| {
            word.fetch_or(bits.to_le(), Ordering::AcqRel);
        });
    }

    #[inline]
    fn put_and_not(&self, at: Offset, bits: u64) {
        self.on_word(at, self.puts(), (), move |word| {
            word.fetch_and(!bits.to_le(), Ordering::AcqRel);
        });
    }

    #[inline]
    fn put_bytes(&self, at: Offset, bytes: &[u8]) {
        if self.span(at, bytes.len() as u64, self.puts()).is_none() {
            return;
        }
        let (head, middle, tail) = Self::split(at.bytes(), bytes.len());
        let (first, rest) = bytes.split_at(head);
        let (words, last) = rest.split_at(middle);
        if head > 0 {
            let inside = at.bytes() % WORD;
            self.put_within_word(at.bytes() - inside, inside as usize, first);
        }
        let start = at.plus(head as u64);
        if let Some(to) = self.span(start, middle as u64, self.puts()) {
            let (to, from, count) = (to.cast(), words.as_ptr(), middle / WORD as usize);
            #[cfg(target_arch = "x86_64")]
            if middle >= STREAM && self.policy().has_lines() {
                // SAFETY: the words are aligned, inside the mapping, which lives as long as self,
                // and stored whole; no reference to the region's bytes exists. The fence
                // keeps later stores, by which others learn of these words, behind them.
                unsafe { copy::words_in_streaming(to, from, count) };
                persist_fence();
            } else {
                // SAFETY: the words are aligned, inside the mapping, which lives as long as self,
                // and stored whole; no reference to the region's bytes exists.
                unsafe { copy::words_in(to, from, count) };
            }
            #[cfg(not(target_arch = "x86_64"))]
            // SAFETY: the words are aligned, inside the mapping, which lives as long as self, and
            // stored whole; no reference to the region's bytes exists.
            unsafe {
                copy::words_in(to, from, count);
            }
        }
        if tail > 0 {
            self.put_within_word(start.bytes() + middle as u64, 0, last);
        }
    }

    fn put_zeros(&self, at: Offset, len: u64) {
        const ZEROS: [u8; WORD as usize] = [0; WORD as usize];
        if self.span(at, len, self.puts()).is_none() {
            return;
        }
        let (head, middle, tail) = Self::split(at.bytes(), len as usize);
        if head > 0 {
            let inside = at.bytes() % WORD;
            self.put_within_word(at.bytes() - inside, inside as usize, &ZEROS[..head]);
        }
        let start = at.plus(head as u64);
        if let Some(to) = self.span(start, middle as u64, self.puts()) {
            // SAFETY: the words are aligned, inside the mapping, which lives as long as self, and
            // stored whole; no reference to the region's bytes exists.
            unsafe { copy::zeros_in(to.cast(), middle / WORD as usize) };
        }
        if tail > 0 {
            self.put_within_word(start.bytes() + middle as u64, 0, &ZEROS[..tail]);
        }
    }

    #[inline]
    fn write_back(&self, at: Offset, len: u64) {
        if !self.policy().has_lines() {
            return;
        }
        if let Some(start) = self.span(at, len, self.loads()) {
            // SAFETY: the bytes are inside the mapping; the policy was chosen among those that the
            // processor has. Writing back changes nothing that another process could see.
            unsafe { self.policy().write_back_unfenced(start, len as usize) };
        }
    }

    #[inline]
    fn fence(&self) {
        self.policy().fence();
    }

    #[inline]
    fn needs_write_back(&self) -> bool {
        self.policy().is_needed()
    }
}

impl Mapped {
    /// What `act` does with the word at `at`, if that is aligned and in `window`, and is loaded
    /// first if need be. Otherwise the mapping has failed, and this is what is returned.
    #[inline]
    fn on_word<T>(
        &self,
        at: Offset,
        window: &Window,
        otherwise: T,
        act: impl FnOnce(&AtomicU64) -> T,
    ) -> T {
        let (start, words) = window.now();
        // The rotation turns a number that is no multiple of 8 into one far out of bounds.
        let index = at.bytes().wrapping_sub(start).rotate_right(3);
        if index < words {
            // SAFETY: aligned, and inside the mapping, as the window is.
            return act(unsafe { self.word(at) });
        }
        self.on_cold_word(at, window, otherwise, act)
    }

    /// The same for what has to be looked at. By itself, so that others pay nothing for it.
    #[cold]
    #[inline(never)]
    fn on_cold_word<T>(
        &self,
        at: Offset,
        window: &Window,
        otherwise: T,
        act: impl FnOnce(&AtomicU64) -> T,
    ) -> T {
        if !at.is_aligned(WORD) {
            self.refuse(at);
            return otherwise;
        }
        if !self.may_touch(at, WORD, window) {
            return otherwise;
        }
        // SAFETY: aligned, and inside the mapping, as all is that the window can have.
        act(unsafe { self.word(at) })
    }

    /// The word at `at`.
    ///
    /// # Safety
    /// `at` is aligned, and the word inside the mapping. To store to it, it is in a window of
    /// what is mapped for storing.
    #[inline]
    unsafe fn word(&self, at: Offset) -> &AtomicU64 {
        // SAFETY: the word is aligned, as `base` and the offset are, and inside the mapping, which
        // lives as long as self. It is touched only by atomics, by this process and by others, or
        // by the copies of whole words in `copy`; who loads its page stores into it through the
        // file before anybody may come here. A word of a window that is mapped for reading only is
        // never stored to, and 8-byte loads don't store.
        unsafe { AtomicU64::from_ptr(self.address_of(at.bytes()).cast().as_ptr()) }
    }

    /// The address of `len` bytes at `at`, if they are in `window`, loaded first if need be;
    /// otherwise the mapping has failed.
    #[inline]
    fn span(&self, at: Offset, len: u64, window: &Window) -> Option<*mut u8> {
        let (start, words) = window.now();
        let inside = at.bytes().wrapping_sub(start);
        let bytes = words * WORD;
        let is_open = inside <= bytes && len <= bytes - inside;
        if is_open || self.may_touch(at, len, window) {
            return Some(self.base().wrapping_add(at.bytes() as usize));
        }
        None
    }

    /// Whether `len` bytes at `at` are in `window` once all is resident, and are resident now: they
    /// are loaded if need be. Otherwise the mapping has failed.
    #[cold]
    fn may_touch(&self, at: Offset, len: u64, window: &Window) -> bool {
        if !window.has(at.bytes(), len) {
            self.refuse(at);
            return false;
        }
        match self.make_resident(at.bytes()..at.bytes() + len) {
            Ok(()) => true,
            Err(reason) => {
                self.fail(reason);
                false
            }
        }
    }

    /// A word of the residency table; none if that is not mapped.
    pub(super) fn table_word(&self, at: Offset) -> Option<&AtomicU64> {
        let table = self.bytes()..self.bytes_mapped();
        if !at.is_aligned(WORD) || !table.contains(&at.bytes()) {
            return None;
        }
        // SAFETY: the word is aligned, as `base` and the offset are, and inside the mapping, whose
        // length is a multiple of a page, and which lives as long as self. It is mapped for storing
        // whatever the region is, and touched only by atomics, in this process and in others.
        Some(unsafe { AtomicU64::from_ptr(self.address_of(at.bytes()).cast().as_ptr()) })
    }

    #[cold]
    fn refuse(&self, at: Offset) {
        let inside = at.is_aligned(WORD) && at.bytes() < self.bytes();
        self.fail(if inside && self.is_read_only() { Reason::ReadOnly } else { Reason::Bounds });
    }
}
