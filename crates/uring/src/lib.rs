//! io_uring(7), with memory that the kernel can't be made to misuse.
//!
//! The kernel uses the paths and buffers of a request until it has completed, which may be long
//! after it was handed in. There are these ways to that here, and this crate is all that has to be
//! believed:
//! - [`Ring::run`] returns only when everything that it handed in has completed: so the memory may
//!   be the caller's;
//! - so does [`Queue::read_to`];
//! - otherwise a [`Queue`] goes on while requests are under way: so the memory is its own until
//!   they have completed.

mod buffer;
mod lent;
mod queue;
mod ring;

pub use buffer::Buffer;
pub use lent::Read;
pub use queue::{Completion, DEPTH_MAX, Job, Queue, Request};
pub use ring::{CALLS_MAX, Call, Next, Ring, Stat, Submitted};

/// The error of this number.
fn error(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

/// Whether waiting once more helps.
fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// Does `call` again as long as signals interrupt it.
fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
