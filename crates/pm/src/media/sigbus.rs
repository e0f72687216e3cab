//! The guard against `SIGBUS`.
//!
//! A load or store in a mapping raises it when the file was truncated, when there is no space
//! behind the page, or when the machine found the memory poisoned. The process must survive that,
//! with the region failed: zeros are put over the huge page that was touched, privately, and the
//! access is made again. What was computed from these zeros must not be published: callers ask
//! [`super::Mapped::failed`] before they commit.
//!
//! The handler is process-wide, installed at the first mapping and never removed; faults elsewhere
//! go to whatever was installed before. It reads only atomics and calls only `mmap`, so it may run
//! at any instruction.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use libc::{c_int, c_void, siginfo_t};

use super::descriptor::{Kept, status};
use super::sys::{checked, mapped};

/// Why a mapping has failed; the first reason stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Reason {
    /// No page behind the address.
    Truncated = 1,
    /// The machine lost the memory.
    Poisoned = 2,
    /// An offset outside the region, or not aligned.
    Bounds = 3,
    /// A store into a part that was mapped for reading only.
    ReadOnly = 4,
    /// A page is not resident, and can't be read where it is.
    Unreadable = 5,
    /// There is no memory for a page that is not resident.
    NoRoom = 6,
    /// A child that was forked inside an operation went on with that.
    Inherited = 7,
}

impl Reason {
    fn text(code: u32) -> Option<&'static str> {
        match code {
            0 => None,
            1 => Some("the file was truncated, or has no space, under its mapping"),
            2 => Some("the machine reported poisoned memory"),
            3 => Some("an access out of bounds: an offset in the region is corrupt"),
            4 => Some("a store into a region attached for reading only"),
            5 => Some("a page that was not loaded yet can't be read from the volume"),
            6 => Some("there is no memory for a page that was not loaded yet from the volume"),
            7 => Some("a child that was forked inside an operation needs what is not loaded yet"),
            _ => Some("unknown"),
        }
    }
}

/// One mapping, as the handler sees it.
#[derive(Debug)]
pub(super) struct Watch {
    used: AtomicBool,
    /// Odd while the bounds are being changed.
    version: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    failed: AtomicU32,
    /// A descriptor of the file, and which file it is to be.
    raw: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// Whether this process, a forked child, has pages of its own instead of the file's.
    cut: AtomicBool,
}

const PER_BLOCK: usize = 32;

struct Block {
    watches: [Watch; PER_BLOCK],
    next: OnceLock<&'static Block>,
}

static FIRST: Block = Block::new();
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static INSTALLED: OnceLock<Option<i32>> = OnceLock::new();

impl Block {
    const fn new() -> Block {
        Block { watches: [const { Watch::new() }; PER_BLOCK], next: OnceLock::new() }
    }
}

impl Watch {
    const fn new() -> Watch {
        Watch {
            used: AtomicBool::new(false),
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            failed: AtomicU32::new(0),
            raw: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            cut: AtomicBool::new(false),
        }
    }

    /// Guards `len` bytes of the file `kept` at address `start`, until [`Self::release`].
    pub(super) fn register(start: usize, len: usize, kept: &Kept) -> io::Result<&'static Watch> {
        install()?;
        let mut block = &FIRST;
        loop {
            let free = block.watches.iter().find(|watch| {
                let taken =
                    watch.used.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
                taken.is_ok()
            });
            if let Some(watch) = free {
                watch.failed.store(0, Ordering::Relaxed);
                watch.cut.store(false, Ordering::Relaxed);
                watch.device.store(kept.id().device, Ordering::Relaxed);
                watch.inode.store(kept.id().inode, Ordering::Relaxed);
                watch.raw.store(kept.raw(), Ordering::Relaxed);
                watch.set(start, start + len);
                return Ok(watch);
            }
            block = block.next.get_or_init(|| Box::leak(Box::new(Block::new())));
        }
    }

    /// Ends the guard. Before the mapping goes.
    pub(super) fn release(&self) {
        self.set(0, 0);
        self.used.store(false, Ordering::Release);
    }

    fn set(&self, start: usize, end: usize) {
        self.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The bounds, unless they are being changed: then they are not those of a mapping in use.
    fn bounds(&self) -> Option<(usize, usize)> {
        let before = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let end = self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some((start, end))
    }

    /// Whether the mapping was cut off from its file.
    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// The mapping is its file's again.
    pub(super) fn rejoined(&self) {
        self.failed.store(0, Ordering::Relaxed);
        self.cut.store(false, Ordering::Relaxed);
    }

    /// Replaces the mapping by pages of this process alone.
    fn cut(&self) {
        let Some((start, end)) = self.bounds().filter(|(start, end)| start < end) else {
            return;
        };
        self.cut.store(true, Ordering::Relaxed);
        let raw = self.raw.load(Ordering::Relaxed);
        let is_ours = status(raw).is_ok_and(|status| {
            status.id.device == self.device.load(Ordering::Relaxed)
                && status.id.inode == self.inode.load(Ordering::Relaxed)
        });
        let is_private = is_ours && put_private(start, end, raw);
        if !is_private && !put_zeros(start, end) {
            // SAFETY: ends the process, which could not be kept from damaging the region.
            unsafe { libc::abort() };
        }
    }

    /// Marks the mapping failed.
    #[cold]
    pub(super) fn fail(&self, reason: Reason) {
        let _ =
            self.failed.compare_exchange(0, reason as u32, Ordering::Release, Ordering::Relaxed);
    }

    /// Why the mapping has failed.
    #[inline]
    pub(super) fn failed(&self) -> Option<&'static str> {
        match self.failed.load(Ordering::Acquire) {
            0 => None,
            code => Reason::text(code),
        }
    }
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    let refused =
        INSTALLED.get_or_init(|| install_now().err().map(|e| e.raw_os_error().unwrap_or(0)));
    match refused {
        None => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(*code)),
    }
}

