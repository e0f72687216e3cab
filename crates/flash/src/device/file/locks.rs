//! Writers of a file, as locks of an open file description: a byte each, far behind every end.

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use crate::device::{WRITERS, invalid};

/// The byte of the first writer.
const BASE: i64 = 1 << 62;

fn lock(start: i64, len: i64) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

fn byte(writer: u64) -> io::Result<libc::flock> {
    let place = i64::try_from(writer).ok().filter(|_| writer < WRITERS);
    Ok(lock(BASE + place.ok_or_else(invalid)?, 1))
}

/// Takes the lock of `writer`; false if another description has it.
pub(super) fn take(file: &File, writer: u64) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&byte(writer)?)) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Frees the lock of `writer`, if this description has it.
pub(super) fn free(file: &File, writer: u64) -> io::Result<()> {
    let lock = libc::flock { l_type: libc::F_UNLCK as i16, ..byte(writer)? };
    Ok(fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map(drop)?)
}

/// Whether another description has a lock within that of `found`.
fn is_held(file: &File, mut found: libc::flock) -> io::Result<bool> {
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}

/// Whether another description has the lock of `writer`.
pub(super) fn is_taken(file: &File, writer: u64) -> io::Result<bool> {
    is_held(file, byte(writer)?)
}

/// Whether another description has the lock of any writer.
pub(super) fn is_any_taken(file: &File) -> io::Result<bool> {
    // Of no length: up to the last byte that there can be.
    is_held(file, lock(BASE, 0))
}
