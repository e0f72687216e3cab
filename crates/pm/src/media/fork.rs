//! Telling a forked child from its parent.
//!
//! A page with `MADV_WIPEONFORK` holds a number, the *token*, that is different in each process of
//! a line of descent: the kernel wipes it in a child, and the child writes the next one. So a value
//! that remembers the token it was made under knows by one load whether it is in that process.
//!
//! And whether some thread forked *while* something was done, which is what a claim must know: a
//! child made between the opening of a descriptor and the advice not to inherit its page has both.
//! The last step, closing that descriptor, can't be taken back; so forks wait for it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use conquest_format::PAGE;

use super::signals::NoSignals;
use super::sys::{checked, mapped};

/// The page's address, or the reason why there is none.
static TOKEN: OnceLock<Result<usize, i32>> = OnceLock::new();
/// The last token used; a child inherits its parent's.
static LAST: AtomicU64 = AtomicU64::new(0);
/// Forks done, in the upper half, and under way, in the lower.
static FORKS: AtomicU64 = AtomicU64::new(0);
const ONE_DONE: u64 = 1 << 32;
/// Threads that are closing a descriptor that no child may have.
static CLOSING: AtomicU32 = AtomicU32::new(0);
/// How often a fork looks whether these have finished, and how long it sleeps in between: a second
/// in all. They need two system calls, without signals.
const LOOKS: u32 = 20_000;
const NAP: Duration = Duration::from_micros(50);

/// The word that the kernel wipes in a child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token(&'static AtomicU64);

impl Token {
    /// The process's.
    pub(super) fn get() -> io::Result<Token> {
        let make = || make_page().map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM));
        match TOKEN.get_or_init(make) {
            Ok(address) => {
                let word = core::ptr::with_exposed_provenance_mut(*address);
                // SAFETY: the page was mapped for good, is aligned, and is touched only here, by
                // atomics. It is private: other processes have none of it.
                Ok(Token(unsafe { AtomicU64::from_ptr(word) }))
            }
            Err(code) => Err(io::Error::from_raw_os_error(*code)),
        }
    }

    /// The token as it stands: 0 in a child that has not asked for one.
    #[inline]
    pub(super) fn now(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// This process's token.
    #[inline]
    pub(super) fn current(self) -> u64 {
        match self.now() {
            0 => self.renew(),
            token => token,
        }
    }

    #[cold]
    fn renew(self) -> u64 {
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let taken = self.0.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
        taken.map_or_else(|found| found, |_| next)
    }
}

unsafe extern "C" {
    // Every libc has it, but the `libc` crate doesn't declare it.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> libc::c_int;
}

fn make_page() -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: at an address of the kernel's choice: no memory in use is touched.
    let result =
        unsafe { libc::mmap(core::ptr::null_mut(), PAGE as usize, protection, flags, -1, 0) };
    let page = mapped(result)?;
    // SAFETY: the page just made; the advice holds for children, and changes nothing here.
    checked(unsafe { libc::madvise(page.cast(), PAGE as usize, libc::MADV_WIPEONFORK) })?;
    // SAFETY: the functions only touch atomics, and call what may be called around any fork.
    let code = unsafe { pthread_atfork(Some(fork_begins), Some(fork_ends), Some(child_begins)) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    Ok(page.expose_provenance())
}

extern "C" fn fork_begins() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    for _ in 0..LOOKS {
        if CLOSING.load(Ordering::SeqCst) == 0 {
            return;
        }
        std::thread::sleep(NAP);
    }
}

extern "C" fn fork_ends() {
    FORKS.fetch_add(ONE_DONE - 1, Ordering::SeqCst);
}

extern "C" fn child_begins() {
    FORKS.store(0, Ordering::SeqCst);
    CLOSING.store(0, Ordering::SeqCst);
    // An operation under way is the parent's: whatever it still does here must not reach a region.
    if crate::thread::inherit_operations() {
        super::sigbus::cut_all();
    }
}

/// A stretch of time in which nobody should fork.
pub(super) struct Quiet(u64);

impl Quiet {
    /// Begins now.
    pub(super) fn begin() -> Quiet {
        Quiet(FORKS.load(Ordering::SeqCst))
    }

    /// Whether no thread of this process has been forking since the beginning.
    fn held(&self) -> bool {
        self.0.is_multiple_of(ONE_DONE) && FORKS.load(Ordering::SeqCst) == self.0
    }

    /// Ends it by closing `file`, of which no child then has a copy; or gives `file` back, because
    /// a child may have one.
    pub(super) fn close(self, file: File) -> Result<(), File> {
        let _signals = NoSignals::begin();
        // Either a fork sees this and waits, or it has been counted and is seen here: of two
        // threads that each store one word and then load the other's, one sees the other.
        CLOSING.fetch_add(1, Ordering::SeqCst);
        let closed = if self.held() {
            drop(file);
            Ok(())
        } else {
            Err(file)
        };
        CLOSING.fetch_sub(1, Ordering::SeqCst);
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_stays_while_nobody_forks() {
        let token = Token::get().unwrap();
        assert_ne!(token.current(), 0);
        assert_eq!(token.current(), Token::get().unwrap().now());
    }

    #[test]
    fn a_fork_meanwhile_is_noticed() {
        let quiet = Quiet::begin();
        fork_begins();
        assert!(!quiet.held());
        let during = Quiet::begin();
        fork_ends();
        assert!(!quiet.held());
        assert!(!during.held());
        let file = || File::open("/dev/null").unwrap();
        assert!(quiet.close(file()).is_err());
        assert!(during.close(file()).is_err());
        // Other tests may fork, too.
        while Quiet::begin().close(file()).is_err() {}
    }

    #[test]
    fn a_fork_waits_for_what_is_being_closed() {
        CLOSING.fetch_add(1, Ordering::SeqCst);
        let forking = std::thread::spawn(|| {
            fork_begins();
            fork_ends();
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!forking.is_finished());
        CLOSING.fetch_sub(1, Ordering::SeqCst);
        forking.join().unwrap();
    }
}
