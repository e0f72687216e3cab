//! What a file system has to be able to do.

use std::sync::Arc;

use crate::reply::Reply;
use crate::wire::{Offer, Request, Settings};

/// A file system as a session sees it. All functions are called by any of the session's threads,
/// several at once.
///
/// # Panics
///
/// If a function panics, the session reports it and goes on; a reply that the function had is
/// answered by `EIO`.
pub trait Handler: Send + Sync {
    /// Chooses from what the kernel offers. Called once, before anything else.
    fn init(&self, offer: &Offer) -> Settings;

    /// Answers `request`, by `reply`, at once or later, from any thread. Requests that take no
    /// answer come with a reply that does nothing.
    ///
    /// Who keeps `reply` enters it where [`interrupt`](Handler::interrupt) finds it, then asks
    /// [`Reply::was_interrupted`], both under the lock that `interrupt` takes; if so, he answers by
    /// `EINTR`.
    fn handle(&self, request: &Request<'_>, reply: Reply);

    /// The caller of request `unique`, whose reply was kept, has been signalled. Whether it was
    /// known: then it is to be answered soon, by `EINTR` as a rule.
    fn interrupt(&self, unique: u64) -> bool;

    /// Nothing more will come. Replies that are still kept are of no use to anybody.
    fn destroy(&self);
}

impl<H: Handler + ?Sized> Handler for Arc<H> {
    fn init(&self, offer: &Offer) -> Settings {
        (**self).init(offer)
    }

    fn handle(&self, request: &Request<'_>, reply: Reply) {
        (**self).handle(request, reply);
    }

    fn interrupt(&self, unique: u64) -> bool {
        (**self).interrupt(unique)
    }

    fn destroy(&self) {
        (**self).destroy();
    }
}
