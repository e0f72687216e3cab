//! Several system calls at once.

use std::ffi::CStr;
use std::io;
use std::thread::ThreadId;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{DestinationSlot, Fd, Fixed};
use io_uring::{IoUring, opcode};

use crate::{error, is_passing};

/// Most calls that a ring takes at once.
pub const CALLS_MAX: u32 = 4096;

/// A system call. Open files are *slots* of the ring: numbers below that of the calls that it takes
/// at once.
#[derive(Debug)]
pub enum Call<'c> {
    /// openat(2) in the working directory.
    Open {
        /// Which file.
        path: &'c CStr,
        /// `O_` flags; without `O_CLOEXEC`, which slots are in any case.
        flags: i32,
        /// The mode of a new file, before the mask.
        mode: u32,
        /// Where it is open then.
        slot: u32,
    },
    /// pread(2): gives how many bytes.
    Read {
        /// Of which file.
        slot: u32,
        /// Where its bytes go.
        into: &'c mut [u8],
        /// From which byte on.
        offset: u64,
    },
    /// pwrite(2): gives how many bytes.
    Write {
        /// To which file.
        slot: u32,
        /// What.
        bytes: &'c [u8],
        /// From which byte on.
        offset: u64,
    },
    /// close(2).
    Close {
        /// Which file.
        slot: u32,
    },
    /// statx(2), all that stat(2) tells.
    Stat {
        /// Of which file.
        path: &'c CStr,
        /// Where it goes.
        into: &'c mut Stat,
    },
    /// unlinkat(2) in the working directory.
    Unlink {
        /// Which file.
        path: &'c CStr,
    },
}

/// What statx(2) tells of a file.
pub struct Stat(libc::statx);

impl Default for Stat {
    fn default() -> Stat {
        // SAFETY: all of its fields are numbers, or structures and arrays of numbers.
        Stat(unsafe { std::mem::zeroed() })
    }
}

impl std::fmt::Debug for Stat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mode, size) = (self.mode(), self.size());
        f.debug_struct("Stat").field("mode", &mode).field("size", &size).finish_non_exhaustive()
    }
}

impl Stat {
    /// Its bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.stx_size
    }

    /// Type and permissions.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.0.stx_mode.into()
    }
}

/// When the call behind another one is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Whenever the kernel comes to it.
    Anytime,
    /// Once this one has completed, and not at all (`ECANCELED`) if it failed. A read or write of
    /// fewer bytes than were asked for counts as failed.
    IfDone,
    /// Once this one has completed, whether it failed or not; not at all if it was not made itself.
    Anyhow,
}

/// A call, and what has come of it.
#[derive(Debug)]
pub struct Submitted<'c> {
    call: Call<'c>,
    next: Next,
    result: i32,
}

impl<'c> Submitted<'c> {
    /// To be made; `next` says when the one behind it is.
    #[must_use]
    pub fn new(call: Call<'c>, next: Next) -> Submitted<'c> {
        Submitted { call, next, result: -libc::EINPROGRESS }
    }

    /// The call.
    #[must_use]
    pub fn call(&self) -> &Call<'c> {
        &self.call
    }

    /// What it returned.
    ///
    /// # Errors
    /// Its own; `ECANCELED` if it was not made; `EINPROGRESS` before [`Ring::run`].
    pub fn outcome(&self) -> io::Result<usize> {
        usize::try_from(self.result).map_err(|_| error(-self.result))
    }
}

