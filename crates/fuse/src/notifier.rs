//! Notices to the kernel.

use core::fmt;
use std::sync::Arc;

use crate::channel::Channel;
use crate::wire::Notice;

/// Tells the kernel what it has not asked for, from a thread of the caller's choice.
///
/// *Never from a thread that serves a request*, nor while holding a lock that a request may need:
/// to drop what it caches, the kernel takes locks of the inode, which it also holds while it waits
/// for answers about that inode. A thread that does nothing else is right.
#[derive(Clone)]
pub struct Notifier(Arc<Channel>);

impl Notifier {
    pub(crate) fn new(channel: &Arc<Channel>) -> Notifier {
        Notifier(Arc::clone(channel))
    }

    /// Sends one notice. That the kernel does not know the inode or the name is success: then it
    /// caches nothing of it.
    ///
    /// # Errors
    /// The kernel's reason: `ENOSYS` or `EINVAL` if it does not know such notices; for a deleted
    /// name also `ENOTEMPTY` and `EBUSY`.
    pub fn send(&self, notice: &Notice<'_>) -> std::io::Result<()> {
        self.0.notify(notice).map_err(std::io::Error::from)
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}
