//! Handles of files, by which they are opened without a name.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::sys::{Outcome, call};

/// Most bytes of a handle: `MAX_HANDLE_SZ`.
const BYTES_MAX: usize = 128;

/// `struct file_handle`, with room for all bytes that there may be.
#[repr(C)]
#[derive(Clone, Copy)]
struct Raw {
    len: u32,
    kind: i32,
    bytes: [u8; BYTES_MAX],
}

/// A handle of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handle {
    /// Of which kind, as the file system says.
    pub kind: i32,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// The handle of a file.
///
/// # Errors
/// The error number.
pub fn handle(directory: i32, name: &CStr, flags: i32) -> Outcome<Handle> {
    let mut raw = Raw { len: BYTES_MAX as u32, kind: 0, bytes: [0; BYTES_MAX] };
    let mut mount = 0_i32;
    let (to, mount) = (&raw mut raw, &raw mut mount);
    call!(SYS_name_to_handle_at, directory, name.as_ptr(), to, mount, flags)?;
    let bytes = raw.bytes.get(..raw.len as usize).unwrap_or_default();
    Ok(Handle { kind: raw.kind, bytes: bytes.to_vec() })
}

/// Opens the file of a handle of up to 128 bytes, on the file system of `on`.
///
/// # Errors
/// The error number.
pub fn open_handle(on: &File, handle: &Handle, flags: i32) -> Outcome<File> {
    let mut raw = Raw { len: handle.bytes.len() as u32, kind: handle.kind, bytes: [0; BYTES_MAX] };
    raw.bytes[..handle.bytes.len()].copy_from_slice(&handle.bytes);
    let flags = flags | libc::O_CLOEXEC;
    let opened = call!(SYS_open_by_handle_at, on.as_raw_fd(), &raw const raw, flags)?;
    // SAFETY: the descriptor is new, and ours.
    Ok(unsafe { File::from_raw_fd(opened as i32) })
}
