//! Who the calling thread is, without asking the kernel each time.

use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};

use super::fork::Token;
use crate::host::Identity;

const NOBODY: Identity = Identity { process: 0, thread: 0, namespace: 0 };

thread_local! {
    /// The token of the process in which the next one was found out.
    static UNDER: Cell<u64> = const { Cell::new(0) };
    static WHO: Cell<Identity> = const { Cell::new(NOBODY) };
}

/// The calling thread; right also in a forked child, and in a signal handler at any moment.
#[inline]
pub(super) fn identity(process: Token) -> Identity {
    let token = process.current();
    if UNDER.get() == token {
        return WHO.get();
    }
    ask(token)
}

#[cold]
fn ask(token: u64) -> Identity {
    // SAFETY: no memory is passed.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    let who = Identity {
        process: std::process::id(),
        thread: u32::try_from(thread).unwrap_or(0),
        namespace: namespace().unwrap_or(0),
    };
    WHO.set(who);
    // A signal handler that comes between finds the same out once more.
    compiler_fence(Ordering::Release);
    UNDER.set(token);
    who
}

/// The inode number of the calling process's pid namespace; none without `/proc`.
fn namespace() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_differ_and_processes_do_not() {
        let token = Token::get().unwrap();
        let here = identity(token);
        assert_eq!(here, identity(token));
        assert_eq!(here.process, std::process::id());
        assert_ne!(here.namespace, 0);
        let there = std::thread::spawn(move || identity(token)).join().unwrap();
        assert_eq!(here.process, there.process);
        assert_ne!(here.thread, there.thread);
    }
}