/// A ring of one thread.
pub struct Ring {
    ring: IoUring,
    calls: u32,
    thread: ThreadId,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Ring {
    /// One that takes `calls` calls at once, and as many slots.
    ///
    /// # Errors
    /// - `EINVAL`: no call at all, or more than [`CALLS_MAX`];
    /// - `ENOSYS`, `EPERM`: the kernel has no io_uring, or the process may not use it (the
    ///   `kernel.io_uring_disabled` sysctl, seccomp);
    /// - `ENOMEM`, `EMFILE`.
    pub fn new(calls: u32) -> io::Result<Ring> {
        if calls == 0 || calls > CALLS_MAX {
            return Err(error(libc::EINVAL));
        }
        // What completes is noted by the thread that waits, when it does: since Linux 6.1.
        let best = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(calls);
        let ring = match best {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(calls)?,
            ring => ring?,
        };
        ring.submitter().register_files_sparse(calls)?;
        Ok(Ring { ring, calls, thread: std::thread::current().id() })
    }

    /// Whether this process may have one.
    #[must_use]
    pub fn is_possible() -> bool {
        Ring::new(1).is_ok()
    }

    /// Makes `calls`, in any order but where one is to come after the other, and waits for all of
    /// them. Each has its outcome then. What is open in a slot is closed when something else is
    /// opened there. If the kernel can't be waited for, the process is aborted, as the memory may
    /// still be in use.
    ///
    /// # Errors
    /// None is made then:
    /// - `E2BIG`: there are more than the ring takes;
    /// - `EBADF`: there is no such slot;
    /// - `EPERM`: the ring was made by another thread.
    pub fn run(&mut self, calls: &mut [Submitted<'_>]) -> io::Result<()> {
        if calls.len() > self.calls as usize {
            return Err(error(libc::E2BIG));
        }
        if calls.iter().any(|one| one.call.slot().is_some_and(|slot| slot >= self.calls)) {
            return Err(error(libc::EBADF));
        }
        if std::thread::current().id() != self.thread {
            return Err(error(libc::EPERM));
        }
        let count = calls.len();
        for (at, submitted) in calls.iter_mut().enumerate() {
            let flags = match submitted.next {
                // Nothing comes behind the last one.
                _ if at + 1 == count => Flags::empty(),
                Next::Anytime => Flags::empty(),
                Next::IfDone => Flags::IO_LINK,
                Next::Anyhow => Flags::IO_HARDLINK,
            };
            let entry = submitted.call.entry().user_data(at as u64).flags(flags);
            // SAFETY: what the entry points to is borrowed by `calls`, mutably where the kernel
            // stores into it, until this function returns; and that it does only when as many calls
            // have completed as were handed in (`complete`).
            let pushed = unsafe { self.ring.submission().push(&entry) };
            // There is room for all of them, as the queue is empty outside of this function. If
            // there is not, some are in it which could still be handed in.
            pushed.unwrap_or_else(|_| std::process::abort());
        }
        self.complete(calls);
        Ok(())
    }

    /// Hands in what is in the queue, and waits for all of `calls`.
    fn complete(&mut self, calls: &mut [Submitted<'_>]) {
        let mut done = 0;
        while done < calls.len() {
            match self.ring.submit_and_wait(calls.len() - done) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                // The kernel may still use memory that is only borrowed.
                Err(_) => std::process::abort(),
            }
            for completed in self.ring.completion() {
                done += 1;
                if let Some(submitted) = calls.get_mut(completed.user_data() as usize) {
                    submitted.result = completed.result();
                }
            }
        }
    }
}

impl Call<'_> {
    fn slot(&self) -> Option<u32> {
        match self {
            Call::Open { slot, .. }
            | Call::Read { slot, .. }
            | Call::Write { slot, .. }
            | Call::Close { slot } => Some(*slot),
            Call::Stat { .. } | Call::Unlink { .. } => None,
        }
    }

    fn entry(&mut self) -> Entry {
        let here = Fd(libc::AT_FDCWD);
        match self {
            Call::Open { path, flags, mode, slot } => {
                // There are fewer slots than numbers for them.
                let slot = DestinationSlot::try_from_slot_target(*slot).ok();
                let open = opcode::OpenAt::new(here, path.as_ptr());
                open.flags(*flags).mode(*mode).file_index(slot).build()
            }
            Call::Read { slot, into, offset } => {
                let len = u32::try_from(into.len()).unwrap_or(u32::MAX);
                opcode::Read::new(Fixed(*slot), into.as_mut_ptr(), len).offset(*offset).build()
            }
            Call::Write { slot, bytes, offset } => {
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                opcode::Write::new(Fixed(*slot), bytes.as_ptr(), len).offset(*offset).build()
            }
            Call::Close { slot } => opcode::Close::new(Fixed(*slot)).build(),
            Call::Stat { path, into } => {
                let into = &raw mut into.0;
                let stat = opcode::Statx::new(here, path.as_ptr(), into.cast());
                stat.mask(libc::STATX_BASIC_STATS).build()
            }
            Call::Unlink { path } => opcode::UnlinkAt::new(here, path.as_ptr()).build(),
        }
    }
}
