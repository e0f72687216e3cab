//! Counting the system calls of a process that measures, by tracing it. Never timed.
//!
//! The process says what belongs to a phase by *marks*: system calls that nothing else makes and
//! that do nothing. Counted are the calls of each thread between the marks with which it begins and
//! ends; what the process does around its phases, and threads that only wait for others, are not.

use std::collections::HashMap;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::{SYS_getpgid, c_long};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use crate::{Error, Result};

/// What a process says to who traces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// From here on the calls of this thread count.
    Begin,
    /// From here on they don't.
    End,
    /// A phase is over.
    Kept,
}

/// Numbers that no process can have: they are above the kernel's greatest one, 4,194,304.
const MARKS: [(Mark, i32); 3] =
    [(Mark::Begin, 0x7C0D_E501), (Mark::End, 0x7C0D_E502), (Mark::Kept, 0x7C0D_E503)];

/// So often it is looked for stops at once, before a nap is taken.
const LOOKS: u32 = 200;
const NAP: Duration = Duration::from_micros(50);
/// Longest wait for a process that was killed.
const GRACE: Duration = Duration::from_secs(10);

/// Makes a mark. Who simulates a processor knows it by its function (see [`crate::simulation`]).
pub fn mark(what: Mark) {
    match what {
        Mark::Begin => mark_begin(),
        Mark::End => mark_end(),
        Mark::Kept => mark_kept(),
    }
}

#[inline(never)]
fn mark_begin() {
    call(Mark::Begin);
}

#[inline(never)]
fn mark_end() {
    call(Mark::End);
}

#[inline(never)]
fn mark_kept() {
    call(Mark::Kept);
}

/// The system call that is the mark for who traces.
fn call(what: Mark) {
    let number = MARKS.iter().find(|(mark, _)| *mark == what).map_or(0, |(_, number)| *number);
    // There is no such process, which is an error to nobody.
    let _ = rustix::process::getpgid(rustix::process::Pid::from_raw(number));
}

/// A process that is being traced by this thread.
pub(crate) struct Traced {
    process: Pid,
    threads: HashMap<Pid, Thread>,
    calls: u64,
    phases: Vec<u64>,
}

/// One of its threads.
#[derive(Default)]
struct Thread {
    /// Whether it is in a system call.
    is_inside: bool,
    /// Whether its calls count.
    counts: bool,
}

fn failed(error: Errno) -> Error {
    Error::system("tracing a process")(error.into())
}

impl Traced {
    /// Begins to trace `child`, which leads a process group of its own and waits for what it is
    /// told to do. It ends with this process.
    ///
    /// # Errors
    /// If the system allows nobody to trace it, or somebody else does.
    pub(crate) fn begin(child: &Child) -> Result<Traced> {
        let process = Pid::from_raw(child.id().cast_signed());
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_EXITKILL;
        ptrace::seize(process, options).map_err(failed)?;
        ptrace::interrupt(process).map_err(failed)?;
        Ok(Traced { process, threads: HashMap::new(), calls: 0, phases: Vec::new() })
    }

    /// Follows it to its end, which is left to others to wait for: the number of system calls in
    /// each phase, in order.
    ///
    /// # Errors
    /// If it is not done within `limit`, or `is_stopped`: it is killed.
    pub(crate) fn follow(
        mut self,
        limit: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Vec<u64>> {
        let done = self.until_end(limit, is_stopped);
        if done.is_err() {
            // Its threads have to be seen to end, or it would never be seen to end itself. It may
            // have ended at this moment.
            let _ = kill(self.process, Signal::SIGKILL);
            let _ = self.until_end(GRACE, &|| false);
        }
        done.map(|()| self.phases)
    }

    fn until_end(&mut self, limit: Duration, is_stopped: &dyn Fn() -> bool) -> Result<()> {
        let end = Instant::now() + limit;
        let peek = WaitPidFlag::WEXITED
            | WaitPidFlag::WSTOPPED
            | WaitPidFlag::WNOHANG
            | WaitPidFlag::WNOWAIT
            | WaitPidFlag::__WALL;
        let mut idle = 0;
        loop {
            let seen = waitid(Id::PGid(self.process), peek).map_err(failed)?;
            match (seen, seen.pid()) {
                (WaitStatus::Exited(..) | WaitStatus::Signaled(..), Some(thread))
                    if thread == self.process =>
                {
                    return Ok(());
                }
                (_, Some(thread)) => {
                    idle = 0;
                    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
                    let status = waitpid(thread, Some(flags)).map_err(failed)?;
                    self.stopped(status)?;
                }
                (_, None) if is_stopped() => return Err(Error::Stopped),
                (_, None) if Instant::now() > end => return Err(Error::Slow(limit)),
                (_, None) if idle < LOOKS => {
                    idle += 1;
                    std::thread::yield_now();
                }
                (_, None) => std::thread::sleep(NAP),
            }
        }
    }

    /// Counts, and lets the thread go on that has stopped.
    fn stopped(&mut self, status: WaitStatus) -> Result<()> {
        let (thread, signal) = match status {
            WaitStatus::PtraceSyscall(thread) => {
                self.entered_or_left(thread);
                (thread, None)
            }
            // Its stops for others: a new thread, or one that was to stop.
            WaitStatus::PtraceEvent(thread, ..) => (thread, None),
            WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
            _ => return Ok(()),
        };
        go_on(thread, signal)
    }

    fn entered_or_left(&mut self, thread: Pid) {
        let own = self.threads.entry(thread).or_default();
        own.is_inside = !own.is_inside;
        if !own.is_inside {
            return;
        }
        match marked(self.process, thread) {
            Some(Mark::Begin) => own.counts = true,
            Some(Mark::End) => own.counts = false,
            Some(Mark::Kept) => self.phases.push(std::mem::take(&mut self.calls)),
            None => self.calls += u64::from(own.counts),
        }
    }
}

fn go_on(thread: Pid, signal: Option<Signal>) -> Result<()> {
    match ptrace::syscall(thread, signal) {
        // It was killed.
        Err(Errno::ESRCH) => Ok(()),
        done => done.map_err(failed),
    }
}

/// Which mark `thread`, which has stopped, is making, if it is making one.
fn marked(process: Pid, thread: Pid) -> Option<Mark> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall")).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number: c_long = words.next()?.parse().ok()?;
    let first = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    let is_it = |(_, own): &&(Mark, i32)| u64::from(own.cast_unsigned()) == first;
    let found = MARKS.iter().find(is_it).map(|(mark, _)| *mark);
    found.filter(|_| number == SYS_getpgid)
}
