//! A directory on both sides, while what is in it is being copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::tree::{Meta, Trail, Tree};

/// A directory of the source and the one of the target that becomes like it.
pub(super) struct Pair<S: Tree, T: Tree> {
    /// The directory that it is in, if that is being copied too.
    pub(super) above: Option<Arc<Pair<S, T>>>,
    /// None if there is no such directory: names of several places go into the target.
    pub(super) source: Option<(S::Node, Meta)>,
    pub(super) target: T::Node,
    /// Where they are.
    pub(super) from: Trail,
    pub(super) to: Trail,
    /// The permissions that the target was given only for the time of copying.
    pub(super) lent: u32,
    /// What has to be done in it before it is complete.
    pub(super) pending: AtomicUsize,
}

impl<S: Tree, T: Tree> Pair<S, T> {
    /// Something more has to be done.
    pub(super) fn begin(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Something was done; whether it was the last.
    pub(super) fn end(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