fn install_now() -> io::Result<()> {
    // SAFETY: a sigaction is plain data, for which zeros are a valid value (SIG_DFL, no flags).
    let mut previous: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: only asks, into a structure of our own.
    checked(unsafe { libc::sigaction(libc::SIGBUS, core::ptr::null(), &raw mut previous) })?;
    // Known before our handler can run.
    let _ = PREVIOUS.set(previous);
    let mut ours = previous;
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_sigbus;
    ours.sa_sigaction = handler as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: clears the mask of a structure of our own.
    unsafe { libc::sigemptyset(&raw mut ours.sa_mask) };
    // SAFETY: the structure is complete; the handler keeps to what may be done at any instruction.
    checked(unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, core::ptr::null_mut()) })?;
    Ok(())
}

extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: errno is the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: with SA_SIGINFO the kernel passes a valid structure; SIGBUS from the kernel carries
    // an address in it (and one that a process sent is not looked at further).
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let handled = code > 0 && guard(code, address);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if !handled {
        chain(signal, info, context);
    }
}

/// Puts zeros at `address` if it is in a mapping of ours.
fn guard(code: c_int, address: usize) -> bool {
    let mut next = Some(&FIRST);
    while let Some(block) = next {
        for watch in &block.watches {
            let Some((start, end)) = watch.bounds() else {
                continue;
            };
            if address < start || address >= end {
                continue;
            }
            let poisoned = code == libc::BUS_MCEERR_AR || code == libc::BUS_MCEERR_AO;
            watch.fail(if poisoned { Reason::Poisoned } else { Reason::Truncated });
            let huge = conquest_format::GROUP as usize;
            let from = (address / huge * huge).max(start);
            let to = (from + huge).min(end);
            // Devices with larger pages can't be replaced in part.
            return put_zeros(from, to) || put_zeros(start, end);
        }
        next = block.next.get().copied();
    }
    false
}

/// In a forked child: nothing that it still does reaches a region, until it has asked for it again.
pub(super) fn cut_all() {
    let mut next = Some(&FIRST);
    while let Some(block) = next {
        block.watches.iter().for_each(Watch::cut);
        next = block.next.get().copied();
    }
}

/// Replaces a mapping by a private one of the file `raw`.
fn put_private(from: usize, to: usize, raw: c_int) -> bool {
    // SAFETY: as in put_zeros.
    let result = unsafe {
        libc::mmap(
            core::ptr::with_exposed_provenance_mut(from),
            to - from,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED,
            raw,
            0,
        )
    };
    mapped(result).is_ok()
}

fn put_zeros(from: usize, to: usize) -> bool {
    // SAFETY: the range is inside a mapping of ours, of which nobody holds references: accesses
    // are atomics or instructions through its address, and continue on the new pages. Other
    // processes have mappings of their own, which this does not touch.
    let result = unsafe {
        libc::mmap(
            core::ptr::with_exposed_provenance_mut(from),
            to - from,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    mapped(result).is_ok()
}

/// Does what would have been done without us.
fn chain(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(previous) = PREVIOUS.get() else {
        return;
    };
    // SAFETY: as in on_sigbus.
    let is_fault = matches!(
        unsafe { (*info).si_code },
        libc::BUS_ADRALN | libc::BUS_ADRERR | libc::BUS_OBJERR | libc::BUS_MCEERR_AR
    );
    match previous.sa_sigaction {
        libc::SIG_IGN if !is_fault => {}
        // A fault that is ignored kills all the same.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: zeros are SIG_DFL without flags.
            let default: libc::sigaction = unsafe { core::mem::zeroed() };
            // SAFETY: the structure is complete. A fault happens again as soon as we return; a
            // signal that was sent is sent again, and arrives as soon as we return.
            unsafe {
                libc::sigaction(signal, &raw const default, core::ptr::null_mut());
                if !is_fault {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the address was registered as a handler of this type with SA_SIGINFO.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                unsafe { core::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the address was registered as a handler of this type.
            let handler: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_found_while_registered_and_used_again() {
        let kept = Kept::new(std::fs::File::open("/dev/null").unwrap()).unwrap();
        let register = |start| Watch::register(start, 4096, &kept).unwrap();
        let many: Vec<_> = (0..PER_BLOCK * 2).map(|n| register((n + 1) << 40)).collect();
        for (n, watch) in many.iter().enumerate() {
            assert_eq!(watch.bounds(), Some(((n + 1) << 40, ((n + 1) << 40) + 4096)));
        }
        many[1].fail(Reason::Bounds);
        many[1].fail(Reason::Poisoned);
        assert_eq!(many[1].failed(), Reason::text(3));
        for watch in &many {
            watch.release();
        }
        let again = register(1 << 40);
        assert_eq!(again.failed(), None);
        again.release();
    }
}
