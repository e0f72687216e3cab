//! Counting system calls: a traced child does the work between two calls that mark it.

use crate::os::child::{Child, End, signal_self};
use crate::os::system;

/// System calls that `prepare`'s result makes when called, in a child; none if the system lets
/// nobody trace.
pub(crate) fn system_calls<W: FnMut() -> Result<(), String>>(
    prepare: impl FnOnce() -> Result<W, String>,
) -> Result<Option<u64>, String> {
    let mut child = Child::fork(|| {
        let mut work = prepare()?;
        // SAFETY: no memory is passed.
        if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } != 0 {
            return Err("not traced".into());
        }
        // The tracer takes over from here.
        signal_self(libc::SIGSTOP);
        mark();
        work()?;
        mark();
        Ok(())
    })?;
    if child.wait()? != End::Stopped {
        return Ok(None);
    }
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    // SAFETY: our own child, which is stopped; no memory is passed.
    if unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, child.pid(), 0, options) } != 0 {
        return Err(system("trace a process"));
    }
    let (mut marks, mut calls) = (0, 0);
    loop {
        // SAFETY: our own child, which is stopped; no memory is passed.
        if unsafe { libc::ptrace(libc::PTRACE_SYSCALL, child.pid(), 0, 0) } != 0 {
            return Err(system("trace a process"));
        }
        match child.wait()? {
            End::Stopped => {}
            End::Exit(0) if marks == 2 => return Ok(Some(calls)),
            end => return Err(format!("a traced process ended: {end:?}, {marks} marks seen")),
        }
        match entered(&child)? {
            Some(libc::SYS_getppid) => marks += 1,
            Some(_) if marks == 1 => calls += 1,
            _ => {}
        }
    }
}

/// A call that nothing else makes.
fn mark() {
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// The number of the system call that the stopped child is entering, if it is.
fn entered(child: &Child) -> Result<Option<libc::c_long>, String> {
    // SAFETY: a structure of plain data, for which zeros are a valid value.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let len = size_of::<libc::ptrace_syscall_info>();
    let request = libc::PTRACE_GET_SYSCALL_INFO;
    // SAFETY: our own child, which is stopped; a local structure of this size.
    if unsafe { libc::ptrace(request, child.pid(), len, &raw mut info) } <= 0 {
        return Err(system("ask for a system call"));
    }
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return Ok(None);
    }
    // SAFETY: the child is entering a call, so this is the part that was filled.
    Ok(Some(unsafe { info.u.entry.nr } as libc::c_long))
}
