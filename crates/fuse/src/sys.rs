//! The system calls that rustix has no safe function for. The only file of the crate with `unsafe`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`: the open device `new` joins the connection of another one.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// Makes `new`, a fresh descriptor of the device, one more of `old`'s connection.
pub(crate) fn join_connection(new: BorrowedFd<'_>, old: BorrowedFd<'_>) -> Result<(), Errno> {
    let old = old.as_raw_fd().cast_unsigned();
    // SAFETY: of devices that know this number, FUSE's reads one `u32` from the pointer, which is a
    // value of ours; any other one refuses the number.
    unsafe { ioctl(new.as_fd(), Setter::<CLONE, u32>::new(old)) }
}
