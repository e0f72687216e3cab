//! Forked children of tests.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::sys::call;

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
    if let Err(reason) = &done {
        // What a test prints is kept in the memory of its process, which ends here.
        let text = reason.downcast_ref::<String>().map(String::as_str);
        let text = text.or(reason.downcast_ref::<&str>().copied()).unwrap_or("a child panicked");
        let _told = writeln!(std::io::stderr().lock(), "a child panicked: {text}");
    }
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
        let status = self.end();
        assert!(status == 0, "a child ended with {status:#x}");
    }

    /// Waits for it: its status, as `waitpid` gives it.
    ///
    /// # Panics
    /// If somebody else has waited for it.
    pub fn end(self) -> i32 {
        let mut status = 0;
        // SAFETY: a number of our own.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert!(waited == self.0, "waitpid: {}", std::io::Error::last_os_error());
        status
    }
}

extern "C" fn do_nothing(_: libc::c_int) {}

/// From now on `SIGUSR1` does nothing to this process, but interrupts system calls, and restarts
/// those that can be if `restarts`.
pub fn catch_signal(restarts: bool) {
    // SAFETY: all zeros is a value of it.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = do_nothing as *const () as usize;
    action.sa_flags = if restarts { libc::SA_RESTART } else { 0 };
    // SAFETY: the handler does nothing.
    let set = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()) };
    assert!(set == 0, "sigaction: {}", std::io::Error::last_os_error());
}

/// From now on this process is killed when the thread ends that has forked it.
pub fn end_with_parent() {
    call!(SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).unwrap();
}

/// Sends the calling process's thread `thread` a signal that does nothing, again and again, until
/// `is_done`; at most a minute. System calls that it interrupts are restarted.
pub fn interrupt(thread: u32, is_done: impl Fn() -> bool) {
    catch_signal(true);
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
