//! Locks that live exactly as long as a process's memory.
//!
//! An open-file-description lock lasts as long as its description. A description whose only
//! holder is a mapping that children don't inherit lasts as long as the address space: through
//! `SIGSTOP` and the closing of every descriptor, not past `kill -9` or `exec`, and a forked child
//! has no part in it.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use super::descriptor::status;
use super::fork::{Quiet, Token};
use super::medium::Medium;
use super::sys::{checked, failed, mapped};
use crate::Result;

/// Bytes of the file, as locks know them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bytes {
    pub(super) start: u64,
    pub(super) len: u64,
}

/// A lock, held until dropped.
#[derive(Debug)]
pub struct Claim {
    address: usize,
    len: usize,
    /// That of the process which holds it.
    token: u64,
    process: Token,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A forked child has a copy of this value, but not the mapping: something else may be
        // there.
        if self.process.now() == self.token {
            // SAFETY: our own mapping, which nobody accesses: it has no permissions.
            unsafe {
                libc::munmap(core::ptr::with_exposed_provenance_mut(self.address), self.len);
            }
        }
    }
}

/// A lock that is held as long as any descriptor of its description is open, in whatever process.
///
/// The descriptor is closed by `exec` unless the program says otherwise.
#[derive(Debug)]
pub struct Carried(OwnedFd);

impl From<OwnedFd> for Carried {
    /// The lock whose descriptor has come from another process.
    fn from(descriptor: OwnedFd) -> Carried {
        Carried(descriptor)
    }
}

impl From<Carried> for OwnedFd {
    fn from(carried: Carried) -> OwnedFd {
        carried.0
    }
}

impl AsFd for Carried {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes the lock of `bytes` with a descriptor that can be passed on; none if somebody else has it.
pub(super) fn carry(medium: &Medium, bytes: Bytes) -> Result<Option<Carried>> {
    let file = medium.reopen()?;
    let taken = set(&file, bytes, libc::F_WRLCK).map_err(failed(medium.path(), "lock it"))?;
    Ok(taken.then(|| Carried(file.into())))
}

/// How often a claim that a fork came across is made again.
const TRIES: u32 = 1000;

/// Takes the lock of `bytes`; none if somebody else has it.
pub(super) fn claim(medium: &Medium, bytes: Bytes, process: Token) -> Result<Option<Claim>> {
    for _ in 0..TRIES {
        let quiet = Quiet::begin();
        let file = medium.reopen()?;
        let taken = set(&file, bytes, libc::F_WRLCK);
        if !taken.map_err(failed(medium.path(), "lock it"))? {
            return Ok(None);
        }
        let claim = keep(medium, &file, process);
        let is_ours = status(file.as_raw_fd()).is_ok_and(|found| found.id == medium.kept().id());
        if is_ours {
            match quiet.close(file) {
                Ok(()) => return claim.map(Some),
                // A child may have got a part in the description: unlock it for all who have.
                Err(file) => {
                    let _ = set(&file, bytes, libc::F_UNLCK);
                }
            }
        }
        claim?;
        std::thread::sleep(Duration::from_micros(100));
    }
    let busy = std::io::Error::from_raw_os_error(libc::EAGAIN);
    Err(failed(medium.path(), "lock it while the program forks all the time")(busy))
}

/// Lets the description of `file` live as long as a mapping that children don't inherit.
fn keep(medium: &Medium, file: &File, process: Token) -> Result<Claim> {
    let len = medium.kind().granularity() as usize;
    let action = "map the page that keeps its lock";
    // SAFETY: at an address of the kernel's choice, and without permissions: no memory in use is
    // touched, and nobody can see what other processes store there.
    let result = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            len,
            libc::PROT_NONE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            file.as_raw_fd(),
            0,
        )
    };
    let page = mapped(result).map_err(failed(medium.path(), action))?;
    let claim = Claim { address: page.expose_provenance(), len, token: process.current(), process };
    // SAFETY: the mapping just made; the advice holds for children, and changes nothing here.
    checked(unsafe { libc::madvise(page.cast(), len, libc::MADV_DONTFORK) })
        .map_err(failed(medium.path(), action))?;
    Ok(claim)
}

fn lock(bytes: Bytes, kind: libc::c_int) -> libc::flock {
    // SAFETY: a flock is plain data, for which zeros are a valid value; l_pid must be 0.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = i64::try_from(bytes.start).unwrap_or(i64::MAX);
    lock.l_len = i64::try_from(bytes.len).unwrap_or(i64::MAX);
    lock
}

/// Takes or gives up a lock of the description of `file`; false if somebody else has it.
fn set(file: &File, bytes: Bytes, kind: libc::c_int) -> std::io::Result<bool> {
    let lock = lock(bytes, kind);
    // SAFETY: the kernel only reads the structure, which is ours.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    match checked(result) {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(error),
        },
    }
}

fn is_locked(raw: RawFd, bytes: Bytes) -> std::io::Result<bool> {
    let mut lock = lock(bytes, libc::F_WRLCK);
    // SAFETY: the structure is ours.
    checked(unsafe { libc::fcntl(raw, libc::F_OFD_GETLK, &raw mut lock) })?;
    Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK)
}

/// Whether anybody, this process included, has a lock on any of `bytes`.
pub(super) fn is_claimed(medium: &Medium, bytes: Bytes) -> Result<bool> {
    let action = "ask who has it locked";
    let kept = medium.kept();
    // "Not locked" is believed only of the right file: the program may replace our descriptor at
    // any time, also between two calls, so it is looked at before and after.
    if kept.is_ours() {
        let found = is_locked(kept.raw(), bytes);
        if kept.is_ours() {
            return found.map_err(failed(medium.path(), action));
        }
    }
    let file = medium.reopen()?;
    let found = is_locked(file.as_raw_fd(), bytes);
    let still = status(file.as_raw_fd()).is_ok_and(|found| found.id == kept.id());
    match found {
        Ok(found) if still => Ok(found),
        Err(error) if still => Err(failed(medium.path(), action)(error)),
        _ => {
            let source = std::io::Error::from_raw_os_error(libc::EBADF);
            Err(failed(medium.path(), action)(source))
        }
    }
}
