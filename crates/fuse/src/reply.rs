//! Replies: each request gets one, at once or later, from any thread.

use core::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use rustix::io::Errno;

use crate::channel::Channel;
use crate::wire::{
    AttributesReply, Block, Body, Created, Entry, FileLock, IoctlReply, Listing, Opened, Polled,
    Position, RangeCopied, StatFs, StatxReply, Written, XattrSize,
};

/// The reply that a request is still to get. It can be kept and sent to other threads. If it is
/// dropped, the answer is `EIO`: no caller is left waiting.
///
/// A reply that is kept has to be found when its caller is signalled; see
/// [`Handler::interrupt`](crate::Handler::interrupt).
#[must_use = "a reply that is dropped answers EIO"]
pub struct Reply {
    unique: u64,
    /// None if it has been sent, or the kernel takes none.
    channel: Option<Arc<Channel>>,
}

impl Reply {
    pub(crate) fn new(unique: u64, channel: &Arc<Channel>) -> Reply {
        Reply { unique, channel: Some(Arc::clone(channel)) }
    }

    /// One for a request that takes none: whatever it is told, nothing happens.
    pub(crate) fn mute(unique: u64) -> Reply {
        Reply { unique, channel: None }
    }

    /// The request's number.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Whether the caller was signalled before the handler knew of the reply. Who keeps a reply
    /// asks this after it was entered where [`Handler::interrupt`](crate::Handler::interrupt) looks
    /// for it, under the same lock.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        let channel = self.channel.as_ref();
        channel.is_some_and(|channel| channel.common.interrupts.has(self.unique))
    }

    fn send(mut self, error: i32, pieces: &[IoSlice<'_>]) {
        if let Some(channel) = self.channel.take() {
            channel.answer(self.unique, error, pieces);
        }
    }

    /// Answers that it failed.
    pub fn error(self, error: Errno) {
        self.send(error.raw_os_error(), &[]);
    }

    /// Answers that it is done.
    pub fn empty(self) {
        self.send(0, &[]);
    }

    /// Answers with bytes.
    pub fn data(self, bytes: &[u8]) {
        self.send(0, &[IoSlice::new(bytes)]);
    }

    /// Answers with bytes that lie in several places; of up to 63 pieces without memory from the
    /// heap.
    pub fn pieces(self, pieces: &[IoSlice<'_>]) {
        self.send(0, pieces);
    }

    /// Answers with a body of fixed size.
    pub fn body(self, body: &impl Body) {
        self.data(body.encode().as_ref());
    }

    /// Answers with what a name stands for, or that there is no such name.
    pub fn entry(self, entry: &Entry) {
        self.body(entry);
    }

    /// Answers with attributes.
    pub fn attributes(self, attributes: &AttributesReply) {
        self.body(attributes);
    }

    /// Answers with attributes as `statx` has them.
    pub fn statx(self, attributes: &StatxReply) {
        self.body(attributes);
    }

    /// Answers with an open file or directory.
    pub fn opened(self, opened: &Opened) {
        self.body(opened);
    }

    /// Answers with an open file and what its name stands for.
    pub fn created(self, created: &Created) {
        self.body(created);
    }

    /// Answers with the sizes of the file system.
    pub fn statfs(self, sizes: &StatFs) {
        self.body(sizes);
    }

    /// Answers with how many bytes were written or copied.
    pub fn written(self, size: u32) {
        self.body(&Written { size });
    }

    /// Answers with how many bytes were copied, however many.
    pub fn copied(self, bytes: u64) {
        self.body(&RangeCopied { bytes });
    }

    /// Answers with how many bytes an extended attribute or the list of them has.
    pub fn xattr_size(self, size: u32) {
        self.body(&XattrSize { size });
    }

    /// Answers with the lock that is in the way, or that there is none.
    pub fn lock(self, lock: &FileLock) {
        self.body(lock);
    }

    /// Answers with where a block is.
    pub fn block(self, block: u64) {
        self.body(&Block { block });
    }

    /// Answers with what a control has given, and bytes for its caller.
    pub fn ioctl(self, reply: &IoctlReply, bytes: &[u8]) {
        let body = reply.encode();
        self.send(0, &[IoSlice::new(body.as_ref()), IoSlice::new(bytes)]);
    }

    /// Answers with what an open file is ready for, bits as of `poll`.
    pub fn polled(self, events: u32) {
        self.body(&Polled { events });
    }

    /// Answers with where a seek has led.
    pub fn position(self, offset: u64) {
        self.body(&Position { offset });
    }

    /// Answers with entries of a directory.
    pub fn listing(self, listing: &Listing<'_>) {
        self.data(listing.bytes());
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take() {
            channel.answer(self.unique, Errno::IO.raw_os_error(), &[]);
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("unique", &self.unique).finish_non_exhaustive()
    }
}
