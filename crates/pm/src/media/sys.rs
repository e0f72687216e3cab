//! What the others share of system calls: results and the errors made of them.

use std::io;
use std::path::Path;

use libc::{c_int, c_void};

use crate::Error;

/// Lock pages as they are touched; not in every libc's headers.
pub(super) const MLOCK_ONFAULT: libc::c_uint = 1;

/// The result of a system call that returns -1 for failure.
pub(super) fn checked(result: c_int) -> io::Result<c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The address that `mmap` returned.
pub(super) fn mapped(address: *mut c_void) -> io::Result<*mut u8> {
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address.cast()) }
}

/// Makes the error of `action` on `path`.
pub(super) fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { path: path.to_owned(), action, source }
}
