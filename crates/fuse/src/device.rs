//! The device `/dev/fuse`: requests come from it, replies and notices go to it.
//!
//! An open device belongs to a connection once it was given to a mount. A reply has to go to the
//! descriptor that its request came from; a notice may go to any of the connection.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{self, Error, Result};
use crate::sys;

/// Where the device is.
pub(crate) const PATH: &str = "/dev/fuse";

/// An open device, or what tests put in its place.
#[derive(Debug)]
pub struct Device(OwnedFd);

impl From<OwnedFd> for Device {
    /// A device that was opened elsewhere, such as by `fusermount3` or an earlier process.
    fn from(descriptor: OwnedFd) -> Device {
        Device(descriptor)
    }
}

impl From<Device> for OwnedFd {
    fn from(device: Device) -> OwnedFd {
        device.0
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Device {
    /// Opens the device; it belongs to no connection yet.
    ///
    /// # Errors
    /// If there is none, or it may not be opened.
    pub fn open() -> Result<Device> {
        Device::open_raw().map_err(not_opened)
    }

    pub(crate) fn open_raw() -> Result<Device, Errno> {
        rustix::fs::open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map(Device)
    }

    /// One more descriptor of the same connection, with a queue of its own in the kernel.
    ///
    /// # Errors
    /// What the system says: users may not open the device everywhere, and what is no device
    /// can't do it.
    pub(crate) fn join(&self) -> Result<Device, Errno> {
        let new = Device::open_raw()?;
        sys::join_connection(new.as_fd(), self.as_fd())?;
        Ok(new)
    }

    /// Waits for a request and copies it to `buffer`: how many bytes it has; none if the connection
    /// has ended. (What takes the place of the device in tests ends as sockets do.)
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Ok(len) => return Ok(Some(len)),
                // Not found is a request that ended while it was being copied.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::AGAIN) => self.wait()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until there is something to read, for as long as nobody asks for anything: that the
    /// connection has ended can be read, too.
    fn wait(&self) -> Result<(), Errno> {
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends one message, which is whole in one call.
    pub(crate) fn send(&self, message: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.0, message)).map(drop)
    }
}

/// That the device can't be opened.
pub(crate) fn not_opened(source: Errno) -> Error {
    error::system(PATH, "open", source, remedy(source))
}

fn remedy(error: Errno) -> Option<&'static str> {
    match error {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => {
            Some("the kernel has no FUSE at hand: load it by `modprobe fuse`")
        }
        Errno::ACCESS | Errno::PERM => Some("be root, or let fusermount3 mount"),
        _ => None,
    }
}
