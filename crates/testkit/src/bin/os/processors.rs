//! Real processes: forked, pinned, waited for.

use std::sync::atomic::AtomicU64;

use crate::arena::system;

/// Words that processes share.
pub(crate) const SHARED: usize = 512;

/// A child process; killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: libc::pid_t,
    reaped: bool,
}

impl Child {
    /// Forks; the child runs `body` and exits with 0, or with 1 if it returns an error.
    pub(crate) fn fork(body: impl FnOnce() -> Result<(), String>) -> Result<Child, String> {
        // SAFETY: the calling process has one thread, so the child may do anything.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(system("fork")),
            0 => {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                let code = match done {
                    Ok(Ok(())) => 0,
                    Ok(Err(error)) => {
                        eprintln!("child: {error}");
                        1
                    }
                    Err(_) => 2,
                };
                // SAFETY: ends the child without running what belongs to the parent.
                unsafe { libc::_exit(code) }
            }
            _ => Ok(Child { pid, reaped: false }),
        }
    }

    /// Its number.
    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Waits until it ends, or stops if it is traced; its status.
    pub(crate) fn wait(&mut self) -> Result<i32, String> {
        let mut status = 0;
        // SAFETY: a local status word; our own child.
        while unsafe { libc::waitpid(self.pid, &raw mut status, 0) } < 0 {
            if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                return Err(system("wait for a process"));
            }
        }
        self.reaped = !libc::WIFSTOPPED(status);
        Ok(status)
    }

    /// Waits until it has ended well.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        match self.wait()? {
            0 => Ok(()),
            status => Err(format!("a process ended with status {status:#x}")),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // SAFETY: to our own child, which has not been reaped: the number is still its own.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            let _status = self.wait();
        }
    }
}

/// Processors that this process may run on.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: a set of processors is plain data, for which zeros are a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let len = size_of::<libc::cpu_set_t>();
    // SAFETY: a local set of its size.
    if unsafe { libc::sched_getaffinity(0, len, &raw mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: numbers below the set's size.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Lets the calling process run on the processors `cpus` only.
pub(crate) fn pin(cpus: &[usize]) -> Result<(), String> {
    // SAFETY: a set of processors is plain data, for which zeros are a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        // SAFETY: a number that a set was found to hold.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: a local set of its size.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0 {
        return Err(system("pin a process to a processor"));
    }
    Ok(())
}

/// Words that this process and the children it will fork share, all 0.
pub(crate) fn shared_words() -> Result<&'static [AtomicU64; SHARED], String> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), SHARED * 8, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(system("share memory"));
    }
    // SAFETY: zeroed, page-aligned, large enough, never unmapped, and used as atomics only.
    Ok(unsafe { &*page.cast() })
}
