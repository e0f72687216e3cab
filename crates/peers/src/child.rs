//! Forked children of tests.

use std::time::{Duration, Instant};

/// Seconds after which a child is ended.
const LIMIT: u32 = 60;

/// A forked child.
pub struct Child(i32);

/// Forks: the child does `work`, and ends well if it does not panic.
pub fn fork(work: impl FnOnce()) -> Child {
    // SAFETY: the child has the one thread that called; what it uses of the standard library holds
    // no lock over a fork, and the allocator's are handled by libc.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid > 0 {
        return Child(pid);
    }
    // SAFETY: no memory is passed. The child ends even if its parent was killed.
    unsafe { libc::alarm(LIMIT) };
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    // SAFETY: ends the child at once, without what its parent has registered for its end.
    unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) }
}

impl Child {
    /// Its process id.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.cast_unsigned()
    }

    /// Waits for it.
    ///
    /// # Panics
    /// If it did not end well.
    pub fn wait(self) {
        let mut status = 0;
        // SAFETY: a number of our own.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert!(waited == self.0 && status == 0, "a child ended with {status:#x}");
    }
}

extern "C" fn do_nothing(_: libc::c_int) {}

/// Sends the calling process's thread `thread` a signal that does nothing, again and again, until
/// `is_done`; at most a minute. System calls that it interrupts are restarted.
pub fn interrupt(thread: u32, is_done: impl Fn() -> bool) {
    // SAFETY: all zeros is a value of it.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = do_nothing as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler does nothing.
    let set = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()) };
    assert!(set == 0, "sigaction: {}", std::io::Error::last_os_error());
    let since = Instant::now();
    while !is_done() {
        assert!(since.elapsed() < Duration::from_secs(LIMIT.into()), "not interrupted");
        // SAFETY: no memory is passed; the thread is this process's.
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, libc::SIGUSR1) };
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The calling thread's id.
pub fn thread() -> u32 {
    // SAFETY: no memory is passed.
    unsafe { libc::gettid() as u32 }
}
