//! Mounting, in a namespace that a test has made for itself.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::sys::{Outcome, call};

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Mounts a file system in memory, with options as `mount -o` takes them.
///
/// # Errors
/// The error number.
pub fn mount_memory(at: &Path, options: &CStr) -> Outcome {
    let (at, kind) = (c_string(at), c"tmpfs");
    call!(SYS_mount, kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, options.as_ptr()).map(drop)
}

/// Mounts `/proc`, as the process's namespace of processes has it.
///
/// # Errors
/// The error number.
pub fn mount_proc(at: &Path) -> Outcome {
    let (at, kind) = (c_string(at), c"proc");
    let none = core::ptr::null::<libc::c_char>();
    call!(SYS_mount, kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, none).map(drop)
}

/// Unmounts what is mounted on top of `at`; at once, if `is_lazy`, although somebody uses it.
///
/// # Errors
/// The error number.
pub fn unmount(at: &Path, is_lazy: bool) -> Outcome {
    let at = c_string(at);
    let flags = if is_lazy { libc::MNT_DETACH } else { 0 };
    call!(SYS_umount2, at.as_ptr(), flags | libc::UMOUNT_NOFOLLOW).map(drop)
}

/// Mounts `what` at `at` once more, with ids as the user namespace `ids` maps them.
///
/// # Errors
/// The error number.
pub fn mount_mapped(what: &Path, at: &Path, ids: &File) -> Outcome {
    const CLONE: u32 = 1 | libc::O_CLOEXEC as u32;
    let (what, at, here) = (c_string(what), c_string(at), libc::AT_FDCWD);
    let tree = call!(SYS_open_tree, here, what.as_ptr(), CLONE)? as i32;
    // SAFETY: the descriptor is new, and ours.
    let tree = unsafe { File::from_raw_fd(tree) };
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: ids.as_raw_fd() as u64,
    };
    let (empty, len) = (c"".as_ptr(), size_of::<libc::mount_attr>());
    let flags = libc::AT_EMPTY_PATH;
    call!(SYS_mount_setattr, tree.as_raw_fd(), empty, flags, &raw const attributes, len)?;
    let from_empty = libc::MOVE_MOUNT_F_EMPTY_PATH;
    call!(SYS_move_mount, tree.as_raw_fd(), empty, here, at.as_ptr(), from_empty).map(drop)
}
